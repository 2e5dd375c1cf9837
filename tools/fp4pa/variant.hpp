// One row of `fp4pa attend`: how the cache is encoded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp4pa/types.hpp"

namespace fp4pa::tool {

struct Variant {
  KvFormat k = KvFormat::kMxfp4;
  KvFormat v = KvFormat::kMxfp4;
  VScaleAxis v_axis = VScaleAxis::kHeadDim;
  Rotation rotation = Rotation::kNone;
  ScaleMode scale_mode = ScaleMode::kFloor;
  Nvfp4Scale nvfp4_scale = Nvfp4Scale::kAmaxOver6;
  std::int32_t window = 0;  ///< newest tokens kept in bf16; 0 = one tier
};

/// "K fp8_e4m3, V nvfp4 4/6, H128, window 64"
[[nodiscard]] std::string label_of(const Variant& variant);

/// Pages must hold whole groups of this many tokens for the suite's variants with V scaled along tokens.
inline constexpr std::int32_t kSuiteTokenGroup = 32;

/// The variants whose perplexities the project has measured, and all KV formats: what `attend` shows when none is
/// chosen. V along tokens is left out where the page size does not allow it.
[[nodiscard]] std::vector<Variant> suite(std::int32_t head_dim, std::int32_t page_size, std::int32_t window);

}  // namespace fp4pa::tool
