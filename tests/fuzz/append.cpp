// libFuzzer target: any bytes as a small cache and its slot lists, through append, gather and copy_pages.
//
// The bytes choose a shape, and then whatever is left is slots, page ids, lengths and the new rows. Three things must
// hold: nothing is touched outside the pool (AddressSanitizer, and a canary around it); a call that fails writes
// nothing; and what append stored, both implementations agree on.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fp4pa/cache.hpp"

namespace {

using namespace fp4pa;

// The input, byte by byte; zeros when it is used up.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint8_t next() { return at_ < size_ ? data_[at_++] : 0; }
  template <class T>
  T value() {
    T v{};
    for (std::size_t i = 0; i < sizeof v; ++i) {
      const std::uint8_t byte = next();
      std::memcpy(reinterpret_cast<std::uint8_t*>(&v) + i, &byte, 1);
    }
    return v;
  }
  template <std::size_t N, class T>
  T pick(const T (&choices)[N]) {
    return choices[next() % N];
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "append fuzzer: %s (last error: %s)\n", what, last_error_detail());
  std::abort();
}

constexpr std::size_t kCanary = 64;
constexpr std::uint8_t kCanaryByte = 0xc7;

// A pool of interleaved or dense pages, exactly as large as its description says.
class Pool {
 public:
  Pool(KvCacheDesc desc, bool interleaved, PageOrder order) : cache(desc) {
    std::size_t bytes = 0;
    if (interleaved) {
      const std::int64_t page = set_interleaved_pages(cache, order, nullptr);
      bytes = static_cast<std::size_t>(page * cache.num_pages);
      allocate(bytes);
      set_interleaved_pages(cache, order, base());
      return;
    }
    set_dense_strides(cache, order);
    std::int64_t at[4] = {};
    const KvTensorDesc* const tensors[] = {&cache.k, &cache.v};
    for (int i = 0; i < 2; ++i) {
      at[2 * i] = static_cast<std::int64_t>(bytes);
      bytes += rounded(dense_data_bytes(cache, *tensors[i]));
      at[2 * i + 1] = static_cast<std::int64_t>(bytes);
      bytes += rounded(dense_scale_bytes(cache, *tensors[i]));
    }
    allocate(bytes);
    cache.k.data = base() + at[0];
    cache.v.data = base() + at[2];
    if (has_scales(cache.k.format)) cache.k.scales = base() + at[1];
    if (has_scales(cache.v.format)) cache.v.scales = base() + at[3];
  }

  std::vector<std::uint8_t> snapshot() const { return memory_; }
  void restore(const std::vector<std::uint8_t>& bytes) { std::copy(bytes.begin(), bytes.end(), memory_.begin()); }
  void check_canary() const {
    const auto is_canary = [](std::uint8_t b) { return b == kCanaryByte; };
    expect(std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(first_ - kCanary),
                       memory_.begin() + static_cast<std::ptrdiff_t>(first_), is_canary),
           "bytes before the pool were written");
    expect(std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(first_ + bytes_),
                       memory_.begin() + static_cast<std::ptrdiff_t>(first_ + bytes_ + kCanary), is_canary),
           "bytes after the pool were written");
  }

  KvCacheDesc cache;

 private:
  static std::size_t rounded(std::int64_t n) { return static_cast<std::size_t>((n + 15) / 16 * 16); }
  void allocate(std::size_t bytes) {
    bytes_ = bytes;
    memory_.assign(bytes + 2 * kCanary + 16, kCanaryByte);
    first_ = kCanary + (16 - reinterpret_cast<std::uintptr_t>(memory_.data() + kCanary) % 16) % 16;
  }
  std::uint8_t* base() { return memory_.data() + first_; }

  std::vector<std::uint8_t> memory_;
  std::size_t first_ = 0;
  std::size_t bytes_ = 0;
};

KvCacheDesc take_cache(Bytes& in) {
  constexpr KvFormat kFormats[] = {KvFormat::kMxfp4,   KvFormat::kNvfp4, KvFormat::kE8m0PerToken,
                                   KvFormat::kFp8E4m3, KvFormat::kBf16,  KvFormat::kF16, KvFormat::kMxfp8};
  constexpr Rotation kRotations[] = {Rotation::kNone, Rotation::kHadamard16, Rotation::kHadamard32};
  KvCacheDesc cache;
  cache.k.format = in.pick(kFormats);
  cache.v.format = in.pick(kFormats);
  const bool can_run_along_tokens = cache.v.format == KvFormat::kMxfp4 || cache.v.format == KvFormat::kNvfp4;
  if (can_run_along_tokens && in.next() % 2 == 0) cache.v.scale_axis = VScaleAxis::kTokens;
  cache.num_kv_heads = 1 + in.next() % 2;
  cache.head_dim = 32 * (1 + in.next() % 2);
  cache.page_size = 1 + in.next() % 40;
  // Pages hold whole groups.
  if (cache.v.scale_axis == VScaleAxis::kTokens) {
    cache.page_size = kv_token_group(cache.v.format, cache.v.scale_axis) * (1 + cache.page_size % 3);
  }
  cache.num_pages = 1 + in.next() % 4;
  cache.rotation = in.pick(kRotations);
  cache.scale_mode = static_cast<ScaleMode>(in.next() % 4);
  cache.nvfp4_scale = static_cast<Nvfp4Scale>(in.next() % 2);
  const float global = in.next() % 2 == 0 ? 1.0f : 0.02f;
  if (cache.k.format == KvFormat::kNvfp4 || cache.k.format == KvFormat::kFp8E4m3) cache.k.global_scale = global;
  if (cache.v.format == KvFormat::kNvfp4 || cache.v.format == KvFormat::kFp8E4m3) cache.v.global_scale = global;
  return cache;
}

// Mostly runs of slots, so that appends often succeed; sometimes anything at all.
std::vector<std::int64_t> take_slots(Bytes& in, const KvCacheDesc& cache) {
  const std::int64_t limit = cache.num_pages * cache.page_size;
  std::vector<std::int64_t> slots;
  for (int runs = in.next() % 6; runs > 0; --runs) {
    const std::uint8_t kind = in.next();
    if (kind % 8 == 0) {
      slots.push_back(in.value<std::int64_t>());
    } else if (kind % 8 == 1) {
      slots.push_back(in.value<std::int32_t>());
    } else {
      std::int64_t slot = in.next() % limit;
      if (kind % 2 == 0) slot -= slot % cache.page_size;
      for (int n = in.next() % 48; n > 0; --n) slots.push_back(slot++);
    }
  }
  return slots;
}

std::vector<float> take_rows(Bytes& in, std::size_t count) {
  std::vector<float> rows(count);
  // A period of the input's values: NaN, infinities and subnormals among them.
  std::vector<float> period;
  for (int n = 1 + in.next() % 40; n > 0; --n) period.push_back(in.value<float>());
  for (std::size_t i = 0; i < count; ++i) rows[i] = period[i % period.size()];
  return rows;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes in(data, size);
  const bool interleaved = in.next() % 2 == 0;
  const PageOrder order = in.next() % 2 == 0 ? PageOrder::kHnd : PageOrder::kNhd;
  Pool pool(take_cache(in), interleaved, order);
  const KvCacheDesc& cache = pool.cache;
  expect(validate(cache) == Status::kOk, "a valid cache was refused");

  const std::vector<std::int64_t> slots = take_slots(in, cache);
  const auto tokens = static_cast<std::int64_t>(slots.size());
  const auto row = static_cast<std::size_t>(cache.num_kv_heads * cache.head_dim);
  const std::vector<float> rows = take_rows(in, std::max<std::size_t>(1, slots.size()) * row);
  const KvInput input{rows.data(), DType::kF32, static_cast<std::int64_t>(row), cache.head_dim};
  // A slot of an empty list is never read; append still wants an address.
  std::vector<std::int64_t> list = slots;
  list.push_back(0);

  const std::vector<std::uint8_t> before = pool.snapshot();
  ExecDesc fast;
  fast.backend = "cpu";
  ExecDesc plain;
  plain.backend = "cpu-scalar";
  const Status status = append(cache, input, input, list.data(), IndexType::kInt64, tokens, fast);
  pool.check_canary();
  const std::vector<std::uint8_t> after = pool.snapshot();
  if (status != Status::kOk) {
    expect(after == before, "a refused append wrote something");
    expect(last_error_detail()[0] != '\0', "a refused append says nothing");
  }
  // A repeated slot is the caller's mistake, and whose row wins is not said; the rest must agree bit for bit.
  std::vector<std::int64_t> sorted = slots;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(sorted.begin(), std::lower_bound(sorted.begin(), sorted.end(), 0));
  bool comparable = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  // Sums of NaNs keep one or the other's payload; only rotated rows in 16 bits show which.
  if (cache.rotation != Rotation::kNone && (cache.k.format == KvFormat::kBf16 || cache.k.format == KvFormat::kF16)) {
    comparable = comparable && std::all_of(rows.begin(), rows.end(), [](float x) { return std::isfinite(x); });
  }
  pool.restore(before);
  expect(append(cache, input, input, list.data(), IndexType::kInt64, tokens, plain) == status,
         "the implementations do not agree on what is valid");
  if (comparable) expect(pool.snapshot() == after, "the implementations wrote different bytes");
  pool.restore(after);

  std::vector<float> out(rows.size(), 3.0f);
  const KvOutput output{out.data(), DType::kF32, static_cast<std::int64_t>(row), cache.head_dim};
  const Status gathered = gather(cache, list.data(), IndexType::kInt64, tokens, output, {}, fast);
  if (status == Status::kOk) expect(gathered == Status::kOk, "gather refused the slots that append took");
  if (gathered != Status::kOk) {
    expect(std::all_of(out.begin(), out.end(), [](float x) { return x == 3.0f; }), "a refused gather wrote something");
  }

  std::int32_t src[3];
  std::int32_t dst[3];
  const int copies = in.next() % 4;
  for (int i = 0; i < copies; ++i) {
    src[i] = in.next() % 8 == 0 ? in.value<std::int32_t>() : in.next() % 4;
    dst[i] = in.next() % 8 == 0 ? in.value<std::int32_t>() : in.next() % 4;
  }
  if (copy_pages(cache, src, dst, copies, fast) != Status::kOk) {
    expect(pool.snapshot() == after, "a refused copy wrote something");
  }
  pool.check_canary();
  return 0;
}
