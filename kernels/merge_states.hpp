// merge_states: a thread per 16 bytes of a row where addresses allow, else a warp per row.
#pragma once

#include <algorithm>

#include "core/attention/softmax_state.hpp"
#include "core/divisor.hpp"
#include "core/math.hpp"
#include "core/paging/plain_row.hpp"
#include "kernels/cache_ops.hpp"
#include "kernels/piece.hpp"

namespace fp4pa::FP4PA_GPU {

/// What a row's two states count for, as backends/cpu/merge.cpp has it: both weights relative to the larger LSE, and empty states left out
/// by selection, since their outputs may be anything.
struct MergeWeights {
  bool empty_a, empty_b;
  float a, b, lse;

  [[nodiscard]] FP4PA_DEVICE static MergeWeights of(float lse_a, float lse_b) {
    const bool empty_a = lse_a == core::kMinusInf;
    const bool empty_b = lse_b == core::kMinusInf;
    const bool a_larger = lse_a >= lse_b;
    const float small = core::math::exp(a_larger ? lse_b - lse_a : lse_a - lse_b);
    const float sum = 1.0f + small;
    return {empty_a, empty_b, a_larger ? 1.0f / sum : small / sum, a_larger ? small / sum : 1.0f / sum,
            empty_a ? lse_b : empty_b ? lse_a : (a_larger ? lse_a : lse_b) + core::math::log1p(small)};
  }
  [[nodiscard]] FP4PA_DEVICE float of_values(float of_a, float of_b) const {
    if (empty_a) return empty_b ? 0.0f : of_b;
    return empty_b ? of_a : a * of_a + b * of_b;
  }
};

// o and lse may be the inputs: whoever shares a row reads all that it needs of it before any of them writes.

/// The most blocks of a grid, whose threads are counted in 32 bits: what passes it is left to its blocks, in further rounds.
constexpr std::int64_t kMostStateBlocks = 1 << 20;
constexpr int kStateThreads = 256;

/// A warp a row, an element a lane.
constexpr int kStateRows = kStateThreads / kLanes;
FP4PA_KERNEL(merge_rows, kStateThreads, api::MergeRequest r) {
  for (std::int64_t row = std::int64_t{block_id()} * kStateRows + thread_id() / kLanes; row < r.rows;
       row += kMostStateBlocks * kStateRows) {
    const MergeWeights weights = MergeWeights::of(r.lse_a[row], r.lse_b[row]);
    sync_warp();
    for (int d = thread_id() % kLanes; d < r.head_dim; d += kLanes) {
      const std::int64_t at = row * r.head_dim + d;
      float a = 0.0f;
      float b = 0.0f;
      core::load_plain_row(core::element_address(r.oa, r.dtype, at), r.dtype, 1, &a);
      core::load_plain_row(core::element_address(r.ob, r.dtype, at), r.dtype, 1, &b);
      const float value = weights.of_values(a, b);
      core::store_plain_row(&value, 1, r.dtype, core::element_address(r.o, r.dtype, at));
    }
    if (thread_id() % kLanes == 0) r.lse[row] = weights.lse;
  }
}

struct MergePieceArgs {
  api::MergeRequest request;
  core::Divisor pieces_per_row;
  std::int32_t rows_per_block;
};

/// Whole rows a block; threads that have no row idle.
template <DType kDType>
FP4PA_KERNEL(merge_pieces, kStateThreads, MergePieceArgs args) {
  constexpr int kN = 16 / size_of(kDType);
  const api::MergeRequest& r = args.request;
  const std::uint32_t thread = static_cast<std::uint32_t>(thread_id());
  const std::uint32_t of_block = args.pieces_per_row.quotient(thread);
  const std::uint32_t piece = thread - of_block * args.pieces_per_row.divisor;
  for (std::int64_t first = std::int64_t{block_id()} * args.rows_per_block; first < r.rows; first += kMostStateBlocks * args.rows_per_block) {
    const std::int64_t row = first + of_block;
    const bool there = of_block < static_cast<std::uint32_t>(args.rows_per_block) && row < r.rows;
    const std::int64_t at = row * r.head_dim + static_cast<std::int64_t>(piece) * kN;
    RawPiece<kDType, kN> a{};
    RawPiece<kDType, kN> b{};
    float lse_a = 0.0f;
    float lse_b = 0.0f;
    if (there) {
      a.load(core::element_address(r.oa, kDType, at));
      b.load(core::element_address(r.ob, kDType, at));
      lse_a = r.lse_a[row];
      lse_b = r.lse_b[row];
    }
    sync_block();
    if (!there) continue;
    const MergeWeights weights = MergeWeights::of(lse_a, lse_b);
    float of_a[kN];
    float of_b[kN];
    a.values(of_a);
    b.values(of_b);
    FP4PA_UNROLL
    for (int i = 0; i < kN; ++i) of_a[i] = weights.of_values(of_a[i], of_b[i]);
    *static_cast<Words<16>*>(core::element_address(r.o, kDType, at)) = pack_piece_and_nan<kDType>(of_a);
    if (piece == 0) r.lse[row] = weights.lse;
  }
}

Status merge_states(const api::MergeRequest& r, const ExecDesc& exec) noexcept {
  const auto blocks_of = [&](std::int64_t rows_per_block) {
    return std::min((r.rows + rows_per_block - 1) / rows_per_block, kMostStateBlocks);
  };
  const std::int64_t row_bytes = std::int64_t{r.head_dim} * size_of(r.dtype);
  if (row_bytes % 16 == 0 && row_bytes / 16 <= kStateThreads && aligned(r.oa, 16) && aligned(r.ob, 16) && aligned(r.o, 16)) {
    const auto pieces = static_cast<std::uint32_t>(row_bytes / 16);
    const MergePieceArgs args{r, core::Divisor::of(pieces), kStateThreads / static_cast<std::int32_t>(pieces)};
    return launch(FP4PA_OF_DTYPE(r.dtype, merge_pieces), grid(blocks_of(args.rows_per_block)), kStateThreads, 0, exec.stream, args,
                  "launching merge_states");
  }
  return launch(merge_rows, grid(blocks_of(kStateRows)), kStateThreads, 0, exec.stream, r, "launching merge_states");
}

}  // namespace fp4pa::FP4PA_GPU
