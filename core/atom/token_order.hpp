// How probabilities reach the second product without leaving their lane.
//
// A lane ends the first product with scores of a query at certain key slots, and must begin the second one with
// probabilities of that query at certain tokens. The two sets of indices differ, but nothing says that key slot s must
// hold token s: loading token token_of_slot[s] of a tile as key s lets the lane's i-th score be its i-th probability.
// V is then read in its natural order. The order follows from the two atoms' maps, so it is derived here and not
// written down per shim; the ones in use are pinned by tests/conformance.
#pragma once

#include "core/atom/roles.hpp"

namespace fp4pa::core {

/// Token to load as each key slot of a tile of kTokens keys.
template <int kTokens>
struct TokenOrder {
  int token_of_slot[kTokens] = {};
  bool exists = false;  ///< false: probabilities must move between lanes
};

/// @tparam Score   a ScoreAtom; a tile of Output::kTokens keys takes several of it side by side
/// @tparam Output  an OutputAtom
template <class Score, class Output>
consteval TokenOrder<Output::kTokens> in_lane_token_order() {
  TokenOrder<Output::kTokens> order;
  if (Score::kQueries != Output::kQueries || Score::Atom::kLanes != Output::Atom::kLanes) return order;
  if (Output::kTokens % Score::kKeys != 0) return order;
  constexpr int kTiles = Output::kTokens / Score::kKeys;
  constexpr int kScores = Score::Atom::kValuesC;
  if (kTiles * kScores != Output::kQueryValues) return order;

  for (int& token : order.token_of_slot) token = -1;
  bool used[Output::kTokens] = {};
  for (int lane = 0; lane < Score::Atom::kLanes; ++lane) {
    int next[Score::kQueries] = {};  // how far the lane's probabilities of each query are given out
    for (int s = 0; s < kTiles * kScores; ++s) {
      const QueryKey score = Score::score_coord(lane, s % kScores);
      int& p = next[score.query];
      while (p < Output::kQueryValues && Output::probability_coord(lane, p).query != score.query) ++p;
      if (p == Output::kQueryValues) return order;
      const int token = Output::probability_coord(lane, p++).key;
      int& known = order.token_of_slot[s / kScores * Score::kKeys + score.key];
      if (known != token && (known >= 0 || used[token])) return order;  // lanes disagree
      known = token;
      used[token] = true;
    }
  }
  order.exists = true;
  return order;
}

/// A value of a tile of scores.
struct ScoreValue {
  int tile;
  int value;
};

/// Which score becomes each probability value of a lane; the same in every lane. Plain arrays, so that a kernel may
/// index it in an unrolled loop.
template <int kValues>
struct ProbabilitySources {
  ScoreValue from[kValues] = {};
};

/// For pairs that have an in_lane_token_order.
template <class Score, class Output>
consteval ProbabilitySources<Output::kQueryValues> probability_sources() {
  ProbabilitySources<Output::kQueryValues> sources;
  for (int v = 0; v < Output::kQueryValues; ++v) {
    // The i-th probability of a query is the i-th score of that query.
    const int query = Output::probability_coord(0, v).query;
    int position = 0;
    for (int u = 0; u < v; ++u) position += Output::probability_coord(0, u).query == query ? 1 : 0;
    for (int tile = 0; tile < Output::kTokens / Score::kKeys; ++tile) {
      for (int s = 0; s < Score::Atom::kValuesC; ++s) {
        if (Score::score_coord(0, s).query == query && position-- == 0) sources.from[v] = {tile, s};
      }
    }
  }
  return sources;
}

}  // namespace fp4pa::core
