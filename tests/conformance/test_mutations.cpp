// Planted faults. Each is a mistake that somebody has made or nearly made, written as traits that differ from the
// right ones in one place; the conformance checks must find every one. A check that cannot fail proves nothing.
#include <doctest/doctest.h>

#include "tests/conformance/atoms_under_test.hpp"
#include "tests/conformance/checks.hpp"

namespace fp4pa::conformance {
namespace {

using core::ScaleCoord;
using core::ScaleSelect;

template <class Faulty, class Atom>
void expect_found(const char* fault) {
  ModelExecutor<Atom> executor;
  const Failure f = check_all<Faulty>(executor, nullptr);
  CHECK_MESSAGE(!f.empty(), fault);
  std::printf("  planted: %-34s found: %s\n", fault, f.c_str());
}

// --- scales ---

/// The upper and the lower rows' lanes of SFA exchanged.
template <class Atom>
struct SwappedSfaLanes : Atom {
  FP4PA_FN static constexpr ScaleCoord sfa_coord(int lane, int byte, ScaleSelect s) {
    return Atom::sfa_coord(lane ^ 1, byte, s);
  }
};

/// thread-id of A taken for the parity of the lane in its quad.
struct SfaThreadIsParity : Sm120Mxf4 {
  FP4PA_FN static constexpr ScaleCoord sfa_coord(int lane, int byte, ScaleSelect s) {
    const int t = lane % 4;
    const bool read = t % 2 == s.thread && byte >= s.byte && byte < s.byte + 2;
    return read ? ScaleCoord{lane / 4 + 8 * (t / 2), byte - s.byte} : core::kNotRead;
  }
};

/// SFB from lane 4n + 2 tid: what one published probe says.
struct SfbTwoLanesApart : Sm120Nvf4 {
  FP4PA_FN static constexpr ScaleCoord sfb_coord(int lane, int byte, ScaleSelect s) {
    return lane % 4 == 2 * s.thread ? ScaleCoord{lane / 4, byte} : core::kNotRead;
  }
};

/// Scale bytes in the wrong order along k.
struct ScaleBytesReversed : Sm120Nvf4 {
  FP4PA_FN static constexpr ScaleCoord sfa_coord(int lane, int byte, ScaleSelect s) {
    return Sm120Nvf4::sfa_coord(lane, 3 - byte, s);
  }
};

/// gfx950: blocks innermost, as if a row's scales were one word spread over four neighbours.
struct ScaleBlocksInnermost : Gfx950Square16<E2M1, E4M3> {
  FP4PA_FN static constexpr ScaleCoord sfa_coord(int lane, int byte, ScaleSelect s) {
    return byte == s.byte ? ScaleCoord{lane / 4, lane % 4} : core::kNotRead;
  }
};

/// gfx950: the scale of an FP8 block taken from a lane that holds the block's data.
struct ScaleFollowsFp8Data : Gfx950Square16<E2M1, E4M3> {
  FP4PA_FN static constexpr ScaleCoord sfb_coord(int lane, int byte, ScaleSelect s) {
    const int first_k = b_coord(lane, lane / 32 * 16).k;
    return byte == s.byte ? ScaleCoord{lane % 16, first_k / 32} : core::kNotRead;
  }
};

TEST_CASE("planted faults in scale maps are found") {
  expect_found<SwappedSfaLanes<Sm120Fp8Fp4>, Sm120Fp8Fp4>("swapped SFA lanes, 1X");
  expect_found<SwappedSfaLanes<Sm120Mxf4>, Sm120Mxf4>("swapped SFA lanes, 2X");
  expect_found<SwappedSfaLanes<Sm120Nvf4>, Sm120Nvf4>("swapped SFA lanes, 4X");
  expect_found<SwappedSfaLanes<Gfx950Square32<E2M1, E4M3>>, Gfx950Square32<E2M1, E4M3>>("swapped SFA lanes, gfx950");
  expect_found<SfaThreadIsParity, Sm120Mxf4>("SFA thread-id as lane parity");
  expect_found<SfbTwoLanesApart, Sm120Nvf4>("SFB from lane 4n + 2 tid");
  expect_found<ScaleBytesReversed, Sm120Nvf4>("scale bytes reversed");
  expect_found<ScaleBlocksInnermost, Gfx950Square16<E2M1, E4M3>>("scale blocks innermost");
  expect_found<ScaleFollowsFp8Data, Gfx950Square16<E2M1, E4M3>>("scale lane follows FP8 data");
}

template <class Atom>
void expect_wrong_selects_found(ScaleSelect packed, ScaleSelect executed) {
  ModelExecutor<Atom> executor;
  if (Atom::valid_select_a(packed) && Atom::valid_select_a(executed)) {
    CHECK_FALSE(check_scales<Atom>(executor, {packed, {}}, {executed, {}}).empty());
  }
  CHECK_FALSE(check_scales<Atom>(executor, {{}, packed}, {{}, executed}).empty());
  CHECK(check_scales<Atom>(executor, {{}, packed}, {{}, packed}).empty());
}

TEST_CASE("an instruction with the wrong selector is found") {
  for (const int wrong : {1, 2, 3}) {
    expect_wrong_selects_found<Sm120Fp8Fp4>({0, 0}, {wrong, 0});
    expect_wrong_selects_found<Sm120Fp8Fp4>({0, 0}, {0, wrong});
    expect_wrong_selects_found<Sm120Nvf4>({0, 0}, {0, wrong});
    expect_wrong_selects_found<Gfx950Square16<E2M1, E4M3>>({0, 0}, {wrong, 0});
  }
  expect_wrong_selects_found<Sm120Mxf4>({0, 0}, {2, 0});
  expect_wrong_selects_found<Sm120Mxf4>({2, 1}, {2, 0});
}

// --- elements ---

/// C with rows and columns exchanged: what querying C by hand on the other vendor's map amounts to.
template <class Atom>
struct TransposedC : Atom {
  FP4PA_FN static constexpr core::RowCol c_coord(int lane, int value) {
    const core::RowCol x = Atom::c_coord(lane, value);
    return {x.col, x.row};
  }
};

/// C's second pair of values taken for columns 8 on instead of rows 8 on, within the tile.
template <class Atom>
struct CRegistersSwapped : Atom {
  FP4PA_FN static constexpr core::RowCol c_coord(int lane, int value) { return Atom::c_coord(lane, value ^ 2); }
};

/// FP8 operands loaded as 32 contiguous k, as the FP4 ones are.
struct ContiguousFp8B : Gfx950Square16<E2M1, E4M3> {
  FP4PA_FN static constexpr core::ColK b_coord(int lane, int value) { return {lane % 16, 32 * (lane / 16) + value}; }
};

/// The same on both sides: a consistent permutation of k, which only unequal scales can tell.
struct ContiguousFp8Both : Gfx950Square32<E4M3, E4M3> {
  FP4PA_FN static constexpr core::RowK a_coord(int lane, int value) { return {lane % 32, 32 * (lane / 32) + value}; }
  FP4PA_FN static constexpr core::ColK b_coord(int lane, int value) { return {lane % 32, 32 * (lane / 32) + value}; }
};

/// An FP4 operand with the FP8 one's split.
struct SplitFp4A : Gfx950Square16<E2M1, E4M3> {
  FP4PA_FN static constexpr core::RowK a_coord(int lane, int value) {
    return {lane % 16, 16 * (lane / 16) + value % 16 + 64 * (value / 16)};
  }
};

/// E2M1 codes at the bottom of their bytes: what the packed cache and ldmatrix's expansion give before the shift.
struct UnshiftedContainer : Sm120Fp8Fp4 {
  static constexpr core::Packing kPackingB{8, 0};
};

/// High nibble first.
struct HighNibbleFirst : Sm120Mxf4 {
  FP4PA_FN static constexpr core::RowK a_coord(int lane, int value) { return Sm120Mxf4::a_coord(lane, value ^ 1); }
};

/// Registers 1 and 2 of A exchanged: rows + 8 and the second half of k confused.
template <class Atom>
struct ARegistersSwapped : Atom {
  FP4PA_FN static constexpr core::RowK a_coord(int lane, int value) {
    constexpr int kPerRegister = Atom::kValuesA / 4;
    constexpr int kOrder[4] = {0, 2, 1, 3};
    return Atom::a_coord(lane, kOrder[value / kPerRegister] * kPerRegister + value % kPerRegister);
  }
};

/// OCP codes given to the FNUZ instruction: every value is doubled, which no layout test sees.
struct OcpIntoFnuz : Gfx942Fp8 {
  using ElementA = E4M3;
};

TEST_CASE("planted faults in element maps are found") {
  expect_found<TransposedC<Gfx950Square16<E2M1, E4M3>>, Gfx950Square16<E2M1, E4M3>>("transposed C map, gfx950 16x16");
  expect_found<TransposedC<Gfx950Square32<E2M1, E4M3>>, Gfx950Square32<E2M1, E4M3>>("transposed C map, gfx950 32x32");
  expect_found<TransposedC<Gfx942F16>, Gfx942F16>("transposed C map, gfx942");
  expect_found<CRegistersSwapped<Sm120Nvf4>, Sm120Nvf4>("C registers swapped, sm120");
  expect_found<CRegistersSwapped<Sm80F16>, Sm80F16>("C registers swapped, sm80");
  expect_found<ContiguousFp8B, Gfx950Square16<E2M1, E4M3>>("contiguous FP8 in B");
  expect_found<ContiguousFp8Both, Gfx950Square32<E4M3, E4M3>>("contiguous FP8 in A and B");
  expect_found<SplitFp4A, Gfx950Square16<E2M1, E4M3>>("split FP4 in A");
  expect_found<UnshiftedContainer, Sm120Fp8Fp4>("unshifted e2m1 container");
  expect_found<HighNibbleFirst, Sm120Mxf4>("high nibble first in A");
  expect_found<ARegistersSwapped<Sm120Fp8Fp4>, Sm120Fp8Fp4>("A registers 1 and 2 swapped, sm120");
  expect_found<ARegistersSwapped<Sm80F16>, Sm80F16>("A registers 1 and 2 swapped, sm80");
  expect_found<OcpIntoFnuz, Gfx942Fp8>("OCP codes into a FNUZ instruction");
}

// --- accumulators ---

/// A matrix core that keeps 13 bits behind the leading one of its sums, as one generation's does for 8-bit elements: C cut on its
/// way in, or D on its way out.
template <class T, bool kCutsC>
struct NarrowExecutor {
  using Atom = T;
  static constexpr double kTolerance = 0x1p-12;  // a device's

  void run(Selects select, std::span<const Inputs<Atom>> in, std::span<Outputs<Atom>> out) const {
    std::vector<Inputs<Atom>> cut_in(in.begin(), in.end());
    if (kCutsC) {
      for (Inputs<Atom>& i : cut_in) cut(i.c);
    }
    ModelExecutor<Atom>{}.run(select, cut_in, out);
    if (kCutsC) return;
    for (Outputs<Atom>& o : out) cut(o.d);
  }

 private:
  static void cut(float (&values)[Atom::kLanes][Atom::kValuesC]) {
    for (auto& lane : values) {
      for (float& x : lane) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & ~0x3ffu);
    }
  }
};

template <class Atom, bool kCutsC>
void expect_narrow_sums_found(const char* where) {
  NarrowExecutor<Atom, kCutsC> executor;
  double worst = 0.0;
  CHECK(check_random<Atom>(executor, 50, &worst).empty());  // why check_exact() looks at all bits of C
  const Failure f = check_exact<Atom>(executor);
  CHECK_MESSAGE(!f.empty(), where);
  std::printf("  planted: %-34s found: %s\n", where, f.c_str());
}
template <class Atom>
void expect_narrow_sums_found() {
  expect_narrow_sums_found<Atom, true>("13 fraction bits of C");
  expect_narrow_sums_found<Atom, false>("13 fraction bits of D");
}

TEST_CASE("an accumulator of fewer bits than an f32 is found") {
  expect_narrow_sums_found<Sm80F16>();
  expect_narrow_sums_found<Sm120Fp8Fp4>();
  expect_narrow_sums_found<Sm120Fp8Fp8>();
  expect_narrow_sums_found<Sm120Mxf4>();
  expect_narrow_sums_found<Sm120Nvf4>();
  expect_narrow_sums_found<Gfx942Fp8>();
  expect_narrow_sums_found<Gfx950Square16<E2M1, E4M3>>();
}

TEST_CASE("a consistent permutation of k is harmless under equal scales only") {
  // Why the check of unequal scales exists: the layout checks alone pass ContiguousFp8Both.
  ModelExecutor<Gfx950Square32<E4M3, E4M3>> executor;
  CHECK(check_one_hot<ContiguousFp8Both>(executor).empty());
  CHECK(check_exact<ContiguousFp8Both>(executor).empty());
  CHECK_FALSE(check_scales<ContiguousFp8Both>(executor).empty());
}

TEST_CASE("an unshifted container counts as an eighth") {
  Matrices<UnshiftedContainer> m;
  m.set_unit_scales();
  m.a[3][5] = core::value_code<E4M3>(1.0f);
  m.b[2][5] = 0b0111;  // 6, in the container 6/8 * ... = 7/8: code over 8
  ModelExecutor<Sm120Fp8Fp4> executor;
  CHECK(multiply<UnshiftedContainer>(executor, {m}, {}, {}).front()[3 * 8 + 2] == 0.875f);
}

}  // namespace
}  // namespace fp4pa::conformance
