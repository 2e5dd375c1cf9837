#include "tests/gpu/mirror.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/formats/scale_layout.hpp"
#include "core/paging/tensor_view.hpp"

namespace fp4pa::gpu_test {

void must(Error error, const char* what) {
  if (error == RUNTIME(Success)) return;
  std::fprintf(stderr, "%s: %s\n", what, RUNTIME(GetErrorString)(error));
  std::fflush(stderr);
  std::_Exit(3);
}

namespace {

bool exact() {
  const char* text = std::getenv("FP4PA_MIRROR");
  return text != nullptr && std::strcmp(text, "exact") == 0;
}

/// The shared allocation; one Mirror at a time uses it.
struct Slab {
  std::uint8_t* device = nullptr;
  std::size_t bytes = 0;
  bool taken = false;

  void grow(std::size_t wanted) {
    if (wanted <= bytes) return;
    if (device != nullptr) must(RUNTIME(Free)(device), "freeing the mirror's memory");
    bytes = 2 * wanted;
    void* memory = nullptr;
    must(RUNTIME(Malloc)(&memory, bytes), "allocating the mirror's memory");
    device = static_cast<std::uint8_t*>(memory);
  }
};
Slab& slab() {
  static Slab s;
  return s;
}

}  // namespace

Mirror::~Mirror() {
  for (const Range& r : ranges_) {
    if (r.own != nullptr) static_cast<void>(RUNTIME(Free)(r.own));
  }
  if (!staging_.empty()) slab().taken = false;
}

void Mirror::add(const void* host, std::int64_t bytes) {
  if (host == nullptr || bytes <= 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(host);
  ranges_.push_back({begin, begin + static_cast<std::uintptr_t>(bytes), nullptr, nullptr, 0});
}

void Mirror::place() {
  placed_ = true;
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> joined;
  for (const Range& r : ranges_) {
    if (!joined.empty() && r.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, r.end);
    } else {
      joined.push_back(r);
    }
  }
  ranges_ = std::move(joined);

  std::size_t total = 0;
  for (Range& r : ranges_) {
    r.at = (total + 255) / 256 * 256 + r.begin % 256;
    total = r.at + (r.end - r.begin);
  }
  if (exact()) {
    for (Range& r : ranges_) {
      void* memory = nullptr;
      must(RUNTIME(Malloc)(&memory, r.begin % 256 + (r.end - r.begin)), "mirroring a range");
      r.own = static_cast<std::uint8_t*>(memory);
      r.device = r.own + r.begin % 256;
      must(RUNTIME(Memcpy)(r.device, reinterpret_cast<const void*>(r.begin), r.end - r.begin, RUNTIME(MemcpyHostToDevice)),
           "copying to the device");
    }
    return;
  }
  if (slab().taken) must(RUNTIME(ErrorInvalidValue), "two mirrors at a time");
  slab().taken = true;
  slab().grow(total);
  staging_.assign(total + 1, 0xff);
  for (Range& r : ranges_) {
    r.device = slab().device + r.at;
    std::memcpy(staging_.data() + r.at, reinterpret_cast<const void*>(r.begin), r.end - r.begin);
  }
  must(RUNTIME(Memcpy)(slab().device, staging_.data(), total, RUNTIME(MemcpyHostToDevice)), "copying to the device");
}

std::uintptr_t Mirror::translate(std::uintptr_t host) {
  if (!placed_) place();
  if (host == 0) return 0;
  for (const Range& r : ranges_) {
    if (host >= r.begin && host < r.end) return reinterpret_cast<std::uintptr_t>(r.device) + (host - r.begin);
  }
  // A pointer to nothing (an empty table): the device may not read it either.
  return host;
}

void Mirror::bring_home() {
  must(RUNTIME(StreamSynchronize)(nullptr), "waiting for the device");
  if (!staging_.empty()) {
    must(RUNTIME(Memcpy)(staging_.data(), slab().device, staging_.size() - 1, RUNTIME(MemcpyDeviceToHost)),
         "copying from the device");
  }
  for (const Range& r : ranges_) {
    void* const home = reinterpret_cast<void*>(r.begin);
    if (r.own != nullptr) {
      must(RUNTIME(Memcpy)(home, r.device, r.end - r.begin, RUNTIME(MemcpyDeviceToHost)), "copying from the device");
    } else {
      std::memcpy(home, staging_.data() + r.at, r.end - r.begin);
    }
  }
}

namespace {

std::int64_t span(std::int64_t pages, std::int64_t page_stride, std::int64_t tokens, std::int64_t token_stride,
                  std::int64_t heads, std::int64_t head_stride, std::int64_t row) {
  return (pages - 1) * page_stride + (tokens - 1) * token_stride + (heads - 1) * head_stride + row;
}

void add(Mirror& mirror, const KvCacheDesc& c, const KvTensorDesc& t) {
  mirror.add(t.data, span(c.num_pages, t.page_stride_bytes, c.page_size, t.token_stride_bytes, c.num_kv_heads,
                          t.head_stride_bytes, core::row_bytes(t.format, c.head_dim)));
  if (t.scales != nullptr) {
    const std::int32_t group = 1 << core::token_group_shift(t.format, t.scale_axis);
    mirror.add(t.scales, span(c.num_pages, t.scale_page_stride_bytes, (c.page_size + group - 1) / group,
                              t.scale_token_stride_bytes, c.num_kv_heads, t.scale_head_stride_bytes,
                              core::scale_row_bytes(t.format, t.scale_axis, c.head_dim)));
  }
  mirror.add(t.global_scale_ptr, t.global_scale_per_head ? 4 * c.num_kv_heads : 4);
}

void move(Mirror& mirror, KvTensorDesc& t) {
  t.data = mirror.device(static_cast<std::uint8_t*>(t.data));
  t.scales = mirror.device(static_cast<std::uint8_t*>(t.scales));
  t.global_scale_ptr = mirror.device(t.global_scale_ptr);
}

/// Bytes of a [tokens, heads, head_dim] tensor, and of the gaps between its rows.
std::int64_t rows_bytes(std::int64_t tokens, std::int64_t token_stride, std::int64_t heads, std::int64_t head_stride,
                        std::int64_t head_dim, DType dtype) {
  if (tokens == 0) return 0;
  return ((tokens - 1) * token_stride + (heads - 1) * head_stride + head_dim) * size_of(dtype);
}

}  // namespace

void add(Mirror& mirror, const KvCacheDesc& cache) {
  add(mirror, cache, cache.k);
  add(mirror, cache, cache.v);
}

KvCacheDesc moved(Mirror& mirror, KvCacheDesc cache) {
  move(mirror, cache.k);
  move(mirror, cache.v);
  return cache;
}

void add(Mirror& mirror, const AttentionConfig& c, const AttentionArgs& a, const core::QueryScales& q_scales) {
  add(mirror, c.cache);
  if (c.two_tier) {
    add(mirror, c.recent);
    mirror.add(a.recent_table, std::int64_t{4} * a.batch * c.ring_pages);
  }
  const std::int64_t dense_token = std::int64_t{c.num_q_heads} * c.cache.head_dim;
  const std::int32_t tokens = a.qo_indptr[a.batch];
  const auto tensor = [&](const void* data, std::int64_t token_stride, std::int64_t head_stride, std::int64_t size) {
    mirror.add(data, size * span(1, 0, tokens, token_stride != 0 ? token_stride : dense_token, c.num_q_heads,
                                 head_stride != 0 ? head_stride : c.cache.head_dim, c.cache.head_dim));
  };
  const bool codes = q_scales.data != nullptr;
  if (tokens > 0) {
    tensor(a.q, a.q_token_stride, a.q_head_stride, codes ? 1 : size_of(c.q_dtype));
    tensor(a.o, a.o_token_stride, a.o_head_stride, size_of(c.o_dtype));
    if (codes) {
      mirror.add(q_scales.data, span(1, 0, tokens, q_scales.token_stride, c.num_q_heads, q_scales.head_stride,
                                     c.cache.head_dim / 32));
    }
  }
  const std::int64_t rows = std::int64_t{a.qo_indptr[a.batch]} * c.num_q_heads;
  mirror.add(a.lse, 4 * rows);
  mirror.add(a.qo_indptr, std::int64_t{4} * (a.batch + 1));
  mirror.add(a.seq_lens, std::int64_t{4} * a.batch);
  if (c.table_kind == TableKind::kCsr) {
    mirror.add(a.kv_indptr, std::int64_t{4} * (a.batch + 1));
    mirror.add(a.kv_indices, std::int64_t{4} * a.kv_indptr[a.batch]);
  } else {
    mirror.add(a.block_table, std::int64_t{4} * a.batch * a.table_stride);
  }
  if (c.sinks) mirror.add(a.sinks, std::int64_t{4} * c.num_q_heads);
  if (c.alibi) mirror.add(a.alibi_slopes, std::int64_t{4} * c.num_q_heads);
  if (c.tree_mask) mirror.add(a.tree_mask, std::int64_t{8} * a.qo_indptr[a.batch]);
  mirror.add(a.workspace, static_cast<std::int64_t>(a.workspace_bytes));
}

AttentionConfig moved(Mirror& mirror, AttentionConfig config) {
  config.cache = moved(mirror, config.cache);
  if (config.two_tier) config.recent = moved(mirror, config.recent);
  return config;
}

AttentionArgs moved(Mirror& mirror, AttentionArgs a) {
  a.q = mirror.device(static_cast<const std::uint8_t*>(a.q));
  a.o = mirror.device(static_cast<std::uint8_t*>(a.o));
  a.lse = mirror.device(a.lse);
  a.qo_indptr = mirror.device(a.qo_indptr);
  a.seq_lens = mirror.device(a.seq_lens);
  a.block_table = mirror.device(a.block_table);
  a.kv_indptr = mirror.device(a.kv_indptr);
  a.kv_indices = mirror.device(a.kv_indices);
  a.recent_table = mirror.device(a.recent_table);
  a.sinks = mirror.device(a.sinks);
  a.alibi_slopes = mirror.device(a.alibi_slopes);
  a.tree_mask = mirror.device(a.tree_mask);
  a.workspace = mirror.device(static_cast<std::uint8_t*>(a.workspace));
  return a;
}

namespace {

using gpu_test::kBackend;

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
    .decodes_aside = [](std::int32_t variant) noexcept {
      return gpu_test::kBackend.decodes_aside != nullptr && gpu_test::kBackend.decodes_aside(variant);
    },
};

}  // namespace fp4pa::api
