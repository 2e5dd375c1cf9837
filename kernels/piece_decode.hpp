// Pieces (piece.hpp) from codes and scales to values.
#pragma once

#include "core/formats/block.hpp"
#include "core/formats/e2m1_pairs.hpp"
#include "core/formats/e2m1_words.hpp"
#include "kernels/piece.hpp"

namespace fp4pa::FP4PA_GPU {

/// A scale of NVFP4.
[[nodiscard]] FP4PA_DEVICE inline float ue4m3_scale(std::uint8_t code) {
  float values[4];
  unpack_e4m3(code & 0x7fu, values);
  return values[0];
}

/// kN elements of E2M1, 4 or 8, without a scale.
template <int kN>
FP4PA_DEVICE inline void e2m1_piece(const Words<kN / 2>& codes, float (&x)[kN]) {
  std::uint32_t halves[4];
  core::e2m1_halves(codes.w[0], halves);
  FP4PA_UNROLL
  for (int p = 0; p < 4; ++p) {
    float low, high;
    unpack_f16(halves[p], &low, &high);
    x[p] = low * (1.0f / core::kE2m1HalfUnit);
    if constexpr (kN == 8) x[p + 4] = high * (1.0f / core::kE2m1HalfUnit);
  }
}
/// Eight elements of E2M1 as bfloat16, `factors` being pairs of scales.
/// @param global  of NVFP4, else 1
FP4PA_DEVICE inline Words<16> e2m1_bf16_piece(std::uint32_t codes, const std::uint32_t (&factors)[4], bool nvfp4, float global) {
  Words<16> out;
  core::bf16_of_e2m1<Bf16Pairs>(codes, out.w);
  FP4PA_UNROLL
  for (int i = 0; i < 4; ++i) out.w[i] = Bf16Pairs::mul(out.w[i], factors[i]);
  if (!nvfp4) return out;
  const std::uint32_t bits = core::float_bits(global);
  if ((bits & 0xffffu) == 0) {  // then the product with six bits is rounded once, to bfloat16
    const std::uint32_t globals = core::bf16_pair(bits >> 16);
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) out.w[i] = Bf16Pairs::mul(out.w[i], globals);
    return out;
  }
  FP4PA_UNROLL
  for (int i = 0; i < 4; ++i) {
    out.w[i] = pack_bf16(core::float_from_bits(out.w[i] << 16) * global,
                         core::float_from_bits(out.w[i] & 0xffff0000u) * global);
  }
  return out;
}
/// kN elements of E4M3, 4 or 8, without a scale.
template <int kN>
FP4PA_DEVICE inline void e4m3_piece(const Words<kN>& codes, float (&x)[kN]) {
  FP4PA_UNROLL
  for (int i = 0; i < kN / 4; ++i) unpack_e4m3(codes.w[i], x + 4 * i);
}
/// kN elements of a 16-bit format.
template <int kN>
FP4PA_DEVICE inline void halves_piece(const Words<2 * kN>& codes, KvFormat format, float (&x)[kN]) {
  FP4PA_UNROLL
  for (int i = 0; i < kN; ++i) {
    const auto half = static_cast<std::uint16_t>(codes.w[i / 2] >> (16 * (i % 2)));
    x[i] = format == KvFormat::kBf16 ? core::bf16_to_f32(half) : core::f16_to_f32(half);
  }
}
/// kN scales of neighbouring columns, 4 or 8.
/// @param words  whether they are aligned
template <int kN>
[[nodiscard]] FP4PA_DEVICE inline Words<kN> scale_words(const std::uint8_t* from, bool words) {
  Words<kN> scales;
  if (words) {
    scales = *reinterpret_cast<const Words<kN>*>(from);
  } else {
    FP4PA_UNROLL
    for (int i = 0; i < kN / 4; ++i) {
      scales.w[i] = std::uint32_t{from[4 * i]} | std::uint32_t{from[4 * i + 1]} << 8 | std::uint32_t{from[4 * i + 2]} << 16 |
                    std::uint32_t{from[4 * i + 3]} << 24;
    }
  }
  return scales;
}
/// What they stand for.
template <int kN>
FP4PA_DEVICE inline void scale_values(const Words<kN>& scales, bool nvfp4, float (&factors)[kN]) {
  FP4PA_UNROLL
  for (int i = 0; i < kN / 4; ++i) {
    if (nvfp4) {
      unpack_e4m3(scales.w[i] & 0x7f7f7f7fu, factors + 4 * i);
    } else {
      FP4PA_UNROLL
      for (int j = 0; j < 4; ++j) {
        factors[4 * i + j] = core::E8M0::decode(static_cast<std::uint8_t>(scales.w[i] >> (8 * j)));
      }
    }
  }
}

}  // namespace fp4pa::FP4PA_GPU
