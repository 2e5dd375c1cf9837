// A warp of sm_90a as an Exec: sm_80's, and the products of warpgroups.
//
// A group product is asynchronous: between group_fence and group_wait its sums and its A belong to the instruction, and what it
// reads of shared memory must have been written before an async_fence of the writer and a barrier.
#pragma once

#include <cstdint>

#include "backends/sm80/exec.hpp"
#include "backends/sm90/operand_tile.hpp"
#include "backends/sm90/wgmma.hpp"

namespace fp4pa::sm90 {

class WarpExec : public sm80::WarpExec {
 public:
  using sm80::WarpExec::WarpExec;

  /// Registers written so far are the instructions' from here on.
  __device__ __forceinline__ void group_fence() const { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
  /// d (+)= a b by the warpgroup of this warp; d and a are functions from a lane to its registers.
  /// group_multiply_shared: a, of all 64 rows, lies in shared memory too.
  template <class Element, int kN, bool kTransposed, class D>
  __device__ __forceinline__ void group_multiply_shared(D&& d, const SharedMatrix& a, const SharedMatrix& b, bool accumulate) const {
    this->each_lane([&](Lane lane) {
      wgmma<Element, kN, kTransposed>(d(lane), matrix_descriptor(base_ + a.offset, a), matrix_descriptor(base_ + b.offset, b),
                                      accumulate);
    });
  }
  template <class Element, int kN, bool kTransposed, class D, class A>
  __device__ __forceinline__ void group_multiply(D&& d, A&& a, const SharedMatrix& b, bool accumulate) const {
    this->each_lane([&](Lane lane) {
      wgmma<Element, kN, kTransposed>(d(lane), a(lane), matrix_descriptor(base_ + b.offset, b), accumulate);
    });
  }
  __device__ __forceinline__ void group_commit() const { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
  /// All products have ended; `d` names the sums.
  template <class D>
  __device__ __forceinline__ void group_wait(D&& d) const {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    this->each_lane([&](Lane lane) { pin(d(lane)); });
  }

  /// What this lane has stored to shared memory may be read by group products after the next barrier.
  __device__ __forceinline__ void async_fence() const { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
};

static_assert(core::Exec<WarpExec>);

}  // namespace fp4pa::sm90
