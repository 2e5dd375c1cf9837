// The cache operations of the CPU back end: the entries of its api::Backend tables.
//
// Descriptions arrive validated; slots, tables, lengths and indptr do not, and each function here checks all of them
// before it writes a byte. The arithmetic is core/paging's, row by row on OpenMP threads: what a row becomes does not
// depend on the thread, on the number of threads or on the other rows of the call. The functions of `scalar` write the
// same bytes from core's own loops.
#pragma once

#include <cstdint>

#include "api/backend.hpp"

namespace fp4pa::cpu {

[[nodiscard]] Status append(const KvCacheDesc& cache, const KvInput& k, const KvInput& v, const api::SlotList& slots,
                            const ExecDesc& exec) noexcept;

[[nodiscard]] Status append_two_tier(const api::TwoTierAppend& request, const ExecDesc& exec) noexcept;

[[nodiscard]] Status gather(const KvCacheDesc& cache, const api::SlotList& slots, const KvOutput& k, const KvOutput& v,
                            const ExecDesc& exec) noexcept;

[[nodiscard]] Status copy_pages(const KvCacheDesc& cache, const std::int32_t* src, const std::int32_t* dst,
                                std::int64_t num_copies, const ExecDesc& exec) noexcept;

namespace scalar {

[[nodiscard]] Status append(const KvCacheDesc& cache, const KvInput& k, const KvInput& v, const api::SlotList& slots,
                            const ExecDesc& exec) noexcept;

[[nodiscard]] Status append_two_tier(const api::TwoTierAppend& request, const ExecDesc& exec) noexcept;

[[nodiscard]] Status gather(const KvCacheDesc& cache, const api::SlotList& slots, const KvOutput& k, const KvOutput& v,
                            const ExecDesc& exec) noexcept;

}  // namespace scalar
}  // namespace fp4pa::cpu
