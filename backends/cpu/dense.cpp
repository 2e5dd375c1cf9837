// The loops around core/dense: what follows a row is inside, rows are divided over the threads.
#include "backends/cpu/dense.hpp"

#include "backends/cpu/cache_rows.hpp"
#include "backends/cpu/cache_threads.hpp"

namespace fp4pa::cpu {
namespace {

Status fill_tables(const core::DenseLengths& lengths, const core::DenseTables& tables, const ExecDesc& exec) noexcept {
  const std::int64_t entries = tables.entries(lengths);
  const int threads = num_threads(exec, entries, 4096);
  for_each(threads, entries, [&](std::int64_t i) { core::fill_tables(lengths, tables, i); });
  return Status::kOk;
}

/// MXFP8 to bf16, a row at a time.
Status expand_with(const RowKernels& kernels, const core::Mxfp8Rows& rows, std::int64_t tokens, std::int32_t heads,
                   std::int32_t head_dim, std::uint16_t* out, const ExecDesc& exec) noexcept {
  const int threads = num_threads(exec, tokens * heads, 64);
  for_each(threads, tokens * heads, [&](std::int64_t row) {
    const std::int64_t token = row / heads;
    const std::int64_t head = row % heads;
    alignas(64) float x[kMaxRow];
    kernels.decode_mxfp8(rows.codes + token * rows.token_stride + head * rows.head_stride,
                         rows.scales + token * rows.scale_token_stride + head * rows.scale_head_stride, head_dim, x);
    kernels.store(x, head_dim, DType::kBF16, out + row * head_dim);
  });
  return Status::kOk;
}
Status expand(const core::Mxfp8Rows& rows, std::int64_t tokens, std::int32_t heads, std::int32_t head_dim,
              std::uint16_t* out, const ExecDesc& exec) noexcept {
  return expand_with(fastest_rows(), rows, tokens, heads, head_dim, out, exec);
}
Status expand_scalar(const core::Mxfp8Rows& rows, std::int64_t tokens, std::int32_t heads, std::int32_t head_dim,
                     std::uint16_t* out, const ExecDesc& exec) noexcept {
  return expand_with(kScalarRows, rows, tokens, heads, head_dim, out, exec);
}

Status centre_keys(const core::KeyMean& m, const ExecDesc& exec) noexcept {
  const std::int64_t chunks = core::mean_chunks(m.lengths.kv_tokens, m.lengths.batch) * m.heads;
  const std::int64_t sequences = std::int64_t{m.lengths.batch} * m.heads;
  const std::int64_t rows = std::int64_t{m.lengths.kv_tokens} * m.heads;
  const int threads = num_threads(exec, rows, 64);
  const auto each_dim = [&m](auto&& f, std::int64_t i) {
    const auto index = static_cast<std::int32_t>(i / m.heads);
    const auto head = static_cast<std::int32_t>(i % m.heads);
    for (std::int32_t d = 0; d < m.head_dim; ++d) f(m, index, head, d);
  };
  on_threads(threads, [&](const Team& team) {
    team.share(chunks, [&](std::int64_t i) { each_dim(core::sum_chunk, i); });
    team.barrier();
    team.share(sequences, [&](std::int64_t i) { each_dim(core::finish_mean, i); });
    team.barrier();
    team.share(rows, [&](std::int64_t i) { each_dim(core::centre_key, i); });
  });
  return Status::kOk;
}

Status restore_lse(const core::KeyMean& m, const core::HeadTensor& q, std::int32_t num_q_heads, float sm_scale,
                   float* lse, const ExecDesc& exec) noexcept {
  const std::int64_t rows = std::int64_t{m.lengths.q_tokens} * num_q_heads;
  const int threads = num_threads(exec, rows, 64);
  for_each(threads, rows, [&](std::int64_t i) {
    core::restore_lse(m, q, num_q_heads, sm_scale, lse, static_cast<std::int32_t>(i / num_q_heads),
                      static_cast<std::int32_t>(i % num_q_heads));
  });
  return Status::kOk;
}

}  // namespace

const api::DenseOps kDenseOps{fill_tables, expand, centre_keys, restore_lse};
const api::DenseOps kScalarDenseOps{fill_tables, expand_scalar, centre_keys, restore_lse};

}  // namespace fp4pa::cpu
