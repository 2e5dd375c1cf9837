// `fp4pa attend` and `fp4pa quantize` end to end on a small generated file.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "reference/attention.hpp"
#include "reference/element.hpp"
#include "reference/metrics.hpp"
#include "tests/tool/check_fails.hpp"
#include "tests/tool/run_tool.hpp"
#include "tests/tool/sample.hpp"

namespace {

namespace st = fp4pa::safetensors;
using test::run_tool;

std::vector<float> floats(const st::TensorView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.elements()));
  std::memcpy(values.data(), view.data.data(), view.data.size());
  return values;
}

/// Error of a written O against attention computed here from the sample itself, without the library.
double error_of(const test::Sample& s, const std::vector<float>& o, bool causal) {
  fp4pa::reference::Difference difference;
  const auto head_dim = static_cast<std::size_t>(s.head_dim);
  std::vector<double> out(head_dim);
  for (std::int64_t query = 0; query < s.queries; ++query) {
    for (std::int64_t head = 0; head < s.q_heads; ++head) {
      std::vector<double> q(head_dim);
      for (std::size_t d = 0; d < head_dim; ++d)
        q[d] = s.q[static_cast<std::size_t>(head * s.queries + query) * head_dim + d];
      fp4pa::reference::QueryRow row;
      row.q = q;
      row.sm_scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
      row.num_keys = s.tokens;
      row.num_queries = s.queries;
      row.query_index = query;
      row.causal = causal;
      const std::int64_t kv_head = head / (s.q_heads / s.kv_heads);
      const auto at = [&](const std::vector<float>& x) {
        return [&, kv_head](std::int64_t t) {
          return x.data() + static_cast<std::size_t>(kv_head * s.tokens + t) * head_dim;
        };
      };
      (void)fp4pa::reference::attend_row(row, at(s.k), at(s.v), out);
      for (std::size_t d = 0; d < head_dim; ++d) {
        difference.add(o[static_cast<std::size_t>(query * s.q_heads + head) * head_dim + d], out[d]);
      }
    }
  }
  return difference.relative();
}

}  // namespace

TEST_CASE("attend: a 16-bit cache gives the attention of the file, written and reported") {
  const test::Scratch scratch;
  const test::Sample sample = test::make_sample();
  const std::string file = scratch.file("s"), out = scratch.file("o");
  test::write_sample(file, sample);
  for (const bool causal : {true, false}) {
    const test::ToolRun run =
        run_tool("attend " + file + " --format f16 --page-size 16 --shuffle-pages --repeats 1 --json --out " + out +
                 (causal ? "" : " --no-causal"));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const auto report = nlohmann::json::parse(run.out);
    const auto& variant = report.at("variants").at(0);
    const st::File written(out);
    CHECK(written.at("o").shape == std::vector<std::int64_t>{3, 4, 64});
    CHECK(written.at("lse").shape == std::vector<std::int64_t>{3, 4});
    const double error = error_of(sample, floats(written.at("o")), causal);
    CHECK(error < 1e-3);  // f16's rounding of K and V
    CHECK(error > 1e-6);  // and not the f32 input itself
    CHECK(error_of(sample, floats(written.at("o")), !causal) > 1e-3);
    CHECK(variant.at("error_against_input").at("relative").get<double>() == doctest::Approx(error).epsilon(0.01));
    CHECK(variant.at("error_against_cache").at("relative").get<double>() < 1e-5);
    CHECK(variant.at("within_contract") == true);
    CHECK(variant.at("bytes_per_token") == 2 * 2 * 64 * 2);
    CHECK(variant.at("ratio_to_bf16") == 1.0);
  }
}

TEST_CASE("attend: the file says whether it is causal, in Python's spelling too") {
  const test::Scratch scratch;
  const test::Sample sample = test::make_sample();
  for (const char* causal : {"true", "True", "false", "False"}) {
    INFO(causal);
    test::write_sample(scratch.file("s"), sample, {{"causal", causal}});
    REQUIRE(run_tool("attend " + scratch.file("s") + " --format f16 --repeats 1 --out " + scratch.file("o")).exit_code == 0);
    CHECK(error_of(sample, floats(st::File(scratch.file("o")).at("o")), causal[1] == 'r') < 1e-3);
  }
}

TEST_CASE("attend: the suite runs every format, and coarser ones err more") {
  const test::Scratch scratch;
  test::write_sample(scratch.file("s"), test::make_sample(128), {{"softmax_scale", "0.2"}, {"causal", "true"}});
  const test::ToolRun run =
      run_tool("attend " + scratch.file("s") + " --json --repeats 1 --batch 2 --page-size 32 --shuffle-pages");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  std::map<std::string, double> error;
  const auto report = nlohmann::json::parse(run.out);
  for (const auto& variant : report.at("variants")) {
    error[variant.at("label")] = variant.at("error_against_input").at("relative");
    CHECK(variant.at("within_contract") == true);
  }
  CHECK(error.size() == 25);
  CHECK(error.at("f16") < error.at("bf16"));
  CHECK(error.at("bf16") < error.at("fp8_e4m3"));
  CHECK(error.at("fp8_e4m3") < error.at("nvfp4"));
  CHECK(error.at("nvfp4") < error.at("mxfp4 even"));
  CHECK(error.at("mxfp4 even, window 64") < error.at("mxfp4 even"));
}

TEST_CASE("attend: the call's options reach the library") {
  const test::Scratch scratch;
  const std::string file = scratch.file("s");
  test::write_sample(file, test::make_sample());
  const auto error = [&](const std::string& options) {
    const test::ToolRun run = run_tool("attend " + file + " --format f16 --json --repeats 1 --page-size 16 --out " +
                                       scratch.file("o") + " " + options);
    INFO(options << run.err);
    REQUIRE(run.exit_code == 0);
    return error_of(test::make_sample(), floats(st::File(scratch.file("o")).at("o")), true);
  };
  const double plain = error("");
  CHECK(plain < 1e-3);
  // What changes how the cache lies or how the work is cut does not change the result ...
  for (const char* options : {"--page-order nhd", "--page-order interleaved", "--splits 64", "--threads 1",
                              "--backend cpu-scalar", "--shuffle-pages --seed 9", "--batch 3", "--rotation 64"}) {
    INFO(options);
    CHECK(error(options) < 1e-3);
  }
  // ... and what changes the question does.
  for (const char* options : {"--sliding-window 20", "--softcap 0.5", "--sm-scale 0.5"}) {
    INFO(options);
    CHECK(error(options) > 1e-2);
  }
}

TEST_CASE("attend: a table for people names every variant") {
  const test::Scratch scratch;
  test::write_sample(scratch.file("s"), test::make_sample());
  const test::ToolRun run = run_tool("attend " + scratch.file("s") + " --format all --repeats 1 --page-size 16");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  for (const char* word :
       {"mxfp4 floor", "nvfp4", "e8m0_per_token floor", "fp8_e4m3", "bf16", "f16", "err(cache)", "B/token"}) {
    INFO(word);
    CHECK(run.out.find(word) != std::string::npos);
  }
  CHECK(run.err.empty());  // no progress where nobody looks
  CHECK_FALSE(run_tool("attend " + scratch.file("s") + " --format bf16 --repeats 1 --progress").err.empty());
}

TEST_CASE("quantize and gemm: --progress names the stages; without it, and without a terminal, nothing is said") {
  const test::Scratch scratch;
  test::write_sample(scratch.file("s"), test::make_sample());
  const auto says = [](const std::string& arguments, const std::string& stages) {
    INFO(arguments);
    CHECK(run_tool(arguments).err.empty());
    const test::ToolRun run = run_tool(arguments + " --progress");
    CHECK(run.exit_code == 0);
    CHECK(run.err == stages);
  };
  const std::string file = scratch.file("s"), packed = scratch.file("p"), out = scratch.file("o"), weight = scratch.file("w");
  says("quantize " + file + " --tensor k --out " + packed,
       "[1/4] read " + file + "\n[2/4] quantise k\n[3/4] compare\n[4/4] write " + packed + "\n");
  says("quantize " + packed + " --tensor k --dequantize --out " + out,
       "[1/3] read " + packed + "\n[2/3] dequantise k\n[3/3] write " + out + "\n");
  says("gemm --m 2 --n 32 --k 64 --save " + weight, "[1/3] quantise a weight\n[2/3] multiply\n[3/3] compare\n");
  says("gemm --m 2 --file " + weight, "[1/3] read " + weight + "\n[2/3] multiply\n[3/3] compare\n");
}

TEST_CASE("quantize: codes and scales go out and come back") {
  const test::Scratch scratch;
  const test::Sample sample = test::make_sample();
  test::write_sample(scratch.file("s"), sample);
  struct Expectation {
    const char* options;
    double worst;
  };
  // Half a step of the coarsest interval over its lower end: 1/4 for E2M1 (below 1.5 of scale), 1/16 for E4M3.
  for (const Expectation& e : {Expectation{"--format mxfp4 --scale-mode even", 0.25},
                               {"--format nvfp4", 0.2},
                               {"--format nvfp4 --four-over-six --scale-layout blocked", 0.2},
                               {"--format mxfp8 --scale-layout blocked", 0.05}}) {
    INFO(e.options);
    const test::ToolRun packed =
        run_tool("quantize " + scratch.file("s") + " --tensor k --json --out " + scratch.file("p") + " " + e.options);
    INFO(packed.err);
    REQUIRE(packed.exit_code == 0);
    const auto facts = nlohmann::json::parse(packed.out);
    const test::ToolRun back =
        run_tool("quantize " + scratch.file("p") + " --tensor k --dequantize --out " + scratch.file("b"));
    INFO(back.err);
    REQUIRE(back.exit_code == 0);
    const st::File file(scratch.file("b"));
    CHECK(file.at("k").shape == std::vector<std::int64_t>{2, 75, 64});
    fp4pa::reference::Difference difference;
    const std::vector<float> values = floats(file.at("k"));
    for (std::size_t i = 0; i < values.size(); ++i) difference.add(values[i], sample.k[i]);
    CHECK(difference.relative() > 1e-3);
    CHECK(difference.relative() < e.worst);
    CHECK(facts.at("relative_error").get<double>() == doctest::Approx(difference.relative()).epsilon(1e-6));
  }
}

TEST_CASE("quantize: a tampered description is a bad file, not a crash") {
  const test::Scratch scratch;
  test::write_sample(scratch.file("s"), test::make_sample());
  REQUIRE(run_tool("quantize " + scratch.file("s") + " --tensor k --out " + scratch.file("p")).exit_code == 0);
  const st::File packed(scratch.file("p"));
  const std::string good = packed.metadata().at("fp4pa.quantized.k");
  const auto refused = [&](const std::string& description) {
    std::vector<st::TensorToWrite> tensors;
    for (const auto& t : packed.tensors()) tensors.push_back({t.name, t.dtype, t.shape, t.data});
    st::write(scratch.file("t"), tensors, {{"fp4pa.quantized.k", description}});
    const test::ToolRun run =
        run_tool("quantize " + scratch.file("t") + " --tensor k --dequantize --out " + scratch.file("b"));
    INFO(description.substr(0, 1000) << run.err);
    CHECK(run.exit_code == 3);
    return run.err;
  };
  refused("no json");
  refused("{}");
  auto changed = nlohmann::json::parse(good);
  changed["shape"] = {2, 75, 128};
  refused(changed.dump());
  changed["shape"] = {1LL << 40, 1LL << 40, 64};
  refused(changed.dump());
  changed["shape"] = {-2, -75, 64};
  CHECK(refused(changed.dump()).find("shape [-2,-75,64]; allowed: positive extents, 2^48 elements at most") != std::string::npos);
  changed["shape"] = nlohmann::json::parse("[2.5, 75, 64]");
  CHECK(refused(changed.dump()).find("the description's shape has 2.5; allowed: integers") != std::string::npos);
  changed["shape"] = {2, 75, "64"};
  CHECK(refused(changed.dump()).find("the description's shape has string; allowed: integers") != std::string::npos);
  refused(R"({"format":"mxfp4","scale_layout":"linear","global_scale":1,"shape":)" + std::string(100'000, '[') +
          std::string(100'000, ']') + "}");
  changed = nlohmann::json::parse(good);
  changed["global_scale"] = 0.5;
  CHECK(refused(changed.dump()).find("global_scale is 0.5; allowed with format mxfp4: 1\n") != std::string::npos);
  changed["global_scale"] = "nan";
  CHECK(refused(changed.dump()).find("global_scale is a string; allowed: a number\n") != std::string::npos);
  changed["format"] = "nvfp4";
  for (const double scale : {0.0, -1.0, 1e-40, 1e300}) {
    changed["global_scale"] = scale;
    CHECK(refused(changed.dump()).find("allowed with format nvfp4: 2^-126 to 2^126\n") != std::string::npos);
  }
  changed = nlohmann::json::parse(good);
  changed["format"] = "mxfp3";
  refused(changed.dump());
  // What the description says, of other elements.
  std::vector<st::TensorToWrite> others;
  for (const auto& t : packed.tensors()) others.push_back({t.name, "I8", t.shape, t.data});
  st::write(scratch.file("t"), others, {{"fp4pa.quantized.k", good}});
  test::check_fails("quantize " + scratch.file("t") + " --tensor k --dequantize --out " + scratch.file("b"), 3, "tensor 'k.codes' is I8 of");
  const std::string missing =
      run_tool("quantize " + scratch.file("s") + " --tensor k --dequantize --out " + scratch.file("b")).err;
  CHECK(missing.find(scratch.file("s")) == missing.rfind(scratch.file("s")));  // once is enough
}

TEST_CASE("quantize, attend: NVFP4's own multiplier is one that the library takes, whatever is in the tensor") {
  const test::Scratch scratch;
  const auto multiplier = [&](test::Sample sample) {
    test::write_sample(scratch.file("s"), sample);
    for (const char* options : {"", " --rotation 64"}) {
      const test::ToolRun attended = run_tool("attend " + scratch.file("s") + " --format nvfp4 --repeats 1" + options);
      INFO(attended.err);
      CHECK(attended.exit_code != 2);  // NaN may come of an infinity, which the reports then say
    }
    const test::ToolRun run =
        run_tool("quantize " + scratch.file("s") + " --tensor k --format nvfp4 --json --out " + scratch.file("p"));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out).at("global_scale").get<double>();
  };
  test::Sample sample = test::make_sample();
  const double plain = multiplier(sample);
  sample.k[3] = std::numeric_limits<float>::infinity();
  sample.k[99] = std::numeric_limits<float>::quiet_NaN();
  CHECK(multiplier(sample) == plain);
  std::fill(sample.k.begin(), sample.k.end(), 1e-45f);
  CHECK(multiplier(sample) == 0x1p-126);
  std::fill(sample.k.begin(), sample.k.end(), 0.0f);
  CHECK(multiplier(sample) == 1.0);
}
