// The words of core/attention/tile_backend.hpp for devices whose tiles are spread over the lanes of warps.
//
// Everything that is the same on such devices is here, once: rows and who shares them, staging, the query's way in, the
// result's way out, and merging the warps that divided the keys. What differs is the shim's: its atoms, the two products on
// a staged tile, the operand form of the query, and the order in which an output's dims lie.
//
// An output is kept as the instructions leave it: value times `unit`, in the order of dims of the last V format. Neither is
// touched while a segment runs; both are settled when it ends.
#pragma once

#include <cstdint>

#include "core/attention/body.hpp"
#include "core/math.hpp"
#include "core/simt/key_stream.hpp"
#include "core/simt/query.hpp"
#include "core/simt/row_slots.hpp"

namespace fp4pa::core {

/// What a shim supplies; docs/writing_a_backend.md has the prose. A shim whose query operands are no 16-bit floats also has
/// query_terms(params, kind), the number of operands that a query is the sum of.
template <class S>
concept SimtShim = Exec<typename S::Exec> && requires(int i, KvKind kind, float x, typename S::Exec& exec) {
  requires std::same_as<decltype(S::kConfig), const SimtConfig>;
  typename S::ScoreAtom;
  typename S::OutputAtom;
  requires rows_agree<typename S::ScoreAtom, typename S::OutputAtom>();
  typename S::QueryRegisters;  // a lane's share of the query, where it is kept in registers
  // Where chunk i of a row lies; its own inverse, alike in rows 8 apart unless the shim has kSwizzlesFarRows.
  { S::swizzle(i, i, i) } -> std::same_as<int>;
  { S::token_of_slot(i) } -> std::same_as<int>;        // which key of a tile the product takes as its i-th, see token_order.hpp
  requires std::same_as<decltype(S::kTokenAlignment), const int>;  // tokens that must share a row of scales along tokens
  { S::exp2(x) } -> std::same_as<float>;
  { S::query_form(kind) } -> std::same_as<QueryForm>;
  { S::dim_order(kind) } -> std::same_as<int>;
  { S::output_dim(i, i, i, i) } -> std::same_as<int>;  // order, dim tile of a block of dims, lane, value
};

/// Dims that a shim's orders permute among themselves; 32 unless it says otherwise.
template <class S>
inline constexpr int kOutputBlockOf = kDimBlock;
template <class S>
  requires requires { S::kOutputBlock; }
inline constexpr int kOutputBlockOf<S> = S::kOutputBlock;

/// Probabilities are kept times 2^kProbabilityLog2, where a shim names one: its P V then needs no multiplication of its own to
/// bring them into the range of a narrow operand. Row sums are kept in the same unit until finish_rows.
template <class Shim>
[[nodiscard]] consteval int probability_log2() {
  if constexpr (requires { Shim::kProbabilityLog2; }) {
    return Shim::kProbabilityLog2;
  } else {
    return 0;
  }
}

/// How far a score may exceed what its row is relative to, before the row moves: as far as 2^(kProbabilityLog2 + headroom) has
/// room in the shim's operand of P.
template <class Shim>
[[nodiscard]] consteval float headroom_log2() {
  if constexpr (requires { Shim::kHeadroomLog2; }) {
    return Shim::kHeadroomLog2;
  } else {
    return 0.0f;
  }
}

/// The stream that a backend's products read: KeyStreamOf, or a shim's own, of tiles that other warps have decoded.
template <class Shim, std::int32_t S>
struct StreamOf {
  using type = KeyStreamOf<Shim, S>;
};
template <class Shim, std::int32_t S>
  requires requires { typename Shim::TileStream; }
struct StreamOf<Shim, S> {
  using type = typename Shim::TileStream;
};

/// Whether all tiles' outputs have one unit: V's multiplier times 2^kOnlyUnitLog2, which then nobody has to keep until the end.
template <class Shim>
inline constexpr bool kHasOnlyUnit = requires { Shim::kOnlyUnitLog2; };

template <class Shim>
class SimtTileBackend {
 public:
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Slots = RowSlots<typename Shim::ScoreAtom>;
  using OutputSlots = RowSlots<typename Shim::OutputAtom>;

  static constexpr SimtConfig kConfig = Shim::kConfig;
  static constexpr std::int32_t kSegments = kConfig.segments;
  static constexpr bool kPlain = kConfig.plain;
  static constexpr std::int32_t kTileKeys = kConfig.tile_keys;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kQueries = Shim::ScoreAtom::kQueries;
  static constexpr int kWarpRows = kRowTiles * kQueries;
  static constexpr int kRowSlots = kRowTiles * Slots::kSlots;
  static constexpr int kKeyTiles = kTileKeys / Shim::ScoreAtom::kKeys;
  static constexpr int kDimTiles = kConfig.head_dim / Shim::OutputAtom::kDims;
  static constexpr int kScoreValues = Slots::kValues;
  static constexpr int kOutputValues = OutputSlots::kValues;
  static constexpr int kOutputRegisters = kDimTiles * kRowTiles * kOutputValues;

  static constexpr int kOutputBlock = kOutputBlockOf<Shim>;
  /// An output has the same order wherever it came from: in one format of V, or because the shim says so of all.
  static constexpr bool kOneOrder = (kSegments == 1 && !is_any(kConfig.v[0])) || requires { requires Shim::kOneOrder; };

  using ScoreRegisters = float[kKeyTiles][kRowTiles][kScoreValues];
  using OutputRegisters = float[kDimTiles][kRowTiles][kOutputValues];

  struct RowVector {
    PerLane<float[kRowSlots]> value;
  };
  /// In log2 units, or as the instruction summed them: then the rows' factors are multiplied in with the subtraction of the
  /// maximum, or before anybody looks at a score.
  struct Scores {
    PerLane<ScoreRegisters> value;
    std::int32_t first_key;
    bool raw;
  };
  struct Output {
    PerLane<OutputRegisters> value;
    float unit;     // the output is value * unit * 2^unit_log2
    int unit_log2;  // kept apart: it may leave the range of a float
    int unit_floor; // the least unit_log2 that what is there stays finite in
    int order;      // of its dims, see Shim::dim_order; 0 while it is all zeros
  };

  /// One warp's result while warps are merged: rows of f32, and behind them the rows' states.
  static constexpr int kResultPitch = result_pitch(kConfig.head_dim);  // in elements
  static constexpr int kResultStates = kWarpRows * kResultPitch * 4;

  template <std::int32_t S>
  using Stream = typename StreamOf<Shim, S>::type;

  /// @param layout  shared_layout() of this launch; the same for all blocks
  FP4PA_FN SimtTileBackend(E& exec, const AttentionParams& params, const RowMap& rows, const SharedLayout& layout)
      : exec_(exec), p_(params), rows_(rows), layout_(layout) {}

  template <std::int32_t S>
  [[nodiscard]] FP4PA_FN Stream<S> open(const RowMap& rows, const WorkItem& item, KeyRange range) {
    const Segment& segment = p_.segments[S];
    exec_.template copy_wait<0>();
    exec_.block_barrier();  // nobody reads the last query or the last stages any more
    const int team = divides_rows(kConfig) ? 0 : exec_.warp();
    Stream<S> stream(exec_, segment, item, range, p_.head_dim, layout_.stages + team * layout_.team_bytes,
                     layout_.addresses + team * layout_.address_bytes);
    load_query<S>(rows, segment.k, item.kv_head);  // while the first keys are on their way
    exec_.block_barrier();
    if constexpr (!kFactorsStay) factor_ = load_factors();
    Shim::load_query_registers(exec_, query_offset(), head_dim(), query_);
    return stream;
  }

  [[nodiscard]] FP4PA_FN RowVector row_vector(float x) const {
    RowVector v;
    each_row([x](float& value) { value = x; }, v);
    return v;
  }
  [[nodiscard]] FP4PA_FN Output zero_output() const {
    Output o;
    o.unit = 1.0f;
    o.unit_log2 = 0;
    o.unit_floor = -1000;
    o.order = 0;
    each_output(o, [](float& value, Lane, int, int, int) { value = 0.0f; });
    return o;
  }

  /// @tparam TileStream  Stream<S> of a segment
  template <class TileStream>
  [[nodiscard]] FP4PA_FN Scores multiply_query_key(TileStream& stream) {
    Scores scores;
    scores.first_key = stream.keys().begin;
    with_key_kind<kConfig.k[TileStream::kSegment]>(stream.k_kind(), [&](auto kind) {
      Shim::template query_key<decltype(kind)::value>(exec_, stream, query_offset(), query_, terms(), scores.value);
    });
    scores.raw = true;
    return scores;
  }

  template <class TileStream>
  FP4PA_FN void multiply_probability_value(TileStream& stream, const Scores& p, Output& output) {
    with_value_kind<kConfig.v[TileStream::kSegment]>(stream.v_kind(), [&](auto kind) {
      constexpr KvKind kKind = decltype(kind)::value;
      Shim::template probability_value<kKind>(exec_, *this, stream, p.value, output);
    });
  }

  template <class F>
  FP4PA_FN void each_score(Scores& scores, F&& f) const {
    if (scores.raw) {
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
        f(scores.value[lane][tile][nt][v], row_base() + nt * kQueries + Slots::query(lane.id, v),
          scores.first_key + Shim::token_of_slot(tile * Shim::ScoreAtom::kKeys + Slots::other(lane.id, v)));
      });
    });
  }

  /// Lanes that share a row compare their maxima only when one of them leaves the headroom: a few tiles of many.
  [[nodiscard]] FP4PA_FN bool raise_max(const Scores& scores, RowVector& max, RowVector& correction) const {
    RowVector next = row_vector(kMinusInf);
    exec_.each_lane([&](Lane lane) {
      for_each_value<kKeyTiles, kScoreValues>([&](int tile, int nt, int v) {
        float& m = next.value[lane][nt * Slots::kSlots + Slots::slot(v)];
        m = math::max(m, scores.value[lane][tile][nt][v]);
      });
    });
    const RowVector factor = pending_factor(scores);
    each_row([](float& m, float f) { m *= f; }, next, factor);
    const bool left = exec_.any([&](Lane lane) {
      bool mine = false;
      FP4PA_UNROLL
      for (int s = 0; s < kRowSlots; ++s) mine = mine || next.value[lane][s] > max.value[lane][s] + headroom_log2<Shim>();
      return mine;
    });
    if (!left) return false;
    reduce_peers(next, [](float a, float b) { return math::max(a, b); });
    each_row(
        [](float& m, float now, float& c) {
          now = math::max(now, m);
          c = rescale(m, now);
          m = now;
        },
        max, next, correction);
    return true;
  }

  FP4PA_FN void exp2_minus(Scores& scores, const RowVector& max) const {
    const RowVector factor = pending_factor(scores);
    exec_.each_lane([&](Lane lane) {
      float base[kRowSlots];
      FP4PA_UNROLL
      for (int s = 0; s < kRowSlots; ++s) {
        // A row that has seen nothing has only scores of -inf: minus anything finite they give 0.
        base[s] = max.value[lane][s] == kMinusInf ? 0.0f : max.value[lane][s] - static_cast<float>(probability_log2<Shim>());
      }
      for_each_value<kKeyTiles, kScoreValues>([&](int tile, int nt, int v) {
        const int slot = nt * Slots::kSlots + Slots::slot(v);
        float& x = scores.value[lane][tile][nt][v];
        x = Shim::exp2(math::fma(x, factor.value[lane][slot], -base[slot]));
      });
    });
  }
  FP4PA_FN void add_row_sums(const Scores& scores, RowVector& sum) const {
    exec_.each_lane([&](Lane lane) {
      for_each_value<kKeyTiles, kScoreValues>([&](int tile, int nt, int v) {
        sum.value[lane][nt * Slots::kSlots + Slots::slot(v)] += scores.value[lane][tile][nt][v];
      });
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

  FP4PA_FN void scale_rows(Output& output, const RowVector& factor) const {
    each_output(output, [&](float& value, Lane lane, int, int nt, int v) {
      value *= factor.value[lane][nt * OutputSlots::kSlots + OutputSlots::slot(v)];
    });
  }

  // epilogue.hpp
  FP4PA_FN void finish_rows(RowVector& max, RowVector& sum, Output& output);
  FP4PA_FN void store_output(const RowMap& rows, const Output& output) const;
  FP4PA_FN void store_lse(const RowMap& rows, const RowVector& lse) const;
  FP4PA_FN void store_partial(const WorkItem& item, const Output& output, const RowVector& max,
                              const RowVector& sum) const;

  // For the shim's products, which call both before they add to an output: first the unit, then the order.

  FP4PA_FN void adopt_order(Output& output, int order) const;  // epilogue.hpp
  /// Calls f(value, lane, dim tile, row tile, v) for every accumulator.
  template <class F>
  FP4PA_FN void each_output(Output& output, F&& f) const {
    exec_.each_lane([&](Lane lane) {
      for_each_value<kDimTiles, kOutputValues>(
          [&](int tile, int nt, int v) { f(output.value[lane][tile][nt][v], lane, tile, nt, v); });
    });
  }
  /// Makes unit * 2^unit_log2 the unit of the output.
  FP4PA_FN void set_unit(Output& output, float unit, int unit_log2) const {
    if (output.unit == unit && output.unit_log2 == unit_log2) return;
    // A sum of probabilities times decoded values is far less than 2^30 of its unit.
    if (output.order != 0 && output.unit_floor < output.unit_log2 - 90) output.unit_floor = output.unit_log2 - 90;
    const int shift = output.unit_log2 - unit_log2;
    const float ratio = output.unit / unit;
    output.unit = unit;
    output.unit_log2 = unit_log2;
    if (output.order == 0) return;
    // In two steps, so that neither factor overflows where the result does not.
    const float low = exp2_exact(shift / 2);
    const float high = exp2_exact(shift - shift / 2);
    each_output(output, [=](float& value, Lane, int, int, int) { value = value * low * ratio * high; });
  }
  [[nodiscard]] FP4PA_FN int head_dim() const { return kConfig.exact_head_dim ? kConfig.head_dim : p_.head_dim; }
  /// kScratchBytes of this warp alone, free while a segment runs.
  [[nodiscard]] FP4PA_FN std::uint32_t scratch_offset() const { return exec_.warp() * kScratchBytes; }

 private:
  /// Whether rows' factors are read from shared memory for every tile, as a shim wants it that has no registers for them.
  static constexpr bool kFactorsStay = requires { requires Shim::kFactorsStay; };

  [[nodiscard]] FP4PA_FN RowVector load_factors() const {
    RowVector factor;
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int s = 0; s < kRowSlots; ++s) {
        factor.value[lane][s] = exec_.template load_shared<float>(lane, layout_.row_factors + 4 * row(lane, s));
      }
    });
    return factor;
  }
  /// Of this warp's rows: from the instruction's sums to scores in log2 units.
  [[nodiscard]] FP4PA_FN RowVector factors() const {
    if constexpr (kFactorsStay) {
      return load_factors();
    } else {
      return factor_;
    }
  }
  /// What is still to be multiplied into scores; at least 0, see load_query.
  [[nodiscard]] FP4PA_FN RowVector pending_factor(const Scores& scores) const {
    RowVector factor = factors();
    each_row([&](float& f) { f = scores.raw ? f : 1.0f; }, factor);
    return factor;
  }

  template <int kTiles, int kValues, class F>
  FP4PA_FN static void for_each_value(F&& f) {
    FP4PA_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      FP4PA_UNROLL
      for (int nt = 0; nt < kRowTiles; ++nt) {
        FP4PA_UNROLL
        for (int v = 0; v < kValues; ++v) f(tile, nt, v);
      }
    }
  }

  /// First row of this warp within the item.
  [[nodiscard]] FP4PA_FN int row_base() const { return divides_rows(kConfig) ? exec_.warp() * kWarpRows : 0; }
  [[nodiscard]] FP4PA_FN int row(Lane lane, int s) const {
    return row_base() + s / Slots::kSlots * kQueries + Slots::row(lane.id, s % Slots::kSlots);
  }
  /// Whether this lane speaks for its rows, and this warp for its block's.
  [[nodiscard]] FP4PA_FN static bool first_peer(Lane lane) { return (lane.id & Slots::kPeerBits) == 0; }
  [[nodiscard]] FP4PA_FN bool holds_result() const { return divides_rows(kConfig) || exec_.warp() == 0; }

  [[nodiscard]] FP4PA_FN std::uint32_t query_offset() const {
    return layout_.query + (divides_rows(kConfig) ? exec_.warp() * layout_.query_bytes : 0);
  }

  template <class F>
  FP4PA_FN void reduce_peers(RowVector& x, F&& combine) const {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      PerLane<float> own;
      exec_.each_lane([&](Lane lane) { own[lane] = x.value[lane][s]; });
      FP4PA_UNROLL
      for (int bit = 1; bit < E::kLanes; bit *= 2) {
        if ((Slots::kPeerBits & bit) == 0) continue;
        const PerLane<float> peer = exec_.shuffle_xor(own, bit);
        exec_.each_lane([&](Lane lane) { own[lane] = combine(own[lane], peer[lane]); });
      }
      exec_.each_lane([&](Lane lane) { x.value[lane][s] = own[lane]; });
    }
  }

  // What a plain instance knows when it is compiled.
  [[nodiscard]] FP4PA_FN int terms() const {
    if constexpr (kPlain) return kConfig.terms;
    if constexpr (kFixedKind) return terms_of(kConfig.k[0]);  // found again, and not kept
    return terms_;
  }
  static constexpr bool kFixedKind = kSegments == 1 && !is_any(kConfig.k[0]);
  [[nodiscard]] FP4PA_FN int terms_of(KvKind kind) const {
    if constexpr (requires { Shim::query_terms(p_, kind); }) {
      return Shim::query_terms(p_, kind);
    } else {
      return query_terms(p_.q.dtype, p_.rotation, Shim::query_form(kind).bf16);
    }
  }
  [[nodiscard]] FP4PA_FN Rotation rotation() const { return kPlain && kConfig.terms == 1 ? Rotation::kNone : p_.rotation; }

  template <std::int32_t S>
  FP4PA_FN void load_query(const RowMap& rows, const TensorView& k, std::int32_t kv_head) {
    constexpr KvKind kFixed = kConfig.k[S];
    const KvKind kind = is_any(kFixed) ? kv_kind(k) : kFixed;
    const QueryForm form = Shim::query_form(kind);
    const float multiplier = p_.scale_log2 * k.global(kv_head);
    // The sign of a negative multiplier goes into the operand: a row's factor keeps the order of its scores.
    const float sign = multiplier < 0.0f ? -1.0f : 1.0f;
    const float magnitude = multiplier * sign;
    if constexpr (!kFixedKind) terms_ = terms_of(kind);
    // When keys are divided all warps use the same rows and share the loading of them.
    const int first = divides_rows(kConfig) ? 0 : exec_.warp();
    const int step = divides_rows(kConfig) ? 1 : exec_.num_warps();
    if constexpr (requires { typename Shim::RowChunks; }) {
      if (p_.rotation == Rotation::kNone && terms() == 1 && query_rows_are_chunks(p_.q)) {
        Shim::RowChunks::load_query(exec_, p_, rows, row_base(), form, sign, query_offset(),
                                    layout_.row_factors + 4 * row_base(), magnitude * form.unit);
        return;
      }
    }
    if constexpr (kReadsQuads) {
      for (int r = first; r < kWarpRows; r += kQuadRows * step) load_query_quads(rows, kind, form, magnitude, sign, r, step);
      return;
    }
    FP4PA_NO_UNROLL
    for (int r = first; r < kWarpRows; r += step) {
      const QueryRow q = load_query_row(exec_, p_, rotation(), rows, row_base() + r, scratch_offset(), form, magnitude);
      Shim::store_query_row(exec_, kind, scratch_offset(), query_offset(), r, head_dim(), sign * q.to_operand, terms());
      exec_.each_lane([&](Lane lane) {
        if (lane.id == 0) {
          exec_.template store_shared<float>(lane, layout_.row_factors + 4 * (row_base() + r), q.factor);
        }
      });
      exec_.warp_barrier();  // the scratch row is free
    }
  }

  // Rows of whole quads are read several at a time and rotated in registers, without a detour through shared memory: an item of
  // few keys would otherwise spend most of its time on waiting for one row after the other.
  static constexpr int kQuadRows =
      divides_rows(kConfig) || kWarpRows > 4 * kConfig.warps ? 4 : (kWarpRows + kConfig.warps - 1) / kConfig.warps;
  static constexpr int kQuads = (kConfig.head_dim + 4 * E::kLanes - 1) / (4 * E::kLanes);
  static constexpr bool kWholeQuads = kConfig.head_dim % (4 * E::kLanes) == 0;  // else some lanes have none
  static constexpr bool kReadsQuads = kConfig.exact_head_dim && requires { Shim::kStoresQuads; };

  /// Rows r, r + step, ... of this warp.
  FP4PA_FN void load_query_quads(const RowMap& rows, KvKind kind, QueryForm form, float magnitude, float sign, int r, int step) {
    PerLane<float[kQuadRows][kQuads][4]> x;
    const bool aligned = query_rows_are_quads(p_.q);
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kQuadRows; ++i) {
        const int row = row_base() + r + i * step;
        const bool exists = r + i * step < kWarpRows && row < rows.num_rows;
        const std::int64_t at = exists ? rows.token(row) * p_.q.token_stride + rows.head(row) * p_.q.head_stride : 0;
        FP4PA_UNROLL
        for (int q = 0; q < kQuads; ++q) {
          const int dim = 4 * (q * E::kLanes + lane.id);
          FP4PA_UNROLL
          for (int d = 0; d < 4; ++d) x[lane][i][q][d] = 0.0f;
          if (exists && (kWholeQuads || dim < kConfig.head_dim)) {
            load_query_quad<kPlain && kConfig.terms == 1>(exec_, p_.q, aligned, at + dim, x[lane][i][q]);
          }
        }
      }
    });
    float norm = 1.0f;
    if (rotation() != Rotation::kNone) {
      const int block = static_cast<int>(rotation());
      rotate_quads<E>(exec_, x, (kWarpRows - r + step - 1) / step, block);
      norm = hadamard_norm(block);
    }
    FP4PA_UNROLL
    for (int i = 0; i < kQuadRows; ++i) {
      if (r + i * step >= kWarpRows) break;
      int shift = 0;
      if (form.binade != QueryForm::kAsIs) {
        PerLane<std::uint32_t> amax;
        exec_.each_lane([&](Lane lane) {
          amax[lane] = 0;
          FP4PA_UNROLL
          for (int q = 0; q < 4 * kQuads; ++q) {
            const std::uint32_t bits = magnitude_bits(x[lane][i][q / 4][q % 4] * norm);
            amax[lane] = bits > amax[lane] ? bits : amax[lane];
          }
        });
        shift = query_shift(form, exec_.reduce_max(amax));
      }
      FP4PA_UNROLL
      for (int q = 0; q < kQuads; ++q) {
        PerLane<float[4]> quad;
        exec_.each_lane([&](Lane lane) {
          FP4PA_UNROLL
          for (int d = 0; d < 4; ++d) quad[lane][d] = x[lane][i][q][d] * (sign * norm * exp2_exact(shift));
        });
        Shim::store_query_quads(exec_, kind, query_offset(), r + i * step, 4 * q * E::kLanes, head_dim(), quad, terms());
      }
      exec_.each_lane([&](Lane lane) {
        if (lane.id == 0) {
          exec_.template store_shared<float>(lane, layout_.row_factors + 4 * (row_base() + r + i * step),
                                             magnitude * form.unit * exp2_exact(-shift));
        }
      });
    }
  }

  // epilogue.hpp
  template <class T, class Round>
  FP4PA_FN void store_output_as(const RowMap& rows, const Output& output, Round&& round) const;
  [[nodiscard]] FP4PA_FN bool stores_chunks() const;
  FP4PA_FN void merge_states(RowVector& max, RowVector& sum, Output& output);
  FP4PA_FN void lay_out(const Output& output) const;
  template <class RowAt>
  FP4PA_FN void store_sums(DType dtype, void* data, bool chunks, RowAt&& row_at) const;
  FP4PA_FN void store_eight(DType dtype, void* data, std::int64_t at, bool chunk, const float (&x)[8]) const;
  [[nodiscard]] FP4PA_FN std::uint32_t result_offset(int warp) const {
    return static_cast<std::uint32_t>(layout_.stages + warp * layout_.team_bytes);
  }
  FP4PA_FN void move_dims(Output& output, int old, int order) const;

  E& exec_;
  const AttentionParams& p_;
  const RowMap& rows_;
  const SharedLayout& layout_;
  RowVector factor_;  // see factors()
  PerLane<typename Shim::QueryRegisters> query_;  // its first term
  int terms_ = 1;
};

}  // namespace fp4pa::core

#include "core/simt/epilogue.hpp"
