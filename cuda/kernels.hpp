// The kernels of a run and what they are told. Plain C++: the launching side is compiled by the host compiler.
#pragma once

#include <cuda_runtime_api.h>

#include "core/attention/params.hpp"
#include "core/schedule/work.hpp"
#include "core/simt/shared_layout.hpp"

namespace fp4pa::cuda {

/// By value to every kernel of a run.
struct AttendArgs {
  core::AttentionParams params;
  core::WorkList list;
  core::SharedLayout layout;
};


/// The kernel of row `index` of kInstances, for cudaLaunchKernel. Each is defined in a translation unit of its own.
template <int index>
[[nodiscard]] const void* attend_function() noexcept;

/// Prefix sums of the schedule: costs, and under fixed splits slots.
cudaError_t launch_schedule(const core::WorkList& list, cudaStream_t stream) noexcept;
/// Merges the partial states of the units that were divided.
cudaError_t launch_merge(const AttendArgs& args, bool dependent, cudaStream_t stream) noexcept;

/// @param dependent  the kernel may be brought in while the one before runs, and waits for it itself: cuda/dependency.cuh
cudaError_t launch(const void* function, int blocks, int threads, int shared_bytes, bool dependent, void** arguments,
                   cudaStream_t stream) noexcept;

/// What validation found, in the workspace.
struct Finding {
  std::int32_t what;  // a Status, 0: nothing
  std::int32_t sequence;
  std::int64_t value;
};
struct CheckLimits {
  std::int32_t max_q_len, max_kv_len, max_q_tokens;
  std::int64_t num_pages[2];
};
/// Checks lengths, indptr and page ids on the device; *finding is the first offence of the lowest sequence.
cudaError_t launch_check(const core::AttentionParams& params, const CheckLimits& limits, Finding* finding,
                         cudaStream_t stream) noexcept;

}  // namespace fp4pa::cuda
