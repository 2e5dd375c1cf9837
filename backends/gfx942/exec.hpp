// A wave of gfx942 as an Exec.
//
// gfx942 loads 4 bytes a lane straight to LDS and no more, so that 16 bytes go through registers: a copy is a load and a
// store to LDS, and has landed when copy_async_16 returns. Correct by definition of copy_wait, and without anything in
// flight beyond what the waves beside this one have; other waves hide the latency.
#pragma once

#include <cstdint>

#include "backends/gfx942/mma.hpp"
#include "backends/gfx942/wave.hpp"
#include "core/simt/exec.hpp"

namespace fp4pa::gfx942 {

class WaveExec : public Wave {
 public:
  using Wave::Wave;

  FP4PA_WAVE_FN void copy_async_16(Lane, std::uint32_t to, const void* from, bool valid) const {
    Words4 x = 0;
    if (valid) x = *(GlobalPointer<Words4>)(reinterpret_cast<std::uintptr_t>(from));
    *at<Words4>(to) = x;
  }
  FP4PA_WAVE_FN void copy_commit() const {}
  template <int kNewest>
  FP4PA_WAVE_FN void copy_wait() const {}

  /// d += a b, each a function from a lane to its registers.
  template <class Atom, class D, class A, class B>
  FP4PA_WAVE_FN void multiply(D&& d, A&& a, B&& b) const {
    auto& sum = d(lane_);
    InstructionOf<Atom>::Type::mma(sum, a(lane_), b(lane_), sum);
  }
};

static_assert(core::Exec<WaveExec>);

}  // namespace fp4pa::gfx942
