// What products on compute capability 9.0 promise beyond the contract of all (docs/gemm.md, "The contract").
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/device.hpp"
#include "tests/gemm/problem.hpp"
#include "tests/gpu/backend_name.hpp"

using namespace fp4pa;
using namespace fp4pa::gemm_test;

namespace {

/// As the library sees the device, whose code may be for less.
bool is_sm90() {
  cuda::DeviceProperties device{};
  REQUIRE(cuda::current_device(&device) == Status::kOk);
  return device.compute_capability == 90;
}

}  // namespace

TEST_CASE("products on sm_90: nothing of more than 16 rows of X in bf16 is lost beside elements 2^60 times as large") {
  if (!is_sm90()) {
    MESSAGE("not run: the kernels here are not those of compute capability 9.0");
    return;
  }
  constexpr std::int64_t kLarge = 32;  // columns of large elements, whose codes are zeros
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
    for (const std::int64_t m : {17, 40, 130, 300}) {
      CAPTURE(std::string(name_of(format)));
      CAPTURE(m);
      Spec s;
      s.format = format;
      s.x = DType::kBF16;
      s.m = m;
      s.n = 70;
      s.k = 256;
      Problem p(s, gpu_test::kBackendName);
      std::vector<float> x = gaussian(static_cast<std::size_t>(m * s.k), 5);
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (static_cast<std::int64_t>(i) % s.k < kLarge) x[i] *= 0x1p60f;
      }
      std::memcpy(p.x.memory.data(), Tensor(s.x, x).memory.data(), p.x.memory.bytes());
      for (std::int64_t row = 0; row < s.n; ++row) std::memset(p.weight.codes.data() + row * s.k / 2, 0, kLarge / 2);
      REQUIRE(p.run() == Status::kOk);
      CHECK(p.worst() <= 1.0);
    }
  }
}
