// Scores and what becomes of them on the SIMT back end: masks, row maxima, probabilities, row sums.
//
// An instruction's sums become scores when they are multiplied by their row's factor. That waits until somebody needs it: the
// body when it masks, else the subtraction of the maximum. Row sums stay spread over the lanes that share a row until the end.
#pragma once

#include "core/simt/peers.hpp"
#include "core/simt/tile_backend.hpp"

namespace fp4pa::core {

template <class Shim>
template <class F>
FP4PA_FN void SimtTileBackend<Shim>::each_score(Scores& scores, F&& f) const {
  // A plain instance only masks, and -inf stays what it is under any factor.
  if (!kPlain && scores.raw) {
    const RowVector factor = factors();
    exec_.each_lane([&](Lane lane) {
      for_each_value<kKeyTiles, kScoreValues>([&](int tile, int nt, int v) {
        scores.value[lane][tile][nt][v] *= factor.value[lane][nt * Slots::kSlots + Slots::slot(v)];
      });
    });
    scores.raw = false;
  }
  exec_.each_lane([&](Lane lane) {
    for_each_value<kKeyTiles, kScoreValues>([&](int tile, int nt, int v) {
      f(scores.value[lane][tile][nt][v], row_base() + nt * kQueries + query_of(Slots::query(lane.id, v)),
        scores.first_key + Shim::token_of_slot(tile * Shim::ScoreAtom::kKeys + Slots::other(lane.id, v)));
    });
  });
}

/// Lanes that share a row compare their maxima only when one of them leaves the headroom: a few tiles of many.
template <class Shim>
FP4PA_FN bool SimtTileBackend<Shim>::raise_max(const Scores& scores, RowVector& max, RowVector& correction) {
  RowVector next;
  exec_.each_lane([&](Lane lane) {
    for_each_value<kKeyTiles, kScoreValues>([&](int tile, int nt, int v) {
      float& m = next.value[lane][nt * Slots::kSlots + Slots::slot(v)];
      const float score = scores.value[lane][tile][nt][v];
      m = tile == 0 && Slots::is_first(v) ? score : math::max(m, score);
    });
  });
  const RowVector factor = pending_factor(scores);
  Bases base = bases(max);
  const bool left = exec_.any([&](Lane lane) {
    constexpr float kMost = static_cast<float>(probability_log2<Shim>()) + headroom_log2<Shim>();
    bool mine = false;
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      mine = mine || math::fma(next.value[lane][s], factor.value[lane][s], base.value[lane][s]) > kMost;
    }
    return mine;
  });
  if (!left) return false;
  each_row([](float& m, float f) { m *= f; }, next, factor);
  reduce_peers(next, [](float a, float b) { return math::max(a, b); });
  each_row(
      [](float& m, float now, float& c) {
        now = math::max(now, m);
        c = rescale(m, now);
        m = now;
      },
      max, next, correction);
  if constexpr (kKeepsBases) bases_ = bases_of(max);
  return true;
}

/// What exponents of probabilities are relative to.
template <class Shim>
FP4PA_FN auto SimtTileBackend<Shim>::bases_of(const RowVector& max) const -> RowVector {
  RowVector bases;
  each_row([](float& base, float m) { base = m == kMinusInf ? kNothingSeen : static_cast<float>(probability_log2<Shim>()) - m; }, bases,
           max);
  return bases;
}
template <class Shim>
FP4PA_FN auto SimtTileBackend<Shim>::bases(const RowVector& max) const -> Bases {
  if constexpr (kKeepsBases) {
    return bases_;
  } else {
    return bases_of(max);
  }
}

/// @param max  of the last raise_max()
template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::exp2_minus(Scores& scores, const RowVector& max) const {
  const RowVector factor = pending_factor(scores);
  Bases base = bases(max);
  exec_.each_lane([&](Lane lane) {
    for_each_value<kKeyTiles, kScoreValues>([&](int tile, int nt, int v) {
      const int slot = nt * Slots::kSlots + Slots::slot(v);
      float& x = scores.value[lane][tile][nt][v];
      x = Shim::exp2(math::fma(x, factor.value[lane][slot], base.value[lane][slot]));
    });
  });
}

/// A tile is summed from zero: added to a long sum one by one, equal numbers are rounded the same way, and the sum drifts.
template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::add_row_sums(const Scores& scores, RowVector& sum) const {
  exec_.each_lane([&](Lane lane) {
    float part[kRowSlots] = {};
    for_each_value<kKeyTiles, kScoreValues>([&](int tile, int nt, int v) {
      float& x = part[nt * Slots::kSlots + Slots::slot(v)];
      const float p = scores.value[lane][tile][nt][v];
      x = tile == 0 && Slots::is_first(v) ? p : x + p;
    });
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) sum.value[lane][s] += part[s];
  });
}

template <class Shim>
FP4PA_FN auto SimtTileBackend<Shim>::load_factors() const -> RowVector {
  RowVector factor;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      float& f = factor.value[lane][s];
      f = exec_.template load_shared<float>(lane, layout_.row_factors + 4 * row(lane, s));
      // Not 0, by which a plain instance would multiply -inf; scores are as good as 0. NaN stays.
      if (kPlain && f < 0x1p-126f) f = 0x1p-126f;
    }
  });
  return factor;
}

/// Of this warp's rows: from the instruction's sums to scores in log2 units.
template <class Shim>
FP4PA_FN auto SimtTileBackend<Shim>::factors() const -> RowVector {
  if constexpr (kFactorsStay) {
    return load_factors();
  } else {
    return factor_;
  }
}

/// What is still to be multiplied into scores; more than 0, see load_query.
template <class Shim>
FP4PA_FN auto SimtTileBackend<Shim>::pending_factor(const Scores& scores) const -> RowVector {
  RowVector factor = factors();
  if constexpr (!kPlain) each_row([&](float& f) { f = scores.raw ? f : 1.0f; }, factor);
  return factor;
}

template <class Shim>
template <class F>
FP4PA_FN void SimtTileBackend<Shim>::reduce_peers(RowVector& x, F&& combine) const {
  FP4PA_UNROLL
  for (int s = 0; s < kRowSlots; ++s) {
    PerLane<float> own;
    exec_.each_lane([&](Lane lane) { own[lane] = x.value[lane][s]; });
    combine_peers<Slots::kPeerBits>(exec_, own, combine);
    exec_.each_lane([&](Lane lane) { x.value[lane][s] = own[lane]; });
  }
}

}  // namespace fp4pa::core
