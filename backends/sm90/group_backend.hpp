// sm_90a, 17 to 32 query rows (speculative decoding): the words of core/attention/tile_backend.hpp by one warpgroup.
//
// Few blocks of rows want each code decoded once for all of them, and too few rows are at hand to be the 64 of wgmma's
// A. So keys and values are A, decoded in registers (group_operands.hpp), and queries and probabilities are B, in
// shared memory:
//
//   S^T [64 keys, rows] = K Q^T        a warp has 16 of the tile's keys
//   O^T [128 dims, rows] += V^T P      a warp has 32 of the dims: of the output, that no warp shares
//
// A lane has the columns 8j + 2 (lane % 4) and the next of both. Probabilities of all warps are relative to one maximum
// a row, which lies in shared memory with what follows from it; the block agrees by a barrier that votes on whether a
// tile leaves the headroom. Two barriers a tile: the vote, and P, behind which the tile's place in the stages is free
// and the next tile has landed.
#pragma once

#include <cstdint>

#include "backends/sm90/group_operands.hpp"
#include "backends/sm90/group_stream.hpp"
#include "core/attention/body.hpp"
#include "core/simt/peers.hpp"
#include "core/simt/query.hpp"

namespace fp4pa::sm90 {

template <core::SimtConfig kShape, class Executor>
class GroupBackend {
 public:
  using E = Executor;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  static constexpr core::SimtConfig kConfig = kShape;
  using Layout = GroupLayout<kConfig>;
  using Operands = GroupOperands<kConfig, E>;

  static constexpr std::int32_t kSegments = 1;
  static constexpr bool kPlain = true;
  static constexpr std::int32_t kTileKeys = kConfig.tile_keys;
  static constexpr int kRows = Layout::kRows;
  static constexpr int kColumns = kRows / 8;      // tiles of eight rows
  static constexpr int kRowSlots = 2 * kColumns;  // rows of a lane
  static_assert(kConfig.plain && core::divides_tiles(kConfig) && kConfig.segments == 1);

  /// Probabilities are kept times 2^kProbabilityLog2, and may be 2^kHeadroomLog2 more. A block raises a maximum for all
  /// its rows together, with barriers: the more rows, the more often one of them leaves the headroom, so that there is
  /// more of it than sm_80's warps have. In f16 what is 2^-30 of a row's largest is the least that counts.
  static constexpr int kProbabilityLog2 = 6;
  static constexpr float kHeadroomLog2 = 9.0f;

  using Sums = float[kColumns][1][4];
  struct RowVector {
    PerLane<float[kRowSlots]> value;
  };
  /// As the instruction summed them, until they are probabilities.
  struct Scores {
    PerLane<Sums> value;
    std::int32_t first_key;
  };
  struct Output {
    PerLane<Sums[2]> value;
  };
  template <std::int32_t S>
  using Stream = GroupStream<kConfig, E>;

  FP4PA_FN GroupBackend(E& exec, const core::AttentionParams& params, const core::RowMap& rows,
                        const core::SharedLayout&)
      : exec_(exec), p_(params), num_rows_(rows.num_rows) {}

  template <std::int32_t S>
  [[nodiscard]] FP4PA_FN Stream<S> open(const core::RowMap& rows, const core::WorkItem& item, core::KeyRange range) {
    const core::Segment& segment = p_.segments[S];
    exec_.block_barrier();  // nobody reads the last item's query any more
    Stream<S> stream(exec_, segment, item, range, p_.head_dim, Layout::kStages, Layout::kAddresses);
    load_query(rows, p_.scale_log2 * segment.k.global(item.kv_head));
    opened_ = true;
    global_ = stream.v_global();
    exec_.async_fence();
    exec_.block_barrier();
    each_own_row([&](Lane lane, int row) { set_row(lane, row, core::kMinusInf); });
    outside_ = stream.land_first([&](Lane lane, std::uint32_t tile) { return leaves_windows(lane, tile); });
    return stream;
  }

  [[nodiscard]] FP4PA_FN RowVector row_vector(float x) const {
    RowVector v;
    each_row([x](float& value) { value = x; }, v);
    return v;
  }
  [[nodiscard]] FP4PA_FN Output zero_output() const {
    Output o;
    each_output(o, [](float& value, Lane, int) { value = 0.0f; });
    return o;
  }

  // Products: group_product.hpp.
  template <class TileStream>
  [[nodiscard]] FP4PA_FN Scores multiply_query_key(TileStream& stream);
  template <class TileStream>
  FP4PA_FN void multiply_probability_value(TileStream& stream, const Scores& p, Output& output);

  /// Plain calls change no score but by a mask, so that a score may be told as it is.
  template <class F>
  FP4PA_FN void each_score(Scores& scores, F&& f) const {
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < 4 * kColumns; ++i) {
        f(scores.value[lane][i / 4][0][i % 4], row(lane, i / 4 * 2 + i % 2),
          scores.first_key + 16 * exec_.warp() + lane.id / 4 + i % 4 / 2 * 8);
      }
    });
  }

  [[nodiscard]] FP4PA_FN bool raise_max(const Scores& scores, RowVector& max, RowVector& correction) {
    RowVector next;
    const bool left = exec_.block_any([&](Lane lane) {
      bool mine = false;
      FP4PA_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        const auto limits = exec_.template load_shared<Pair>(lane, Layout::kLimits + 4 * first_row(lane, j));
        const auto& s = scores.value[lane][j][0];
        FP4PA_UNROLL
        for (int i = 0; i < 2; ++i) {
          next.value[lane][2 * j + i] = core::math::max(s[i], s[2 + i]);
          mine = mine | (next.value[lane][2 * j + i] > limits.of[i]);
        }
      }
      return mine;
    });
    if (!left) return false;
    // The tile's largest sums, of all warps' keys.
    exchange(next, [](float a, float b) { return core::math::max(a, b); });
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int s = 0; s < kRowSlots; ++s) {
        const float old = number(lane, Layout::kMaxima, row(lane, s));
        const float now = core::math::max(next.value[lane][s] * factor(lane, row(lane, s)), old);
        correction.value[lane][s] = core::rescale(old, now);
        max.value[lane][s] = now;
      }
    });
    exec_.block_barrier();
    exec_.each_lane([&](Lane lane) {
      if (exec_.warp() != 0 || !first_peer(lane)) return;
      FP4PA_UNROLL
      for (int s = 0; s < kRowSlots; ++s) set_row(lane, row(lane, s), max.value[lane][s]);
    });
    exec_.block_barrier();
    return true;
  }

  /// Relative to the maxima in shared memory, which are those of the last raise_max().
  FP4PA_FN void exp2_minus(Scores& scores, const RowVector&) const {
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        const auto x = exec_.template load_shared<Exponents>(lane, Layout::kExponents + 8 * first_row(lane, j));
        FP4PA_UNROLL
        for (int v = 0; v < 4; ++v) {
          float& score = scores.value[lane][j][0][v];
          score = sm80::exp2_fast(core::math::fma(score, x.of[v % 2].factor, x.of[v % 2].offset));
        }
      }
    });
  }
  FP4PA_FN void add_row_sums(const Scores& scores, RowVector& sum) const {
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < 4 * kColumns; ++i) sum.value[lane][i / 4 * 2 + i % 2] += scores.value[lane][i / 4][0][i % 4];
    });
  }

  template <class F, class... Rows>
  FP4PA_FN void each_row(F&& f, Rows&... rows) const {
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int s = 0; s < kRowSlots; ++s) f(rows.value[lane][s]...);
    });
  }
  template <class F, class... Rows>
  FP4PA_FN void each_row_index(F&& f, Rows&... rows) const {
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int s = 0; s < kRowSlots; ++s) f(row(lane, s), rows.value[lane][s]...);
    });
  }
  FP4PA_FN void scale_rows(Output& output, const RowVector& by) const {
    each_output(output, [&](float& value, Lane lane, int slot) { value *= by.value[lane][slot]; });
  }

  // group_epilogue.hpp
  FP4PA_FN void finish_rows(RowVector& max, RowVector& sum, Output& output);
  FP4PA_FN void store_output(const core::RowMap& rows, const Output& output) const;
  FP4PA_FN void store_lse(const core::RowMap& rows, const RowVector& lse) const;
  FP4PA_FN void store_partial(const core::WorkItem& item, const Output& output, const RowVector& max,
                              const RowVector& sum) const;

 private:
  static constexpr KvKind kKeyKind = kConfig.k[0];
  static constexpr KvKind kValueKind = kConfig.v[0];
  using KeyWords = StagedScaleWords<kConfig, true, E>;
  using ValueWords = StagedScaleWords<kConfig, false, E>;

  static_assert(kKeyKind == kValueKind && (has_windows(kKeyKind) || kKeyKind == KvKind::kNvfp4));

  struct alignas(16) Quad {
    float of[4];
  };
  struct alignas(8) Halves {
    std::uint32_t word[2];
  };
  // What lies in shared memory for two neighbouring rows.
  struct alignas(8) Pair {
    float of[2];
  };
  struct Exponent {
    float factor, offset;
  };
  struct alignas(16) Exponents {
    Exponent of[2];
  };

  /// Rows of a lane: slot s has the column s % 2 of tile s / 2.
  [[nodiscard]] FP4PA_FN static int first_row(Lane lane, int tile) { return 8 * tile + lane.id % 4 * 2; }
  [[nodiscard]] FP4PA_FN static int row(Lane lane, int slot) { return first_row(lane, slot / 2) + slot % 2; }
  /// Whether this lane speaks for its rows in its warp.
  [[nodiscard]] FP4PA_FN static bool first_peer(Lane lane) { return lane.id < 4; }

  [[nodiscard]] FP4PA_FN float number(Lane lane, int of, int row) const {
    return exec_.template load_shared<float>(lane, static_cast<std::uint32_t>(of + 4 * row));
  }
  FP4PA_FN void set_number(Lane lane, int of, int row, float x) const {
    exec_.template store_shared<float>(lane, static_cast<std::uint32_t>(of + 4 * row), x);
  }
  /// f(lane, row), each row by one lane of the block.
  template <class F>
  FP4PA_FN void each_own_row(F&& f) const {
    static_assert(kRows <= 2 * E::kLanes);
    exec_.each_lane([&](Lane lane) {
      const int row = exec_.warp() * E::kLanes + lane.id;
      if (row < kRows) f(lane, row);
    });
  }

  /// From the instruction's sums to scores in log2 units.
  [[nodiscard]] FP4PA_FN float factor(Lane lane, int row) const {
    const float unit =
        has_windows(kKeyKind) ? core::exp2_exact(window_log2(key_top_)) : sm80::key_query_form(kKeyKind).unit;
    // Not 0, so that it leaves scores of minus infinity what they are.
    return core::math::max(number(lane, Layout::kFactors, row) * unit, 0x1p-120f);
  }
  FP4PA_FN void set_row(Lane lane, int row, float max) const {
    const float f = factor(lane, row);
    // A row that has seen nothing has only scores of -inf: minus anything finite they give 0.
    const float offset = max == core::kMinusInf ? 0.0f : static_cast<float>(kProbabilityLog2) - max;
    exec_.template store_shared<float>(lane, static_cast<std::uint32_t>(Layout::kExponents + 8 * row), f);
    exec_.template store_shared<float>(lane, static_cast<std::uint32_t>(Layout::kExponents + 8 * row + 4), offset);
    set_number(lane, Layout::kLimits, row, (max + kHeadroomLog2) / f);
    set_number(lane, Layout::kMaxima, row, max);
  }

  /// Numbers of rows over all lanes and warps that hold some of the same row. Ends with the numbers of a barrier ago:
  /// another has to come before the next exchange.
  template <class F>
  FP4PA_FN void exchange(RowVector& x, F&& combine) const {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      PerLane<float> own;
      exec_.each_lane([&](Lane lane) { own[lane] = x.value[lane][s]; });
      core::combine_peers<E::kLanes - 4>(exec_, own, combine);
      exec_.each_lane([&](Lane lane) {
        if (first_peer(lane)) set_number(lane, Layout::kExchange, exec_.warp() * kRows + row(lane, s), own[lane]);
      });
    }
    exec_.block_barrier();
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int s = 0; s < kRowSlots; ++s) {
        float& all = x.value[lane][s];
        all = number(lane, Layout::kExchange, row(lane, s));
        FP4PA_UNROLL
        for (int w = 1; w < kGroupWarps; ++w)
          all = combine(all, number(lane, Layout::kExchange, w * kRows + row(lane, s)));
      }
    });
  }

  /// f(value, lane, slot of its row) for every accumulator.
  template <class F>
  FP4PA_FN void each_output(Output& output, F&& f) const {
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < 8 * kColumns; ++i) {
        const int j = i / 4 % kColumns;
        f(output.value[lane][i / (4 * kColumns)][j][0][i % 4], lane, 2 * j + i % 2);
      }
    });
  }
  /// Times 2^log2, which may lie outside of what a float holds.
  FP4PA_FN void scale_output(Output& output, int log2) const {
    const float low = core::exp2_exact(log2 / 2);
    const float high = core::exp2_exact(log2 - log2 / 2);
    each_output(output, [=](float& value, Lane, int) { value = value * low * high; });
  }

  // group_product.hpp
  FP4PA_FN void load_query(const core::RowMap& rows, float multiplier);
  [[nodiscard]] FP4PA_FN bool leaves_windows(Lane lane, std::uint32_t tile) const;
  [[nodiscard]] FP4PA_FN int move_key_window(const ScaleSpan& span);
  [[nodiscard]] FP4PA_FN int move_value_window(const ScaleSpan& span, Output& output);
  FP4PA_FN void store_probability(const Scores& p) const;
  FP4PA_FN void issue_values(PerLane<typename Operands::Values>& values, Output& output) const;
  /// Something was added in this window.
  FP4PA_FN void raise_floor() {
    const int floor = value_top_ - 3 * kWindowBinades;
    value_floor_ = floor > value_floor_ ? floor : value_floor_;
  }
  FP4PA_FN void wait_for_values(Output& output) const {
    exec_.group_wait([&](Lane lane) -> auto& { return output.value[lane][0]; });
    exec_.group_wait([&](Lane lane) -> auto& { return output.value[lane][1]; });
  }
  // group_epilogue.hpp
  template <class F>
  FP4PA_FN void each_quad(const Output& output, F&& f) const;

  E& exec_;
  const core::AttentionParams& p_;
  std::int32_t num_rows_;
  bool outside_ = false;  // the tile at hand has scales outside of the windows
  bool opened_ = false;
  float global_ = 1.0f;      // V's decode multiplier
  int key_top_ = kFirstTop;  // windows, see group_scales.hpp
  int value_top_ = kFirstTop;
  int value_floor_ = -1000;  // the least top that what was added stays finite in
};

}  // namespace fp4pa::sm90

#include "backends/sm90/group_epilogue.hpp"
#include "backends/sm90/group_product.hpp"
