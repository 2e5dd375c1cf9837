// A wave of 64 lanes of gfx942 and gfx950 as an Exec (core/simt/exec.hpp), less what the two do differently: matrix products
// and copies. A lane region runs once, by every lane for itself.
//
// Shared memory (LDS) is reached by 32-bit addresses of its own address space; through generic pointers every access would be
// a flat one, which waits for global memory too. LDS serves a wave's operations in order, so that within a wave a barrier
// has only to keep the compiler from reordering them; it also waits for them, because a direct load to LDS comes by another
// way and could overtake a read.
// Sources: CDNA4 ISA 4.4 (waits), 11 (LDS); LLVM AMDGPU memory model.
#pragma once

#include <bit>
#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::gfx942 {

#define FP4PA_WAVE_FN __attribute__((device, always_inline)) inline

template <class T>
using LdsPointer = __attribute__((address_space(3))) T*;
template <class T>
using GlobalPointer = const __attribute__((address_space(1))) T*;
using Words2 = std::uint32_t __attribute__((ext_vector_type(2)));
using Words4 = std::uint32_t __attribute__((ext_vector_type(4)));

class Wave {
 public:
  static constexpr int kLanes = 64;

  struct Lane {
    int id;
  };
  template <class T>
  struct PerLane {
    T value;
    FP4PA_WAVE_FN T& operator[](Lane) { return value; }
    FP4PA_WAVE_FN const T& operator[](Lane) const { return value; }
  };

  /// @param shared     the block's LDS, aligned to 128 bytes
  /// @param num_warps  waves of the block
  FP4PA_WAVE_FN Wave(std::uint8_t* shared, int num_warps)
      : base_(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>((LdsPointer<std::uint8_t>)(shared)))),
        lane_{static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)))},
        // The same in all lanes, which the compiler cannot see.
        warp_(__builtin_amdgcn_readfirstlane(static_cast<int>(__builtin_amdgcn_workitem_id_x() / kLanes))),
        num_warps_(num_warps) {}

  [[nodiscard]] FP4PA_WAVE_FN int warp() const { return warp_; }
  [[nodiscard]] FP4PA_WAVE_FN int num_warps() const { return num_warps_; }

  template <class F>
  FP4PA_WAVE_FN void each_lane(F&& f) const {
    f(lane_);
  }

  /// The lane again, as far as the compiler can tell another one: addresses made of it cannot be computed once for all tiles
  /// and kept, which would take more registers than there are.
  [[nodiscard]] FP4PA_WAVE_FN static Lane anew(Lane lane) {
    lane.id = anew(lane.id);
    __builtin_assume(lane.id < kLanes);
    return lane;
  }
  /// x, of which the compiler has computed nothing before.
  [[nodiscard]] FP4PA_WAVE_FN static std::uint32_t anew(std::uint32_t x) {
    asm volatile("" : "+v"(x));
    return x;
  }
  /// The same of an index, which is not negative: else its quotients and remainders allow for that.
  [[nodiscard]] FP4PA_WAVE_FN static int anew(int x) {
    const auto index = static_cast<int>(anew(static_cast<std::uint32_t>(x)));
    __builtin_assume(index >= 0);
    return index;
  }
  /// x, which is the same in all lanes, in a scalar register.
  [[nodiscard]] FP4PA_WAVE_FN static int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }
  /// From here on what depends on the lane, or on the wave, is computed anew.
  FP4PA_WAVE_FN void forget() {
    lane_ = anew(lane_);
    warp_ = uniform(anew(warp_));
    num_warps_ = uniform(anew(num_warps_));
  }

  template <class T>
  [[nodiscard]] FP4PA_WAVE_FN PerLane<T> shuffle_xor(const PerLane<T>& x, int mask) const {
    static_assert(sizeof(T) == 4);
    const int bits = __builtin_amdgcn_ds_bpermute(4 * (lane_.id ^ mask), std::bit_cast<int>(x.value));
    return {std::bit_cast<T>(bits)};
  }
  [[nodiscard]] FP4PA_WAVE_FN std::uint32_t reduce_max(const PerLane<std::uint32_t>& x) const {
    PerLane<std::uint32_t> max = x;
    FP4PA_UNROLL
    for (int bit = 1; bit < kLanes; bit *= 2) {
      const std::uint32_t peer = shuffle_xor(max, bit).value;
      max.value = peer > max.value ? peer : max.value;
    }
    return static_cast<std::uint32_t>(__builtin_amdgcn_readfirstlane(static_cast<int>(max.value)));
  }
  template <class F>
  [[nodiscard]] FP4PA_WAVE_FN bool any(F&& f) const {
    return __builtin_amdgcn_ballot_w64(f(lane_)) != 0;
  }

  FP4PA_WAVE_FN void warp_barrier() const { asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory"); }
  FP4PA_WAVE_FN void block_barrier() const { asm volatile("s_waitcnt lgkmcnt(0)\n\ts_barrier" ::: "memory"); }

  template <class T>
  FP4PA_WAVE_FN void store_shared(Lane, std::uint32_t offset, T value) const {
    *at<T>(offset) = value;
  }
  template <class T>
  [[nodiscard]] FP4PA_WAVE_FN T load_shared(Lane, std::uint32_t offset) const {
    return *at<T>(offset);
  }
  /// 16 bytes as four words.
  FP4PA_WAVE_FN void load_shared_16(Lane, std::uint32_t offset, std::uint32_t (&words)[4]) const {
    const Words4 x = *at<Words4>(offset);
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = x[i];
  }
  template <class T>
  [[nodiscard]] FP4PA_WAVE_FN T load_global(const void* from) const {
    return *(GlobalPointer<T>)(reinterpret_cast<std::uintptr_t>(from));
  }

 protected:
  template <class T>
  [[nodiscard]] FP4PA_WAVE_FN LdsPointer<T> at(std::uint32_t offset) const {
    return (LdsPointer<T>)(base_ + offset);
  }
  std::uint32_t base_;
  Lane lane_;
  int warp_;
  int num_warps_;
};

}  // namespace fp4pa::gfx942
