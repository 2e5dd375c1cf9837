// Weights in files, the command `gemm` and its benchmark.
#include <doctest/doctest.h>

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "fp4pa/fp4pa.h"
#include "tests/tool/run_tool.hpp"
#include "tests/tool/scratch.hpp"
#include "weights/host_weight.hpp"

using namespace fp4pa;
using namespace fp4pa::weights;

namespace {

HostWeight some_weight(BlockFormat format, ScaleLayout layout, std::int64_t batch) {
  HostWeight w;
  w.shape.format = format;
  w.shape.scale_layout = layout;
  w.shape.rows = 33;
  w.shape.cols = 50;
  w.shape.batch = batch;
  w.codes.resize(fp4_weight_code_bytes(format, 33, 50, batch));
  w.scales.resize(fp4_weight_scale_bytes(format, layout, 33, 50, batch));
  for (std::size_t i = 0; i < w.codes.size(); ++i) w.codes[i] = static_cast<std::byte>(i * 37 + 1);
  for (std::size_t i = 0; i < w.scales.size(); ++i) w.scales[i] = static_cast<std::byte>(i * 11 % 120);
  if (format == BlockFormat::kNvfp4) {
    for (std::int64_t b = 0; b < batch; ++b) w.global_scales.push_back(0.5f + static_cast<float>(b));
  }
  return w;
}

std::string refusal(const std::string& path, const std::string& name) {
  try {
    const safetensors::File file(path);
    (void)load_weight(file, name);
  } catch (const safetensors::Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("weight file: what was quantised and saved comes back, from C++ and from C") {
  const test::Scratch scratch;
  const std::string path = scratch.file("w.safetensors");
  constexpr std::int64_t kRows = 33, kCols = 50, kBatch = 2;
  std::vector<float> w(kRows * kCols * kBatch);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 16.0f;
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
    CAPTURE(static_cast<int>(format));
    const bool nvfp4 = format == BlockFormat::kNvfp4;
    QuantizeConfig config;
    config.format = format;
    config.scale_layout = ScaleLayout::kBlocked;
    const std::size_t code_bytes = fp4_weight_code_bytes(format, kRows, kCols, kBatch);
    const std::size_t scale_bytes = fp4_weight_scale_bytes(format, ScaleLayout::kBlocked, kRows, kCols, kBatch);
    std::vector<std::byte> codes(code_bytes), scales(scale_bytes), codes2(code_bytes), scales2(scale_bytes);
    float globals[kBatch] = {}, globals2[kBatch] = {};
    Fp4Weight weight;
    REQUIRE(fp4_quantize_weight(config, w.data(), DType::kF32, kRows, kCols, kBatch, codes.data(), scales.data(), nvfp4 ? globals : nullptr,
                                &weight) == Status::kOk);
    REQUIRE(fp4_save_weight(path.c_str(), "layer.0", weight) == Status::kOk);

    Fp4Weight found;
    REQUIRE(fp4_find_weight(path.c_str(), "layer.0", &found) == Status::kOk);
    CHECK(found.format == format);
    CHECK(found.scale_layout == ScaleLayout::kBlocked);
    CHECK(found.rows == kRows);
    CHECK(found.cols == kCols);
    CHECK(found.batch == kBatch);
    CHECK(found.codes == nullptr);
    Fp4Weight loaded;
    REQUIRE(fp4_load_weight(path.c_str(), "layer.0", codes2.data(), scales2.data(), nvfp4 ? globals2 : nullptr, &loaded) == Status::kOk);
    CHECK(codes2 == codes);
    CHECK(scales2 == scales);
    CHECK(std::memcmp(globals, globals2, sizeof globals) == 0);
    CHECK(loaded.codes == codes2.data());
    CHECK(loaded.global_scale_ptr == (nvfp4 ? globals2 : nullptr));

    const std::string again = scratch.file("again.safetensors");
    // What was found is what is loaded, or nothing is.
    Fp4Weight another = found;
    another.rows += 1;
    std::fill(codes2.begin(), codes2.end(), std::byte{0});
    CHECK(fp4_load_weight(path.c_str(), "layer.0", codes2.data(), scales2.data(), globals2, &another) == Status::kFileError);
    INFO(std::string(last_error_detail()));
    CHECK(std::strstr(last_error_detail(), "allowed: as *weight has it") != nullptr);
    CHECK(codes2 == std::vector<std::byte>(codes2.size()));
    fp4pa_fp4_weight other;
    fp4pa_fp4_weight_init(&other);
    REQUIRE(fp4pa_fp4_find_weight(path.c_str(), "layer.0", &other) == FP4PA_OK);
    other.cols += 32;
    CHECK(fp4pa_fp4_load_weight(path.c_str(), "layer.0", codes2.data(), scales2.data(), globals2, &other) == FP4PA_FILE_ERROR);

    fp4pa_fp4_weight c;
    fp4pa_fp4_weight_init(&c);
    std::fill(codes2.begin(), codes2.end(), std::byte{0});
    REQUIRE(fp4pa_fp4_find_weight(path.c_str(), "layer.0", &c) == FP4PA_OK);
    CHECK(c.rows == kRows);
    REQUIRE(fp4pa_fp4_load_weight(path.c_str(), "layer.0", codes2.data(), scales2.data(), globals2, &c) == FP4PA_OK);
    CHECK(codes2 == codes);
    REQUIRE(fp4pa_fp4_save_weight(again.c_str(), "layer.0", &c) == FP4PA_OK);
    std::ifstream first(path, std::ios::binary), second(again, std::ios::binary);
    CHECK(std::string(std::istreambuf_iterator<char>(first), {}) == std::string(std::istreambuf_iterator<char>(second), {}));
  }
}

TEST_CASE("weight file: what the calls refuse, and a multiplier that is no array") {
  const test::Scratch scratch;
  const std::string path = scratch.file("w.safetensors");
  Fp4Weight weight;
  const auto refused = [](Status status, Status expected, const char* words) {
    CHECK(status == expected);
    INFO(std::string(last_error_detail()));
    CHECK(std::strstr(last_error_detail(), words) != nullptr);
  };
  refused(fp4_find_weight(nullptr, "w", &weight), Status::kNullPointer, "path is null");
  refused(fp4_find_weight(path.c_str(), "w", &weight), Status::kFileError, path.c_str());
  const HostWeight w = some_weight(BlockFormat::kNvfp4, ScaleLayout::kLinear, 1);
  REQUIRE(fp4_save_weight(path.c_str(), "w", w.view()) == Status::kOk);
  refused(fp4_find_weight(path.c_str(), "v", &weight), Status::kFileError, "no FP4 weight 'v'");
  std::vector<std::byte> codes(w.codes.size() + 16), scales(w.scales.size());
  refused(fp4_load_weight(path.c_str(), "w", codes.data() + 1, scales.data(), nullptr, &weight), Status::kMisalignedPointer, "codes");
  refused(fp4_load_weight(path.c_str(), "w", codes.data(), scales.data(), nullptr, &weight), Status::kNullPointer, "global_scales");
  // One multiplier for all is written once for each.
  Fp4Weight single = w.view();
  single.global_scale_ptr = nullptr;
  single.global_scale = 0.375f;
  float global = 0.0f;
  REQUIRE(fp4_save_weight(path.c_str(), "w", single) == Status::kOk);
  REQUIRE(fp4_load_weight(path.c_str(), "w", codes.data(), scales.data(), &global, &weight) == Status::kOk);
  CHECK(global == 0.375f);
  Fp4Weight bad = w.view();
  bad.rows = 0;
  refused(fp4_save_weight(path.c_str(), "w", bad), Status::kInvalidSize, "rows is 0");
  refused(fp4_save_weight(scratch.file("no/such/folder").c_str(), "w", w.view()), Status::kFileError, "cannot write");
  refused(fp4_save_weight(path.c_str(), "caf\xe9", w.view()), Status::kFileError, path.c_str());
  // A multiplier that reading would refuse is not written, and what is there stays.
  for (const float wrong : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    bad = w.view();
    bad.global_scale_ptr = &wrong;
    refused(fp4_save_weight(path.c_str(), "w", bad), Status::kInvalidGlobalScale, "weight.global_scale_ptr[0]");
  }
  REQUIRE(fp4_load_weight(path.c_str(), "w", codes.data(), scales.data(), &global, &weight) == Status::kOk);
  CHECK(global == 0.375f);
}

TEST_CASE("weight file: whoever may not read a file may not read what replaces it") {
  namespace fs = std::filesystem;
  const test::Scratch scratch;
  const std::string path = scratch.file("w.safetensors");
  const HostWeight w = some_weight(BlockFormat::kMxfp4, ScaleLayout::kLinear, 1);
  save_weight(path, "w", w.view());
  for (const fs::perms mode : {fs::perms::owner_read | fs::perms::owner_write, fs::perms::owner_all | fs::perms::group_read}) {
    fs::permissions(path, mode);
    save_weight(path, "w", w.view());
    CHECK(fs::status(path).permissions() == mode);
  }
}

TEST_CASE("weight file: a round trip keeps every byte") {
  const test::Scratch scratch;
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
    for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
      const HostWeight w = some_weight(format, layout, 2);
      const std::string path = scratch.file("w.safetensors");
      save_weight(path, "layer.0", w.view());
      const safetensors::File file(path);
      const HostWeight back = load_weight(file, "layer.0");
      CHECK(back.codes == w.codes);
      CHECK(back.scales == w.scales);
      CHECK(back.global_scales == w.global_scales);
      CHECK(back.shape.format == format);
      CHECK(back.shape.scale_layout == layout);
      CHECK(back.shape.rows == 33);
      CHECK(back.shape.cols == 50);
      CHECK(back.shape.batch == 2);
      CHECK(reinterpret_cast<std::uintptr_t>(back.view().codes) % 16 == 0);
    }
  }
}

TEST_CASE("weight file: gpt-oss's and ModelOpt's forms are taken as they are") {
  const test::Scratch scratch;
  const std::string path = scratch.file("w.safetensors");
  std::vector<std::byte> blocks(3 * 8 * 2 * 16), scales(3 * 8 * 2), codes(8 * 24), e4m3(8 * 3);
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(i);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(5 * i);
  const float scale_2 = 0.25f;
  const auto scale_2_bytes = std::as_bytes(std::span(&scale_2, 1));
  safetensors::write(path,
                     {{"mlp.up_blocks", "U8", {3, 8, 2, 16}, blocks},
                      {"mlp.up_scales", "U8", {3, 8, 2}, scales},
                      {"q.weight", "U8", {8, 24}, codes},
                      {"q.weight_scale", "F8_E4M3", {8, 3}, e4m3},
                      {"q.weight_scale_2", "F32", {}, scale_2_bytes}},
                     {});
  const safetensors::File file(path);
  const HostWeight up = load_weight(file, "mlp.up");
  CHECK(up.shape.format == BlockFormat::kMxfp4);
  CHECK(up.shape.batch == 3);
  CHECK(up.shape.rows == 8);
  CHECK(up.shape.cols == 64);
  CHECK(up.codes == blocks);
  const HostWeight q = load_weight(file, "q");
  CHECK(q.shape.format == BlockFormat::kNvfp4);
  CHECK(q.shape.rows == 8);
  CHECK(q.shape.cols == 48);
  CHECK(q.codes == codes);
  CHECK(q.global_scales == std::vector<float>{0.25f});
}

TEST_CASE("weight file: a tensor of a dtype that is not known matters only where it is the weight's") {
  const test::Scratch scratch;
  const std::string path = scratch.file("w.safetensors");
  const std::vector<std::byte> bytes(64);
  safetensors::write(path,
                     {{"norm", "F16", {3}, std::span(bytes).first(6)},
                      {"up_blocks", "U8", {1, 4, 1, 16}, bytes},
                      {"up_scales", "U8", {1, 4, 1}, std::span(bytes).first(4)},
                      {"down_blocks", "I8", {1, 4, 1, 16}, bytes},
                      {"down_scales", "U8", {1, 4, 1}, std::span(bytes).first(4)},
                      {"q.weight", "U8", {8, 8}, bytes},
                      {"q.weight_scale", "U8", {8, 1}, std::span(bytes).first(8)},
                      {"q.weight_scale_2", "BF16", {2}, std::span(bytes).first(4)}},
                     {});
  std::string text = test::read_text(path);
  for (const auto& [known, unknown] : {std::pair("\"F16\"", "\"C64\""), {"\"I8\"", "\"F4\""}, {"\"BF16\"", "\"UE80\""}}) {
    text.replace(text.find(known), std::strlen(known), unknown);
  }
  std::ofstream(path, std::ios::binary) << text;
  Fp4Weight weight;
  INFO(std::string(last_error_detail()));
  CHECK(fp4_find_weight(path.c_str(), "up", &weight) == Status::kOk);
  CHECK(weight.rows == 4);
  CHECK(refusal(path, "down").find("tensor 'down_blocks' is F4 [1,4,1,16]; allowed: U8 [1,4,1,16]") != std::string::npos);
  CHECK(refusal(path, "q").find("tensor 'q.weight_scale_2': unknown dtype 'UE80'; known are BOOL, U8") != std::string::npos);
}

TEST_CASE("weight file: what is wrong is named") {
  const test::Scratch scratch;
  const std::string path = scratch.file("w.safetensors");
  std::vector<std::byte> bytes(64);
  const float subnormal = 1e-40f;
  const auto subnormal_bytes = std::as_bytes(std::span(&subnormal, 1));
  safetensors::write(path,
                     {{"a_blocks", "U8", {1, 4, 16}, bytes},
                      {"a_scales", "U8", {4, 1}, std::span(bytes).first(4)},
                      {"b_blocks", "U8", {4, 16}, bytes},
                      {"b_scales", "U8", {4}, std::span(bytes).first(4)},
                      {"c_blocks", "U8", {1, 4, 16}, bytes},
                      {"d.weight", "U8", {8, 8}, bytes},
                      {"d.weight_scale", "U8", {8, 1}, std::span(bytes).first(8)},
                      {"d.weight_scale_2", "F32", {1}, subnormal_bytes},
                      {"e.codes", "U8", {64}, bytes}},
                     {{"fp4pa.weight.e", R"({"format":"mxfp5","scale_layout":"linear","rows":1,"cols":1,"batch":1})"},
                      {"fp4pa.weight.f", R"({"format":"mxfp4","scale_layout":"linear","rows":-1,"cols":1,"batch":1})"},
                      {"fp4pa.weight.g", "no json"},
                      {"fp4pa.weight.i", std::string("{}\0x", 4)}});
  CHECK(refusal(path, "a").find("tensor 'a_scales' is U8 [4,1]; allowed: U8 [1,4]") != std::string::npos);
  CHECK(refusal(path, "b").find("allowed: U8 [(experts,) rows, groups, 16]") != std::string::npos);
  CHECK(refusal(path, "c").find("no tensor 'c_scales'") != std::string::npos);
  CHECK(refusal(path, "d").find("tensor 'd.weight_scale_2' has 9.99995e-41; allowed: 2^-126 to 2^126") != std::string::npos);
  CHECK(refusal(path, "e").find("format 'mxfp5'; allowed: mxfp4, nvfp4") != std::string::npos);
  CHECK(refusal(path, "f").find("has rows '-1'; allowed: an integer of 1 to 2^63 - 1") != std::string::npos);
  CHECK(refusal(path, "g").find("is no JSON object") != std::string::npos);
  CHECK(refusal(path, "i").find("is no JSON object") != std::string::npos);
  CHECK(refusal(path, "h").find("no FP4 weight 'h'") != std::string::npos);
}

TEST_CASE("weight file: one weight more than the library takes is refused before anybody has no memory for it") {
  const test::Scratch scratch;
  const std::string path = scratch.file("w.safetensors");
  const std::vector<std::byte> bytes(65536 * 16);
  for (const std::int64_t batch : {65535, 65536}) {
    const auto count = static_cast<std::size_t>(batch);
    safetensors::write(path,
                       {{"w_blocks", "U8", {batch, 1, 1, 16}, std::span(bytes).first(16 * count)},
                        {"w_scales", "U8", {batch, 1, 1}, std::span(bytes).first(count)}},
                       {});
    Fp4Weight weight;
    const Status status = fp4_find_weight(path.c_str(), "w", &weight);
    INFO(std::string(last_error_detail()));
    CHECK(status == (batch == 65535 ? Status::kOk : Status::kFileError));
    if (batch == 65536) CHECK(std::strstr(last_error_detail(), "has batch 65536") != nullptr);
  }
}

TEST_CASE("weight file: names in messages cannot forge lines, and a pipe is not waited for") {
  const test::Scratch scratch;
  const std::string path = scratch.file("w.safetensors");
  const std::vector<std::byte> bytes(4);
  safetensors::write(path, {{"a\nfp4pa info: all is well", "U8", {4}, bytes}}, {});
  Fp4Weight weight;
  CHECK(fp4_find_weight(path.c_str(), "w", &weight) == Status::kFileError);
  CHECK(std::strstr(last_error_detail(), "a?fp4pa info") != nullptr);
  const std::string pipe = scratch.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(fp4_find_weight(pipe.c_str(), "w", &weight) == Status::kFileError);
  CHECK(std::strstr(last_error_detail(), "not a regular file") != nullptr);
}

TEST_CASE("cli: gemm says how close it came, saves and loads") {
  const test::Scratch scratch;
  const std::string path = scratch.file("w.safetensors");
  const test::ToolRun made = test::run_tool("gemm --m 8 --n 96 --k 200 --format nvfp4 --json --save " + path);
  REQUIRE(made.exit_code == 0);
  const auto facts = nlohmann::json::parse(made.out);
  CHECK(facts["correlation"].get<double>() > 0.99);
  CHECK(facts["weight_bytes"].get<int>() == 96 * (13 * 8 + 13) + 4);
  const test::ToolRun loaded = test::run_tool("gemm --m 8 --backend cpu-scalar --json --file " + path);
  REQUIRE(loaded.exit_code == 0);
  CHECK(nlohmann::json::parse(loaded.out)["backend"] == "cpu-scalar");
  CHECK(nlohmann::json::parse(loaded.out)["relative_error"].get<double>() < 1e-5);
  CHECK(test::run_tool("gemm --format mxfp8").err.find("unknown format 'mxfp8'; allowed: mxfp4, nvfp4") != std::string::npos);
  CHECK(test::run_tool("gemm --m 0").exit_code == 2);
  const test::ToolRun refused = test::run_tool("gemm --activations a8 --save " + scratch.file("none"));
  CHECK(refused.err.find("unknown activations 'a8'; allowed: a16, a4") != std::string::npos);
  CHECK(!std::ifstream(scratch.file("none")));  // names are read before anything is written
  CHECK(test::run_tool("gemm --file " + path + " --weight other").exit_code == 3);
  CHECK(test::run_tool("bench gemm --shape 3x64x64 --format mxfp4 --repeats 1 --warmup 0 --warm-caches --json -").exit_code == 0);
  const test::ToolRun dtypes = test::run_tool(
      "bench gemm --shape 3x64x64 --format mxfp4 --activations a4 --dtype bf16,f16,f32 --repeats 1 --warmup 0 --warm-caches --json -");
  REQUIRE(dtypes.exit_code == 0);
  const auto results = nlohmann::json::parse(dtypes.out).at("results");
  REQUIRE(results.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(results[i]["config"]["dtype"] == std::vector<std::string>{"bf16", "f16", "f32"}[i]);
    CHECK(results[i]["bytes"] == 64 * 34 + (3 * 64 + 3 * 64) * (i == 2 ? 4 : 2));  // codes and scales, x and the result
  }
  CHECK(test::run_tool("bench gemm --shape 3x64x64 --dtype f8").err.find("unknown dtype 'f8'; allowed: f32, f16, bf16") != std::string::npos);
  CHECK(test::run_tool("bench gemm --shape 3x64").err.find("'3x64' is not MxNxK") != std::string::npos);
}
