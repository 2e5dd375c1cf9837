// The page ids of copy_pages, checked before anything is copied.
#pragma once

#include "api/backend.hpp"

namespace fp4pa::api {

/// Pages are in the pool. Copies run in any order, so no page is read and written, or written twice. Ids in host memory.
/// @errors kBlockIdOutOfRange, kInvalidArgument, kInternal (no memory to sort them)
[[nodiscard]] Status check_page_copies(const KvCacheDesc& cache, const std::int32_t* src, const std::int32_t* dst,
                                       std::int64_t num_copies) noexcept;

/// check_page_copies of ids in the memory of a GPU, which are read back behind what the stream was given before.
/// @errors and kBackendUnavailable, kInternal (no memory for the ids), what reading ends with
[[nodiscard]] Status check_device_page_copies(const Backend& backend, const KvCacheDesc& cache, const std::int32_t* src,
                                              const std::int32_t* dst, std::int64_t num_copies, void* stream) noexcept;

}  // namespace fp4pa::api
