// Tables, expansion and K smoothing of the dense calls: a thread per entry of core/dense's functions.
#pragma once

#include "kernels/dense_ops.hpp"
#include "kernels/key_mean.hpp"
#include "kernels/piece_decode.hpp"

namespace fp4pa::FP4PA_GPU {

constexpr int kDenseThreads = 128;

/// Enough blocks for `items` threads; the loops take what passes the limit.
[[nodiscard]] inline std::int64_t dense_blocks(std::int64_t items) {
  constexpr std::int64_t kMost = 1 << 20;
  const std::int64_t blocks = (items + kDenseThreads - 1) / kDenseThreads;
  return blocks < 1 ? 1 : blocks < kMost ? blocks : kMost;
}

/// Calls f(i) for this thread's share of [0, n).
template <class F>
FP4PA_DEVICE inline void for_each_entry(std::int64_t n, std::int64_t blocks, F&& f) {
  for (std::int64_t i = std::int64_t{block_id()} * kDenseThreads + thread_id(); i < n; i += blocks * kDenseThreads)
    f(i);
}

struct TableArgs {
  core::DenseLengths lengths;
  core::DenseTables tables;
  std::int64_t blocks;
};
FP4PA_KERNEL(fill_table_entries, kDenseThreads, TableArgs args) {
  for_each_entry(args.tables.entries(args.lengths), args.blocks,
                 [&](std::int64_t i) { core::fill_tables(args.lengths, args.tables, i); });
}

struct ExpandArgs {
  core::Mxfp8Rows rows;
  std::int64_t groups;  // of all rows
  std::int32_t heads;
  std::int32_t row_groups;
  std::uint16_t* out;
  std::int64_t blocks;
};
/// Four threads a group: each turns eight codes into sixteen bytes.
FP4PA_KERNEL(expand_groups, kDenseThreads, ExpandArgs args) {
  for_each_entry(args.groups * 4, args.blocks, [&](std::int64_t i) {
    const std::int64_t group = i / 4;
    const std::int64_t row = core::divide(group, args.row_groups);
    const std::int64_t token = core::divide(row, args.heads);
    const std::int64_t head = row - token * args.heads;
    const std::int64_t of_row = group - row * args.row_groups;
    const core::Mxfp8Rows& rows = args.rows;
    const std::uint8_t* const codes = rows.codes + token * rows.token_stride + head * rows.head_stride + of_row * 32 + i % 4 * 8;
    const std::uint8_t scale = rows.scales[token * rows.scale_token_stride + head * rows.scale_head_stride + of_row];
    const float factor = core::E8M0::decode(scale);
    float x[8];
    e4m3_piece<8>(*reinterpret_cast<const Words<8>*>(codes), x);
    Words<16> out;
    FP4PA_UNROLL
    for (int p = 0; p < 4; ++p) out.w[p] = pack_bf16(x[2 * p] * factor, x[2 * p + 1] * factor);
    reinterpret_cast<Words<16>*>(args.out)[i] = out;
  });
}

struct MeanArgs {
  core::KeyMean mean;
  std::int64_t rows;  // chunks, sequences or tokens
  std::int64_t blocks;
};
/// Calls f(mean, row, head, dim); neighbouring threads take neighbouring dims.
template <class F>
FP4PA_DEVICE inline void for_each_dim(const MeanArgs& args, F&& f) {
  const core::KeyMean& m = args.mean;
  for_each_entry(args.rows * m.heads * m.head_dim, args.blocks, [&](std::int64_t i) {
    f(m, static_cast<std::int32_t>(i / m.head_dim / m.heads), static_cast<std::int32_t>(i / m.head_dim % m.heads),
      static_cast<std::int32_t>(i % m.head_dim));
  });
}
FP4PA_KERNEL(sum_key_chunks, kDenseThreads, MeanArgs args) {
  for_each_dim(args, [](const core::KeyMean& m, std::int32_t i, std::int32_t head, std::int32_t d) {
    core::sum_chunk(m, i, head, d);
  });
}
FP4PA_KERNEL(finish_key_means, kDenseThreads, MeanArgs args) {
  for_each_dim(args, [](const core::KeyMean& m, std::int32_t i, std::int32_t head, std::int32_t d) {
    core::finish_mean(m, i, head, d);
  });
}
FP4PA_KERNEL(subtract_key_means, kDenseThreads, MeanArgs args) {
  for_each_dim(args, [](const core::KeyMean& m, std::int32_t i, std::int32_t head, std::int32_t d) {
    core::centre_key(m, i, head, d);
  });
}

struct RestoreArgs {
  core::KeyMean mean;
  core::HeadTensor q;
  std::int32_t num_q_heads;
  float sm_scale;
  float* lse;
  std::int64_t blocks;
};
FP4PA_KERNEL(restore_lse_rows, kDenseThreads, RestoreArgs args) {
  for_each_entry(std::int64_t{args.mean.lengths.q_tokens} * args.num_q_heads, args.blocks, [&](std::int64_t i) {
    core::restore_lse(args.mean, args.q, args.num_q_heads, args.sm_scale, args.lse,
                      static_cast<std::int32_t>(i / args.num_q_heads), static_cast<std::int32_t>(i % args.num_q_heads));
  });
}

Status fill_dense_tables(const core::DenseLengths& lengths, const core::DenseTables& tables,
                         const ExecDesc& exec) noexcept {
  const TableArgs args{lengths, tables, dense_blocks(tables.entries(lengths))};
  return launch(fill_table_entries, grid(args.blocks), kDenseThreads, 0, exec.stream, args,
                "launching a dense call's tables");
}

Status expand_mxfp8(const core::Mxfp8Rows& rows, std::int64_t tokens, std::int32_t heads, std::int32_t head_dim,
                    std::uint16_t* out, const ExecDesc& exec) noexcept {
  const std::int64_t groups = tokens * heads * (head_dim / 32);
  const ExpandArgs args{rows, groups, heads, head_dim / 32, out, dense_blocks(groups * 4)};
  return launch(expand_groups, grid(args.blocks), kDenseThreads, 0, exec.stream, args,
                "launching the expansion of MXFP8");
}

[[nodiscard]] inline Status launch_mean(void (*kernel)(MeanArgs), const core::KeyMean& m, std::int64_t rows,
                                        const ExecDesc& exec) noexcept {
  const MeanArgs args{m, rows, dense_blocks(rows * m.heads * m.head_dim)};
  return launch(kernel, grid(args.blocks), kDenseThreads, 0, exec.stream, args, "launching K smoothing");
}
/// @param rows  of blocks: chunks or runs of tokens
[[nodiscard]] inline Status launch_mean_pieces(void (*kernel)(MeanPieceArgs), const core::KeyMean& m, std::int64_t rows,
                                               const ExecDesc& exec) noexcept {
  const auto of_head = static_cast<std::uint32_t>(m.head_dim * size_of(m.k.dtype) / 16);
  const MeanPieceArgs args{m, core::Divisor::of(of_head), of_head * static_cast<std::uint32_t>(m.heads)};
  return launch(kernel, grid(rows, (args.pieces + kMeanThreads - 1) / kMeanThreads), kMeanThreads, 0, exec.stream, args,
                "launching K smoothing");
}
Status centre_keys(const core::KeyMean& m, const ExecDesc& exec) noexcept {
  const std::int64_t chunks = core::mean_chunks(m.lengths.kv_tokens, m.lengths.batch);
  const std::int64_t runs = (std::int64_t{m.lengths.kv_tokens} + kMeanRun - 1) / kMeanRun;
  const bool pieces = has_pieces(m.k);
  Status s = pieces ? launch_mean_pieces(FP4PA_OF_DTYPE(m.k.dtype, sum_key_pieces), m, chunks, exec)
                    : launch_mean(sum_key_chunks, m, chunks, exec);
  if (s == Status::kOk) s = launch_mean(finish_key_means, m, m.lengths.batch, exec);
  if (s != Status::kOk) return s;
  return pieces ? launch_mean_pieces(FP4PA_OF_DTYPE(m.k.dtype, subtract_mean_pieces), m, runs, exec)
                : launch_mean(subtract_key_means, m, m.lengths.kv_tokens, exec);
}

Status restore_lse(const core::KeyMean& m, const core::HeadTensor& q, std::int32_t num_q_heads, float sm_scale,
                   float* lse, const ExecDesc& exec) noexcept {
  const std::int64_t rows = std::int64_t{m.lengths.q_tokens} * num_q_heads;
  if (has_pieces(q) && rows < INT32_MAX) {
    const auto heads = static_cast<std::uint32_t>(num_q_heads);
    const RestorePieceArgs args{m,
                                q,
                                core::Divisor::of(heads),
                                core::Divisor::of(heads / static_cast<std::uint32_t>(m.heads)),
                                static_cast<std::uint32_t>(rows),
                                sm_scale,
                                lse};
    return launch(FP4PA_OF_DTYPE(q.dtype, restore_lse_pieces), grid((rows + kMeanThreads - 1) / kMeanThreads), kMeanThreads, 0,
                  exec.stream, args, "launching the LSE of K smoothing");
  }
  const RestoreArgs args{m, q, num_q_heads, sm_scale, lse, dense_blocks(rows)};
  return launch(restore_lse_rows, grid(args.blocks), kDenseThreads, 0, exec.stream, args,
                "launching the LSE of K smoothing");
}

}  // namespace fp4pa::FP4PA_GPU
