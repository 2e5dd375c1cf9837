// X to the terms that a block-scaled product takes beside W as it lies in memory: core/gemm/terms.hpp.
#pragma once

#include "backends/gfx950/convert.hpp"  // whose conversions the device has as instructions, and who alone multiplies terms
#include "core/gemm/terms.hpp"
#include "kernels/gemm_quantize.hpp"

namespace fp4pa::FP4PA_GPU {

struct TermsArgs {
  const void* x;
  DType dtype;
  std::int64_t cols, stages;
  std::uint8_t* terms;
  std::uint32_t* scales;
  std::uint16_t* rest;
  std::int64_t first_row;  // of the launch
};

/// The largest of the values of four neighbouring threads, which share a group; all threads of a wave call it.
FP4PA_DEVICE inline std::uint32_t group_max(std::uint32_t value) {
  FP4PA_UNROLL
  for (int mask = 1; mask < 4; mask *= 2) {
    const std::uint32_t other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}
FP4PA_DEVICE inline std::uint32_t largest_bits(const float (&x)[8]) {
  std::uint32_t bits = 0;
  FP4PA_UNROLL
  for (int i = 0; i < 8; ++i) bits = core::magnitude_bits(x[i]) > bits ? core::magnitude_bits(x[i]) : bits;
  return bits;
}

/// A row in x, a share of its columns in y: a thread takes eight, four threads a group.
FP4PA_KERNEL(split_rows, kGemmThreads, TermsArgs p) {
  const std::int64_t row = p.first_row + block_id();
  const std::int64_t eights = 16 * p.stages;
  std::int64_t eight = std::int64_t{block_id_y()} * kGemmThreads + thread_id();
  if (eight - thread_id() % kLanes >= eights) return;
  const bool mine = eight < eights;  // whoever has none still lends its lane to the exchanges
  if (!mine) eight = 0;
  float given[8], x[8];
  load_8(core::element_address(p.x, p.dtype, row * p.cols), p.dtype, 8 * eight, p.cols, given);
  FP4PA_UNROLL
  for (int i = 0; i < 8; ++i) x[i] = core::magnitude_bits(given[i]) < core::kFloatInfBits ? given[i] : 0.0f;

  std::uint8_t* const terms = p.terms + (row * p.stages + eight / 16) * core::kTermStageBytes + eight % 16 * 8;
  std::uint32_t scales = 0;
  FP4PA_UNROLL
  for (int term = 0; term < core::kXTerms; ++term) {
    const int log2 = core::term_log2(group_max(largest_bits(x)));
    scales |= static_cast<std::uint32_t>(log2 + 127) << (8 * term);
    std::uint32_t codes[2];
    FP4PA_UNROLL
    for (int half = 0; half < 2; ++half) {
      float* const four = x + 4 * half;
      codes[half] = gfx950::pack_e4m3(core::times_exp2(four[0], -log2), core::times_exp2(four[1], -log2),
                                      core::times_exp2(four[2], -log2), core::times_exp2(four[3], -log2));
      float taken[4];
      gfx950::unpack_e4m3(codes[half], taken);
      FP4PA_UNROLL
      for (int i = 0; i < 4; ++i) four[i] -= core::times_exp2(taken[i], log2);
    }
    if (mine) *reinterpret_cast<std::uint64_t*>(terms + 128 * term) = codes[0] | std::uint64_t{codes[1]} << 32;
  }

  const int log2 = core::rest_log2(group_max(largest_bits(x)));
  FP4PA_UNROLL
  for (int i = 0; i < 8; ++i) x[i] = core::magnitude_bits(given[i]) < core::kFloatInfBits ? x[i] : given[i];
  const bool left = group_max(largest_bits(x)) != 0;
  if (left) scales |= static_cast<std::uint32_t>(log2 + 127) << 24;
  if (mine && eight % 4 == 0) p.scales[(row * eights + eight) / 4] = scales;
  if (mine && left) {
    FourWords words;
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) x[i] = core::times_exp2(x[i], -log2);
    core::pair_columns(x, 1.0f, pack_f16, words.w);
    *reinterpret_cast<FourWords*>(p.rest + 8 * (row * eights + eight)) = words;
  }
}

Status split_x(const LinearArgs& a, const api::SplitX& to, const ExecDesc& exec) noexcept {
  auto* const memory = static_cast<std::uint8_t*>(a.workspace);
  TermsArgs args{a.x, a.x_dtype, a.weight.cols, to.stages, memory, reinterpret_cast<std::uint32_t*>(memory + to.scales),
                       reinterpret_cast<std::uint16_t*>(memory + to.rest), 0};
  return launch_rows(to.rows, [&](std::int64_t first, std::int64_t rows) {
    args.first_row = first;
    return launch(split_rows, grid(rows, gemm_blocks(16 * to.stages)), kGemmThreads, 0, exec.stream, args, "splitting x");
  });
}

}  // namespace fp4pa::FP4PA_GPU
