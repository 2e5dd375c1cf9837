// A warp of SM120 and SM121 as an Exec: sm_80's, and the block-scaled matrix instructions.
#pragma once

#include <cstdint>

#include "backends/sm120/mma.hpp"
#include "backends/sm80/exec.hpp"

namespace fp4pa::sm120 {

namespace detail {
template <class Atom>
struct InstructionOf;
template <class A, class B>
struct InstructionOf<MmaMxf8f6f4M16N8K32<A, B>> {
  using Type = MmaMxf8f6f4M16N8K32Instruction<A, B>;
};
template <>
struct InstructionOf<MmaMxf4M16N8K64> {
  using Type = MmaMxf4M16N8K64Instruction;
};
template <>
struct InstructionOf<MmaMxf4nvf4Ue4m3M16N8K64> {
  using Type = MmaMxf4nvf4Ue4m3M16N8K64Instruction;
};
}  // namespace detail

class WarpExec : public sm80::WarpExec {
 public:
  using sm80::WarpExec::WarpExec;

  /// d += a b with block scales, each a function from a lane to its registers or its word of scales.
  template <class Atom, core::ScaleSelect kSelectA, core::ScaleSelect kSelectB, class D, class A, class B, class ScaleA,
            class ScaleB>
  __device__ __forceinline__ void multiply_scaled(D&& d, A&& a, B&& b, ScaleA&& sfa, ScaleB&& sfb) const {
    this->each_lane([&](Lane lane) {
      auto& sum = d(lane);
      detail::InstructionOf<Atom>::Type::template mma<kSelectA, kSelectB>(sum, a(lane), b(lane), sum, sfa(lane), sfb(lane));
    });
  }
};

static_assert(core::Exec<WarpExec>);

}  // namespace fp4pa::sm120
