// Products of a few blocks for calls of sm_90's kernels by name, and what such a call takes.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "cuda/device.hpp"
#include "cuda/gemm_sm90.hpp"
#include "tests/gemm/problem.hpp"
#include "tests/gpu/product_on_device.hpp"

namespace fp4pa::gpu_test {

inline constexpr std::int64_t kRows = 150;  // of W: two blocks of 128, the second with idle rows
inline constexpr std::int64_t kCols = 328;  // two stages and a half, in whole 16-byte pieces

inline gemm_test::Spec spec_of(BlockFormat format, DType x, std::int64_t m) {
  gemm_test::Spec s;
  s.format = format;
  s.layout = m % 2 == 0 ? ScaleLayout::kLinear : ScaleLayout::kBlocked;
  s.x = x;
  s.m = m;
  s.n = kRows;
  s.k = format == BlockFormat::kNvfp4 ? 320 : kCols;  // the copy engine takes rows of codes in 16-byte pieces
  s.bias = true;
  s.seed = static_cast<std::uint32_t>(m);
  return s;
}

/// K is divided by `splits` blocks of two stages each, the last one of one and a half.
inline gemm_test::Spec divided_spec(BlockFormat format, DType x, std::int64_t m, std::int32_t splits) {
  gemm_test::Spec s = spec_of(format, x, m);
  s.k += (2 * splits - 3) * sm80::kGemmStage;
  return s;
}

[[nodiscard]] inline std::int32_t blocks_for(std::int64_t n, std::int64_t of_a_block) {
  return static_cast<std::int32_t>((n + of_a_block - 1) / of_a_block);
}

/// f(format, X's dtype) for all that the kernels of sm_90 take.
template <class F>
void for_operands(F&& f) {
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
    for (const DType x : {DType::kF16, DType::kBF16}) {
      CAPTURE(std::string(name_of(format)));
      CAPTURE(std::string(name_of(x)));
      f(format, x);
    }
  }
}

[[nodiscard]] inline cuda::DeviceProperties current() {
  cuda::DeviceProperties device{};
  REQUIRE(cuda::current_device(&device) == Status::kOk);
  return device;
}

/// Whether these kernels run here; else says so.
[[nodiscard]] inline bool is_sm90() {
  const bool is = current().compute_capability == 90;
  if (!is) MESSAGE("not run: the device's compute capability is not 9.0");
  return is;
}

inline void launch_and_check(ProductOnDevice& d, const cuda::Sm90Division& division) {
  REQUIRE(division.function != nullptr);
  must(cudaFuncSetAttribute(division.function, cudaFuncAttributeMaxDynamicSharedMemorySize, division.shared_bytes),
       "asking for shared memory");
  REQUIRE(cuda::launch_sm90(division, d.params(), false, 1, nullptr) == Status::kOk);
  d.check();
}

/// What both kinds of kernels of sm_90 are told.
[[nodiscard]] inline cuda::Sm90Division division_of(DType x, std::int64_t k, std::int32_t splits) {
  cuda::Sm90Division d{};
  d.bf16 = x == DType::kBF16;
  d.stages = blocks_for(k, sm80::kGemmStage);
  d.splits = splits;
  d.block_stages = blocks_for(d.stages, splits);
  return d;
}

}  // namespace fp4pa::gpu_test
