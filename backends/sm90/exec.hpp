// A warp of sm_90a as an Exec: sm_80's, the products of warpgroups, and the two roles that warps of a prefill kernel have.
//
// A group product is asynchronous: between group_fence and group_wait its sums and its A belong to the instruction, and what it
// reads of shared memory must have been written before an async_fence of the writer and a barrier.
#pragma once

#include <cstdint>

#include "backends/sm80/exec.hpp"
#include "backends/sm90/ring.hpp"
#include "backends/sm90/wgmma.hpp"

namespace fp4pa::sm90 {

class WarpExec : public sm80::WarpExec {
 public:
  using sm80::WarpExec::WarpExec;

  TilePlace place;

  /// x of the lane that each lane names.
  template <class T, class Source>
  [[nodiscard]] __device__ __forceinline__ PerLane<T> shuffle(const PerLane<T>& x, Source&& source) const {
    PerLane<T> out;
    this->each_lane([&](Lane lane) { out[lane] = __shfl_sync(0xffffffffu, x[lane], source(lane)); });
    return out;
  }
  /// 16 bytes, or zeros. One statement: of a branch around a load compilers make moves of what it brings, which wait for it.
  template <class T>
  [[nodiscard]] __device__ __forceinline__ T load_global_or_zero(const void* from, bool exists) const {
    static_assert(sizeof(T) == 16);
    uint4 x;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.s32 p, %5, 0;\n"
        "mov.b32 %0, 0;\n"
        "mov.b32 %1, 0;\n"
        "mov.b32 %2, 0;\n"
        "mov.b32 %3, 0;\n"
        "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n"
        "}"
        : "=&r"(x.x), "=&r"(x.y), "=&r"(x.z), "=&r"(x.w)
        : "l"(from), "r"(static_cast<int>(exists)));
    return std::bit_cast<T>(x);
  }
  /// x becomes what lies in global memory, or stays. Without a move, too.
  template <class T>
  __device__ __forceinline__ void load_word_if(T& x, const void* from, bool exists) const {
    static_assert(sizeof(T) == 4);
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.s32 p, %2, 0;\n"
        "@p ld.global.nc.b32 %0, [%1];\n"
        "}"
        : "+r"(x)
        : "l"(from), "r"(static_cast<int>(exists)));
  }
  /// A key's scales, of kBytes bytes, aligned to as many: 2, 4, 8 or 16.
  template <int kBytes, int kWords>
  __device__ __forceinline__ void load_scales_if(std::uint32_t (&x)[kWords], const void* from, bool exists) const {
    static_assert(kBytes <= 4 ? kWords == 1 : kBytes == 4 * kWords);
    if constexpr (kBytes == 16) {
      load_chunk_if(x, from, exists);
    } else if constexpr (kBytes == 8) {
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "setp.ne.s32 p, %3, 0;\n"
          "@p ld.global.nc.v2.b32 {%0, %1}, [%2];\n"
          "}"
          : "+r"(x[0]), "+r"(x[1])
          : "l"(from), "r"(static_cast<int>(exists)));
    } else if constexpr (kBytes == 4) {
      load_word_if(x[0], from, exists);
    } else if constexpr (kBytes == 2) {
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "setp.ne.s32 p, %2, 0;\n"
          "@p ld.global.nc.u16 %0, [%1];\n"
          "}"
          : "+r"(x[0])
          : "l"(from), "r"(static_cast<int>(exists)));
    } else {
      static_assert(kBytes == 1);
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "setp.ne.s32 p, %2, 0;\n"
          "@p ld.global.nc.u8 %0, [%1];\n"
          "}"
          : "+r"(x[0])
          : "l"(from), "r"(static_cast<int>(exists)));
    }
  }
  __device__ __forceinline__ void load_chunk_if(std::uint32_t (&x)[4], const void* from, bool exists) const {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.s32 p, %5, 0;\n"
        "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n"
        "}"
        : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])
        : "l"(from), "r"(static_cast<int>(exists)));
  }
  /// Into the second-level cache.
  __device__ __forceinline__ void prefetch(const void* from) const { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

  // Barriers that are waited for by round: offset of 8 bytes of shared memory. A round ends with its `count`-th arrival.
  __device__ __forceinline__ void set_up_arrivals(std::uint32_t at, int count) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(base_ + at), "r"(count) : "memory");
  }
  __device__ __forceinline__ void arrive(std::uint32_t at) const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(base_ + at) : "memory");
  }
  /// Returns when the round of this parity has ended; at once for parity 1 of a barrier that is new.
  __device__ __forceinline__ void wait_for_arrivals(std::uint32_t at, std::uint32_t parity) const {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "AGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra AGAIN;\n"
        "}" ::"r"(base_ + at), "r"(parity)
        : "memory");
  }
  /// The same by a warp that shuffles afterwards. The vote is for the compiler: behind a loop that each lane might leave by itself it
  /// has a second copy of all shuffles and of what lies between them, for warps that have come apart.
  __device__ __forceinline__ void wait_together(std::uint32_t at, std::uint32_t parity) const {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "AGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "vote.sync.all.pred p, p, 0xffffffff;\n"
        "@!p bra AGAIN;\n"
        "}" ::"r"(base_ + at), "r"(parity)
        : "memory");
  }

  /// Registers written so far are the instructions' from here on.
  __device__ __forceinline__ void group_fence() const { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
  /// d (+)= a b by the warpgroup of this warp; d and a are functions from a lane to its registers.
  /// group_multiply_shared: a, of all 64 rows, lies in shared memory too.
  template <class Element, int kN, bool kTransposed, class D>
  __device__ __forceinline__ void group_multiply_shared(D&& d, const SharedMatrix& a, const SharedMatrix& b, bool accumulate) const {
    this->each_lane([&](Lane lane) {
      wgmma<Element, kN, kTransposed>(d(lane), descriptor(a), descriptor(b), accumulate);
    });
  }
  template <class Element, int kN, bool kTransposed, class D, class A>
  __device__ __forceinline__ void group_multiply(D&& d, A&& a, const SharedMatrix& b, bool accumulate) const {
    this->each_lane([&](Lane lane) {
      wgmma<Element, kN, kTransposed>(d(lane), a(lane), descriptor(b), accumulate);
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

 protected:
  /// A barrier of the `threads` threads that name the same `id`; 0 is the block's.
  __device__ __forceinline__ static void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
  }

 private:
  /// In a form of which only the lower word depends on the place, by one sum: what of the place is constant is part of a constant.
  [[nodiscard]] __device__ __forceinline__ std::uint64_t descriptor(const SharedMatrix& m) const {
    const std::uint64_t of_shape = matrix_descriptor(0, m);
    const std::uint32_t low = (base_ >> 4) + (m.offset >> 4) + static_cast<std::uint32_t>(of_shape);
    return of_shape >> 32 << 32 | low;
  }
};

/// A warp that multiplies. Warpgroups share nothing but the ring, so that what is a block's barrier elsewhere is a group's.
class ConsumerExec : public WarpExec {
 public:
  using WarpExec::WarpExec;
  __device__ __forceinline__ void block_barrier() const {
    named_barrier(1 + this->warp() / kGroupWarps, kGroupWarps * kLanes);
  }
};

/// A warp that decodes, of kWarps that come after kFirst others in the block. They wait for each other only to agree.
template <int kFirst, int kWarps>
class ProducerExec : public WarpExec {
 public:
  using WarpExec::WarpExec;
  /// Found again wherever it is asked for: the loop has no register for it.
  [[nodiscard]] __device__ __forceinline__ int warp() const {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread / kLanes - kFirst;
  }
  [[nodiscard]] __device__ __forceinline__ int num_warps() const { return kWarps; }
  template <class F>
  [[nodiscard]] __device__ __forceinline__ bool block_any(F&& f) const {
    int any = 0;
    this->each_lane([&](Lane lane) {
      asm volatile(
          "{\n"
          ".reg .pred p, q;\n"
          "setp.ne.s32 p, %1, 0;\n"
          "bar.red.or.pred q, %2, %3, p;\n"
          "selp.s32 %0, 1, 0, q;\n"
          "}"
          : "=r"(any)
          : "r"(f(lane) ? 1 : 0), "n"(1 + kFirst / kWarps), "n"(kWarps * kLanes)
          : "memory");
    });
    return this->any([&](Lane) { return any != 0; });
  }
};

static_assert(core::Exec<ConsumerExec> && core::Exec<ProducerExec<8, 4>>);

/// Registers of every thread of the warps that call it, out of what the block has: first some give, then others take.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace fp4pa::sm90
