// The list of atoms, under short names, and the executor that runs an atom's ISA model.
#pragma once

#include "backends/emulator/isa/emulated.hpp"
#include "tests/conformance/operands.hpp"

namespace fp4pa::conformance {

using core::BF16;
using core::E2M1;
using core::E4M3;
using core::F16;

using Sm80F16 = sm80::MmaM16N8K16<F16>;
using Sm80Bf16 = sm80::MmaM16N8K16<BF16>;
using Sm120Fp8Fp4 = sm120::MmaMxf8f6f4M16N8K32<E4M3, E2M1>;
using Sm120Fp4Fp8 = sm120::MmaMxf8f6f4M16N8K32<E2M1, E4M3>;
using Sm120Fp8Fp8 = sm120::MmaMxf8f6f4M16N8K32<E4M3, E4M3>;
using Sm120Mxf4 = sm120::MmaMxf4M16N8K64;
using Sm120Nvf4 = sm120::MmaMxf4nvf4Ue4m3M16N8K64;
using Sm120Nvf4Ue8m0 = sm120::MmaMxf4nvf4Ue8m0M16N8K64;
using Gfx942Fp8 = gfx942::MfmaF32_16x16x32_Fp8Fp8;
using Gfx942F16 = gfx942::MfmaF32_16x16x16_F16;
using Gfx942Bf16 = gfx942::MfmaF32_16x16x16_Bf16;
using Gfx950F16 = gfx950::MfmaF32_16x16x32<core::F16>;
using Gfx950Bf16 = gfx950::MfmaF32_16x16x32<core::BF16>;
template <class A, class B>
using Gfx950Square16 = gfx950::MfmaScaleF32_16x16x128_F8f6f4<A, B>;
template <class A, class B>
using Gfx950Square32 = gfx950::MfmaScaleF32_32x32x64_F8f6f4<A, B>;

/// Runs the model of an atom, written from the ISA tables.
template <class T>
struct ModelExecutor {
  using Atom = T;
  static constexpr double kTolerance = 0x1p-23;  // one rounding to f32

  void run(Selects select, std::span<const Inputs<Atom>> in, std::span<Outputs<Atom>> out) const {
    using Model = typename emulator::isa::ModelOf<Atom>::Type;
    const emulator::isa::Selectors selectors{select.a.byte, select.a.thread, select.b.byte, select.b.thread};
    for (std::size_t i = 0; i < in.size(); ++i) {
      emulator::isa::execute<Model>(in[i].a, in[i].b, in[i].c, in[i].sfa, in[i].sfb, selectors, out[i].d);
    }
  }
};

}  // namespace fp4pa::conformance
