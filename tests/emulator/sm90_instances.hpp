// Prefill on wgmma on the emulator: what cuda/ compiles, but for the ring. The emulator's barriers are of a warp or of the block, so
// that the warps which multiply stage and decode a tile themselves, between barriers of the block. Roles, the ring's barriers and
// the order that they make are tested on a device alone.
#pragma once

#include "backends/emulator/sm90_exec.hpp"
#include "backends/sm90/producer.hpp"
#include "cuda/instances_sm90.hpp"
#include "cuda/variants.hpp"
#include "tests/emulator/emulated_backend.hpp"

namespace fp4pa::emulator_test {

/// In DecodedStream's place.
template <core::SimtConfig kConfig, class E>
class DecodingStream {
 public:
  static constexpr std::int32_t kSegment = 0;

  DecodingStream(E& exec, const core::Segment& segment, const core::WorkItem& item, core::KeyRange range, int head_dim,
                 std::uint32_t stages, std::uint32_t addresses)
      : exec_(exec), ring_(stages), staged_(exec, segment, item, range, head_dim, stages, addresses) {}

  [[nodiscard]] bool done() const { return staged_.done(); }
  [[nodiscard]] core::KeyRange keys() const { return staged_.keys(); }
  void wait() {
    if (place_.slot != 0) return;  // values came with the keys
    staged_.wait();
    const core::TileLayout layout = staged_.layout();
    const std::uint32_t from = staged_.tile_offset();
    decode<kConfig.k[0]>(from, {from + layout.k_scales, layout.k_scale_pitch}, ring_.tile({0}));
    decode<kConfig.v[0]>(from + layout.v_codes, {from + layout.v_scales, layout.v_scale_pitch}, ring_.tile({1}));
    exec_.async_fence();
    exec_.block_barrier();
  }
  [[nodiscard]] std::uint32_t tile() const { return ring_.tile(place_); }
  void pass() { place_.advance(2); }
  void release() { staged_.release(); }

  [[nodiscard]] core::KvKind k_kind() const { return kConfig.k[0]; }
  [[nodiscard]] core::KvKind v_kind() const { return kConfig.v[0]; }
  [[nodiscard]] float v_global() const { return staged_.v_global(); }

 private:
  static constexpr core::SimtConfig kStaging = [] {
    core::SimtConfig c = kConfig;
    c.producers = c.warps;
    return c;
  }();
  template <core::KvKind kKind>
  void decode(std::uint32_t from, sm80::StagedScales scales, std::uint32_t to) {
    using Tile = typename sm90::Ring<kConfig>::Tile;
    sm80::TileDecoder<kKind, E, kConfig.head_dim, kConfig.tile_keys, E::kLanes * kConfig.warps, Tile>::run(exec_, from, scales, to);
  }

  E& exec_;
  sm90::Ring<kConfig> ring_;
  core::KeyStreamOf<sm90::StagingShim<kStaging, E>, 0> staged_;
  sm90::RingPlace place_;
};

template <core::SimtConfig kConfig, class E>
struct DecodingPrefillShim : sm90::PrefillShim<kConfig, E> {
  using TileStream = DecodingStream<kConfig, E>;
};

struct Sm90Instances {
  static constexpr int kCount = sm90::kNumInstances;
  static constexpr const core::SimtConfig& config(int i) { return sm90::kInstances[i]; }
  template <int kIndex, class Exec>
  using Shim = DecodingPrefillShim<sm90::kInstances[kIndex], Exec>;
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
