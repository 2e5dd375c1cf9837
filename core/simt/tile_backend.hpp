// The words of core/attention/tile_backend.hpp for devices whose tiles are spread over the lanes of warps.
//
// Everything that is the same on such devices is here, once: rows and who shares them, staging, the query's way in, the
// result's way out, and merging the warps that divided the keys. What differs is the shim's: its atoms, the two products on
// a staged tile, the operand form of the query, and the order in which an output's dims lie (shim.hpp).
//
//   key_stream.hpp  keys and values from the pages to shared memory
//   load_query.hpp  the query's way in
//   scores.hpp      what becomes of scores
//   epilogue.hpp    the result's way out
//
// An output is kept as the instructions leave it: value times `unit`, in the order of dims of the last V format. Neither is
// touched while a segment runs; both are settled when it ends.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/attention/body.hpp"
#include "core/math.hpp"
#include "core/simt/key_stream.hpp"
#include "core/simt/query.hpp"
#include "core/simt/row_slots.hpp"
#include "core/simt/shim.hpp"

namespace fp4pa::core {

template <class Shim>
class SimtTileBackend {
  static_assert(SimtShim<Shim>);

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
  static constexpr bool kTreeWindows = takes_tree_windows(kConfig);
  static constexpr std::int32_t kTileKeys = kConfig.tile_keys;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kQueries = Shim::ScoreAtom::kQueries / rows_of_query(kConfig);
  static constexpr int kWarpRows = kRowTiles * kQueries;
  static constexpr int kRowSlots = kRowTiles * Slots::kSlots;
  static constexpr int kKeyTiles = kTileKeys / Shim::ScoreAtom::kKeys;
  static constexpr int kDimTiles = kConfig.head_dim / Shim::OutputAtom::kDims;
  static constexpr int kScoreValues = Slots::kValues;
  static constexpr int kOutputValues = OutputSlots::kValues;

  static constexpr int kOutputBlock = kOutputBlockOf<Shim>;
  /// An output has the same order wherever it came from: in one format of V, or because the shim says so of all.
  static constexpr bool kOneOrder = (kSegments == 1 && !is_any(kConfig.v[0])) || requires { requires Shim::kOneOrder; };

  /// Whether products take kAny and switch over the kinds themselves.
  static constexpr bool kSwitchesKinds = requires { requires Shim::kSwitchesKinds; };

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
    typename UnitNoteOf<Shim>::type note;  // of the unit, for the shim
  };

  /// One warp's result while warps are merged: rows of f32, and behind them the rows' states.
  static constexpr int kResultPitch = result_pitch(kConfig.head_dim);  // in elements

  template <std::int32_t S>
  using Stream = typename StreamOf<Shim, S>::type;

  /// @param layout  shared_layout() of this launch; the same for all blocks
  FP4PA_FN SimtTileBackend(E& exec, const AttentionParams& params, const RowMap& rows, const SharedLayout& layout)
      : exec_(exec), p_(params), rows_(rows), layout_(layout) {
    if constexpr (kKeepsBases) bases_ = row_vector(kNothingSeen);
  }

  template <std::int32_t S>
  [[nodiscard]] FP4PA_FN Stream<S> open(const RowMap& rows, const WorkItem& item, KeyRange range) {
    const Segment& segment = p_.segments[S];
    exec_.template copy_wait<0>();
    exec_.block_barrier();  // nobody reads the last query or the last stages any more
    AskedQuery asked;
    ask_query(rows, segment.k, item.kv_head, asked);
    const int team = divides_rows(kConfig) ? 0 : exec_.warp();
    Stream<S> stream(exec_, segment, item, range, p_.head_dim, layout_.stages + team * layout_.team_bytes,
                     layout_.addresses + team * layout_.address_bytes);
    load_query<S>(rows, segment.k, asked);  // while the first keys are on their way
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
    o.unit_log2 = first_unit_log2<Shim>();
    o.unit_floor = -1000;
    o.order = 0;
    note_unit(o);
    each_output(o, [](float& value, Lane, int, int, int) { value = 0.0f; });
    return o;
  }

  /// @tparam TileStream  Stream<S> of a segment
  template <class TileStream>
  [[nodiscard]] FP4PA_FN Scores multiply_query_key(TileStream& stream) {
    Scores scores;
    scores.first_key = stream.keys().begin;
    constexpr KvKind kKind = kConfig.k[TileStream::kSegment];
    const auto multiply = [&](auto kind) {
      Shim::template query_key<decltype(kind)::value>(exec_, stream, query_offset(), query_, terms(), scores.value);
    };
    if constexpr (kSwitchesKinds) {
      multiply(KindConstant<kKind>());
    } else {
      with_key_kind<kKind>(stream.k_kind(), multiply);
    }
    scores.raw = true;
    return scores;
  }

  template <class TileStream>
  FP4PA_FN void multiply_probability_value(TileStream& stream, const Scores& p, Output& output) {
    constexpr KvKind kKind = kConfig.v[TileStream::kSegment];
    const auto multiply = [&](auto kind) {
      Shim::template probability_value<decltype(kind)::value>(exec_, *this, stream, p.value, output);
    };
    if constexpr (kSwitchesKinds) {
      multiply(KindConstant<kKind>());
    } else {
      with_value_kind<kKind>(stream.v_kind(), multiply);
    }
  }

  // scores.hpp
  template <class F>
  FP4PA_FN void each_score(Scores& scores, F&& f) const;
  [[nodiscard]] FP4PA_FN bool raise_max(const Scores& scores, RowVector& max, RowVector& correction);
  FP4PA_FN void exp2_minus(Scores& scores, const RowVector& max) const;
  FP4PA_FN void add_row_sums(const Scores& scores, RowVector& sum) const;

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
    note_unit(output);
    if (output.order == 0) return;
    // In two steps, so that neither factor overflows where the result does not.
    const float low = exp2_exact(shift / 2);
    const float high = exp2_exact(shift - shift / 2);
    each_output(output, [=](float& value, Lane, int, int, int) { value = value * low * ratio * high; });
  }
  /// Decode multiplier of the first segment's values.
  [[nodiscard]] FP4PA_FN float value_global() const {
    if constexpr (kConfig.v[0] == KvKind::kBf16) return 1.0f;
    const auto head = static_cast<std::int32_t>(rows_.group_divisor.quotient(static_cast<std::uint32_t>(rows_.first_head)));
    return p_.segments[0].v.global(head);
  }
  [[nodiscard]] FP4PA_FN int head_dim() const { return kConfig.exact_head_dim ? kConfig.head_dim : p_.head_dim; }
  /// kScratchBytes of this warp alone, free while a segment runs.
  [[nodiscard]] FP4PA_FN std::uint32_t scratch_offset() const { return exec_.warp() * kScratchBytes; }

 private:
  FP4PA_FN static void note_unit(Output& output) {
    if constexpr (requires { typename Shim::UnitNote; }) output.note = Shim::note_of(output.unit, output.unit_log2);
  }

  /// Base of a row that has seen nothing: its first score leaves the headroom, and -inf, of which alone its scores may be, stays -inf.
  static constexpr float kNothingSeen = 0x1.fffffep127f;
  /// Whether what exponents are relative to is kept as long as the maxima that it comes from; not where rows are many.
  static constexpr bool kKeepsBases = !divides_rows(kConfig);

  /// Whether rows' factors are read from shared memory for every tile, as a shim wants it that has no registers for them.
  static constexpr bool kFactorsStay = requires { requires Shim::kFactorsStay; };

  // scores.hpp
  [[nodiscard]] FP4PA_FN RowVector bases_of(const RowVector& max) const;
  using Bases = std::conditional_t<kKeepsBases, const RowVector&, RowVector>;
  [[nodiscard]] FP4PA_FN Bases bases(const RowVector& max) const;
  [[nodiscard]] FP4PA_FN RowVector load_factors() const;
  [[nodiscard]] FP4PA_FN RowVector factors() const;
  [[nodiscard]] FP4PA_FN RowVector pending_factor(const Scores& scores) const;
  template <class F>
  FP4PA_FN void reduce_peers(RowVector& x, F&& combine) const;

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
    return row_base() + s / Slots::kSlots * kQueries + query_of(Slots::row(lane.id, s % Slots::kSlots));
  }
  /// Query row of one of the atom's: where something stands side by side, the upper rows mirror the lower ones.
  [[nodiscard]] FP4PA_FN static constexpr int query_of(int atom_row) {
    if constexpr (rows_of_query(kConfig) == 1) {
      return atom_row;
    } else {
      return atom_row % kQueries;
    }
  }
  /// Whether this lane's rows are mirrors, of whose states nothing is stored.
  static_assert(Slots::parts_lanes(kQueries));
  [[nodiscard]] FP4PA_FN static constexpr bool mirrors(Lane lane) {
    return rows_of_query(kConfig) > 1 && Slots::row(lane.id, 0) >= kQueries;
  }
  /// Whether what this lane has of an output is its rows'. Of groups side by side one column has the one's, the other the other's.
  [[nodiscard]] FP4PA_FN static constexpr bool holds_output(Lane lane) {
    if constexpr (kConfig.side_by_side == SideBySide::kGroups) {
      return mirrors(lane) == (Shim::group_of_dims(lane.id) == 1);
    } else {
      return !mirrors(lane);
    }
  }
  /// Whether this lane speaks for its rows, and this warp for its block's.
  [[nodiscard]] FP4PA_FN static bool first_peer(Lane lane) { return (lane.id & Slots::kPeerBits) == 0 && !mirrors(lane); }
  [[nodiscard]] FP4PA_FN bool holds_result() const { return divides_rows(kConfig) || exec_.warp() == 0; }

  [[nodiscard]] FP4PA_FN std::uint32_t query_offset() const {
    return layout_.query + (divides_rows(kConfig) ? exec_.warp() * layout_.query_bytes : 0);
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

  // load_query.hpp
  static constexpr int kSharers = least_warps<E>(kConfig.warps);  // of the rows
  static constexpr int kQuadRows =
      divides_rows(kConfig) || kWarpRows > 4 * kSharers ? 4 : (kWarpRows + kSharers - 1) / kSharers;
  static constexpr int kQuads = (kConfig.head_dim + 4 * E::kLanes - 1) / (4 * E::kLanes);
  static constexpr bool kWholeQuads = kConfig.head_dim % (4 * E::kLanes) == 0;  // else some lanes have none
  static constexpr bool kReadsQuads = kConfig.exact_head_dim && requires { Shim::kStoresQuads; };
  static constexpr bool kAsksQuads = kReadsQuads && !divides_rows(kConfig);
  static constexpr bool kHalves = kPlain && kConfig.terms == 1;  // queries are known to be of 16 bits
  struct QuadsOfLane {
    QuadBits quad[kQuadRows][kQuads];
  };
  using AskedQuads = PerLane<QuadsOfLane>;
  /// On its way.
  struct AskedQuery {
    AskedQuads quads;  // the first of a warp's rows, where kAsksQuads
    float k_global;    // decode multiplier of the keys
  };
  FP4PA_FN void ask_query(const RowMap& rows, const TensorView& k, std::int32_t kv_head, AskedQuery& asked);
  template <std::int32_t S>
  FP4PA_FN void load_query(const RowMap& rows, const TensorView& k, AskedQuery& asked);
  FP4PA_FN void ask_query_quads(const RowMap& rows, int r, int step, AskedQuads& asked);
  FP4PA_FN void take_query_quads(KvKind kind, QueryForm form, float magnitude, float sign, int r, int step, const AskedQuads& asked);

  // epilogue.hpp
  template <class T, class Round>
  FP4PA_FN void store_output_as(const RowMap& rows, const Output& output, Round&& round) const;
  template <class Row, class Round>
  FP4PA_FN void store_elements(const Output& output, Row&& row, Round&& round) const;
  [[nodiscard]] FP4PA_FN bool stores_chunks() const;
  FP4PA_FN void merge_states(RowVector& max, RowVector& sum, Output& output);
  FP4PA_FN void lay_out(const Output& output) const;
  template <class RowAt>
  FP4PA_FN void store_sums(DType dtype, void* data, bool chunks, RowAt&& row_at) const;
  FP4PA_FN void store_four(DType dtype, void* data, std::int64_t at, bool chunk, const float (&x)[4]) const;
  [[nodiscard]] FP4PA_FN std::uint32_t result_offset(int warp) const {
    return static_cast<std::uint32_t>(layout_.stages + warp * layout_.team_bytes);
  }
  FP4PA_FN void move_dims(Output& output, int old, int order) const;

  E& exec_;
  const AttentionParams& p_;
  const RowMap& rows_;
  const SharedLayout& layout_;
  RowVector factor_;  // see factors()
  RowVector bases_;   // see kKeepsBases
  PerLane<typename Shim::QueryRegisters> query_;  // its first term
  int terms_ = 1;
};

}  // namespace fp4pa::core

#include "core/simt/epilogue.hpp"
#include "core/simt/load_query.hpp"
#include "core/simt/scores.hpp"
