// Programmatic dependent launch: a run's next kernel is put on the multiprocessors while the one before still works, and waits
// there for its results. Before sm_90 a kernel begins when the one before has ended, and nothing is to be done.
#pragma once

namespace fp4pa::cuda {

/// The next kernel of the run may be brought in from now on. Called behind wait_for_previous(): the next one may read before its own
/// wait what was complete when this kernel began (a settled weight), and all of that is visible only then.
__device__ __forceinline__ void allow_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Returns when the kernel before has ended and its writes are visible. Every block calls it, so that who follows this kernel
/// follows that one too.
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace fp4pa::cuda
