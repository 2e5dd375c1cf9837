// Status codes, their names, and the detail text of the last failure on this thread.
//
// Nothing in libfp4pa throws. A function that can fail returns a Status; the sentence that names the offending value and
// the allowed set is kept per thread until the next failing call on that thread.
#pragma once

#include <cstdint>

#include "fp4pa/export.hpp"

namespace fp4pa {

/// Values are part of the ABI: append, never renumber.
enum class Status : std::int32_t {
  kOk = 0,
  kNullPointer = 1,          ///< a required pointer is null
  kMisalignedPointer = 2,    ///< a pointer or stride breaks the documented alignment (strides of MXFP8 tensors: kInvalidStrides)
  kInvalidSize = 3,          ///< a count is zero, negative or too large
  kUnsupportedHeadDim = 4,   ///< head_dim is not a multiple of 32 in [32, 256], or its tiles need more shared memory than the GPU has
  kInvalidHeads = 5,         ///< query heads are not a multiple of KV heads; without a cache also a number of heads outside 1 to 65536
  kUnsupportedFormat = 6,    ///< unknown format, dtype, scale layout, axis, rotation, rule for scales or slot type, or a combination that no reader has
  kInvalidStrides = 7,       ///< strides overlap, or do not cover a row
  kInvalidGlobalScale = 8,   ///< a global scale outside of 2^-126 to 2^126 (NaN, too), or other than 1 where a format has none
  kLengthExceedsTable = 9,   ///< a sequence is longer than its row of the page table
  kBlockIdOutOfRange = 10,   ///< a page table names a page outside the pool
  kSlotOutOfRange = 11,      ///< a slot mapping names a slot outside the pool
  kIncompleteGroup = 12,     ///< V scaled along tokens: an append would leave or touch an unfinished group
  kInvalidIndptr = 13,       ///< an indptr does not start at 0, decreases, or does not end within the rows of the call
  kWorkspaceTooSmall = 14,   ///< workspace_bytes is less than the plan asks for
  kUnknownBackend = 15,      ///< no back end of that name in this build
  kBackendUnavailable = 16,  ///< the back end is built, but this machine cannot run it; or this build does not have the call
  kInvalidArgument = 17,     ///< a parameter is outside its documented range
  kPlanMismatch = 18,        ///< run was called with arguments the plan was not made for
  kDeviceError = 19,         ///< the device's runtime reported an error; the detail has its text
  kInternal = 20,            ///< a bug in libfp4pa, or no memory for what a call keeps on the host; the detail says which
  kFileError = 21,           ///< a file cannot be read or written, or does not hold what was asked for
};

/// Stable identifier, for example "kUnsupportedHeadDim"; "kUnknownStatus" for a value outside the enum.
[[nodiscard]] FP4PA_API const char* status_name(Status status) noexcept;

/// Detail text of the last failing call on this thread: the offending value and the allowed set. Never null; empty when
/// nothing has failed. Valid until the next failing call on this thread.
[[nodiscard]] FP4PA_API const char* last_error_detail() noexcept;

}  // namespace fp4pa
