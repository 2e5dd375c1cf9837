// The roles of attention on every atom: two chained products through the models, with P staying in its lane.
//
// S = Q K^T is arranged to give values that every element type holds exactly (each query picks one dim of K), so that
// O = P V with P = S is exact too, and every index on the way is visible in the result.
#include <doctest/doctest.h>

#include <random>

#include "core/atom/roles.hpp"
#include "core/atom/token_order.hpp"
#include "tests/conformance/atoms_under_test.hpp"

namespace fp4pa::conformance {
namespace {

using core::Operand;
using core::OutputAtom;
using core::ScoreAtom;

/// Puts codes on a side of an atom's inputs. The sides' registers are reached by role.
template <class Sided>
std::uint32_t* query_side(Inputs<typename Sided::Atom>& in, int lane) {
  return Sided::kQueryIsA ? in.a[lane] : in.b[lane];
}
template <class Sided>
std::uint32_t* other_side(Inputs<typename Sided::Atom>& in, int lane) {
  return Sided::kQueryIsA ? in.b[lane] : in.a[lane];
}
template <class Sided>
using QueryElement =
    std::conditional_t<Sided::kQueryIsA, typename Sided::Atom::ElementA, typename Sided::Atom::ElementB>;
template <class Sided>
using OtherElement =
    std::conditional_t<Sided::kQueryIsA, typename Sided::Atom::ElementB, typename Sided::Atom::ElementA>;

template <class Atom>
Outputs<Atom> execute(Inputs<Atom>& in) {
  if constexpr (core::kIsScaled<Atom>) {
    const std::uint32_t one = core::value_code<typename Atom::Scale>(1.0f) * 0x01010101u;
    for (int lane = 0; lane < Atom::kLanes; ++lane) in.sfa[lane] = in.sfb[lane] = one;
  }
  Outputs<Atom> out;
  ModelExecutor<Atom>{}.run({}, {&in, 1}, {&out, 1});
  return out;
}

template <class Score, class Output>
void expect_chained_products() {
  constexpr auto kOrder = core::in_lane_token_order<Score, Output>();
  static_assert(kOrder.exists);
  constexpr auto kSources = core::probability_sources<Score, Output>();
  constexpr int kTiles = Output::kTokens / Score::kKeys;
  static_assert(Score::kDims >= Score::kQueries);
  std::mt19937 random(11);
  std::vector<float> keys(static_cast<std::size_t>(Output::kTokens) * Score::kDims);  // [token][dim]
  std::vector<float> values(static_cast<std::size_t>(Output::kTokens) * Output::kDims);
  for (float& x : keys) x = core::E2M1::decode(static_cast<std::uint8_t>(random() % 16));
  for (float& x : values) x = core::E2M1::decode(static_cast<std::uint8_t>(random() % 16));

  // S, tile by tile; key slot s of the whole tile holds token token_of_slot[s].
  std::vector<Outputs<typename Score::Atom>> scores;
  for (int tile = 0; tile < kTiles; ++tile) {
    Inputs<typename Score::Atom> in{};
    for (int lane = 0; lane < Score::Atom::kLanes; ++lane) {
      for (int v = 0; v < Score::kQueryValues; ++v) {
        const auto x = Score::query_coord(lane, v);
        std::uint32_t* registers = query_side<Score>(in, lane);
        core::put_code<QueryElement<Score>>(registers, v, Score::kQueryPacking,
                                            core::value_code<QueryElement<Score>>(x.query == x.dim ? 1.0f : 0.0f));
      }
      for (int v = 0; v < Score::kOtherValues; ++v) {
        const auto x = Score::key_coord(lane, v);
        const int token = kOrder.token_of_slot[tile * Score::kKeys + x.key];
        std::uint32_t* registers = other_side<Score>(in, lane);
        core::put_code<OtherElement<Score>>(registers, v, Score::kOtherPacking,
                                            core::value_code<OtherElement<Score>>(keys[token * Score::kDims + x.dim]));
      }
    }
    scores.push_back(execute(in));
  }

  // P is what the lane already has.
  Inputs<typename Output::Atom> in{};
  for (int lane = 0; lane < Output::Atom::kLanes; ++lane) {
    for (int v = 0; v < Output::kQueryValues; ++v) {
      const core::ScoreValue from = kSources.from[v];
      std::uint32_t* registers = query_side<Output>(in, lane);
      core::put_code<QueryElement<Output>>(
          registers, v, Output::kQueryPacking,
          core::value_code<QueryElement<Output>>(scores[static_cast<std::size_t>(from.tile)].d[lane][from.value]));
    }
    for (int v = 0; v < Output::kOtherValues; ++v) {
      const auto x = Output::value_coord(lane, v);
      std::uint32_t* registers = other_side<Output>(in, lane);
      core::put_code<OtherElement<Output>>(
          registers, v, Output::kOtherPacking,
          core::value_code<OtherElement<Output>>(values[x.token * Output::kDims + x.dim]));
    }
  }
  const auto out = execute(in);

  int wrong = 0;
  for (int lane = 0; lane < Output::Atom::kLanes; ++lane) {
    for (int v = 0; v < Output::Atom::kValuesC; ++v) {
      const auto x = Output::output_coord(lane, v);
      double expected = 0.0;
      for (int token = 0; token < Output::kTokens; ++token) {
        expected += static_cast<double>(keys[token * Score::kDims + x.query]) * values[token * Output::kDims + x.dim];
      }
      wrong += static_cast<double>(out.d[lane][v]) != expected ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

using Sm80Score = ScoreAtom<Sm80F16, Operand::kA>;
using Sm80Output = OutputAtom<Sm80F16, Operand::kA>;
using Sm120Score = ScoreAtom<Sm120Fp8Fp4, Operand::kA>;
using Sm120Nvf4Score = ScoreAtom<Sm120Nvf4, Operand::kA>;
using Sm120Output8 = OutputAtom<Sm120Fp8Fp4, Operand::kA>;
using Sm120Output4 = OutputAtom<Sm120Nvf4, Operand::kA>;
using Gfx950Score = ScoreAtom<Gfx950Square16<E2M1, E4M3>, Operand::kB>;
using Gfx950Output = OutputAtom<Gfx950Square16<E2M1, E4M3>, Operand::kB>;
using Gfx950Output4 = OutputAtom<Gfx950Square16<E2M1, E2M1>, Operand::kB>;
using Gfx950WideScore = ScoreAtom<Gfx950Square32<E2M1, E4M3>, Operand::kB>;
using Gfx950WideOutput = OutputAtom<Gfx950Square32<E2M1, E4M3>, Operand::kB>;
using Gfx942Score = ScoreAtom<Gfx942F16, Operand::kB>;
using Gfx942Output = OutputAtom<Gfx942F16, Operand::kB>;
using Gfx942Fp8Score = ScoreAtom<Gfx942Fp8, Operand::kB>;
using Gfx942Fp8Output = OutputAtom<Gfx942Fp8, Operand::kB>;

TEST_CASE("P reaches the second product in its lane") {
  expect_chained_products<Sm80Score, Sm80Output>();
  expect_chained_products<Sm120Score, Sm120Output8>();
  expect_chained_products<Sm120Score, Sm120Output4>();
  expect_chained_products<Sm120Nvf4Score, Sm120Output4>();
  expect_chained_products<Gfx950Score, Gfx950Output>();
  expect_chained_products<Gfx950Score, Gfx950Output4>();
  expect_chained_products<Gfx950WideScore, Gfx950WideOutput>();
  expect_chained_products<Gfx942Score, Gfx942Output>();
  expect_chained_products<Gfx942Fp8Score, Gfx942Fp8Output>();
}

TEST_CASE("token orders are the documented ones") {
  // sm80: none needed.
  constexpr auto k16 = core::in_lane_token_order<Sm80Score, Sm80Output>();
  for (int slot = 0; slot < 16; ++slot) CHECK(k16.token_of_slot[slot] == slot);
  // sm120, FP8 P: slot 8T + 2t + e of each 16 holds token 4t + 2T + e.
  constexpr auto k8 = core::in_lane_token_order<Sm120Score, Sm120Output8>();
  // sm120, FP4 P: slot 8T + 2t + e of each 32 holds token 8t + 2T + e.
  constexpr auto k4 = core::in_lane_token_order<Sm120Nvf4Score, Sm120Output4>();
  for (int t = 0; t < 4; ++t) {
    for (int e = 0; e < 2; ++e) {
      for (int tile = 0; tile < 2; ++tile) {
        CHECK(k8.token_of_slot[8 * tile + 2 * t + e] == 4 * t + 2 * tile + e);
        CHECK(k8.token_of_slot[16 + 8 * tile + 2 * t + e] == 16 + 4 * t + 2 * tile + e);
      }
      for (int tile = 0; tile < 4; ++tile) {
        CHECK(k4.token_of_slot[8 * tile + 2 * t + e] == 8 * t + 2 * tile + e);
        CHECK(k4.token_of_slot[32 + 8 * tile + 2 * t + e] == 32 + 8 * t + 2 * tile + e);
      }
    }
  }
  // gfx950, FP8 P: lane group g holds slots 16i + 4g + r and wants tokens 16g + j%16 + 64(j/16), j = 4i + r.
  constexpr auto kWave = core::in_lane_token_order<Gfx950Score, Gfx950Output>();
  // FP4 P wants tokens 32g + j.
  constexpr auto kWave4 = core::in_lane_token_order<Gfx950Score, Gfx950Output4>();
  for (int g = 0; g < 4; ++g) {
    for (int j = 0; j < 32; ++j) {
      CHECK(kWave.token_of_slot[16 * (j / 4) + 4 * g + j % 4] == 16 * g + j % 16 + 64 * (j / 16));
      CHECK(kWave4.token_of_slot[16 * (j / 4) + 4 * g + j % 4] == 32 * g + j);
    }
  }
}

TEST_CASE("where no order of tokens keeps P in its lane, that is said") {
  // sm80 with keys in A: a lane ends with two queries' scores and would have to begin with one query's probabilities.
  using KeysInA = ScoreAtom<Sm80F16, Operand::kB>;
  using ValuesInA = OutputAtom<Sm80F16, Operand::kB>;
  CHECK_FALSE(core::in_lane_token_order<KeysInA, ValuesInA>().exists);
  using Fp4KeysInA = ScoreAtom<Sm120Fp4Fp8, Operand::kB>;
  CHECK_FALSE(core::in_lane_token_order<Fp4KeysInA, OutputAtom<Sm120Fp4Fp8, Operand::kB>>().exists);
  CHECK_FALSE(core::in_lane_token_order<Fp4KeysInA, OutputAtom<Sm120Nvf4, Operand::kB>>().exists);
  // Different numbers of queries.
  CHECK_FALSE(core::in_lane_token_order<Gfx950WideScore, Gfx950Output>().exists);
}

TEST_CASE("query peers are the lanes that share a query's scores") {
  CHECK(Sm120Score::kQueryPeerBits == 0b00011u);
  CHECK(Sm80Score::kQueryPeerBits == 0b00011u);
  CHECK(Gfx950Score::kQueryPeerBits == 0b110000u);
  CHECK(Gfx950WideScore::kQueryPeerBits == 0b100000u);
  CHECK(Gfx942Score::kQueryPeerBits == 0b110000u);
}

}  // namespace
}  // namespace fp4pa::conformance
