// The table kMirroredBackend: every call of a back end, with its memory announced, moved and brought home.
#include <algorithm>
#include <cstring>

#include "core/formats/scale_layout.hpp"
#include "core/paging/tensor_view.hpp"
#include "tests/gpu/mirror.hpp"

namespace fp4pa::gpu_test {
namespace {

using gpu_test::kBackend;

/// Bytes of a [tokens, heads, head_dim] tensor, and of the gaps between its rows.
std::int64_t rows_bytes(std::int64_t tokens, std::int64_t token_stride, std::int64_t heads, std::int64_t head_stride,
                        std::int64_t head_dim, DType dtype) {
  if (tokens == 0) return 0;
  return ((tokens - 1) * token_stride + (heads - 1) * head_stride + head_dim) * size_of(dtype);
}

Status run(const api::RunRequest& r) noexcept {
  Mirror mirror;
  add(mirror, r.config, r.args, r.q_scales);
  const AttentionConfig config = moved(mirror, r.config);
  const AttentionArgs args = moved(mirror, r.args);
  core::QueryScales q_scales = r.q_scales;
  q_scales.data = mirror.device(q_scales.data);
  const Status status = kBackend.run({config, r.choice, args, q_scales});
  mirror.bring_home();
  return status;
}

void add(Mirror& mirror, const KvCacheDesc& cache, const void* rows, std::int64_t tokens, std::int64_t token_stride,
         std::int64_t head_stride, DType dtype) {
  mirror.add(rows, rows_bytes(tokens, token_stride, cache.num_kv_heads, head_stride, cache.head_dim, dtype));
}

std::int64_t bytes_of(const api::SlotList& slots) { return slots.size * (slots.type == IndexType::kInt64 ? 8 : 4); }

template <class Rows>
Rows moved_rows(Mirror& mirror, Rows rows) {
  rows.data = mirror.device(static_cast<std::uint8_t*>(const_cast<void*>(rows.data)));
  return rows;
}
api::SlotList moved(Mirror& mirror, api::SlotList slots) {
  slots.data = mirror.device(static_cast<const std::uint8_t*>(slots.data));
  return slots;
}

Status read_back(void* to_host, const void* from, std::size_t bytes, void* stream) noexcept {
  Mirror mirror;
  mirror.add(from, static_cast<std::int64_t>(bytes));
  const Status status = kBackend.read_back(to_host, mirror.device(static_cast<const std::uint8_t*>(from)), bytes, stream);
  mirror.bring_home();
  return status;
}

Status append(const KvCacheDesc& cache, const KvInput& k, const KvInput& v, const api::SlotList& slots,
              const ExecDesc& exec) noexcept {
  Mirror mirror;
  gpu_test::add(mirror, cache);
  add(mirror, cache, k.data, slots.size, k.token_stride, k.head_stride, k.dtype);
  add(mirror, cache, v.data, slots.size, v.token_stride, v.head_stride, v.dtype);
  mirror.add(slots.data, bytes_of(slots));
  const Status status = kBackend.append(gpu_test::moved(mirror, cache), moved_rows(mirror, k), moved_rows(mirror, v),
                                            moved(mirror, slots), exec);
  mirror.bring_home();
  return status;
}

Status gather(const KvCacheDesc& cache, const api::SlotList& slots, const KvOutput& k, const KvOutput& v,
              const ExecDesc& exec) noexcept {
  Mirror mirror;
  gpu_test::add(mirror, cache);
  add(mirror, cache, k.data, slots.size, k.token_stride, k.head_stride, k.dtype);
  add(mirror, cache, v.data, slots.size, v.token_stride, v.head_stride, v.dtype);
  mirror.add(slots.data, bytes_of(slots));
  const Status status = kBackend.gather(gpu_test::moved(mirror, cache), moved(mirror, slots), moved_rows(mirror, k),
                                            moved_rows(mirror, v), exec);
  mirror.bring_home();
  return status;
}

Status append_two_tier(const api::TwoTierAppend& r, const ExecDesc& exec) noexcept {
  Mirror mirror;
  gpu_test::add(mirror, r.cache.old_tier);
  gpu_test::add(mirror, r.cache.recent);
  add(mirror, r.cache.recent, r.k.data, r.num_tokens, r.k.token_stride, r.k.head_stride, r.k.dtype);
  add(mirror, r.cache.recent, r.v.data, r.num_tokens, r.v.token_stride, r.v.head_stride, r.v.dtype);
  mirror.add(r.indptr, std::int64_t{4} * (r.batch + 1));
  mirror.add(r.seq_lens, std::int64_t{4} * r.batch);
  mirror.add(r.old_table, std::int64_t{4} * r.batch * r.old_table_stride);
  mirror.add(r.recent_table, std::int64_t{4} * r.batch * r.cache.ring_pages);
  TwoTierDesc cache = r.cache;
  cache.old_tier = gpu_test::moved(mirror, cache.old_tier);
  cache.recent = gpu_test::moved(mirror, cache.recent);
  const KvInput k = moved_rows(mirror, r.k);
  const KvInput v = moved_rows(mirror, r.v);
  const Status status = kBackend.append_two_tier(
      {cache, k, v, mirror.device(r.indptr), mirror.device(r.seq_lens), r.batch, r.num_tokens, mirror.device(r.old_table),
       r.old_table_stride, mirror.device(r.recent_table)},
      exec);
  mirror.bring_home();
  return status;
}

Status copy_pages(const KvCacheDesc& cache, const std::int32_t* src, const std::int32_t* dst, std::int64_t n,
                  const ExecDesc& exec) noexcept {
  Mirror mirror;
  gpu_test::add(mirror, cache);
  mirror.add(src, 4 * n);
  mirror.add(dst, 4 * n);
  const Status status =
      kBackend.copy_pages(gpu_test::moved(mirror, cache), mirror.device(src), mirror.device(dst), n, exec);
  mirror.bring_home();
  return status;
}

struct TensorBytes {
  std::int64_t plain, codes, scales;
};
TensorBytes bytes_of(const QuantizeConfig& c, DType dtype, std::int64_t rows, std::int64_t cols) {
  return {rows * cols * size_of(dtype), static_cast<std::int64_t>(quantized_code_bytes(c.format, rows, cols)),
          static_cast<std::int64_t>(quantized_scale_bytes(c.format, c.scale_layout, rows, cols))};
}

Status quantize(const QuantizeConfig& c, const void* x, DType dtype, std::int64_t rows, std::int64_t cols, void* codes,
                void* scales, const ExecDesc& exec) noexcept {
  const TensorBytes bytes = bytes_of(c, dtype, rows, cols);
  Mirror mirror;
  mirror.add(x, bytes.plain);
  mirror.add(codes, bytes.codes);
  mirror.add(scales, bytes.scales);
  const Status status = kBackend.quantize(c, mirror.device(static_cast<const std::uint8_t*>(x)), dtype, rows, cols,
                                              mirror.device(static_cast<std::uint8_t*>(codes)),
                                              mirror.device(static_cast<std::uint8_t*>(scales)), exec);
  mirror.bring_home();
  return status;
}

Status dequantize(const QuantizeConfig& c, const void* codes, const void* scales, std::int64_t rows, std::int64_t cols,
                  void* y, DType dtype, const ExecDesc& exec) noexcept {
  const TensorBytes bytes = bytes_of(c, dtype, rows, cols);
  Mirror mirror;
  mirror.add(y, bytes.plain);
  mirror.add(codes, bytes.codes);
  mirror.add(scales, bytes.scales);
  const Status status = kBackend.dequantize(c, mirror.device(static_cast<const std::uint8_t*>(codes)),
                                                mirror.device(static_cast<const std::uint8_t*>(scales)), rows, cols,
                                                mirror.device(static_cast<std::uint8_t*>(y)), dtype, exec);
  mirror.bring_home();
  return status;
}

Status merge_states(const api::MergeRequest& r, const ExecDesc& exec) noexcept {
  const std::int64_t bytes = r.rows * r.head_dim * size_of(r.dtype);
  Mirror mirror;
  for (const void* tensor : {r.oa, r.ob, static_cast<const void*>(r.o)}) mirror.add(tensor, bytes);
  for (const float* values : {r.lse_a, r.lse_b, static_cast<const float*>(r.lse)}) mirror.add(values, 4 * r.rows);
  const auto tensor = [&](const void* p) { return mirror.device(static_cast<const std::uint8_t*>(p)); };
  const Status status = kBackend.merge_states(
      {tensor(r.oa), tensor(r.ob), mirror.device(r.lse_a), mirror.device(r.lse_b),
       mirror.device(static_cast<std::uint8_t*>(r.o)), mirror.device(r.lse), r.dtype, r.rows, r.head_dim},
      exec);
  mirror.bring_home();
  return status;
}

Status fill_tables(const core::DenseLengths& lengths, const core::DenseTables& tables, const ExecDesc& exec) noexcept {
  const std::int64_t index = 4 * (lengths.batch + std::int64_t{1});
  Mirror mirror;
  for (const std::int32_t* indptr : {lengths.q_indptr, lengths.kv_indptr}) mirror.add(indptr, index);
  mirror.add(tables.qo_indptr, index);
  mirror.add(tables.seq_lens, index - 4);
  mirror.add(tables.kv_indptr, index);
  mirror.add(tables.page_ids, 4 * tables.num_pages);
  mirror.add(tables.slots, std::int64_t{8} * lengths.kv_tokens);
  core::DenseLengths there = lengths;
  there.q_indptr = mirror.device(there.q_indptr);
  there.kv_indptr = mirror.device(there.kv_indptr);
  const core::DenseTables filled{mirror.device(tables.qo_indptr), mirror.device(tables.seq_lens),
                                 mirror.device(tables.kv_indptr), mirror.device(tables.page_ids),
                                 mirror.device(tables.slots),     tables.page_size,
                                 tables.num_pages};
  const Status status = kBackend.dense->fill_tables(there, filled, exec);
  mirror.bring_home();
  return status;
}

Status expand(const core::Mxfp8Rows& rows, std::int64_t tokens, std::int32_t heads, std::int32_t head_dim,
              std::uint16_t* out, const ExecDesc& exec) noexcept {
  Mirror mirror;
  mirror.add(rows.codes, span(1, 0, tokens, rows.token_stride, heads, rows.head_stride, head_dim));
  mirror.add(rows.scales, span(1, 0, tokens, rows.scale_token_stride, heads, rows.scale_head_stride, head_dim / 32));
  mirror.add(out, 2 * tokens * heads * head_dim);
  core::Mxfp8Rows there = rows;
  there.codes = mirror.device(there.codes);
  there.scales = mirror.device(there.scales);
  const Status status = kBackend.dense->expand(there, tokens, heads, head_dim, mirror.device(out), exec);
  mirror.bring_home();
  return status;
}

void add(Mirror& mirror, const core::KeyMean& m) {
  const core::DenseLengths& l = m.lengths;
  const std::int64_t row = std::int64_t{4} * m.heads * m.head_dim;
  for (const std::int32_t* indptr : {l.q_indptr, l.kv_indptr}) mirror.add(indptr, 4 * (l.batch + std::int64_t{1}));
  mirror.add(m.k.data, rows_bytes(l.kv_tokens, m.k.token_stride, m.heads, m.k.head_stride, m.head_dim, m.k.dtype));
  mirror.add(m.sums, row * core::mean_chunks(l.kv_tokens, l.batch));
  mirror.add(m.mean, row * l.batch);
  mirror.add(m.centred, row * l.kv_tokens);
}
core::KeyMean moved(Mirror& mirror, core::KeyMean m) {
  m.lengths.q_indptr = mirror.device(m.lengths.q_indptr);
  m.lengths.kv_indptr = mirror.device(m.lengths.kv_indptr);
  m.k.data = mirror.device(static_cast<std::uint8_t*>(m.k.data));
  m.sums = mirror.device(m.sums);
  m.mean = mirror.device(m.mean);
  m.centred = mirror.device(m.centred);
  return m;
}

Status centre_keys(const core::KeyMean& mean, const ExecDesc& exec) noexcept {
  Mirror mirror;
  add(mirror, mean);
  const Status status = kBackend.dense->centre_keys(moved(mirror, mean), exec);
  mirror.bring_home();
  return status;
}

Status restore_lse(const core::KeyMean& mean, const core::HeadTensor& q, std::int32_t num_q_heads, float sm_scale, float* lse,
                   const ExecDesc& exec) noexcept {
  Mirror mirror;
  add(mirror, mean);
  mirror.add(q.data, rows_bytes(mean.lengths.q_tokens, q.token_stride, num_q_heads, q.head_stride, mean.head_dim, q.dtype));
  mirror.add(lse, std::int64_t{4} * mean.lengths.q_tokens * num_q_heads);
  core::HeadTensor there = q;
  there.data = mirror.device(static_cast<std::uint8_t*>(there.data));
  const Status status =
      kBackend.dense->restore_lse(moved(mirror, mean), there, num_q_heads, sm_scale, mirror.device(lse), exec);
  mirror.bring_home();
  return status;
}
constexpr api::DenseOps kMirroredDenseOps{fill_tables, expand, centre_keys, restore_lse};

Status quantize_weight(const api::WeightRequest& r, const ExecDesc& exec) noexcept {
  Mirror mirror;
  mirror.add(r.w, r.batch * r.rows * r.cols * size_of(r.dtype));
  mirror.add(r.codes, static_cast<std::int64_t>(fp4_weight_code_bytes(r.config.format, r.rows, r.cols, r.batch)));
  mirror.add(r.scales, static_cast<std::int64_t>(
                           fp4_weight_scale_bytes(r.config.format, r.config.scale_layout, r.rows, r.cols, r.batch)));
  mirror.add(r.global_scales, 4 * r.batch);
  const Status status = kBackend.quantize_weight(
      {r.config, mirror.device(static_cast<const std::uint8_t*>(r.w)), r.dtype, r.rows, r.cols, r.batch,
       mirror.device(static_cast<std::uint8_t*>(r.codes)), mirror.device(static_cast<std::uint8_t*>(r.scales)),
       mirror.device(r.global_scales)},
      exec);
  mirror.bring_home();
  return status;
}

Status linear_workspace(const LinearArgs& args, const ExecDesc& exec, std::size_t* bytes) noexcept {
  return kBackend.linear_workspace(args, exec, bytes);
}

Status linear(const LinearArgs& args, const ExecDesc& exec) noexcept {
  LinearArgs a = args;
  Fp4Weight& w = a.weight;
  Mirror mirror;
  mirror.add(a.x, a.batch * a.m * w.cols * size_of(a.x_dtype));
  mirror.add(a.out, a.batch * a.m * w.rows * size_of(a.out_dtype));
  if (a.bias != nullptr) mirror.add(a.bias, w.rows * size_of(a.bias_dtype));
  mirror.add(w.codes, static_cast<std::int64_t>(fp4_weight_code_bytes(w.format, w.rows, w.cols, w.batch)));
  mirror.add(w.scales, static_cast<std::int64_t>(fp4_weight_scale_bytes(w.format, w.scale_layout, w.rows, w.cols, w.batch)));
  mirror.add(w.global_scale_ptr, 4 * w.batch);
  mirror.add(a.workspace, static_cast<std::int64_t>(a.workspace_bytes));
  const auto moved = [&](const void* p) { return mirror.device(static_cast<const std::uint8_t*>(p)); };
  a.x = moved(a.x);
  a.out = mirror.device(static_cast<std::uint8_t*>(a.out));
  a.bias = moved(a.bias);
  w.codes = moved(w.codes);
  w.scales = moved(w.scales);
  w.global_scale_ptr = mirror.device(w.global_scale_ptr);
  a.workspace = mirror.device(static_cast<std::uint8_t*>(a.workspace));
  const Status status = kBackend.linear(a, exec);
  mirror.bring_home();
  return status;
}

bool available(const char** detail) noexcept { return kBackend.available(detail); }
Status plan(const AttentionConfig& config, api::PlanChoice* choice) noexcept { return kBackend.plan(config, choice); }

}  // namespace
}  // namespace fp4pa::gpu_test

namespace fp4pa::api {

const Backend kMirroredBackend{
    .name = gpu_test::kBackendName,
    .available = gpu_test::available,
    .plan = gpu_test::plan,
    .run = gpu_test::run,
    .append = gpu_test::append,
    .append_two_tier = gpu_test::append_two_tier,
    .gather = gpu_test::gather,
    .copy_pages = gpu_test::copy_pages,
    .quantize = gpu_test::quantize,
    .dequantize = gpu_test::dequantize,
    .merge_states = gpu_test::merge_states,
    .dense = &gpu_test::kMirroredDenseOps,
    .quantize_weight = gpu_test::quantize_weight,
    .linear_workspace = gpu_test::linear_workspace,
    .linear = gpu_test::linear,
    .native = [](std::int32_t variant) noexcept {
      return gpu_test::kBackend.native != nullptr && gpu_test::kBackend.native(variant);
    },
    .decodes_aside = [](std::int32_t variant) noexcept {
      return gpu_test::kBackend.decodes_aside != nullptr && gpu_test::kBackend.decodes_aside(variant);
    },
    .read_back = gpu_test::read_back,
};

}  // namespace fp4pa::api
