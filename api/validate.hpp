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
/// No negative thread count.
[[nodiscard]] Status validate_exec(const ExecDesc& exec) noexcept;

/// The global scales behind global_scale_ptr, which only the host's own back ends can look at.
/// @pre validate(cache) passed
/// @errors kInvalidGlobalScale
[[nodiscard]] Status validate_host_global_scales(const KvCacheDesc& cache) noexcept;

}  // namespace fp4pa::api
