// The kernel body's words as a textbook would write them: dequantised keys, dot products in double, plain loops.
//
// It exists to test the body and not a machine, so it is as strict as the strictest one. A tile has all of its rows,
// also those that no query fills, as on a matrix core; a row's numbers are spread over four pretended lanes whose
// partial sums meet only in finish_rows; and every word checks that it comes in its turn: a tile is waited for,
// multiplied twice and released, once each, and one item ends in a result or in a partial state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/attention/softmax_state.hpp"
#include "core/attention/tile_backend.hpp"
#include "reference/call.hpp"

namespace book {

using namespace fp4pa::core;

/// What the pages of one (sequence, KV head) hold, in double precision, and the queries as the caller gave them.
struct Book {
  const fp4pa::AttentionConfig* config;
  const fp4pa::AttentionArgs* args;
  fp4pa::reference::Keys keys;
  bool lse_stored = false;
};

inline void require(bool ok, const char* what) {
  if (!ok) throw std::logic_error(std::string("out of turn: ") + what);
}

template <std::int32_t kNumSegments, std::int32_t kKeysOfTile>
class BookBackend {
 public:
  static constexpr std::int32_t kSegments = kNumSegments;
  static constexpr std::int32_t kTileKeys = kKeysOfTile;
  static constexpr std::int32_t kRows = 16;
  static constexpr std::int32_t kLanes = 4;

  struct RowVector {
    float value[kRows][kLanes];
  };
  struct Scores {
    float value[kRows][kKeysOfTile];
    std::int32_t first_key;
  };
  struct Output {
    std::vector<double> value;  // [kRows, head_dim]
  };

  class Stream {
   public:
    Stream(std::int32_t segment, KeyRange range) : segment_(segment), range_(range) { require(!range.empty(), "open"); }
    [[nodiscard]] bool done() const { return range_.empty(); }
    [[nodiscard]] KeyRange keys() const { return {range_.begin, std::min(range_.begin + kTileKeys, range_.end)}; }
    void wait() {
      require(stage_ == 0, "wait");
      stage_ = 1;
    }
    void release() {
      require(stage_ == 3, "release");
      stage_ = 0;
      range_.begin += kTileKeys;
    }

   private:
    friend class BookBackend;
    std::int32_t segment_;
    KeyRange range_;
    int stage_ = 0;  // 1: landed, 2: scores made, 3: values used
  };

  BookBackend(const AttentionParams& p, Book& book) : p_(p), book_(book) {}

  template <std::int32_t S>
  Stream open(const RowMap& rows, const WorkItem& item, KeyRange range) {
    require(!finished_, "open");
    // Segments hold the keys on their own side of the border, and come in order.
    const std::int32_t border = first_segment_tokens(p_, rows.kv_len);
    require(S == 0 ? range.end <= border : range.begin >= border, "open");
    require(range.begin >= next_key_, "open");
    // A key before every row's window is not even read: its page may be gone. Of a tree it is the root's window that counts.
    bool seen = p_.sliding_window == 0;
    if (p_.tree_mask != nullptr) seen = seen || range.begin > rows.kv_len - rows.q_len - p_.sliding_window;
    for (std::int32_t r = 0; r < rows.num_rows; ++r) seen = seen || RowMask(p_, rows, r).sees(range.begin);
    require(seen, "open");
    load_queries(rows);
    (void)item;
    return Stream(S, range);
  }

  RowVector row_vector(float x) const {
    RowVector v;
    for (auto& row : v.value) std::fill(row, row + kLanes, x);
    return v;
  }
  Output zero_output() const { return {std::vector<double>(static_cast<std::size_t>(kRows * p_.head_dim), 0.0)}; }

  Scores multiply_query_key(Stream& stream) {
    require(stream.stage_ == 1, "multiply_query_key");
    stream.stage_ = 2;
    Scores s;
    s.first_key = stream.range_.begin;
    const KeyRange keys = stream.keys();
    next_key_ = keys.end;
    for (std::int32_t r = 0; r < kRows; ++r) {
      for (std::int32_t t = 0; t < kTileKeys; ++t) {
        // Columns past the end hold what a staging buffer may hold.
        s.value[r][t] = std::nanf("");
        if (keys.begin + t >= keys.end) continue;
        double sum = 0.0;
        for (std::int32_t d = 0; d < p_.head_dim; ++d)
          sum += queries_[static_cast<std::size_t>(r * p_.head_dim + d)] * book_.keys.key(keys.begin + t)[d];
        s.value[r][t] = static_cast<float>(sum * p_.scale_log2);
      }
    }
    return s;
  }
  void multiply_probability_value(Stream& stream, const Scores& p, Output& output) {
    require(stream.stage_ == 2, "multiply_probability_value");
    stream.stage_ = 3;
    const KeyRange keys = stream.keys();
    for (std::int32_t r = 0; r < kRows; ++r) {
      for (std::int32_t t = 0; t < kTileKeys; ++t) {
        if (keys.begin + t >= keys.end) {
          require(p.value[r][t] == 0.0f, "probability past the end");
          continue;
        }
        for (std::int32_t d = 0; d < p_.head_dim; ++d) {
          output.value[static_cast<std::size_t>(r * p_.head_dim + d)] +=
              double{p.value[r][t]} * book_.keys.value(keys.begin + t)[d];
        }
      }
    }
  }

  template <class F>
  void each_score(Scores& s, F&& f) const {
    for (std::int32_t r = 0; r < kRows; ++r) {
      for (std::int32_t t = 0; t < kTileKeys; ++t) f(s.value[r][t], r, s.first_key + t);
    }
  }
  bool raise_max(const Scores& s, RowVector& max, RowVector& correction) const {
    bool raised = false;
    for (std::int32_t r = 0; r < kRows; ++r) {
      const float m = *std::max_element(s.value[r], s.value[r] + kTileKeys);
      for (std::int32_t lane = 0; lane < kLanes; ++lane) {
        float& x = max.value[r][lane];
        const float next = std::max(x, m);
        correction.value[r][lane] = fp4pa::core::rescale(x, next);
        raised = raised || next != x;
        x = next;
      }
    }
    return raised;
  }
  void exp2_minus(Scores& s, const RowVector& max) const {
    for (std::int32_t r = 0; r < kRows; ++r) {
      for (float& x : s.value[r]) x = max.value[r][0] == kMinusInf_ ? 0.0f : std::exp2(x - max.value[r][0]);
    }
  }
  /// Key t is lane t % kLanes's: the sums stay apart.
  void add_row_sums(const Scores& s, RowVector& sum) const {
    require(!finished_, "add_row_sums");
    for (std::int32_t r = 0; r < kRows; ++r) {
      for (std::int32_t t = 0; t < kTileKeys; ++t) sum.value[r][t % kLanes] += s.value[r][t];
    }
  }
  template <class F, class... Rows>
  void each_row(F&& f, Rows&... rows) const {
    for (std::int32_t r = 0; r < kRows; ++r) {
      for (std::int32_t lane = 0; lane < kLanes; ++lane) f(rows.value[r][lane]...);
    }
  }
  template <class F, class... Rows>
  void each_row_index(F&& f, Rows&... rows) const {
    for (std::int32_t r = 0; r < kRows; ++r) {
      for (std::int32_t lane = 0; lane < kLanes; ++lane) f(r, rows.value[r][lane]...);
    }
  }
  void scale_rows(Output& output, const RowVector& factor) const {
    for (std::int32_t i = 0; i < kRows * p_.head_dim; ++i) {
      output.value[static_cast<std::size_t>(i)] *= factor.value[i / p_.head_dim][0];
    }
  }
  void finish_rows(RowVector& max, RowVector& sum, Output&) {
    require(!finished_, "finish_rows");
    finished_ = true;
    for (std::int32_t r = 0; r < kRows; ++r) {
      float total = 0.0f;
      for (const float part : sum.value[r]) total += part;
      std::fill(sum.value[r], sum.value[r] + kLanes, total);
      for (const float m : max.value[r]) require(m == max.value[r][0], "lanes agree on the maximum");
    }
  }
  void store_output(const RowMap& rows, const Output& output) {
    require(finished_ && !stored_, "store_output");
    stored_ = true;
    for (std::int32_t r = 0; r < rows.num_rows; ++r) {
      auto* const o =
          static_cast<float*>(p_.o.data) + rows.token(r) * p_.o.token_stride + rows.head(r) * p_.o.head_stride;
      for (std::int32_t d = 0; d < p_.head_dim; ++d)
        o[d] = static_cast<float>(output.value[static_cast<std::size_t>(r * p_.head_dim + d)]);
    }
  }
  void store_lse(const RowMap& rows, const RowVector& lse) {
    require(stored_ && p_.lse != nullptr, "store_lse");
    book_.lse_stored = true;
    for (std::int32_t r = 0; r < rows.num_rows; ++r)
      p_.lse[rows.token(r) * p_.num_q_heads + rows.head(r)] = lse.value[r][0];
  }
  void store_partial(const WorkItem& item, const Output& output, const RowVector& max, const RowVector& sum) {
    require(finished_ && !stored_ && item.partial_slot >= 0, "store_partial");
    stored_ = true;
    for (std::int64_t r = 0; r < p_.partition.tile_rows; ++r) {
      const std::int64_t at = item.partial_slot * p_.partition.tile_rows + r;
      p_.partial_state[2 * at] = max.value[r][0];
      p_.partial_state[2 * at + 1] = sum.value[r][0];
      for (std::int32_t d = 0; d < p_.head_dim; ++d) {
        p_.partial_output[at * p_.head_dim + d] =
            static_cast<float>(output.value[static_cast<std::size_t>(r * p_.head_dim + d)]);
      }
    }
  }
  [[nodiscard]] bool stored() const { return stored_; }

 private:
  static constexpr float kMinusInf_ = -std::numeric_limits<float>::infinity();

  void load_queries(const RowMap& rows) {
    queries_.assign(static_cast<std::size_t>(kRows * p_.head_dim), 0.0);
    for (std::int32_t r = 0; r < rows.num_rows; ++r) {
      const std::int64_t at = rows.token(r) * p_.q.token_stride + rows.head(r) * p_.q.head_stride;
      for (std::int32_t d = 0; d < p_.head_dim; ++d) {
        queries_[static_cast<std::size_t>(r * p_.head_dim + d)] =
            fp4pa::reference::decode_plain(p_.q.data, p_.q.dtype, at + d);
      }
    }
  }

  const AttentionParams& p_;
  Book& book_;
  std::vector<double> queries_;
  std::int32_t next_key_ = 0;
  bool finished_ = false;
  bool stored_ = false;
};

}  // namespace book
