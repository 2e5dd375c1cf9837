// Checks that several public functions share. Each returns kOk, or fails with a sentence that names the value and what is
// allowed.
#pragma once

#include <cstdint>

#include "fp4pa/attention.hpp"
#include "fp4pa/cache.hpp"
#include "fp4pa/status.hpp"

namespace fp4pa::api {

/// A multiple of 32 from 32 to 256.
[[nodiscard]] Status validate_head_dim(std::int32_t head_dim) noexcept;
/// One of the enum's values; `name` is the parameter, for the message.
[[nodiscard]] Status validate_dtype(const char* name, DType dtype) noexcept;
/// Not null and a multiple of `alignment`.
[[nodiscard]] Status validate_pointer(const char* name, const void* pointer, std::int64_t alignment) noexcept;
/// Rows of a page table: `rows` of them, `stride` int32 entries apart, that fit the address space. Of one row the stride says nothing.
/// @errors kInvalidSize
[[nodiscard]] Status validate_table_stride(const char* name, std::int64_t stride, std::int64_t rows) noexcept;
/// No negative thread count.
[[nodiscard]] Status validate_exec(const ExecDesc& exec) noexcept;

/// validate(cache), but for arrays that overlap: for rows that are only read.
[[nodiscard]] Status validate_description(const KvCacheDesc& cache) noexcept;
/// No array of one tier lies in an array of the other.
/// @pre validate(cache) passed for both
/// @errors kInvalidStrides
[[nodiscard]] Status validate_tiers_apart(const KvCacheDesc& old_tier, const KvCacheDesc& recent) noexcept;

/// What the sizes of a cache's rows and pages follow from: head_dim, heads, formats, page_size and, where it is not 0 (nobody has said how
/// many yet), num_pages.
/// @errors kUnsupportedHeadDim, kInvalidSize, kUnsupportedFormat
[[nodiscard]] Status validate_cache_shape(const KvCacheDesc& cache) noexcept;
/// The base of interleaved pages: null, where only sizes are asked for, or aligned as data are.
/// @errors kMisalignedPointer
[[nodiscard]] Status validate_page_base(const void* base) noexcept;

/// The global scales behind global_scale_ptr, which only the host's own back ends can look at.
/// @pre validate(cache) passed
/// @errors kInvalidGlobalScale
[[nodiscard]] Status validate_host_global_scales(const KvCacheDesc& cache) noexcept;

}  // namespace fp4pa::api
