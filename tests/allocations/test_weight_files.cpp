// Weights in files where memory runs out, at every point where it can: a status, and nothing left behind.
#include <doctest/doctest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "fp4pa/fp4pa.hpp"
#include "tests/allocations/counting.hpp"
#include "tests/tool/scratch.hpp"

using namespace fp4pa;

namespace {

constexpr const char* kName = "model.layers.0.mlp.experts.gate_up_proj";  // too long to be kept without an allocation
constexpr std::int64_t kRows = 33, kCols = 50;

/// A weight in NVFP4 with memory for another.
struct Memory {
  Memory()
      : codes((fp4_weight_code_bytes(BlockFormat::kNvfp4, kRows, kCols, 1) + 15) / 16),
        scales(fp4_weight_scale_bytes(BlockFormat::kNvfp4, ScaleLayout::kLinear, kRows, kCols, 1)) {
    weight.format = BlockFormat::kNvfp4;
    weight.rows = kRows;
    weight.cols = kCols;
    weight.codes = codes.data();
    weight.scales = scales.data();
    weight.global_scale = 0.5f;
  }
  struct alignas(16) Block {
    std::byte bytes[16];
  };
  Fp4Weight weight;
  std::vector<Block> codes;
  std::vector<std::byte> scales;
  float global = 0.0f;
};

std::size_t files_in(const test::Scratch& scratch) {
  const std::filesystem::directory_iterator files(scratch.file(""));
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

/// call() with the first, second, ... allocation failing, alone and with all that follow, until there is none left to fail.
/// @param expected  what it answers when nothing fails
template <class Call>
void check_failing(const test::Scratch& scratch, Status expected, const Call& call) {
  REQUIRE(call() == expected);  // what is made once for the process is made here
  for (const auto fail : {allocations::Watch::Fail::kOne, allocations::Watch::Fail::kAllFrom}) {
    CAPTURE(static_cast<int>(fail));
    const std::size_t files = files_in(scratch);
    long failures = 0;
    for (long n = 1;; ++n) {
      REQUIRE(n < 100000);
      const long before = allocations::live();
      Status status;
      long count;
      {
        const allocations::Watch watch(n, fail);
        status = call();
        count = watch.count();
      }
      const long leaked = allocations::live() - before;
      CAPTURE(n);
      if (leaked != 0) CHECK(leaked == 0);
      if (files_in(scratch) != files) CHECK(files_in(scratch) == files);
      if (count < n) {
        CHECK(status == expected);
        break;
      }
      ++failures;
      if (status != expected && status != Status::kFileError) CHECK(status == Status::kFileError);
    }
    CHECK(failures > 10);
  }
}

}  // namespace

TEST_CASE("allocations: where memory runs out, calls on weights in files say so") {
  const test::Scratch scratch;
  const std::string path = scratch.file("weights-in-a-file.safetensors");
  Memory memory;
  const Status first = fp4_save_weight(path.c_str(), kName, memory.weight);
  if (first == Status::kBackendUnavailable) return;  // a build without a JSON parser
  REQUIRE(first == Status::kOk);
  Fp4Weight weight;
  SUBCASE("save") {
    check_failing(scratch, Status::kOk, [&] { return fp4_save_weight(path.c_str(), kName, memory.weight); });
  }
  SUBCASE("save what is no UTF-8") {
    check_failing(scratch, Status::kFileError, [&] { return fp4_save_weight(path.c_str(), "caf\xe9", memory.weight); });
  }
  SUBCASE("find") {
    check_failing(scratch, Status::kOk, [&] { return fp4_find_weight(path.c_str(), kName, &weight); });
  }
  SUBCASE("find what is not there") {
    check_failing(scratch, Status::kFileError, [&] { return fp4_find_weight(path.c_str(), "another", &weight); });
  }
  SUBCASE("find in no file") {
    const std::string none = scratch.file("there-is-no-such-file.safetensors");
    check_failing(scratch, Status::kFileError, [&] { return fp4_find_weight(none.c_str(), kName, &weight); });
  }
  SUBCASE("load") {
    Memory other;
    check_failing(scratch, Status::kOk, [&] {
      return fp4_load_weight(path.c_str(), kName, other.codes.data(), other.scales.data(), &other.global, &weight);
    });
  }
}

TEST_CASE("allocations: a header of many numbers, names or texts is refused where memory runs out, or before") {
  const test::Scratch scratch;
  const std::string path = scratch.file("weights-in-a-file.safetensors");
  const auto write = [&](const std::string& header) {
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < 8; ++i) file.put(static_cast<char>(header.size() >> (8 * i)));
    file << header;
  };
  std::string ones, names, texts, tensors;
  for (int i = 0; i < 1000; ++i) {
    const std::string n = std::to_string(i);
    ones += ",1";
    names += ",\"" + n + "\":0";
    texts += (i == 0 ? "\"" : ",\"") + n + "\":\"\"";
    tensors += (i == 0 ? "\"" : ",\"") + n + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  const std::pair<std::string, const char*> headers[] = {
      {R"({"t":{"dtype":"U8","shape":[1)" + ones + R"(],"data_offsets":[0,0]}})", "tensor 't': shape has more than 64 extents"},
      {R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0)" + ones + "]}}", "tensor 't': data_offsets '[0,0,1]' is not a pair"},
      {R"({"t":{"dtype":"U8")" + names + "}}", "tensor 't' has an object of more than 64 names"},
      {R"({"t":[0)" + ones + "]}", "tensor 't' is not an object but '[0,1,1"},
      {R"({"__metadata__":{)" + texts + "}}", "it holds none"},
      {"{" + tensors + "}", "it holds '0', '1', '10', "},
  };
  Fp4Weight weight;
  for (const auto& [header, words] : headers) {
    write(header);
    Status status;
    long most = 0;
    {
      const allocations::Watch watch;
      status = fp4_find_weight(path.c_str(), kName, &weight);
      most = watch.count();
    }
    if (status == Status::kBackendUnavailable) return;
    CHECK(status == Status::kFileError);
    const std::string detail = last_error_detail();
    INFO(detail);
    CHECK(detail.find(words) != std::string::npos);
    for (long n = 1; n <= most; n += 1 + most / 200) {
      const long before = allocations::live();
      {
        const allocations::Watch watch(n, allocations::Watch::Fail::kAllFrom);
        (void)fp4_find_weight(path.c_str(), kName, &weight);
      }
      const long leaked = allocations::live() - before;
      if (leaked != 0) CHECK(leaked == 0);
    }
  }
}
