// Which model stands for which atom, and the model in the shape of an instruction: what the emulator runs in the place
// of device code.
//
// This is the only place where the shims' traits and the ISA models meet, and they meet by name alone.
#pragma once

#include "backends/emulator/isa/gfx942_mfma.hpp"
#include "backends/emulator/isa/gfx950_mfma.hpp"
#include "backends/emulator/isa/matrix.hpp"
#include "backends/emulator/isa/sm120_mma.hpp"
#include "backends/emulator/isa/sm80_mma.hpp"
#include "backends/gfx942/atoms.hpp"
#include "backends/gfx950/atoms.hpp"
#include "backends/sm120/atoms.hpp"
#include "backends/sm80/atoms.hpp"
#include "core/atom/atom.hpp"

namespace fp4pa::emulator::isa {

/// The code rule of an operand element where an instruction keeps it packed, or in a byte container.
template <class Element>
struct PackedCode;
template <>
struct PackedCode<core::E2M1> {
  using Type = Fp4Nibble;
};
template <>
struct PackedCode<core::E4M3> {
  using Type = Fp8Ocp;
};
template <>
struct PackedCode<core::F16> {
  using Type = Half;
};
template <>
struct PackedCode<core::BF16> {
  using Type = Bfloat;
};
template <class Element>
using Packed = typename PackedCode<Element>::Type;

template <class Element>
struct ByteCode {
  using Type = Packed<Element>;
};
template <>
struct ByteCode<core::E2M1> {
  using Type = Fp4Container;
};

template <class Atom>
struct ModelOf;
template <class A, class B>
struct ModelOf<sm120::MmaMxf8f6f4M16N8K32<A, B>> {
  using Type = Sm120Bytes<typename ByteCode<A>::Type, typename ByteCode<B>::Type>;
};
template <>
struct ModelOf<sm120::MmaMxf4M16N8K64> {
  using Type = Sm120PackedFp4<ScaleE8, 2>;
};
template <>
struct ModelOf<sm120::MmaMxf4nvf4Ue8m0M16N8K64> {
  using Type = Sm120PackedFp4<ScaleE8, 2>;
};
template <>
struct ModelOf<sm120::MmaMxf4nvf4Ue4m3M16N8K64> {
  using Type = Sm120PackedFp4<ScaleUe4m3, 4>;
};
template <class Element>
struct ModelOf<sm80::MmaM16N8K16<Element>> {
  using Type = Sm80M16N8K16<Packed<Element>>;
};
template <class A, class B>
struct ModelOf<gfx950::MfmaScaleF32_16x16x128_F8f6f4<A, B>> {
  using Type = Gfx950MfmaScale<Packed<A>, Packed<B>, 16, 128>;
};
template <class A, class B>
struct ModelOf<gfx950::MfmaScaleF32_32x32x64_F8f6f4<A, B>> {
  using Type = Gfx950MfmaScale<Packed<A>, Packed<B>, 32, 64>;
};
template <>
struct ModelOf<gfx942::MfmaF32_16x16x32_Fp8Fp8> {
  using Type = Gfx942Mfma16x16<Fp8Fnuz>;
};
template <>
struct ModelOf<gfx942::MfmaF32_16x16x16_F16> {
  using Type = Gfx942Mfma16x16<Half>;
};
template <>
struct ModelOf<gfx942::MfmaF32_16x16x16_Bf16> {
  using Type = Gfx942Mfma16x16<Bfloat>;
};
template <class Element>
struct ModelOf<gfx950::MfmaF32_16x16x32<Element>> {
  using Type = Gfx942Mfma16x16<Packed<Element>, 128>;
};

/// An AtomInstruction whose operands are all lanes' at once: anything indexed [lane][register], scales [lane].
template <core::AtomTraits T>
struct Emulated {
  using Atom = T;
  using Model = typename ModelOf<T>::Type;
  static_assert(Model::kLanes == T::kLanes);

  template <core::ScaleSelect kSelectA = core::ScaleSelect{}, core::ScaleSelect kSelectB = core::ScaleSelect{}, class D,
            class A, class B, class C, class ScalesA, class ScalesB>
  static void mma(D& d, const A& a, const B& b, const C& c, const ScalesA& sfa, const ScalesB& sfb) {
    static_assert(T::valid_select_a(kSelectA) && T::valid_select_b(kSelectB));
    execute<Model>(a, b, c, sfa, sfb, Selectors{kSelectA.byte, kSelectA.thread, kSelectB.byte, kSelectB.thread}, d);
  }

  template <class D, class A, class B, class C>
    requires(!core::kIsScaled<T>)
  static void mma(D& d, const A& a, const B& b, const C& c) {
    execute<Model>(a, b, c, nullptr, nullptr, Selectors{}, d);
  }
};

}  // namespace fp4pa::emulator::isa
