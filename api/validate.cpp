// validate(KvCacheDesc): everything that can be said about a cache without reading it.
//
// The order of the checks is from the numbers that others depend on (head_dim, counts) to those that depend on them
// (strides), so that the first sentence a user sees is about the cause and not about a consequence.
#include "api/validate.hpp"

#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

#include "api/error.hpp"
#include "api/plan_access.hpp"
#include "api/saturating.hpp"
#include "api/stride_overlap.hpp"
#include "api/validate_scaling.hpp"
#include "fp4pa/cache.hpp"

namespace fp4pa {
namespace api {
namespace {

constexpr std::int64_t kDataAlignment = 16;
constexpr std::int32_t kMaxPageSize = 1024;
constexpr std::int64_t kMaxPages = std::numeric_limits<std::int32_t>::max();

[[nodiscard]] bool has_global_scale(KvFormat format) noexcept {
  return format == KvFormat::kNvfp4 || format == KvFormat::kFp8E4m3;
}
/// The encoders divide by it: it and its inverse must be normal numbers (docs/formats.md).
[[nodiscard]] bool usable_multiplier(float scale) noexcept { return scale >= 0x1p-126f && scale <= 0x1p126f; }

/// @param fewest_pages  0 where the number of pages may be open
[[nodiscard]] Status validate_counts(const KvCacheDesc& cache, std::int64_t fewest_pages) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_head_dim(cache.head_dim));
  if (cache.num_kv_heads < 1) {
    return fail(Status::kInvalidSize, "num_kv_heads is %" PRId32 "; allowed: at least 1", cache.num_kv_heads);
  }
  if (cache.page_size < 1 || cache.page_size > kMaxPageSize) {
    return fail(Status::kInvalidSize, "page_size is %" PRId32 "; allowed: 1 to %" PRId32 " tokens", cache.page_size,
                kMaxPageSize);
  }
  if (cache.num_pages < fewest_pages || cache.num_pages > kMaxPages) {
    return fail(Status::kInvalidSize, "num_pages is %" PRId64 "; allowed: %" PRId64 " to %" PRId64, cache.num_pages, fewest_pages, kMaxPages);
  }
  return Status::kOk;
}

[[nodiscard]] Status validate_choices(const KvCacheDesc& cache) noexcept {
  switch (cache.rotation) {
    case Rotation::kNone:
      break;
    case Rotation::kHadamard16:
    case Rotation::kHadamard32:
    case Rotation::kHadamard64:
    case Rotation::kHadamard128:
      if (cache.head_dim % static_cast<std::int32_t>(cache.rotation) != 0) {
        return fail(Status::kUnsupportedFormat,
                    "rotation is %d, which does not divide head_dim %" PRId32 "; allowed: those of 0 (none), 16, 32, 64, "
                    "128 that do",
                    static_cast<int>(cache.rotation), cache.head_dim);
      }
      break;
    default:
      return fail(Status::kUnsupportedFormat, "rotation is %d; allowed: 0 (none), 16, 32, 64, 128",
                  static_cast<int>(cache.rotation));
  }
  return validate_scale_rules(cache.scale_mode, cache.nvfp4_scale);
}

/// Format, axis and the two layouts that can be named but not read.
[[nodiscard]] Status validate_kind(const char* name, const KvTensorDesc& tensor, const KvCacheDesc& cache,
                                   bool is_key) noexcept {
  if (kv_data_bytes(tensor.format, cache.head_dim) == 0) {
    return fail(Status::kUnsupportedFormat,
                "%s.format is %d; allowed: 0 (mxfp4), 1 (nvfp4), 2 (e8m0_per_token), 3 (fp8_e4m3), 4 (bf16), 5 (f16), 6 (mxfp8)",
                name, static_cast<int>(tensor.format));
  }
  if (tensor.nibble_order != NibbleOrder::kEvenLow) {
    return fail(Status::kUnsupportedFormat, "%s.nibble_order is %d%s; allowed: 0 (even_low)", name,
                static_cast<int>(tensor.nibble_order),
                tensor.nibble_order == NibbleOrder::kSplitHalf ? " (split_half)" : "");
  }
  if (tensor.scale_swizzle != ScaleSwizzle::kLinear) {
    return fail(Status::kUnsupportedFormat, "%s.scale_swizzle is %d%s; allowed: 0 (linear)", name,
                static_cast<int>(tensor.scale_swizzle),
                tensor.scale_swizzle == ScaleSwizzle::kFourTokens ? " (four_tokens)" : "");
  }
  if (tensor.scale_axis == VScaleAxis::kHeadDim) return Status::kOk;
  if (tensor.scale_axis != VScaleAxis::kTokens) {
    return fail(Status::kUnsupportedFormat, "%s.scale_axis is %d; allowed: 0 (head_dim)%s", name,
                static_cast<int>(tensor.scale_axis), is_key ? "" : ", 1 (tokens)");
  }
  if (is_key) {
    return fail(Status::kUnsupportedFormat, "%s.scale_axis is 1 (tokens); allowed for K: 0 (head_dim)", name);
  }
  if (tensor.format != KvFormat::kMxfp4 && tensor.format != KvFormat::kNvfp4) {
    return fail(Status::kUnsupportedFormat,
                "%s.scale_axis is 1 (tokens) with format %s; allowed with that axis: mxfp4, nvfp4", name,
                name_of(tensor.format));
  }
  const std::int32_t group = kv_token_group(tensor.format, tensor.scale_axis);
  if (cache.page_size % group != 0) {
    return fail(Status::kInvalidSize,
                "page_size is %" PRId32 "; allowed with %s.scale_axis tokens in %s: multiples of %" PRId32,
                cache.page_size, name, name_of(tensor.format), group);
  }
  return Status::kOk;
}

[[nodiscard]] Status validate_pointers(const char* name, const KvTensorDesc& tensor) noexcept {
  char field[16];
  std::snprintf(field, sizeof field, "%s.data", name);
  FP4PA_RETURN_IF_FAILED(validate_pointer(field, tensor.data, kDataAlignment));
  if (has_scales(tensor.format) && tensor.scales == nullptr) {
    return fail(Status::kNullPointer, "%s.scales is null; format %s has scales", name, name_of(tensor.format));
  }
  if (!has_scales(tensor.format) && tensor.scales != nullptr) {
    return fail(Status::kUnsupportedFormat, "%s.scales is %p, but format %s has no scales; allowed: null", name,
                tensor.scales, name_of(tensor.format));
  }
  return Status::kOk;
}

[[nodiscard]] Status validate_global_scale(const char* name, const KvTensorDesc& tensor) noexcept {
  if (!has_global_scale(tensor.format)) {
    if (tensor.global_scale_ptr != nullptr) {
      return fail(Status::kInvalidGlobalScale, "%s.global_scale_ptr is %p, but format %s has no global scale; allowed: null",
                  name, static_cast<const void*>(tensor.global_scale_ptr), name_of(tensor.format));
    }
    if (tensor.global_scale != 1.0f) {
      return fail(Status::kInvalidGlobalScale, "%s.global_scale is %g; allowed for format %s: 1", name,
                  static_cast<double>(tensor.global_scale), name_of(tensor.format));
    }
  }
  if (tensor.global_scale_ptr != nullptr) {
    char field[32];
    std::snprintf(field, sizeof field, "%s.global_scale_ptr", name);
    return validate_pointer(field, tensor.global_scale_ptr, alignof(float));
  }
  if (tensor.global_scale_per_head) {
    return fail(Status::kNullPointer,
                "%s.global_scale_ptr is null; global_scale_per_head needs an array of num_kv_heads floats", name);
  }
  if (!usable_multiplier(tensor.global_scale)) {
    return fail(Status::kInvalidGlobalScale, "%s.global_scale is %g; allowed: finite and greater than 0 (2^-126 to 2^126)", name,
                static_cast<double>(tensor.global_scale));
  }
  return Status::kOk;
}

/// Rows of codes or of scales: strides that are not negative, keep the alignment, do not overlap and stay in the address
/// space.
[[nodiscard]] Status validate_strides(const char* name, const std::array<StridedDim, 3>& dims, std::int64_t row_bytes,
                                      std::int64_t alignment, const void* base) noexcept {
  for (const StridedDim& dim : dims) {
    if (dim.stride_bytes < 0) {
      return fail(Status::kInvalidStrides, "%s.%s is %" PRId64 "; allowed: not negative", name, dim.name,
                  dim.stride_bytes);
    }
    if (dim.stride_bytes % alignment != 0) {
      return fail(Status::kMisalignedPointer, "%s.%s is %" PRId64 "; allowed: multiples of %" PRId64, name, dim.name,
                  dim.stride_bytes, alignment);
    }
  }
  const StrideCheck check = check_strides(dims, row_bytes);
  if (!check.disjoint) {
    return fail(Status::kInvalidStrides,
                "%s.%s is %" PRId64 ", so that rows of %" PRId64 " bytes overlap; allowed: at least %" PRId64
                ", what the smaller strides span",
                name, check.dim->name, check.dim->stride_bytes, row_bytes, check.needed_bytes);
  }
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(base));
  if (check.span_bytes > kMostBytes ||
      static_cast<std::uint64_t>(check.span_bytes) > std::numeric_limits<std::uintptr_t>::max() - address) {
    const StridedDim* widest = &dims[0];
    for (const StridedDim& dim : dims) {
      if (dim.size > 1 && dim.stride_bytes > widest->stride_bytes) widest = &dim;
    }
    return fail(Status::kInvalidStrides,
                "%s.%s is %" PRId64 ", which over %" PRId64 " steps leaves the address space; allowed: spans that fit",
                name, widest->name, widest->stride_bytes, widest->size - 1);
  }
  return Status::kOk;
}

[[nodiscard]] std::array<StridedDim, 3> data_dims(const KvTensorDesc& tensor, const KvCacheDesc& cache) noexcept {
  return {{{"page_stride_bytes", cache.num_pages, tensor.page_stride_bytes},
           {"token_stride_bytes", cache.page_size, tensor.token_stride_bytes},
           {"head_stride_bytes", cache.num_kv_heads, tensor.head_stride_bytes}}};
}
[[nodiscard]] std::array<StridedDim, 3> scale_dims(const KvTensorDesc& tensor, const KvCacheDesc& cache) noexcept {
  const std::int64_t groups = cache.page_size / kv_token_group(tensor.format, tensor.scale_axis);
  return {{{"scale_page_stride_bytes", cache.num_pages, tensor.scale_page_stride_bytes},
           {"scale_token_stride_bytes", groups, tensor.scale_token_stride_bytes},
           {"scale_head_stride_bytes", cache.num_kv_heads, tensor.scale_head_stride_bytes}}};
}

[[nodiscard]] Status validate_layout(const char* name, const KvTensorDesc& tensor, const KvCacheDesc& cache) noexcept {
  const Status data = validate_strides(name, data_dims(tensor, cache), kv_data_bytes(tensor.format, cache.head_dim), kDataAlignment,
                                       tensor.data);
  if (data != Status::kOk || !has_scales(tensor.format)) return data;
  return validate_strides(name, scale_dims(tensor, cache), kv_scale_bytes(tensor.format, tensor.scale_axis, cache.head_dim), 1,
                          tensor.scales);
}

/// One of a cache's four arrays.
struct Array {
  const char* name;
  const void* base;
  std::array<StridedDim, 3> dims;
  std::int64_t row_bytes;

  [[nodiscard]] std::int64_t page_stride_bytes() const noexcept { return dims[0].stride_bytes; }
};
/// Those that a cache has.
struct Arrays {
  std::array<Array, 4> all{};
  std::size_t count = 0;

  explicit Arrays(const KvCacheDesc& cache) noexcept {
    add("k.data", "k.scales", cache.k, cache);
    add("v.data", "v.scales", cache.v, cache);
  }
  [[nodiscard]] const Array* begin() const noexcept { return all.data(); }
  [[nodiscard]] const Array* end() const noexcept { return all.data() + count; }

 private:
  void add(const char* data, const char* scales, const KvTensorDesc& tensor, const KvCacheDesc& cache) noexcept {
    all[count++] = {data, tensor.data, data_dims(tensor, cache), kv_data_bytes(tensor.format, cache.head_dim)};
    if (!has_scales(tensor.format)) return;
    all[count++] = {scales, tensor.scales, scale_dims(tensor, cache), kv_scale_bytes(tensor.format, tensor.scale_axis, cache.head_dim)};
  }
};

/// @param tier_a, tier_b  prefixes of the arrays' names
[[nodiscard]] Status validate_apart(const char* tier_a, const Array& a, const char* tier_b, const Array& b) noexcept {
  // Plans of memory that is not there yet have one address for all of it.
  if (a.base == memory_to_come() || b.base == memory_to_come()) return Status::kOk;
  if (!rows_overlap({a.base, a.dims, a.row_bytes}, {b.base, b.dims, b.row_bytes})) return Status::kOk;
  return fail(Status::kInvalidStrides, "%s%s is %p, where rows share bytes with those of %s%s at %p; allowed: arrays whose rows do not overlap",
              tier_b, b.name, b.base, tier_a, a.name, a.base);
}

[[nodiscard]] Status validate_tensor(const char* name, const KvTensorDesc& tensor, const KvCacheDesc& cache,
                                     bool is_key) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_kind(name, tensor, cache, is_key));
  FP4PA_RETURN_IF_FAILED(validate_pointers(name, tensor));
  FP4PA_RETURN_IF_FAILED(validate_global_scale(name, tensor));
  return validate_layout(name, tensor, cache);
}

[[nodiscard]] Status validate_host_scales_of(const char* name, const KvTensorDesc& tensor,
                                             std::int32_t num_kv_heads) noexcept {
  if (tensor.global_scale_ptr == nullptr) return Status::kOk;
  const std::int32_t count = tensor.global_scale_per_head ? num_kv_heads : 1;
  for (std::int32_t i = 0; i < count; ++i) {
    if (!usable_multiplier(tensor.global_scale_ptr[i])) {
      return fail(Status::kInvalidGlobalScale,
                  "%s.global_scale_ptr[%" PRId32 "] is %g; allowed: finite and greater than 0 (2^-126 to 2^126)", name, i,
                  static_cast<double>(tensor.global_scale_ptr[i]));
    }
  }
  return Status::kOk;
}

}  // namespace

Status validate_head_dim(std::int32_t head_dim) noexcept {
  if (head_dim < 32 || head_dim > 256 || head_dim % 32 != 0) {
    return fail(Status::kUnsupportedHeadDim, "head_dim is %" PRId32 "; allowed: multiples of 32 from 32 to 256",
                head_dim);
  }
  return Status::kOk;
}

Status validate_dtype(const char* name, DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return Status::kOk;
  }
  return fail(Status::kUnsupportedFormat, "%s is %d; allowed: 0 (f32), 1 (f16), 2 (bf16)", name,
              static_cast<int>(dtype));
}

Status validate_pointer(const char* name, const void* pointer, std::int64_t alignment) noexcept {
  if (pointer == nullptr) return fail(Status::kNullPointer, "%s is null", name);
  if (reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(alignment) != 0) {
    return fail(Status::kMisalignedPointer, "%s is %p; allowed: multiples of %" PRId64 " bytes", name, pointer,
                alignment);
  }
  return Status::kOk;
}

Status validate_table_stride(const char* name, std::int64_t stride, std::int64_t rows) noexcept {
  constexpr std::int64_t kMostEntries = kMostBytes / static_cast<std::int64_t>(sizeof(std::int32_t));
  if (rows <= 1 || stride <= kMostEntries / (rows - 1)) return Status::kOk;
  return fail(Status::kInvalidSize,
              "%s is %" PRId64 ", which over %" PRId64 " rows leaves the address space; allowed with batch %" PRId64 ": up to %" PRId64, name,
              stride, rows, rows, kMostEntries / (rows - 1));
}

Status validate_exec(const ExecDesc& exec) noexcept {
  if (exec.num_threads < 0 || exec.num_threads > 4096) {
    return fail(Status::kInvalidArgument, "num_threads is %" PRId32 "; allowed: 0 (OpenMP's choice) to 4096", exec.num_threads);
  }
  return Status::kOk;
}

Status validate_cache_shape(const KvCacheDesc& cache) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_counts(cache, 0));
  FP4PA_RETURN_IF_FAILED(validate_kind("k", cache.k, cache, true));
  return validate_kind("v", cache.v, cache, false);
}

Status validate_page_base(const void* base) noexcept {
  return base == nullptr ? Status::kOk : validate_pointer("base", base, kDataAlignment);
}

Status validate_description(const KvCacheDesc& cache) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_counts(cache, 1));
  FP4PA_RETURN_IF_FAILED(validate_choices(cache));
  FP4PA_RETURN_IF_FAILED(validate_tensor("k", cache.k, cache, true));
  return validate_tensor("v", cache.v, cache, false);
}

Status validate_tiers_apart(const KvCacheDesc& old_tier, const KvCacheDesc& recent) noexcept {
  const Arrays of_old(old_tier), of_recent(recent);
  for (const Array& a : of_old) {
    for (const Array& b : of_recent) {
      // One pool of pages of a size, each of which is one tier's: page ids keep them apart.
      if (a.page_stride_bytes() == b.page_stride_bytes()) continue;
      FP4PA_RETURN_IF_FAILED(validate_apart("old_tier.", a, "recent.", b));
    }
  }
  return Status::kOk;
}

Status validate_host_global_scales(const KvCacheDesc& cache) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_host_scales_of("k", cache.k, cache.num_kv_heads));
  return validate_host_scales_of("v", cache.v, cache.num_kv_heads);
}

}  // namespace api

Status validate(const KvCacheDesc& cache) noexcept {
  FP4PA_RETURN_IF_FAILED(api::validate_description(cache));
  const api::Arrays arrays(cache);
  for (const api::Array* b = arrays.begin(); b != arrays.end(); ++b) {
    for (const api::Array* a = arrays.begin(); a != b; ++a) FP4PA_RETURN_IF_FAILED(api::validate_apart("", *a, "", *b));
  }
  return Status::kOk;
}

}  // namespace fp4pa
