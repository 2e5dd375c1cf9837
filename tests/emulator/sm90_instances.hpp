// The kernels of sm_90a on the emulator: what cuda/ compiles, but for prefill's roles. The emulator's barriers are of a warp or of the
// block, so that the warps which multiply load and decode a tile themselves, between barriers of the block. Roles, the rings' barriers
// and the order that they make are tested on a device alone.
#pragma once

#include <memory>
#include <utility>
#include <variant>

#include "backends/emulator/sm90_exec.hpp"
#include "backends/sm90/producer.hpp"
#include "cuda/instances_sm90.hpp"
#include "cuda/variants.hpp"
#include "tests/emulator/emulated_backend.hpp"

namespace fp4pa::emulator_test {

/// In DecodedStream's place.
template <core::SimtConfig kConfig, std::int32_t S, class E>
class DecodingStream {
 public:
  static constexpr std::int32_t kSegment = S;
  static constexpr bool kAlongTokens = core::along_tokens(kConfig.v[S]);

  DecodingStream(E& exec, const core::Segment& segment, const core::WorkItem& item, core::KeyRange range, int, std::uint32_t ring,
                 std::uint32_t)
      : exec_(exec),
        ring_(ring),
        of_(std::make_unique<const Of>(Of{item, kAlongTokens ? sm90::from_whole_piece(range) : range})),
        walk_(core::TileWalk::make(range, kConfig.tile_keys, segment.page_size, kAlongTokens, core::kScalePiece)),
        v_global_(segment.v.global(item.kv_head)),
        keys_(loader<kConfig.k[S], kConfig.k[0]>(segment, segment.k)),
        values_(loader<kConfig.v[S], kConfig.v[0]>(segment, segment.v)) {}

  [[nodiscard]] bool done() const { return walk_.tile(index_).empty(); }
  [[nodiscard]] core::KeyRange keys() const { return walk_.tile(index_); }
  void wait() {
    if (place_.slot() % 2 != 0) return;  // values came with the keys
    exec_.block_barrier();               // nobody reads the last tile any more
    wide_[0] = decode(keys_, ring_.tile({0}));
    wide_[1] = decode(values_, ring_.tile({1}));
    exec_.async_fence();
    exec_.block_barrier();
  }
  [[nodiscard]] std::uint32_t tile() const { return ring_.tile({place_.slot() % 2}); }
  [[nodiscard]] bool wide() const { return wide_[place_.slot() % 2]; }
  void pass() { ++place_.steps; }
  void release() { ++index_; }

  [[nodiscard]] core::KvKind k_kind() const { return kConfig.k[S]; }
  [[nodiscard]] core::KvKind v_kind() const { return kConfig.v[S]; }
  [[nodiscard]] float v_global() const { return v_global_; }

 private:
  struct Of {
    core::WorkItem item;
    core::KeyRange range;
  };
  template <core::KvKind kKind, core::KvKind kOrder, bool kPlain>
  using LoaderFor = sm90::TileLoader<kKind, E, kConfig.head_dim, kConfig.tile_keys, kConfig.warps,
                                     typename sm90::Ring<kConfig>::Tile, kPlain, kOrder, S == 1>;
  /// The kernel decides once for all items, and for a recent tier when it is compiled.
  template <core::KvKind kKind, core::KvKind kOrder>
  using Loader = std::variant<LoaderFor<kKind, kOrder, true>, LoaderFor<kKind, kOrder, false>>;
  template <core::KvKind kKind, core::KvKind kOrder>
  Loader<kKind, kOrder> loader(const core::Segment& segment, const core::TensorView& view) {
    if (S == 0 && sm90::has_plain_places<kKind>(segment, view, kConfig.head_dim)) {
      return Loader<kKind, kOrder>(std::in_place_index<0>, exec_, segment, view, of_->item, of_->range);
    }
    return Loader<kKind, kOrder>(std::in_place_index<1>, exec_, segment, view, of_->item, of_->range);
  }
  template <class AnyLoader>
  static bool decode(AnyLoader& loader, std::uint32_t to) {
    return std::visit([to](auto& l) { return l.decode(to); }, loader);
  }

  E& exec_;
  sm90::Ring<kConfig> ring_;
  std::unique_ptr<const Of> of_;  // which loaders refer to
  core::TileWalk walk_;
  float v_global_;
  Loader<kConfig.k[S], kConfig.k[0]> keys_;
  Loader<kConfig.v[S], kConfig.v[0]> values_;
  std::int32_t index_ = 0;
  sm90::TilePlace place_;
  bool wide_[2] = {};
};

template <core::SimtConfig kConfig, class E>
struct DecodingPrefillShim : sm90::PrefillShim<kConfig, E> {
  template <std::int32_t S>
  using TileStream = DecodingStream<kConfig, S, E>;
};

struct Sm90Instances {
  static constexpr int kCount = sm90::kNumInstances;
  static constexpr const core::SimtConfig& config(int i) { return sm90::kInstances[i]; }
  template <int kIndex, class Exec>
  using Backend = core::SimtTileBackend<DecodingPrefillShim<sm90::kInstances[kIndex], Exec>>;
  static int select(const AttentionConfig& c) {
    return simt::select_among(c, kCount, [](int i) { return &sm90::kInstances[i]; });
  }
  static bool serves(int i, const AttentionConfig& c) { return simt::serves(config(i), c); }
  static int tile_rows(int i) { return simt::rows_of(config(i)); }
  static core::SharedLayout layout(int i, const AttentionConfig& c) {
    return cuda::shared_layout_of(cuda::kFirstSm90 + i, c, config(i).warps);
  }
};

extern const Emulation kSm90;

}  // namespace fp4pa::emulator_test
