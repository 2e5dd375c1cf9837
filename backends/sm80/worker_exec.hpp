// Warps of a block of several workers, as an Exec.
//
// What the rest of the library calls a block, warps that attend an item together, may be a few of a CUDA block's warps: a worker. Blocks
// of one multiprocessor are not served alike, the first of them is done long before the last, while warps of one block keep pace; so that
// a multiprocessor has one block, of as many workers as it has room for (docs/cuda_log.md, "One block a multiprocessor"). Workers know
// nothing of each other: each has its piece of the shared memory and a barrier of its own.
#pragma once

#include <cstdint>

#include "backends/sm80/exec.hpp"
#include "core/divisor.hpp"
#include "core/simt/config.hpp"

namespace fp4pa::sm80 {

class WorkerExec : public WarpExec {
 public:
  static constexpr int kLeastWarps = core::kLeastWorkerWarps;

  /// @param shared  the block's dynamic shared memory, aligned to 128 bytes
  /// @param warps   of a worker
  /// @param bytes   of a worker's shared memory, a multiple of 128
  /// @param thread  the caller's threadIdx.x
  __device__ __forceinline__ WorkerExec(std::uint8_t* shared, const core::Divisor& warps, int bytes, std::uint32_t thread = threadIdx.x)
      : WorkerExec(shared, warps, bytes, thread, WarpExec(shared, thread).warp()) {}

  [[nodiscard]] __device__ __forceinline__ int warp() const { return warp_of_worker_; }
  [[nodiscard]] __device__ __forceinline__ int num_warps() const { return static_cast<int>(warps_.divisor); }
  /// Number of the worker within its block.
  [[nodiscard]] __device__ __forceinline__ int worker() const { return worker_; }

  __device__ __forceinline__ void block_barrier() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + worker_), "r"(num_warps() * kLanes) : "memory");
  }

 private:
  __device__ __forceinline__ WorkerExec(std::uint8_t* shared, const core::Divisor& warps, int bytes, std::uint32_t thread, int warp)
      : WorkerExec(shared, warps, bytes, thread, warp, static_cast<int>(warps.quotient(static_cast<std::uint32_t>(warp)))) {}
  __device__ __forceinline__ WorkerExec(std::uint8_t* shared, const core::Divisor& warps, int bytes, std::uint32_t thread, int warp,
                                        int worker)
      : WarpExec(shared + worker * bytes, thread), warps_(warps), worker_(worker),
        warp_of_worker_(warp - worker * static_cast<int>(warps.divisor)) {}

  const core::Divisor& warps_;
  int worker_;
  int warp_of_worker_;
};

static_assert(core::Exec<WorkerExec>);

}  // namespace fp4pa::sm80
