// The tiles of an item for a warpgroup that shares them: staged as everywhere, and waited for one ahead, so that a tile
// has landed behind the last barrier of the one before.
#pragma once

#include <cstdint>

#include "backends/sm90/group_layout.hpp"
#include "core/simt/key_stream.hpp"

namespace fp4pa::sm90 {

/// What KeyStreamOf asks of a shim.
template <core::SimtConfig kShape, class Executor>
struct GroupStaging {
  static constexpr core::SimtConfig kConfig = [] {
    core::SimtConfig c = kShape;
    c.divide = core::WarpsDivide::kRows;  // the block is the team
    return c;
  }();
  using Exec = Executor;
  using ScaleForm = GroupScales;
  static constexpr int kTilesAhead = 1;
  static constexpr int kTokenAlignment = core::kScalePiece;
  FP4PA_FN static int swizzle(int row, int chunk, int chunks) { return chunk ^ sm80::swizzle_bits(row, chunks); }
};

template <core::SimtConfig kConfig, class E>
class GroupStream {
  using Staged = core::KeyStreamOf<GroupStaging<kConfig, E>, 0>;
  using Lane = typename E::Lane;

 public:
  FP4PA_FN GroupStream(E& exec, const core::Segment& segment, const core::WorkItem& item, core::KeyRange range,
                       int head_dim, std::uint32_t stages, std::uint32_t addresses)
      : exec_(exec), staged_(exec, segment, item, range, head_dim, stages, addresses) {}

  [[nodiscard]] FP4PA_FN bool done() const { return staged_.done(); }
  [[nodiscard]] FP4PA_FN core::KeyRange keys() const { return staged_.keys(); }
  FP4PA_FN void wait() {}  // see land_next
  FP4PA_FN void release() { staged_.release(); }
  [[nodiscard]] FP4PA_FN std::uint32_t tile() const { return staged_.tile_offset(); }
  [[nodiscard]] FP4PA_FN float v_global() const { return staged_.v_global(); }

  /// A barrier of the block, behind which the first tile is there; whether ask(lane, offset of the tile) said yes in
  /// any lane.
  template <class F>
  [[nodiscard]] FP4PA_FN bool land_first(F&& ask) {
    exec_.template copy_wait<kPending>();
    return exec_.block_any([&](Lane lane) { return ask(lane, staged_.tile_offset()); });
  }
  /// The same of the tile after the one at hand, where there is one.
  template <class F>
  [[nodiscard]] FP4PA_FN bool land_next(F&& ask) {
    exec_.template copy_wait<kPending>();
    const bool has_next = staged_.has_next();
    return exec_.block_any([&](Lane lane) { return has_next && ask(lane, staged_.next_tile_offset()); });
  }

 private:
  static constexpr int kPending = kConfig.stages[0] - 2;
  E& exec_;
  Staged staged_;
};

}  // namespace fp4pa::sm90
