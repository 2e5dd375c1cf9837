// Boxes of a matrix in memory to shared memory by the copy engine (TMA), and the barriers that say when they have arrived.
//
// What the engine writes is seen by wgmma as it is. What threads or cp.async write is not, and the fence that it takes
// (fence.proxy.async) waits for all copies that are under way, which a ring of stages must not.
// Source: PTX ISA 9.0, "cp.async.bulk", "cp.async.bulk.tensor", "mbarrier".
#pragma once

#include <cstdint>

namespace fp4pa::sm90 {

/// The driver's CUtensorMap.
struct alignas(128) TensorMap {
  std::uint64_t opaque[16];
};

#if defined(__CUDACC__)
/// `arrivals` complete a phase, beside the bytes that were announced. Followed by a barrier of the block.
__device__ __forceinline__ void barrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Makes initialised barriers known to the copy engine.
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/// An arrival that announces bytes.
__device__ __forceinline__ void barrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Returns when the phase of this parity is complete; at once for parity 1 of a barrier that has completed none.
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{.reg .pred p;\n"
      "again_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again_%=;}" ::"r"(barrier), "r"(parity)
      : "memory");
}
/// Whether it is, without waiting: asked early, the answer is there when it is needed.
__device__ __forceinline__ bool barrier_test(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t complete;
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(complete)
               : "r"(barrier), "r"(parity)
               : "memory");
  return complete != 0;
}

/// Asks for the map, which the first copy otherwise waits for.
__device__ __forceinline__ void prefetch_map(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }

/// The box at (column, row) to shared address `to`; elements outside of the matrix become zeros.
__device__ __forceinline__ void copy_box(std::uint32_t to, const TensorMap& map, int column, int row, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
               "l"(&map), "r"(column), "r"(row), "r"(barrier)
               : "memory");
}
/// Bytes that lie in a row, whole pieces of 16 at addresses of 16.
__device__ __forceinline__ void copy_bytes(std::uint32_t to, const std::uint8_t* from, int bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}
#endif

}  // namespace fp4pa::sm90
