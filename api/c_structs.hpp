// The C structs and their C++ counterparts: how a struct of unknown age is read, and the translation field by field.
//
// A caller's struct is as long as the header it was compiled with says. What is shorter than ours is filled up with our
// defaults; what is longer must be zero beyond what we know, since ignoring a field that somebody set would be a silent
// approximation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "api/error.hpp"
#include "fp4pa/attention.hpp"
#include "fp4pa/cache.hpp"
#include "fp4pa/fp4pa.h"
#include "fp4pa/quantize.hpp"

namespace fp4pa::api {

/// A status as C has it.
[[nodiscard]] constexpr fp4pa_status code(Status status) noexcept { return static_cast<fp4pa_status>(status); }

/// Defaults of a C struct, those of the C++ struct it mirrors.
[[nodiscard]] fp4pa_cache default_c_cache() noexcept;
[[nodiscard]] fp4pa_attention_config default_c_config() noexcept;

/// Bytes of the first release of a struct; nothing shorter was ever published. A struct that grows gets a specialisation
/// with its old size.
template <typename T>
inline constexpr std::size_t kFirstSize = sizeof(T);

/// Fills the caller's struct of `size` bytes with `defaults`, as far as either goes.
template <typename T>
void init_struct(T* out, std::size_t size, T defaults) noexcept {
  if (out == nullptr || size < sizeof(std::size_t)) return;
  defaults.struct_size = size;
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &defaults, std::min(size, sizeof(T)));
}

/// Copies a caller's struct into `*out`, which holds the defaults.
/// @errors kNullPointer, kInvalidArgument (struct_size)
template <typename T>
[[nodiscard]] Status read_struct(const char* name, const T* in, T* out) noexcept {
  if (in == nullptr) return fail(Status::kNullPointer, "%s is null", name);
  const std::size_t size = in->struct_size;
  if (size < kFirstSize<T>) {
    return fail(Status::kInvalidArgument, "%s.struct_size is %zu; allowed: at least %zu, as its init function sets it",
                name, size, kFirstSize<T>);
  }
  const auto* const bytes = reinterpret_cast<const unsigned char*>(in);
  // No struct of ours will ever be larger; a larger number was never set by an init function.
  constexpr std::size_t kLargest = 65536;
  if (size > kLargest || std::any_of(bytes + std::min(size, sizeof(T)), bytes + size,
                                     [](unsigned char b) { return b != 0; })) {
    return fail(Status::kInvalidArgument,
                "%s.struct_size is %zu with fields set that this library does not know; allowed: fields of the first %zu "
                "bytes",
                name, size, sizeof(T));
  }
  std::memcpy(static_cast<void*>(out), in, std::min(size, sizeof(T)));
  return Status::kOk;
}

/// The same for the caller's struct to be written in place.
template <typename T>
void write_back(T* out, const T& value) noexcept {
  const std::size_t size = out->struct_size;
  std::memcpy(static_cast<void*>(out), &value, std::min(size, sizeof(T)));
  out->struct_size = size;
}

/// A field of a C struct that is documented as 0 or 1.
/// @errors kInvalidArgument
[[nodiscard]] inline Status read_flag(const char* name, std::int32_t value, bool* out) noexcept {
  if (value != 0 && value != 1) return fail(Status::kInvalidArgument, "%s is %d; allowed: 0, 1", name, static_cast<int>(value));
  *out = value == 1;
  return Status::kOk;
}

[[nodiscard]] Status from_c(const char* name, const fp4pa_cache* in, KvCacheDesc* out) noexcept;
[[nodiscard]] Status from_c(const fp4pa_two_tier* in, TwoTierDesc* out) noexcept;
[[nodiscard]] Status from_c(const char* name, const fp4pa_kv_input* in, KvInput* out) noexcept;
/// A null output is one with null data.
[[nodiscard]] Status from_c(const char* name, const fp4pa_kv_output* in, KvOutput* out) noexcept;
/// Null is the default.
[[nodiscard]] Status from_c(const fp4pa_exec* in, ExecDesc* out) noexcept;
[[nodiscard]] Status from_c(const fp4pa_quantize_config* in, QuantizeConfig* out) noexcept;
[[nodiscard]] Status from_c(const fp4pa_attention_config* in, AttentionConfig* out) noexcept;
[[nodiscard]] Status from_c(const fp4pa_attention_args* in, AttentionArgs* out) noexcept;

/// Strides and pointers of a description that a layout helper has filled in.
void to_c(const KvCacheDesc& in, fp4pa_cache* out) noexcept;

}  // namespace fp4pa::api

/// FP4PA_RETURN_IF_FAILED in a function of the C interface.
#define FP4PA_RETURN_CODE_IF_FAILED(expression)                                                                              \
  do {                                                                                                                       \
    if (const ::fp4pa::Status status_ = (expression); status_ != ::fp4pa::Status::kOk) return ::fp4pa::api::code(status_); \
  } while (false)
