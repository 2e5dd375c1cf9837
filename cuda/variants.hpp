// All attention kernels under one numbering, and which of them serves a configuration on which device.
//
// Variants are the rows of simt::kInstances (decoding, sm_80 and later), of sm120::kInstances (native) and of sm90::kInstances
// (prefill on sm_90a), in this order. Plain C++.
#pragma once

#include <limits>

#include "cuda/instances.hpp"
#include "cuda/instances_sm120.hpp"
#include "cuda/instances_sm90.hpp"

namespace fp4pa::cuda {

inline constexpr int kFirstNative = simt::kNumInstances;
inline constexpr int kFirstSm90 = kFirstNative + sm120::kNumInstances;
inline constexpr int kNumVariants = kFirstSm90 + sm90::kNumInstances;

[[nodiscard]] constexpr bool is_native(int variant) { return variant >= kFirstNative && variant < kFirstSm90; }
[[nodiscard]] constexpr bool is_sm90(int variant) { return variant >= kFirstSm90; }
[[nodiscard]] constexpr const core::SimtConfig& shape_of(int variant) {
  return is_sm90(variant)     ? sm90::kInstances[variant - kFirstSm90]
         : is_native(variant) ? sm120::kInstances[variant - kFirstNative]
                              : simt::kInstances[variant];
}

/// Whether warps of its own stage an item while the one before is stored.
[[nodiscard]] constexpr bool decodes_ahead(int variant) { return shape_of(variant).producers > 0; }

/// Whether a variant's blocks keep what they know of their items in shared memory (simt::kAsideBytes). The others' threads each walk
/// the items, or its warps have roles.
[[nodiscard]] constexpr bool keeps_items_aside(int variant) {
  return is_native(variant) ? !shape_of(variant).decode_tiles : !is_sm90(variant);
}

/// Whether a variant's blocks can share a unit as a cluster; on compute capability 9.0, where it was tried.
[[nodiscard]] constexpr bool may_share(int variant, int compute_capability) {
  return compute_capability == 90 && variant < kFirstNative && !core::divides_rows(shape_of(variant));
}

/// Whether a variant's blocks can find their places on the line themselves.
[[nodiscard]] constexpr bool may_find(int variant) { return variant < kFirstNative && !core::divides_rows(shape_of(variant)); }

[[nodiscard]] inline core::SharedLayout shared_layout_of(int variant, const AttentionConfig& c, int warps) {
  const core::SimtConfig& shape = shape_of(variant);
  if (is_sm90(variant)) return simt::shared_layout_of<sm80::OperandScales, sm90::DecodedTiles>(shape, c, warps);
  return is_native(variant) ? sm120::shared_layout_of(shape, c, warps)
                            : simt::shared_layout_of(shape, c, warps);
}

/// A block has 16 barriers: one for each worker and one for all.
inline constexpr int kMostWorkers = 15;

struct Launch {
  int warps;  // of a worker
  core::SharedLayout layout;
  int workers = 1;  // of a block

  [[nodiscard]] int shared_bytes() const { return workers * layout.bytes; }
};
/// As many warps as the variant was made for, or fewer where the device's shared memory ends.
/// @param shared_bytes  that a block may ask for
[[nodiscard]] inline Launch launch_of(int variant, const AttentionConfig& config, int shared_bytes) {
  const core::SimtConfig& shape = shape_of(variant);
  int warps = shape.warps;
  core::SharedLayout layout = shared_layout_of(variant, config, warps);
  while (layout.bytes > shared_bytes && warps > 1 && !core::divides_rows(shape)) {
    layout = shared_layout_of(variant, config, --warps);
  }
  return {warps, layout};
}

/// Whether a device has room for a block of it.
[[nodiscard]] inline bool fits(int variant, const AttentionConfig& config, int shared_bytes) {
  return launch_of(variant, config, shared_bytes).layout.bytes <= shared_bytes;
}

/// Of a block.
[[nodiscard]] inline int threads_of(int variant, const Launch& launch) {
  return 32 * (launch.workers * launch.warps + shape_of(variant).producers);
}

/// SM120 and SM121: the family whose matrix cores take FP4 with its scales through mma.sync.
[[nodiscard]] constexpr bool has_native_kernels(int compute_capability) { return compute_capability / 10 == 12; }

/// What a block may have of shared memory, at most, on compute capability 9.0.
inline constexpr int kSm90SharedBytes = 227 * 1024;

/// The native variant for a configuration, -1 if there is none that fits.
[[nodiscard]] inline int select_native(const AttentionConfig& c, int shared_bytes = kSm90SharedBytes) {
  const int i = simt::select_among(c, sm120::kNumInstances, [](int n) { return &sm120::kInstances[n]; },
                                   [&](int n) { return fits(kFirstNative + n, c, shared_bytes); });
  return i < 0 ? -1 : kFirstNative + i;
}

/// The decoding variant for a configuration, -1 if there is none; one that does not fit if none does. On compute capability 9.0 prefill
/// on wgmma stands beside the kernels that run everywhere: the first with the cheapest passes that fits into shared memory, where a
/// query of two terms takes its part.
[[nodiscard]] inline int select_decoding(const AttentionConfig& c, int compute_capability, int shared_bytes) {
  int decoding = simt::select_among(c, simt::kNumInstances, [](int i) { return &simt::kInstances[i]; },
                                    [&](int i) { return fits(i, c, shared_bytes); });
  if (decoding < 0) decoding = simt::select_instance(c);
  if (compute_capability != 90 || decoding < 0) return decoding;
  int best = decoding;
  for (int i = 0; i < sm90::kNumInstances; ++i) {
    const core::SimtConfig& shape = sm90::kInstances[i];
    if (!simt::serves(shape, c)) continue;
    const std::int64_t cost = simt::pass_cost(shape, c) - simt::pass_cost(shape_of(best), c);
    if ((best == decoding ? cost <= 0 : cost < 0) && fits(kFirstSm90 + i, c, shared_bytes)) best = kFirstSm90 + i;
  }
  return best;
}

/// The variant for a configuration; -1 if none serves it by the path that it asks for. Left to choose, native kernels are taken
/// where there is one, unless it is for few query rows and a decoding kernel with more walks the keys fewer times. Of kernels for many rows
/// the products rule and not the keys.
/// @param shared_bytes  that a block may ask for
[[nodiscard]] inline int select_variant(const AttentionConfig& c, int compute_capability, int shared_bytes = kSm90SharedBytes) {
  const bool may_be_native = has_native_kernels(compute_capability) && c.matrix_path != MatrixPath::kDecode;
  const int native = may_be_native ? select_native(c, shared_bytes) : -1;
  // One that does not fit, if none does: planning says so.
  if (c.matrix_path == MatrixPath::kNative) return native < 0 && may_be_native ? select_native(c, std::numeric_limits<int>::max()) : native;
  const int decoding = select_decoding(c, compute_capability, shared_bytes);
  if (native < 0 || decoding < 0) return native < 0 ? decoding : native;
  const bool many_rows = core::divides_rows(shape_of(native));
  return many_rows || simt::passes(shape_of(native), c) <= simt::passes(shape_of(decoding), c) ? native : decoding;
}

}  // namespace fp4pa::cuda
