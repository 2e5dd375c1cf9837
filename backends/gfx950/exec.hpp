// A wave of gfx950 as an Exec: gfx942's, with 16-byte loads that go straight to LDS, transposing LDS reads, and the
// block-scaled products.
//
// A direct load puts lane i's 16 bytes at m0 + 16 i, so that a wave's targets must be base + 16 lane, as the key stream makes
// them. Lanes without a source store zeros. The load is written in assembly because the compiler, which cannot know
// what it overwrites, would wait for all of them before any later LDS read. It follows that the compiler does not count them
// either: its own waits for other loads then wait for too much and never for too little, and ours are in copy_wait.
//
// vmcnt counts the wave's vector memory operations in order. copy_wait<N> has to leave at most the N newest groups under way:
// it counts the direct loads of those groups and waits until no more operations than that are left. Other loads among them
// make it wait longer, never shorter.
#pragma once

#include <cstdint>

#include "backends/gfx942/wave.hpp"
#include "backends/gfx950/copies.hpp"
#include "backends/gfx950/mma.hpp"
#include "core/simt/exec.hpp"

#if !defined(FP4PA_GFX950_DIRECT_LOADS)
#define FP4PA_GFX950_DIRECT_LOADS 1  // 0: copies through registers, as on gfx942
#endif

namespace fp4pa::gfx950 {

class WaveExec : public gfx942::Wave {
 public:
  using Wave::Wave;

  FP4PA_WAVE_FN void copy_async_16(Lane, std::uint32_t to, const void* from, bool valid) {
#if FP4PA_GFX950_DIRECT_LOADS
    // Which lanes are here is a matter of the loop around; the target of lane 0 is the same whichever is asked.
    const auto base = static_cast<std::uint32_t>(
        __builtin_amdgcn_readfirstlane(static_cast<int>(base_ + to - 16u * static_cast<std::uint32_t>(lane_.id))));
    if (valid) {
      asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %1, off" ::"s"(base), "v"(from) : "memory", "m0");
    } else {
      *at<gfx942::Words4>(to) = gfx942::Words4(0);
    }
    open_ += __builtin_amdgcn_ballot_w64(valid) != 0 ? 1 : 0;
#else
    gfx942::Words4 x = 0;
    if (valid) x = *(gfx942::GlobalPointer<gfx942::Words4>)(reinterpret_cast<std::uintptr_t>(from));
    *at<gfx942::Words4>(to) = x;
#endif
  }
  FP4PA_WAVE_FN void copy_commit() {
    older_ = newest_;
    newest_ = __builtin_amdgcn_readfirstlane(open_);  // lane 0 has not taken part in more loads than there were
    open_ = 0;
  }
  template <int kNewest>
  FP4PA_WAVE_FN void copy_wait() const {
    const int left = kNewest == 0 ? 0 : kNewest == 1 ? newest_ : newest_ + older_;
    if (left >= 32) {
      wait_loads<32>();
    } else if (left >= 16) {
      wait_loads<16>();
    } else if (left >= 8) {
      wait_loads<8>();
    } else if (left >= 4) {
      wait_loads<4>();
    } else {
      wait_loads<0>();
    }
  }

  /// ds_read_b64_tr_b4 and _b16: every lane points at 8 bytes; see copies.hpp.
  template <int kBits, class Offset, class Words>
  FP4PA_WAVE_FN void read_transposed(Offset&& offset, Words&& words) const {
    static_assert(kBits == 4 || kBits == 16);
    const auto from = at<void>(offset(lane_));
    if constexpr (kBits == 4) {
      read_transposed_4(words(lane_), from);
    } else {
      read_transposed_16(words(lane_), from);
    }
  }

  /// d += a b, each a function from a lane to its registers.
  template <class Atom, class D, class A, class B>
  FP4PA_WAVE_FN void multiply(D&& d, A&& a, B&& b) const {
    auto& sum = d(lane_);
    InstructionOf<Atom>::Type::mma(sum, a(lane_), b(lane_), sum);
  }
  /// The same with block scales; scales_a and scales_b are functions from a lane to its word of scales.
  template <class Atom, core::ScaleSelect kSelectA, core::ScaleSelect kSelectB, class D, class A, class B, class ScalesA,
            class ScalesB>
  FP4PA_WAVE_FN void multiply_scaled(D&& d, A&& a, B&& b, ScalesA&& scales_a, ScalesB&& scales_b) const {
    auto& sum = d(lane_);
    InstructionOf<Atom>::Type::template mma<kSelectA, kSelectB>(sum, a(lane_), b(lane_), sum, scales_a(lane_),
                                                                scales_b(lane_));
  }

 private:
  // Direct loads of the group being asked for, of the newest one that is closed, and of the one before.
  int open_ = 0;
  int newest_ = 0;
  int older_ = 0;
};

static_assert(core::Exec<WaveExec>);

}  // namespace fp4pa::gfx950
