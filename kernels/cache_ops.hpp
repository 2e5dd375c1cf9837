// The cache operations, quantisation and merging of states on a GPU: entries of the api::Backend table.
//
// What stands in kernels/ is compiled once for CUDA and once for HIP, each in a namespace of its own: FP4PA_GPU, which the
// runtime's device.hpp defines and which has to be included first. Kernels speak to the device in the words of
// cuda/words.cuh and hip/words.hpp; they are written for warps of kLanes lanes and take the number of their blocks as an
// argument.
//
// Each is one or two launches on the caller's stream and waits for nothing. Slots, tables and lengths are in device memory:
// what the CPU back end refuses, a slot outside the pool or V along tokens of what is no group, is skipped here, and no byte outside
// the pool is touched for it. validate_device_data has the public functions look at slots first (api/validate_slots.hpp).
#pragma once

#include "api/backend.hpp"

namespace fp4pa::FP4PA_GPU {

[[nodiscard]] Status append(const KvCacheDesc& cache, const KvInput& k, const KvInput& v, const api::SlotList& slots,
                            const ExecDesc& exec) noexcept;
[[nodiscard]] Status append_two_tier(const api::TwoTierAppend& request, const ExecDesc& exec) noexcept;
[[nodiscard]] Status gather(const KvCacheDesc& cache, const api::SlotList& slots, const KvOutput& k, const KvOutput& v,
                            const ExecDesc& exec) noexcept;
[[nodiscard]] Status copy_pages(const KvCacheDesc& cache, const std::int32_t* src, const std::int32_t* dst,
                                std::int64_t num_copies, const ExecDesc& exec) noexcept;
[[nodiscard]] Status quantize(const QuantizeConfig& config, const void* x, DType dtype, std::int64_t rows,
                              std::int64_t cols, void* codes, void* scales, const ExecDesc& exec) noexcept;
[[nodiscard]] Status dequantize(const QuantizeConfig& config, const void* codes, const void* scales, std::int64_t rows,
                                std::int64_t cols, void* y, DType dtype, const ExecDesc& exec) noexcept;
[[nodiscard]] Status merge_states(const api::MergeRequest& request, const ExecDesc& exec) noexcept;

}  // namespace fp4pa::FP4PA_GPU
