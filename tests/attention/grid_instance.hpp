// Configurations of the grid for kernels that are compiled for one shape, and what their operand types are.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/simt/config.hpp"
#include "tests/attention/grid_case.hpp"

namespace grid {

/// Whether sm_80's decode path rounds an operand to bf16 for this configuration: keys or values in bf16, and values with E8M0
/// scales along head_dim, whose probabilities are bf16.
inline bool has_bf16_operands(const Case& c) {
  using fp4pa::KvFormat;
  const auto scaled_probability = [](KvFormat v, fp4pa::VScaleAxis axis) {
    return v == KvFormat::kE8m0PerToken || v == KvFormat::kMxfp8 || (v == KvFormat::kMxfp4 && axis == fp4pa::VScaleAxis::kHeadDim);
  };
  const bool recent = c.window != 0 && (c.recent_k == KvFormat::kBf16 || c.recent_v == KvFormat::kBf16);
  return recent || c.k == KvFormat::kBf16 || c.v == KvFormat::kBf16 || scaled_probability(c.v, c.v_axis);
}

/// A configuration bent to the shapes of a specialised instance, which the drawn grid meets too rarely.
/// @param tile_rows  query rows of the instance's work items
inline Case at_instance(Case c, const fp4pa::core::SimtConfig& i, int tile_rows) {
  using fp4pa::KvFormat;
  using fp4pa::core::KvKind;
  const auto format = [](KvKind k) {
    switch (k) {
      case KvKind::kMxfp4:
      case KvKind::kMxfp4Tokens: return KvFormat::kMxfp4;
      case KvKind::kNvfp4:
      case KvKind::kNvfp4Tokens: return KvFormat::kNvfp4;
      case KvKind::kPerToken: return KvFormat::kE8m0PerToken;
      case KvKind::kFp8: return KvFormat::kFp8E4m3;
      case KvKind::kMxfp8: return KvFormat::kMxfp8;
      case KvKind::kBf16: return KvFormat::kBf16;
      default: return KvFormat::kF16;
    }
  };
  if (i.k[0] == KvKind::kAny) return c;
  c.k = format(i.k[0]);
  c.v = format(i.v[0]);
  c.v_axis = fp4pa::core::along_tokens(i.v[0]) ? fp4pa::VScaleAxis::kTokens : fp4pa::VScaleAxis::kHeadDim;
  c.head_dim = i.head_dim;
  if (c.v_axis == fp4pa::VScaleAxis::kTokens) c.page_size = std::max(32, c.page_size / 32 * 32);
  c.window = 0;
  if (i.segments == 2) {
    c.window = 64;
    c.group_tokens = c.page_size;
    c.recent_page_size = 16;
    c.recent_k = format(i.k[1]);
    c.recent_v = format(i.v[1]);
  }
  if (static_cast<int>(c.rotation) != 0 && c.head_dim % static_cast<int>(c.rotation) != 0) {
    c.rotation = fp4pa::Rotation::kNone;
  }
  // Enough rows that the wide instances are the ones chosen.
  for (std::int32_t& q : c.q_lens) {
    q = tile_rows <= 8 ? 1 : std::max(q, tile_rows / c.group_heads);
    if (q > 64) c.tree = false;  // a tree mask has a word for each of at most 64 tokens
  }
  // One of gfx950's native instances has no room for what other queries are rounded to.
  if (!i.plain && i.terms == 2) {
    c.q_dtype = fp4pa::DType::kBF16;
    c.rotation = fp4pa::Rotation::kNone;
  }
  if (c.tree && !fp4pa::core::takes_tree_windows(i)) c.sliding_window = 0;
  // A plain instance serves nothing else.
  if (i.plain) {
    if (i.terms == 1) {
      c.q_dtype = fp4pa::DType::kBF16;
      c.rotation = fp4pa::Rotation::kNone;
    } else if (c.rotation == fp4pa::Rotation::kNone) {
      c.q_dtype = fp4pa::DType::kF32;
    }
    c.page_size = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(std::max(16, c.page_size))));
    if (c.window != 0) c.group_tokens = c.page_size;
    c.softcap = 0.0f;
    c.alibi = c.tree = false;
  }
  return c;
}

/// A cache of such an instance that is full to its last byte: dense pages of 64 tokens, all in use and full, so that the last row of
/// each array is one of a full tile. Lengths that are drawn meet that too rarely to find what is read behind an array.
inline Case full_cache_at(std::uint64_t seed, Layout layout, const fp4pa::core::SimtConfig& i, int tile_rows) {
  Case c = draw(seed);
  c.layout = layout;
  c.page_size = 64;
  c.spare_pages = 0;
  c.kv_lens.assign(c.q_lens.size(), 256);
  c.sliding_window = 0;
  c = at_instance(c, i, tile_rows);
  for (std::int32_t& length : c.kv_lens) length += c.window;  // which the recent tier has to itself
  return c;
}

}  // namespace grid
