// What the kernels around a matrix product are given, and what they share.
#pragma once

#include "core/gemm/prepare.hpp"
#include "core/gemm/weight.hpp"
#include "kernels/gemm_ops.hpp"

namespace fp4pa::FP4PA_GPU {

constexpr int kGemmThreads = 256;

/// 16 bytes in one load or store.
struct alignas(16) FourWords {
  std::uint32_t w[4];
};

/// The largest of a block's values, in all threads; once a kernel.
FP4PA_DEVICE inline std::uint32_t block_max(std::uint32_t value) {
  constexpr int kParts = kGemmThreads / kLanes;
  FP4PA_SHARED std::uint32_t of_warp[kParts];
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    const std::uint32_t other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  if (thread_id() % kLanes == 0) of_warp[thread_id() / kLanes] = value;
  sync_block();
  std::uint32_t all = 0;  // of shared memory alone: the same in all threads, as the compiler sees
  for (int i = 0; i < kParts; ++i) all = of_warp[i] > all ? of_warp[i] : all;
  return all;
}

struct WeightArgs {
  QuantizeConfig config;
  const void* w;
  DType dtype;
  std::int64_t rows, cols;
  std::uint8_t* codes;
  std::uint8_t* scales;
  const float* globals;  // null: config.global_scale
};

struct PrepareArgs {
  const void* x;
  DType dtype;
  std::int64_t m, batch, cols;
  BlockFormat format;  // that it is quantised to
  ScaleMode scale_mode;
  Nvfp4Scale nvfp4_scale;
  float global;               // NVFP4: 0 takes it from amax
  const std::uint32_t* amax;  // [batch] bits
  std::uint16_t* out;         // [batch * m, out_cols]
  std::int64_t out_cols;      // a multiple of 32
  float* inverse;             // [batch * m]
  float* globals;             // null, or [batch]
  std::int32_t shares;        // blocks of a row
  bool paired;
  std::int64_t first_row;     // of the launch
};

/// Eight columns of X in the order that the products want.
FP4PA_DEVICE inline FourWords eight_to_f16(const PrepareArgs& p, const float* x, float scale) {
  FourWords words;
  if (p.paired) {
    core::pair_columns(x, scale, pack_f16, words.w);
  } else {
    core::neighbour_columns(x, scale, pack_f16, words.w);
  }
  return words;
}

}  // namespace fp4pa::FP4PA_GPU
