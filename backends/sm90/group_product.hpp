// The query's way in and the two products of group_backend.hpp.
#pragma once

#include "backends/sm90/group_backend.hpp"

namespace fp4pa::sm90 {

/// Rows of 16 bits, sixteen lanes a row with eight dims each: moved to the binade that f16 wants, and stored in the
/// order of dims of the keys' operands. Rows that do not exist are zeros.
template <core::SimtConfig kShape, class Executor>
FP4PA_FN void GroupBackend<kShape, Executor>::load_query(const core::RowMap& rows, float multiplier) {
  constexpr int kRowLanes = kConfig.head_dim / 8;
  constexpr int kSideRows = E::kLanes / kRowLanes * kGroupWarps;
  constexpr int kLoads = kRows / kSideRows;
  const core::QueryForm form = sm80::key_query_form(kKeyKind);
  const bool chunks = core::query_rows_are_chunks(p_.q);
  const auto row_of = [&](Lane lane, int i) {
    return i * kSideRows + exec_.warp() * (E::kLanes / kRowLanes) + lane.id / kRowLanes;
  };
  PerLane<core::QueryChunk[kLoads]> x;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int row = row_of(lane, i);
      x[lane][i] = core::QueryChunk{};
      if (row >= rows.num_rows) continue;
      const std::int64_t at =
          rows.token(row) * p_.q.token_stride + rows.head(row) * p_.q.head_stride + lane.id % kRowLanes * 8;
      const auto* const from = static_cast<const std::uint16_t*>(p_.q.data) + at;
      if (chunks) {
        x[lane][i] = exec_.template load_global<core::QueryChunk>(from);
      } else {
        FP4PA_UNROLL
        for (int d = 0; d < 8; ++d) {
          x[lane][i].word[d / 2] |= std::uint32_t{exec_.template load_global<std::uint16_t>(from + d)} << (d % 2 * 16);
        }
      }
    }
  });
  FP4PA_UNROLL
  for (int i = 0; i < kLoads; ++i) {
    PerLane<float[8]> value;
    PerLane<std::uint32_t> amax;
    exec_.each_lane([&](Lane lane) {
      amax[lane] = 0;
      FP4PA_UNROLL
      for (int d = 0; d < 8; ++d) {
        value[lane][d] = core::query_element<E>(p_.q.dtype, (x[lane][i].word[d / 2] >> (d % 2 * 16)) & 0xffffu);
        amax[lane] = core::Larger()(amax[lane], core::magnitude_bits(value[lane][d]));
      }
    });
    core::combine_peers<kRowLanes - 1>(exec_, amax, core::Larger());
    exec_.each_lane([&](Lane lane) {
      const int shift = core::query_shift(form, amax[lane]);
      // The sign of a negative multiplier goes into the operand: a row's factor keeps the order of its scores.
      const float to_operand = core::exp2_exact(shift) * (multiplier < 0.0f ? -1.0f : 1.0f);
      const int row = row_of(lane, i);
      const int chunk = lane.id % kRowLanes;
      const std::uint32_t at = Layout::Query::row_address(Layout::kQuery, row);
      FP4PA_UNROLL
      for (int pair = 0; pair < 4; ++pair) {
        exec_.template store_shared<std::uint32_t>(
            lane, Layout::Query::chunk_address(at, chunk / 4 * 4 + pair) + static_cast<std::uint32_t>(chunk % 4 * 4),
            sm80::pack_f16(value[lane][pair] * to_operand, value[lane][pair + 4] * to_operand));
      }
      if (chunk == 0) {
        set_number(lane, Layout::kFactors, row,
                   (multiplier < 0.0f ? -multiplier : multiplier) * core::exp2_exact(-shift));
      }
    });
  }
}

/// The first two warps look at keys, the others at values: a key each.
template <core::SimtConfig kShape, class Executor>
FP4PA_FN bool GroupBackend<kShape, Executor>::leaves_windows(Lane lane, std::uint32_t tile) const {
  const int key = exec_.warp() % 2 * E::kLanes + lane.id;
  if (exec_.warp() < 2) return has_windows(kKeyKind) && leaves_window(KeyWords(exec_, tile).word(lane, key), key_top_);
  return has_windows(kValueKind) && leaves_window(ValueWords(exec_, tile).word(lane, key), value_top_);
}

[[nodiscard]] FP4PA_FN constexpr bool in_window(int byte, int top) {
  return byte <= top && byte > top - kWindowBinades;
}
[[nodiscard]] FP4PA_FN constexpr int window_for(int largest) {
  const int top = largest + kTopRoom;
  return top > 254 ? 254 : top < kWindowBinades ? kWindowBinades : top;
}
[[nodiscard]] FP4PA_FN constexpr int windows_down_to(int top, int least) {
  return least > top ? 1 : (top - least) / kWindowBinades + 1;
}

/// Moves the window to a tile's largest scales where they lie outside of it; the number of windows down to its least.
template <core::SimtConfig kShape, class Executor>
FP4PA_FN int GroupBackend<kShape, Executor>::move_key_window(const ScaleSpan& span) {
  if (span.largest == 0) return 1;
  if (!in_window(span.largest, key_top_)) {
    key_top_ = window_for(span.largest);
    each_own_row([&](Lane lane, int row) { set_row(lane, row, number(lane, Layout::kMaxima, row)); });
  }
  return windows_down_to(key_top_, span.least);
}
/// The same for values, whose sums then have another unit: down only as far as what is there stays finite.
template <core::SimtConfig kShape, class Executor>
FP4PA_FN int GroupBackend<kShape, Executor>::move_value_window(const ScaleSpan& span, Output& output) {
  if (span.largest != 0 && !in_window(span.largest, value_top_)) {
    const int top = window_for(span.largest);
    const int now = top < value_floor_ ? value_floor_ : top;
    scale_output(output, value_top_ - now);
    value_top_ = now;
  }
  const int windows = span.largest == 0 ? 1 : windows_down_to(value_top_, span.least);
  const int finite = windows_down_to(value_top_, value_floor_);
  return windows < finite ? windows : finite;
}

template <core::SimtConfig kShape, class Executor>
template <class TileStream>
FP4PA_FN auto GroupBackend<kShape, Executor>::multiply_query_key(TileStream& stream) -> Scores {
  Scores scores;
  scores.first_key = stream.keys().begin;
  const auto sums = [&](Lane lane) -> auto& { return scores.value[lane]; };
  KeyWords words(exec_, stream.tile());
  int window = 0;  // how many are left after this one
  bool first = true;
  if (outside_) {
    window = move_key_window(words.span()) - 1;
    words.keep();
  }
  PerLane<typename Operands::Keys> keys;
  while (true) {
    if (outside_) {
      exec_.block_barrier();
      words.enter_window(key_top_ - window * kWindowBinades, window == 0);
      exec_.block_barrier();
    }
    Operands::decode_keys(exec_, stream.tile(), outside_ ? 0 : factor_bias(key_top_), keys);
    exec_.group_fence();
    FP4PA_UNROLL
    for (int s = 0; s < Operands::kKeySteps; ++s) {
      exec_.template group_multiply<core::F16, kRows, false>(
          sums, [&](Lane lane) -> auto& { return keys[lane][s]; }, Layout::Query::key_step(Layout::kQuery, s),
          s > 0 || !first);
    }
    exec_.group_commit();
    exec_.group_wait(sums);
    if (window == 0) return scores;
    --window;
    first = false;
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < 4 * kColumns; ++i) scores.value[lane][i / 4][0][i % 4] *= core::exp2_exact(-kWindowBinades);
    });
  }
}

template <core::SimtConfig kShape, class Executor>
FP4PA_FN void GroupBackend<kShape, Executor>::issue_values(PerLane<typename Operands::Values>& values,
                                                           Output& output) const {
  exec_.group_fence();
  FP4PA_UNROLL
  for (int m = 0; m < 2; ++m) {
    FP4PA_UNROLL
    for (int s = 0; s < Operands::kValueSteps; ++s) {
      exec_.template group_multiply<core::F16, kRows, false>(
          [&](Lane lane) -> auto& { return output.value[lane][m]; },
          [&](Lane lane) -> auto& { return values[lane][s][m]; },
          Layout::Probability::key_step(Layout::kProbability, s), true);
    }
  }
  exec_.group_commit();
}

template <core::SimtConfig kShape, class Executor>
FP4PA_FN void GroupBackend<kShape, Executor>::store_probability(const Scores& p) const {
  FP4PA_UNROLL
  for (int j = 0; j < kColumns; j += 2) {
    PerLane<std::uint32_t[4]> words;  // keys 0 to 7 and 8 to 15 of this warp's, of the rows of j and of j + 1
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const auto& x = p.value[lane][j + i / 2][0];
        words[lane][i] = sm80::pack_f16(x[i % 2 * 2], x[i % 2 * 2 + 1]);
      }
    });
    exec_.store_matrix_transposed(
        [&](Lane lane) {
          const std::uint32_t row =
              Layout::Probability::row_address(Layout::kProbability, 8 * j + lane.id / 16 * 8 + lane.id % 8);
          return Layout::Probability::chunk_address(row, 2 * exec_.warp() + lane.id / 8 % 2);
        },
        [&](Lane lane) -> auto& { return words[lane]; });
  }
  exec_.async_fence();
}

template <core::SimtConfig kShape, class Executor>
template <class TileStream>
FP4PA_FN void GroupBackend<kShape, Executor>::multiply_probability_value(TileStream& stream, const Scores& p,
                                                                         Output& output) {
  store_probability(p);
  ValueWords words(exec_, stream.tile());
  int window = 0;
  if (outside_) {
    window = move_value_window(words.span(), output) - 1;
    words.keep();
    scale_output(output, window * kWindowBinades);
  }
  PerLane<typename Operands::Values> values;
  while (true) {
    if (outside_) {
      exec_.block_barrier();
      words.enter_window(value_top_ - window * kWindowBinades, window == 0);
      exec_.block_barrier();
    }
    Operands::decode_values(exec_, stream.tile(), outside_ ? 0 : factor_bias(value_top_), values);
    if (window == 0) break;
    --window;
    issue_values(values, output);
    wait_for_values(output);
    scale_output(output, -kWindowBinades);
  }
  raise_floor();
  outside_ = stream.land_next([&](Lane lane, std::uint32_t next) { return leaves_windows(lane, next); });
  issue_values(values, output);
  wait_for_values(output);
}

}  // namespace fp4pa::sm90
