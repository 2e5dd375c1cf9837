// The attention kernels of this library, for those who launch them, and what CUDA has of its own; the rest of a run is in
// kernels/run.hpp.
#pragma once

#include "cuda/device.hpp"
#include "kernels/run.hpp"

namespace fp4pa::cuda {

/// The kernel of row `index` of kInstances, for cudaLaunchKernel. Defined in translation units of a few rows each.
template <int index>
[[nodiscard]] const void* attend_function() noexcept;

/// @param dependent  the kernel may be brought in while the one before runs, and waits for it itself: cuda/dependency.cuh
/// @param cluster    blocks of a cluster, neighbours along x
cudaError_t launch(const void* function, dim3 blocks, int threads, int shared_bytes, bool dependent, void** arguments,
                   cudaStream_t stream, int cluster = 1) noexcept;
/// Merges the partial states of the units that were divided.
/// @param multiprocessors  of the device
cudaError_t launch_merge(const AttendArgs& args, int multiprocessors, bool dependent, cudaStream_t stream) noexcept;

}  // namespace fp4pa::cuda
