// A wave of gfx950 as an Exec: gfx942's, with 16-byte loads that go straight to LDS, transposing LDS reads, and the
// block-scaled products.
//
// A direct load puts lane i's 16 bytes at m0 + 16 i, so that a wave's targets must be base + 16 lane, as the key stream makes
// them. Lanes without a source store zeros. Of the two instructions that do this, buffer and global, the buffer's is the one
// that simulators of the ISA have known for longer. The load is written in assembly because the compiler, which cannot know
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
#define FP4PA_GFX950_DIRECT_LOADS 1  // 2: by the global instruction; 0: copies through registers, as on gfx942
#endif
#if !defined(FP4PA_GFX950_TRANSPOSED_READS)
#define FP4PA_GFX950_TRANSPOSED_READS 1  // 0: plain reads, and an exchange between lanes
#endif

namespace fp4pa::gfx950 {

class WaveExec : public gfx942::Wave {
 public:
  using Wave::Wave;

  FP4PA_WAVE_FN void copy_async_16([[maybe_unused]] Lane lane, std::uint32_t to, const void* from, bool valid) {
#if FP4PA_GFX950_DIRECT_LOADS
    // Which lanes are here is a matter of the loop around; the target of lane 0 is the same whichever is asked.
    const std::uint32_t base = to - 16u * static_cast<std::uint32_t>(lane.id);
    copy_lanes_16(lane, static_cast<std::uint32_t>(__builtin_amdgcn_readfirstlane(static_cast<int>(base))), from, valid);
#else
    gfx942::Words4 x = 0;
    if (valid) x = *(gfx942::GlobalPointer<gfx942::Words4>)(reinterpret_cast<std::uintptr_t>(from));
    *at<gfx942::Words4>(to) = x;
#endif
  }
#if FP4PA_GFX950_DIRECT_LOADS
  /// The same for lanes whose targets are base + 16 lane, with a base that the compiler sees to be the wave's.
  FP4PA_WAVE_FN void copy_lanes_16(Lane lane, std::uint32_t base, const void* from, bool valid) {
    const std::uint64_t with_source = __builtin_amdgcn_ballot_w64(valid);
    open_ += with_source != 0 ? 1 : 0;
    if (with_source == __builtin_amdgcn_ballot_w64(true)) {  // mostly; and a branch of the wave
      load_direct(base_ + base, reinterpret_cast<std::uintptr_t>(from));
    } else if (valid) {
      load_direct(base_ + base, reinterpret_cast<std::uintptr_t>(from));
    } else {
      *at<gfx942::Words4>(base + 16u * static_cast<std::uint32_t>(lane.id)) = gfx942::Words4(0);
    }
  }
#endif
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
#if FP4PA_GFX950_TRANSPOSED_READS
      read_transposed_16(words(lane_), from);
#else
      exchange_16(*static_cast<const gfx942::LdsPointer<const gfx942::Words2>>(from), words(lane_));
#endif
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
  /// What ds_read_b64_tr_b16 makes of the lanes' 64 bits (copies.hpp).
  FP4PA_WAVE_FN void exchange_16(gfx942::Words2 mine, std::uint32_t (&out)[2]) const {
    std::uint32_t element[4];
    FP4PA_UNROLL
    for (int n = 0; n < 4; ++n) {
      const int from = 4 * transposed_coord<16>(lane_.id, n).lane;
      const auto low = static_cast<std::uint32_t>(__builtin_amdgcn_ds_bpermute(from, static_cast<int>(mine.x)));
      const auto high = static_cast<std::uint32_t>(__builtin_amdgcn_ds_bpermute(from, static_cast<int>(mine.y)));
      element[n] = ((lane_.id & 2) != 0 ? high : low) >> (16 * (lane_.id & 1)) & 0xffffu;
    }
    out[0] = element[0] | element[1] << 16;
    out[1] = element[2] | element[3] << 16;
  }
  /// The lane's 16 bytes at `from` to LDS at target + 16 lane. Five wait states lie between whatever made the scalar operands
  /// and the load.
  FP4PA_WAVE_FN static void load_direct(std::uint32_t target, std::uintptr_t from) {
#if FP4PA_GFX950_DIRECT_LOADS == 2
    asm volatile("s_mov_b32 m0, %0\n\ts_nop 4\n\tglobal_load_lds_dwordx4 %1, off" ::"s"(target), "v"(from) : "memory", "m0");
#else
    // Memory from 2^43 bytes below the first lane's source on, in 2^32 records of 2^13 bytes: any source within 8 TiB of it.
    const int high = __builtin_amdgcn_readfirstlane(static_cast<int>(from >> 32));
    const int origin = high > 0x800 ? high - 0x800 : 0;
    const auto low = static_cast<std::uint32_t>(from);
    const auto upper = static_cast<std::uint32_t>(from >> 32) - static_cast<std::uint32_t>(origin);
    const std::uint32_t record = __builtin_amdgcn_alignbit(upper, low, 13);
    const std::uint64_t record_and_offset = record | static_cast<std::uint64_t>(low & 0x1fffu) << 32;
    const gfx942::Words4 buffer{0, static_cast<std::uint32_t>(origin) | 0x2000u << 16, ~0u, 0x00020000u};
    asm volatile("s_mov_b32 m0, %0\n\ts_nop 4\n\tbuffer_load_dwordx4 %1, %2, 0 idxen offen lds" ::"s"(target),
                 "v"(record_and_offset), "s"(buffer)
                 : "memory", "m0");
#endif
  }

  // Direct loads of the group being asked for, of the newest one that is closed, and of the one before.
  int open_ = 0;
  int newest_ = 0;
  int older_ = 0;
};

static_assert(core::Exec<WaveExec>);

}  // namespace fp4pa::gfx950
