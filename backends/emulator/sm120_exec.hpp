// What SM120 and SM121 have beyond sm_80: block-scaled products.
#pragma once

#include "backends/emulator/sm80_exec.hpp"

namespace fp4pa::emulator {

class Sm120Exec : public Sm80Exec {
 public:
  using Sm80Exec::Sm80Exec;

  /// d += a b with block scales, each a function from a lane to its registers or its word of scales.
  template <class Atom, core::ScaleSelect kSelectA, core::ScaleSelect kSelectB, class D, class A, class B, class SfA,
            class SfB>
  void multiply_scaled(D&& d, A&& a, B&& b, SfA&& sfa, SfB&& sfb) {
    const ByLane<Lane, D> sum{d};
    isa::Emulated<Atom>::template mma<kSelectA, kSelectB>(sum, ByLane<Lane, A>{a}, ByLane<Lane, B>{b}, sum,
                                                          ByLane<Lane, SfA>{sfa}, ByLane<Lane, SfB>{sfb});
  }
};

static_assert(core::Exec<Sm120Exec>);

}  // namespace fp4pa::emulator
