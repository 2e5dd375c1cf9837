// The CPU as a back end of the kernel body: a warp of one lane whose fragments are whole tiles.
//
// Scores, probabilities and the output are arrays in first-level cache; every operation is a call into the table of SIMD
// tile operations (tile_ops.hpp). Formats are run-time values here, so the body is compiled twice (with and without a
// recent tier) and not once per format. Pages are "staged" by prefetching: while a tile is computed on, the rows of the
// next one are asked for, row by row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu/tile_ops.hpp"
#include "core/attention/body.hpp"
#include "core/formats/formats.hpp"
#include "core/paging/plain_row.hpp"

namespace fp4pa::cpu {

/// A kernel body's working set on one thread; kept by the thread from item to item. About 80 KB.
struct TileScratch {
  alignas(64) float query[kMaxRows * kMaxHeadDim];
  alignas(64) unsigned char query_operand[kQueryOperandBytes];
  alignas(64) float scores[kMaxRows * kTileKeys];
  alignas(64) float output[kMaxRows * kMaxHeadDim];
  std::int32_t output_order[kMaxHeadDim];  // lane order of the output
  TileRows keys[2];                        // of the current and the next tile
  TileRows values[2];
};

template <std::int32_t kNumSegments>
class TileBackend {
 public:
  static constexpr std::int32_t kSegments = kNumSegments;
  static constexpr std::int32_t kTileKeys = cpu::kTileKeys;

  struct RowVector {
    float value[kMaxRows];
  };
  /// [rows, kTileKeys] and the key of column 0.
  struct Scores {
    float* data;
    std::int32_t first_key;
  };
  /// [rows, head_dim], in the lane order of the values `of` that were added last (any, while it is all zeros).
  struct Output {
    float* data;
    const core::TensorView* of;  // null: all zeros
  };

  TileBackend(const TileOps& ops, const core::AttentionParams& params, const core::RowMap& rows, TileScratch& scratch)
      : ops_(ops), p_(params), rows_(rows.num_rows), scratch_(scratch) {}

  /// The keys of a segment: pointers to their rows, one tile ahead.
  class Stream {
   public:
    Stream(TileBackend& b, const core::Segment& segment, const core::WorkItem& item, core::KeyRange range)
        : b_(b), segment_(segment), item_(item), range_(range) {
      locate(range_.begin, 0);
    }
    [[nodiscard]] bool done() const { return range_.begin >= range_.end; }
    [[nodiscard]] core::KeyRange keys() const { return {range_.begin, std::min(range_.begin + kTileKeys, range_.end)}; }
    void wait() {
      if (range_.begin + kTileKeys >= range_.end) return;
      const std::int32_t next = current_ ^ 1;
      locate(range_.begin + kTileKeys, next);
      ahead_[0] = {&b_.scratch_.keys[next], core::row_bytes(segment_.k.format, b_.p_.head_dim)};
      ahead_[1] = {&b_.scratch_.values[next], core::row_bytes(segment_.v.format, b_.p_.head_dim)};
    }
    void release() {
      range_.begin += kTileKeys;
      current_ ^= 1;
    }

   private:
    friend class TileBackend;

    /// Fills row pointers for the tile that begins at key `first`.
    void locate(std::int32_t first, std::int32_t which) {
      const std::int32_t count = std::min(kTileKeys, range_.end - first);
      TileRows& k = b_.scratch_.keys[which];
      TileRows& v = b_.scratch_.values[which];
      k.count = v.count = count;
      std::int32_t page_index = first / segment_.page_size;
      std::int32_t page_row = first % segment_.page_size;
      for (std::int32_t i = 0; i < count;) {
        const std::int64_t page = segment_.table.page(item_.seq, page_index);
        const std::int32_t run = std::min(count - i, segment_.page_size - page_row);
        fill(segment_.k, page, page_row, run, i, k);
        fill(segment_.v, page, page_row, run, i, v);
        i += run;
        page_row += run;
        if (page_row == segment_.page_size) {
          page_row = 0;
          ++page_index;
        }
      }
      const bool more = first + count < range_.end;
      const std::int64_t page = more ? segment_.table.page(item_.seq, page_index) : 0;
      k.after = more ? segment_.k.row(page, page_row, item_.kv_head) : nullptr;
      v.after = more ? segment_.v.row(page, page_row, item_.kv_head) : nullptr;
    }
    void fill(const core::TensorView& view, std::int64_t page, std::int32_t page_row, std::int32_t run, std::int32_t at,
              TileRows& rows) const {
      const std::uint8_t* row = view.row(page, page_row, item_.kv_head);
      for (std::int32_t j = at; j < at + run; ++j, row += view.token_stride) rows.row[j] = row;
      if (view.scales == nullptr) {
        std::fill_n(rows.scale + at, run, nullptr);
        return;
      }
      const std::uint8_t* scale = view.scale_row(page, page_row, item_.kv_head);
      const std::int32_t in_group = view.token_group() - 1;  // a mask: groups are powers of two
      for (std::int32_t j = 0; j < run; ++j) {
        rows.scale[at + j] = scale;
        scale += ((page_row + j + 1) & in_group) == 0 ? view.scale_token_stride : 0;
      }
    }
    [[nodiscard]] TileInput input(const core::TensorView& view, const TileRows* both) {
      const bool more = range_.begin + kTileKeys < range_.end;
      return {&both[current_],
              more ? ahead_ : nullptr,
              core::row_bytes(view.format, b_.p_.head_dim),
              b_.p_.head_dim,
              (range_.begin % segment_.page_size) % view.token_group(),
              view.token_group()};
    }

    TileBackend& b_;
    const core::Segment& segment_;
    const core::WorkItem& item_;
    core::KeyRange range_;
    std::int32_t current_ = 0;
    PrefetchCursor ahead_[2];  // K and V of the next tile
  };

  template <std::int32_t S>
  [[nodiscard]] Stream open(const core::RowMap& rows, const core::WorkItem& item, core::KeyRange range) {
    const core::Segment& segment = p_.segments[S];
    load_query(rows, segment.k, item.kv_head);
    return Stream(*this, segment, item, range);
  }

  [[nodiscard]] RowVector row_vector(float x) const {
    RowVector v;
    std::fill(v.value, v.value + kMaxRows, x);
    return v;
  }
  [[nodiscard]] Output zero_output() {
    std::memset(scratch_.output, 0, sizeof(float) * static_cast<std::size_t>(rows_ * p_.head_dim));
    return {scratch_.output, nullptr};
  }

  [[nodiscard]] Scores multiply_query_key(Stream& stream) {
    const core::TensorView& view = stream.segment_.k;
    ops_.multiply_query_key(view.format, stream.input(view, scratch_.keys), scratch_.query_operand, rows_, scratch_.scores);
    return {scratch_.scores, stream.range_.begin};
  }

  void multiply_probability_value(Stream& stream, const Scores& p, Output& output) {
    const core::TensorView& view = stream.segment_.v;
    adopt_order(output, view);
    ops_.multiply_probability_value(view.format, stream.input(view, scratch_.values),
                                    view.global(stream.item_.kv_head), p.data, rows_, output.data);
  }

  template <class F>
  void each_score(Scores& scores, F&& f) const {
    for (std::int32_t r = 0; r < rows_; ++r) {
      for (std::int32_t t = 0; t < kTileKeys; ++t) f(scores.data[r * kTileKeys + t], r, scores.first_key + t);
    }
  }
  [[nodiscard]] bool raise_max(const Scores& scores, RowVector& max, RowVector& correction) const {
    RowVector next;
    ops_.row_max(scores.data, rows_, max.value, next.value);
    bool raised = false;
    for (std::int32_t r = 0; r < rows_; ++r) {
      correction.value[r] = core::rescale(max.value[r], next.value[r]);
      raised = raised || next.value[r] != max.value[r];
    }
    max = next;
    return raised;
  }
  void exp2_minus(Scores& scores, const RowVector& max) const { ops_.exp2_minus(scores.data, rows_, max.value); }
  void add_row_sums(const Scores& scores, RowVector& sum) const { ops_.add_row_sums(scores.data, rows_, sum.value); }

  template <class F, class... Rows>
  void each_row(F&& f, Rows&... rows) const {
    for (std::int32_t r = 0; r < rows_; ++r) f(rows.value[r]...);
  }
  template <class F, class... Rows>
  void each_row_index(F&& f, Rows&... rows) const {
    for (std::int32_t r = 0; r < rows_; ++r) f(r, rows.value[r]...);
  }
  void scale_rows(Output& output, const RowVector& factor) const {
    ops_.scale_rows(output.data, rows_, p_.head_dim, factor.value);
  }

  /// One lane and one warp: nothing is spread out.
  void finish_rows(RowVector&, RowVector&, Output&) const {}

  void store_output(const core::RowMap& rows, const Output& output) {
    float row[kMaxHeadDim];
    for (std::int32_t r = 0; r < rows_; ++r) {
      natural_order(output, r, row);
      const std::int64_t at = rows.token(r) * p_.o.token_stride + rows.head(r) * p_.o.head_stride;
      core::store_plain_row(row, p_.head_dim, p_.o.dtype, core::element_address(p_.o.data, p_.o.dtype, at));
    }
  }
  void store_lse(const core::RowMap& rows, const RowVector& lse) const {
    for (std::int32_t r = 0; r < rows_; ++r) p_.lse[rows.token(r) * p_.num_q_heads + rows.head(r)] = lse.value[r];
  }
  void store_partial(const core::WorkItem& item, const Output& output, const RowVector& max, const RowVector& sum) {
    const std::int64_t first = item.partial_slot * p_.partition.tile_rows;
    for (std::int32_t r = 0; r < rows_; ++r) {
      natural_order(output, r, p_.partial_output + (first + r) * p_.head_dim);
      p_.partial_state[2 * (first + r)] = max.value[r];
      p_.partial_state[2 * (first + r) + 1] = sum.value[r];
    }
  }

 private:
  /// Queries of the tile, rotated as K was and scaled to log2 units and by K's decode multiplier, in K's operand form.
  void load_query(const core::RowMap& rows, const core::TensorView& k, std::int32_t kv_head) {
    for (std::int32_t r = 0; r < rows_; ++r) {
      float* row = scratch_.query + r * p_.head_dim;
      const std::int64_t at = rows.token(r) * p_.q.token_stride + rows.head(r) * p_.q.head_stride;
      core::load_plain_row(core::element_address(p_.q.data, p_.q.dtype, at), p_.q.dtype, p_.head_dim, row);
      if (p_.rotation != Rotation::kNone) core::hadamard(row, p_.head_dim, static_cast<int>(p_.rotation));
    }
    const float scale = p_.scale_log2 * k.global(kv_head);
    ops_.prepare_query(k.format, scratch_.query, rows_, p_.head_dim, scale, scratch_.query_operand);
  }

  void natural_order(const Output& output, std::int32_t r, float* row) {
    if (output.of == nullptr) {
      std::fill(row, row + p_.head_dim, 0.0f);
      return;
    }
    for (std::int32_t d = 0; d < p_.head_dim; ++d) row[d] = output.data[r * p_.head_dim + scratch_.output_order[d]];
  }

  /// Brings the output into the lane order of the next segment's V.
  void adopt_order(Output& output, const core::TensorView& values) {
    if (output.of == &values) return;
    if (output.of != nullptr) {
      float row[kMaxHeadDim];
      std::int32_t order[kMaxHeadDim];
      ops_.lane_order(values.format, values.scale_along_tokens(), p_.head_dim, order);
      for (std::int32_t r = 0; r < rows_; ++r) {
        natural_order(output, r, row);
        for (std::int32_t d = 0; d < p_.head_dim; ++d) output.data[r * p_.head_dim + order[d]] = row[d];
      }
    }
    ops_.lane_order(values.format, values.scale_along_tokens(), p_.head_dim, scratch_.output_order);
    output.of = &values;
  }

  const TileOps& ops_;
  const core::AttentionParams& p_;
  std::int32_t rows_;
  TileScratch& scratch_;
};

static_assert(core::TileBackend<TileBackend<1>>);
static_assert(core::TileBackend<TileBackend<2>>);

}  // namespace fp4pa::cpu
