// Descriptions made of arbitrary bytes: validate and plan may refuse them, and nothing else may happen. What they accept has
// to be true, so a few consequences are checked: strides that were accepted do not overlap in their first rows, and a plan
// that was made has a workspace that can exist.
//
// The bytes are spread over the fields by a small reader that also likes plausible values; pure noise would hardly ever get
// past head_dim. Zeros, and bytes that are not there, make a description that is accepted and planned.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "fp4pa/fp4pa.hpp"

namespace {

class Reader {
 public:
  Reader(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  template <typename T>
  [[nodiscard]] T raw() {
    T value{};
    for (std::size_t i = 0; i < sizeof value; ++i) {
      const std::uint8_t byte = next();
      std::memcpy(reinterpret_cast<unsigned char*>(&value) + i, &byte, 1);
    }
    return value;
  }

  /// Mostly one of `likely`, sometimes any value at all.
  template <typename T, std::size_t N>
  [[nodiscard]] T pick(const T (&likely)[N]) {
    const std::uint8_t choice = next();
    return choice >= 240 ? raw<T>() : likely[choice % N];
  }

  [[nodiscard]] bool flag() { return (next() & 1) != 0; }

  template <typename Enum>
  [[nodiscard]] Enum enumerator(std::int32_t count) {
    const std::uint8_t choice = next();
    return static_cast<Enum>(choice >= 250 ? raw<std::int32_t>() : choice % count);
  }

 private:
  [[nodiscard]] std::uint8_t next() { return at_ < size_ ? data_[at_++] : 0; }
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

void require(bool truth) {
  if (!truth) std::abort();
}

alignas(256) unsigned char memory[4096];

/// Where nobody looks: one of 8 arrays, so far apart that no description makes one reach into the next.
unsigned char* array(int index) { return reinterpret_cast<unsigned char*>(std::uintptr_t(index + 1) << 60); }

/// @param first_array  of the two that are the tensor's
void read_tensor(Reader& in, fp4pa::KvTensorDesc& tensor, int first_array) {
  tensor.format = in.enumerator<fp4pa::KvFormat>(7);
  tensor.scale_axis = in.flag() ? in.enumerator<fp4pa::VScaleAxis>(2) : fp4pa::VScaleAxis::kHeadDim;
  if (in.flag() && in.flag() && in.flag()) {
    tensor.nibble_order = in.enumerator<fp4pa::NibbleOrder>(2);
    tensor.scale_swizzle = in.enumerator<fp4pa::ScaleSwizzle>(2);
  }
  tensor.data = in.raw<std::uint8_t>() < 240 ? array(first_array) : memory + in.raw<std::uint8_t>();
  if (fp4pa::has_scales(tensor.format) != (in.raw<std::uint8_t>() >= 250)) tensor.scales = array(first_array + 1);
  tensor.global_scale = in.raw<std::uint8_t>() < 200 ? 1.0f : in.raw<float>();
  if (in.raw<std::uint8_t>() >= 250) tensor.global_scale_ptr = reinterpret_cast<const float*>(memory);
  tensor.global_scale_per_head = in.raw<std::uint8_t>() >= 250;
}

void spoil_strides(Reader& in, fp4pa::KvTensorDesc& tensor) {
  std::int64_t* const strides[] = {&tensor.page_stride_bytes,       &tensor.token_stride_bytes,
                                   &tensor.head_stride_bytes,       &tensor.scale_page_stride_bytes,
                                   &tensor.scale_token_stride_bytes, &tensor.scale_head_stride_bytes};
  for (std::int64_t* stride : strides) {
    const std::uint8_t choice = in.raw<std::uint8_t>();
    if (choice < 200) continue;
    if (choice < 225) *stride += 16 * (choice - 212);
    else *stride = in.raw<std::int64_t>();
  }
}

/// @param first_array  of the four that are the cache's
fp4pa::KvCacheDesc read_cache(Reader& in, int first_array) {
  fp4pa::KvCacheDesc cache;
  cache.head_dim = in.pick<std::int32_t>({32, 64, 96, 128, 256, 48, 0, -32});
  cache.num_kv_heads = in.pick<std::int32_t>({1, 2, 8, 3, 0});
  cache.page_size = in.pick<std::int32_t>({1, 16, 32, 64, 1024, 24, 0});
  cache.num_pages = in.pick<std::int64_t>({1, 2, 70000, 2147483647, 0});
  cache.rotation = in.pick<fp4pa::Rotation>({fp4pa::Rotation::kNone, fp4pa::Rotation::kHadamard32});
  cache.scale_mode = in.enumerator<fp4pa::ScaleMode>(4);
  cache.nvfp4_scale = in.enumerator<fp4pa::Nvfp4Scale>(2);
  read_tensor(in, cache.k, first_array);
  read_tensor(in, cache.v, first_array + 2);
  const auto order = in.flag() ? fp4pa::PageOrder::kHnd : fp4pa::PageOrder::kNhd;
  if (in.flag()) {
    fp4pa::set_dense_strides(cache, order);
  } else {
    fp4pa::KvCacheDesc strides = cache;
    (void)fp4pa::set_interleaved_pages(strides, order, nullptr);
    strides.k.data = cache.k.data, strides.k.scales = cache.k.scales;
    strides.v.data = cache.v.data, strides.v.scales = cache.v.scales;
    cache = strides;
  }
  spoil_strides(in, cache.k);
  spoil_strides(in, cache.v);
  return cache;
}

/// The rows next to the first one, in each direction that exists, begin after it ends or end before it begins.
void check_neighbours(const fp4pa::KvCacheDesc& cache, const fp4pa::KvTensorDesc& tensor) {
  const std::int64_t row = fp4pa::kv_data_bytes(tensor.format, cache.head_dim);
  require(row > 0);
  require(cache.num_pages == 1 || tensor.page_stride_bytes >= row);
  require(cache.page_size == 1 || tensor.token_stride_bytes >= row);
  require(cache.num_kv_heads == 1 || tensor.head_stride_bytes >= row);
  require(fp4pa::dense_data_bytes(cache, tensor) > 0);
}

void check_refusal(fp4pa::Status status) {
  require(status != fp4pa::Status::kInternal);
  require(std::strcmp(fp4pa::status_name(status), "kUnknownStatus") != 0);
  require(*fp4pa::last_error_detail() != '\0');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Reader in(data, size);
  fp4pa::AttentionConfig config;
  config.cache = read_cache(in, 0);
  if (const fp4pa::Status s = fp4pa::validate(config.cache); s != fp4pa::Status::kOk) {
    check_refusal(s);
  } else {
    check_neighbours(config.cache, config.cache.k);
    check_neighbours(config.cache, config.cache.v);
  }

  config.two_tier = in.flag();
  if (config.two_tier) {
    config.recent = read_cache(in, 4);
    config.window_tokens = in.pick<std::int32_t>({16, 64, 256, 0});
    config.group_tokens = in.pick<std::int32_t>({32, 16, 64, 1, 0});
    config.ring_pages = in.pick<std::int32_t>({1, 6, 96, 0});
    const fp4pa::TwoTierDesc tiers{config.cache, config.recent, config.window_tokens, config.group_tokens,
                                   config.ring_pages};
    if (const fp4pa::Status s = fp4pa::validate(tiers); s != fp4pa::Status::kOk) check_refusal(s);
    require(fp4pa::old_tier_pages(tiers, in.raw<std::int32_t>()) >= 0);
  }

  config.num_q_heads = in.pick<std::int32_t>({1, 8, 32, 24, 0});
  config.q_dtype = in.enumerator<fp4pa::DType>(3);
  config.o_dtype = in.enumerator<fp4pa::DType>(3);
  config.sm_scale = in.flag() ? in.raw<float>() : 0.0f;
  config.causal = in.flag();
  config.sliding_window = in.pick<std::int32_t>({0, 0, 128, 1, -1});
  config.softcap = in.flag() ? in.raw<float>() : 0.0f;
  config.sinks = in.flag();
  config.alibi = in.flag();
  config.tree_mask = in.flag() && in.flag();
  config.max_batch = in.pick<std::int32_t>({1, 4, 256, 0});
  config.max_q_tokens = in.pick<std::int32_t>({1, 4, 8192, 2147483647, 0});
  config.max_q_len = in.pick<std::int32_t>({1, 4, 64, 8192, 0});
  config.max_kv_len = in.pick<std::int32_t>({1, 4096, 131072, 2147483647, 0});
  config.table_kind = in.enumerator<fp4pa::TableKind>(2);
  config.batch_invariant = in.flag();
  config.kv_split_tokens = in.pick<std::int32_t>({0, 0, 64, 512, 63});
  config.num_threads = in.pick<std::int32_t>({0, 1, 2, -1});
  config.backend = in.flag() ? "cpu" : "cpu-scalar";
  fp4pa::AttentionPlan plan;
  if (const fp4pa::Status s = fp4pa::plan(config, &plan); s != fp4pa::Status::kOk) {
    check_refusal(s);
    require(plan.num_workers() == 0);
  } else {
    require(plan.num_workers() > 0);
    require(plan.workspace_bytes() <= static_cast<std::size_t>(PTRDIFF_MAX));
  }
  return 0;
}
