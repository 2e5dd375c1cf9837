// A warp of sm_80 and later as an Exec (core/simt/exec.hpp): a lane region runs once, by every lane for itself.
//
// Source of the instructions: PTX ISA 9.0, "cp.async", "ldmatrix", "movmatrix", "redux.sync".
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>

#include "backends/sm80/mma.hpp"
#include "core/simt/exec.hpp"

namespace fp4pa::sm80 {

class WarpExec {
 public:
  static constexpr int kLanes = 32;

  struct Lane {
    int id;
  };
  template <class T>
  struct PerLane {
    T value;
    __device__ __forceinline__ T& operator[](Lane) { return value; }
    __device__ __forceinline__ const T& operator[](Lane) const { return value; }
  };

  /// threadIdx.x, read anew: what was computed from it before is not kept in registers up to here.
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t thread_anew() {
    std::uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
  }

  /// @param shared  the block's dynamic shared memory, aligned to 128 bytes
  /// @param thread  the caller's threadIdx.x
  __device__ __forceinline__ explicit WarpExec(std::uint8_t* shared, std::uint32_t thread = threadIdx.x)
      : base_(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
        shared_(shared),
        lane_{static_cast<int>(thread % kLanes)},
        // The same in all lanes, which the compiler cannot see.
        warp_(__shfl_sync(kAll, static_cast<int>(thread / kLanes), 0)) {}

  [[nodiscard]] __device__ __forceinline__ int warp() const { return warp_; }
  [[nodiscard]] __device__ __forceinline__ int num_warps() const {
    __builtin_assume(blockDim.x % kLanes == 0);
    return static_cast<int>(blockDim.x / kLanes);
  }

  template <class F>
  __device__ __forceinline__ void each_lane(F&& f) const {
    f(lane_);
  }

  template <class T>
  [[nodiscard]] __device__ __forceinline__ PerLane<T> shuffle_xor(const PerLane<T>& x, int mask) const {
    return {__shfl_xor_sync(kAll, x.value, mask)};
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t reduce_max(const PerLane<std::uint32_t>& x) const {
    return __reduce_max_sync(kAll, x.value);
  }
  template <class F>
  [[nodiscard]] __device__ __forceinline__ bool any(F&& f) const {
    return __any_sync(kAll, f(lane_)) != 0;
  }

  __device__ __forceinline__ void warp_barrier() const { __syncwarp(); }
  __device__ __forceinline__ void block_barrier() const { __syncthreads(); }

  /// What lies at an offset.
  template <class T>
  [[nodiscard]] __device__ __forceinline__ T* at_shared(std::uint32_t offset) const {
    return reinterpret_cast<T*>(shared_ + offset);
  }

  template <class T>
  __device__ __forceinline__ void store_shared(Lane, std::uint32_t offset, T value) const {
    *reinterpret_cast<T*>(shared_ + offset) = value;
  }
  template <class T>
  [[nodiscard]] __device__ __forceinline__ T load_shared(Lane, std::uint32_t offset) const {
    return *reinterpret_cast<const T*>(shared_ + offset);
  }
  /// 16 bytes as four words.
  __device__ __forceinline__ void load_shared_16(Lane, std::uint32_t offset, std::uint32_t (&words)[4]) const {
    const uint4 x = *reinterpret_cast<const uint4*>(shared_ + offset);
    words[0] = x.x;
    words[1] = x.y;
    words[2] = x.z;
    words[3] = x.w;
  }
  template <class T>
  [[nodiscard]] __device__ __forceinline__ T load_global(const void* from) const {
    if constexpr (sizeof(T) == 16) {
      return std::bit_cast<T>(__ldg(static_cast<const uint4*>(from)));
    } else if constexpr (sizeof(T) == 8) {
      return std::bit_cast<T>(__ldg(static_cast<const uint2*>(from)));
    } else {
      return __ldg(static_cast<const T*>(from));
    }
  }

  [[nodiscard]] __device__ __forceinline__ static float f16_to_f32(std::uint16_t half) {
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(half));
    return out;
  }

  /// x, of which the compiler knows nothing any more: a shuffle is not computed a second time to spare a register.
  template <class T>
  [[nodiscard]] __device__ __forceinline__ static T* opaque(T* x) {
    const auto lane = static_cast<int>(threadIdx.x % kLanes);
    return reinterpret_cast<T*>(__shfl_sync(kAll, reinterpret_cast<unsigned long long>(x), lane));
  }

  [[nodiscard]] __device__ __forceinline__ static std::uint32_t opaque(std::uint32_t x) {
    return __shfl_sync(kAll, x, static_cast<int>(threadIdx.x % kLanes));
  }

  /// x, of which the compiler has computed nothing before: what depends on it is not kept in registers from there to here.
  [[nodiscard]] __device__ __forceinline__ static int anew(int x) {
    asm volatile("" : "+r"(x));
    return x;
  }
  /// From here on what depends on the lane is computed anew.
  /// @tparam kKeepsRange  that it is less than 32 stays known: divisions of it are shifts
  template <bool kKeepsRange>
  __device__ __forceinline__ void forget() {
    lane_.id = anew(lane_.id);
    if constexpr (kKeepsRange) lane_.id &= kLanes - 1;
  }

  /// from + a * b.
  [[nodiscard]] __device__ __forceinline__ static const std::uint8_t* add_product(const std::uint8_t* from, std::uint32_t a,
                                                                                  std::uint32_t b) {
    const std::uint8_t* out;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(out) : "r"(a), "r"(b), "l"(from));
    return out;
  }

  /// cp.async.cg: past the first-level cache, since no byte is read twice. With a source size of 0 nothing is read.
  __device__ __forceinline__ void copy_async_16(Lane, std::uint32_t to, const void* from, bool valid) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(base_ + to), "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
  }
  /// The same of 8 and of 4 bytes, which go through the first-level cache.
  __device__ __forceinline__ void copy_async_8(Lane, std::uint32_t to, const void* from, bool valid) const {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(base_ + to), "l"(from), "r"(valid ? 8 : 0) : "memory");
  }
  __device__ __forceinline__ void copy_async_4(Lane, std::uint32_t to, const void* from, bool valid) const {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(base_ + to), "l"(from), "r"(valid ? 4 : 0) : "memory");
  }
  __device__ __forceinline__ void copy_commit() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int kNewest>
  __device__ __forceinline__ void copy_wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
  }

  /// Four 8x8 matrices of 16-bit elements. Lane l gives the offset of row l % 8 of matrix l / 8; word m of a lane is row
  /// lane / 4, columns 2 (lane % 4) and the next, of matrix m, or of its transpose.
  template <bool kTransposed, class Offset, class Words>
  __device__ __forceinline__ void load_matrix(Offset&& offset, Words&& words) const {
    std::uint32_t(&w)[4] = words(lane_);
    const std::uint32_t from = base_ + offset(lane_);
    if constexpr (kTransposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                   : "r"(from));
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                   : "r"(from));
    }
  }

  /// The transpose of an 8x8 matrix of 16-bit elements, held as load_matrix leaves it.
  template <class Word>
  __device__ __forceinline__ void transpose(Word&& word) const {
    std::uint32_t& w = word(lane_);
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(w));
  }

  /// d += a b, each a function from a lane to its registers.
  template <class Element, class D, class A, class B>
  __device__ __forceinline__ void multiply(D&& d, A&& a, B&& b) const {
    MmaM16N8K16Instruction<Element>::accumulate(d(lane_), a(lane_), b(lane_));
  }

 protected:
  std::uint32_t base_;  // of the block's shared memory, in the shared window

 private:
  static constexpr unsigned kAll = 0xffffffffu;
  std::uint8_t* shared_;
  Lane lane_;
  int warp_;
};

static_assert(core::Exec<WarpExec>);

}  // namespace fp4pa::sm80
