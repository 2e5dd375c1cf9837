// Every map of every atom is a bijection, its peer bits are those of its C map, and its runs are what loaders rely on.
// All of it is decided by the compiler.

#include "core/atom/properties.hpp"
#include "core/atom/roles.hpp"
#include "tests/conformance/atoms_under_test.hpp"

namespace fp4pa::conformance {
namespace {

using core::is_well_formed;
using core::ScaleSelect;

template <class Atom, bool kOfA>
consteval bool all_scales_are_bijective() {
  int valid = 0;
  for (int byte = 0; byte < 4; ++byte) {
    for (int thread = 0; thread < 4; ++thread) {
      const ScaleSelect s{byte, thread};
      if (!(kOfA ? Atom::valid_select_a(s) : Atom::valid_select_b(s))) continue;
      ++valid;
      if (!core::scales_are_bijective<Atom, kOfA>(s)) return false;
    }
  }
  return valid > 0;
}

template <class Atom>
inline constexpr bool kScalesAreBijective =
    all_scales_are_bijective<Atom, true>() && all_scales_are_bijective<Atom, false>();

static_assert(is_well_formed<Sm80F16>() && is_well_formed<Sm80Bf16>());
static_assert(is_well_formed<Sm120Fp8Fp4>() && is_well_formed<Sm120Fp4Fp8>() && is_well_formed<Sm120Fp8Fp8>());
static_assert(is_well_formed<Sm120Mxf4>() && is_well_formed<Sm120Nvf4>() && is_well_formed<Sm120Nvf4Ue8m0>());
static_assert(is_well_formed<Gfx942Fp8>() && is_well_formed<Gfx942F16>() && is_well_formed<Gfx942Bf16>());
static_assert(is_well_formed<Gfx950F16>() && is_well_formed<Gfx950Bf16>());
static_assert(is_well_formed<Gfx950Square16<E4M3, E2M1>>() && is_well_formed<Gfx950Square16<E2M1, E4M3>>());
static_assert(is_well_formed<Gfx950Square16<E2M1, E2M1>>() && is_well_formed<Gfx950Square16<E4M3, E4M3>>());
static_assert(is_well_formed<Gfx950Square32<E4M3, E2M1>>() && is_well_formed<Gfx950Square32<E2M1, E4M3>>());
static_assert(is_well_formed<Gfx950Square32<E2M1, E2M1>>() && is_well_formed<Gfx950Square32<E4M3, E4M3>>());

static_assert(kScalesAreBijective<Sm120Fp8Fp4> && kScalesAreBijective<Sm120Fp4Fp8>);
static_assert(kScalesAreBijective<Sm120Fp8Fp8>);
static_assert(kScalesAreBijective<Sm120Mxf4> && kScalesAreBijective<Sm120Nvf4> && kScalesAreBijective<Sm120Nvf4Ue8m0>);
static_assert(kScalesAreBijective<Gfx950Square16<E2M1, E4M3>> && kScalesAreBijective<Gfx950Square32<E2M1, E4M3>>);

// A register, or several, of neighbours along k: what a fragment is loaded in.
static_assert(core::a_run<Sm80F16>() == 2 && core::b_run<Sm80F16>() == 2);
static_assert(core::a_run<Sm120Fp8Fp4>() == 4 && core::b_run<Sm120Fp8Fp4>() == 4);
static_assert(core::a_run<Sm120Nvf4>() == 8 && core::b_run<Sm120Nvf4>() == 8);
static_assert(core::a_run<Gfx942Fp8>() == 8 && core::a_run<Gfx942F16>() == 4);
static_assert(core::a_run<Gfx950Square16<E2M1, E4M3>>() == 32 && core::b_run<Gfx950Square16<E2M1, E4M3>>() == 16);
static_assert(core::a_run<Gfx950Square32<E2M1, E4M3>>() == 32 && core::b_run<Gfx950Square32<E2M1, E4M3>>() == 16);

// A map with a fault is not a bijection: the checks can fail.
struct TwoRowsAlike : Sm120Mxf4 {
  FP4PA_FN static constexpr core::RowK a_coord(int lane, int value) {
    core::RowK x = Sm120Mxf4::a_coord(lane, value);
    if (x.row == 9) x.row = 1;
    return x;
  }
};
static_assert(!is_well_formed<TwoRowsAlike>());
struct WrongPeers : Sm120Mxf4 {
  static constexpr unsigned kRowPeerBits = 0b00001;
};
static_assert(!is_well_formed<WrongPeers>());
struct ScaleTwice : Sm120Mxf4 {
  FP4PA_FN static constexpr core::ScaleCoord sfa_coord(int lane, int byte, ScaleSelect s) {
    return Sm120Mxf4::sfa_coord(lane & ~1, byte, s);
  }
};
static_assert(!core::scales_are_bijective<ScaleTwice, true>({}));

// The concept refuses what is not an atom.
static_assert(!core::AtomTraits<int>);
static_assert(!core::ScaledAtomTraits<Sm80F16>);
static_assert(core::AtomInstruction<Sm80F16> == false);

}  // namespace
}  // namespace fp4pa::conformance
