// One token's head_dim values to the bytes of a cache and back, for every KV format whose scales run along head_dim.
//
// These functions and those of encode_group.hpp are the definition of what an append writes. Back ends call them, or
// prove themselves bit-equal to them: a cache filled on one device is read on another.
#pragma once

#include <cstdint>

#include "core/formats/block.hpp"
#include "core/formats/elements.hpp"
#include "core/formats/half.hpp"
#include "core/macros.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::core {

/// How scales are chosen when encoding.
struct EncodeRule {
  ScaleMode scale_mode;    // MXFP4, MXFP8, E8M0 per token
  Nvfp4Scale nvfp4_scale;  // NVFP4
};

/// Elements of a row that share a scale along head_dim; 0 for formats without scales.
[[nodiscard]] FP4PA_FN constexpr int row_group(KvFormat format, int head_dim) {
  switch (format) {
    case KvFormat::kMxfp4:
    case KvFormat::kMxfp8: return 32;
    case KvFormat::kNvfp4: return 16;
    case KvFormat::kE8m0PerToken: return head_dim;
    default: return 0;
  }
}

/// FP8: the code of x in units of the decode multiplier. NaN gives NaN; anything else saturates.
[[nodiscard]] FP4PA_FN constexpr std::uint8_t fp8_code(float x, float global) { return E4M3::encode(x / global); }
[[nodiscard]] FP4PA_FN constexpr float fp8_value(std::uint8_t code, float global) {
  return E4M3::decode(code) * global;
}

/// @param x       [n], n a multiple of 32
/// @param global  decode multiplier of NVFP4 and FP8
/// @param codes   [row_bytes(format, n)], 2-byte aligned
/// @param scales  [scale_row_bytes(format, kHeadDim, n)]; not touched for formats without scales
FP4PA_FN void encode_row(KvFormat format, const float* x, int n, float global, EncodeRule rule, std::uint8_t* codes,
                         std::uint8_t* scales) {
  auto* const halves = reinterpret_cast<std::uint16_t*>(codes);
  switch (format) {
    case KvFormat::kMxfp4:
    case KvFormat::kE8m0PerToken: {
      const int group = row_group(format, n);
      for (int g = 0; g * group < n; ++g) {
        scales[g] = encode_e2m1_e8m0(x + g * group, group, rule.scale_mode, codes + g * group / 2);
      }
      break;
    }
    case KvFormat::kNvfp4:
      for (int g = 0; g * 16 < n; ++g) scales[g] = encode_nvfp4(x + g * 16, global, rule.nvfp4_scale, codes + g * 8);
      break;
    case KvFormat::kFp8E4m3:
      for (int i = 0; i < n; ++i) codes[i] = fp8_code(x[i], global);
      break;
    case KvFormat::kBf16:
      for (int i = 0; i < n; ++i) halves[i] = f32_to_bf16(x[i]);
      break;
    case KvFormat::kF16:
      for (int i = 0; i < n; ++i) halves[i] = f32_to_f16(x[i]);
      break;
    case KvFormat::kMxfp8:
      for (int g = 0; g * 32 < n; ++g) scales[g] = encode_mxfp8(x + g * 32, 32, rule.scale_mode, codes + g * 32);
      break;
  }
}

/// The inverse; exact but for one rounding by a global scale that is no power of two.
FP4PA_FN void decode_row(KvFormat format, const std::uint8_t* codes, const std::uint8_t* scales, int n, float global,
                         float* x) {
  const auto* const halves = reinterpret_cast<const std::uint16_t*>(codes);
  switch (format) {
    case KvFormat::kMxfp4:
    case KvFormat::kE8m0PerToken: {
      const int group = row_group(format, n);
      for (int g = 0; g * group < n; ++g) decode_e2m1_e8m0(codes + g * group / 2, group, scales[g], x + g * group);
      break;
    }
    case KvFormat::kNvfp4:
      for (int g = 0; g * 16 < n; ++g) decode_nvfp4(codes + g * 8, scales[g], global, x + g * 16);
      break;
    case KvFormat::kFp8E4m3:
      for (int i = 0; i < n; ++i) x[i] = fp8_value(codes[i], global);
      break;
    case KvFormat::kBf16:
      for (int i = 0; i < n; ++i) x[i] = bf16_to_f32(halves[i]);
      break;
    case KvFormat::kF16:
      for (int i = 0; i < n; ++i) x[i] = f16_to_f32(halves[i]);
      break;
    case KvFormat::kMxfp8:
      for (int g = 0; g * 32 < n; ++g) decode_mxfp8(codes + g * 32, 32, scales[g], x + g * 32);
      break;
  }
}

/// What x becomes by being written to, and read back from, a recent tier. Only for the formats a recent tier may have,
/// whose elements stand alone.
[[nodiscard]] FP4PA_FN constexpr float round_through(KvFormat format, float x, float global) {
  switch (format) {
    case KvFormat::kFp8E4m3: return fp8_value(fp8_code(x, global), global);
    case KvFormat::kF16: return f16_to_f32(f32_to_f16(x));
    default: return bf16_to_f32(f32_to_bf16(x));
  }
}

}  // namespace fp4pa::core
