#include "tests/gpu/mirror.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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
  if (exact() || slab().taken) {  // a second mirror at a time has allocations of its own, too
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

std::int64_t span(std::int64_t pages, std::int64_t page_stride, std::int64_t tokens, std::int64_t token_stride,
                  std::int64_t heads, std::int64_t head_stride, std::int64_t row) {
  return (pages - 1) * page_stride + (tokens - 1) * token_stride + (heads - 1) * head_stride + row;
}

namespace {

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
  const std::int32_t tokens = a.qo_indptr[a.batch];
  const auto tensor = [&](const void* data, std::int64_t token_stride, std::int64_t head_stride, std::int64_t size) {
    const std::int64_t head = head_stride != 0 ? head_stride : c.cache.head_dim;
    const std::int64_t token = token_stride != 0 ? token_stride : c.num_q_heads * head;
    mirror.add(data, size * span(1, 0, tokens, token, c.num_q_heads, head, c.cache.head_dim));
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

}  // namespace fp4pa::gpu_test
