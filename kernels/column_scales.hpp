// Eight columns of a group of V whose scales run along tokens: the scales, and the columns' elements as codes.
#pragma once

#include "core/formats/e2m1_pairs.hpp"
#include "core/formats/e2m1_words.hpp"
#include "kernels/cache_rows.hpp"
#include "kernels/piece_encode.hpp"

namespace fp4pa::FP4PA_GPU {

/// @param words  whether they are one access
FP4PA_DEVICE inline void store_scales(std::uint8_t* to, const Words<8>& scales, bool words) {
  if (words) {
    *reinterpret_cast<Words<8>*>(to) = scales;
  } else {
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = static_cast<std::uint8_t>(scales.w[i / 4] >> (8 * (i % 4)));
  }
}

/// Scales of eight columns of a group, and how their elements become codes.
template <DType kDType, bool kNvfp4>
struct ColumnScales {
  std::uint32_t nan = 0;  // nibbles of columns
  Words<8> scales{};      // bytes
  float factors[8];
  float to_units;
  bool direct;  // factors are for the elements themselves, not for what they are in units

  FP4PA_DEVICE ColumnScales(const CacheTensor& tensor, std::uint32_t head, const float (&amax)[8]) : ColumnScales(tensor, head) {
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) {
      const std::uint8_t scale = column(tensor, amax[i], &factors[i]);
      if (scale == kNanScale) nan |= 0xfu << (4 * i);
      scales.w[i / 4] |= std::uint32_t{scale} << (8 * (i % 4));
    }
    make_direct();
  }
  /// The same by two neighbouring lanes, each of which works out four.
  /// @param most  pairs of columns' largest magnitudes, with signs
  FP4PA_DEVICE ColumnScales(const CacheTensor& tensor, std::uint32_t head, const std::uint32_t (&most)[4], bool upper)
      : ColumnScales(tensor, head) {
    std::uint32_t mine = 0;
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t two = upper ? most[2 + i / 2] : most[i / 2];
      const float amax = core::float_from_bits((i % 2 == 0 ? two << 16 : two & 0xffff0000u) & 0x7fffffffu);
      float factor;
      mine |= std::uint32_t{column(tensor, amax, &factor)} << (8 * i);
      const float other = core::float_from_bits(shuffle_xor(core::float_bits(factor), 1));
      factors[i] = upper ? other : factor;
      factors[4 + i] = upper ? factor : other;
    }
    const std::uint32_t others = shuffle_xor(mine, 1);
    scales = {{upper ? others : mine, upper ? mine : others}};
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t scale = scales.w[i / 4] >> (8 * (i % 4)) & 0xffu;
      if (scale == kNanScale) nan |= 0xfu << (4 * i);
      if (kNvfp4) direct = direct && scale != 0x7e;
    }
    make_direct();
  }

  /// @tparam kNan     whether a column may be NaN
  /// @tparam kDirect  `direct`, or false for any
  template <bool kNan, bool kDirect>
  [[nodiscard]] FP4PA_DEVICE std::uint32_t codes(const RawPiece<kDType, 8>& raw) const {
    float x[8];
    raw.values(x);
    return codes<kNan, kDirect>(x);
  }
  template <bool kNan, bool kDirect>
  [[nodiscard]] FP4PA_DEVICE std::uint32_t codes(const float (&x)[8]) const {
    constexpr float kLimit = kNvfp4 ? 2688.0f : core::float_from_bits(core::kFloatInfBits);  // see encode_nvfp4_group
    float y[8];
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) {
      float t = x[i];
      if (!kDirect && !direct) {
        t = t * to_units;
        t = core::odd_bf16(t > kLimit ? kLimit : t < -kLimit ? -kLimit : t);
      }
      y[i] = kNan && nan != 0 && ((nan >> (4 * i)) & 1u) != 0 ? 0.0f : t * factors[i];
    }
    const std::uint32_t halves[4] = {pack_f16(y[0], y[4]), pack_f16(y[1], y[5]), pack_f16(y[2], y[6]), pack_f16(y[3], y[7])};
    const std::uint32_t codes = core::e2m1_codes<Bf16Pairs>(halves);
    return kNan ? (codes & ~nan) | (0x77777777u & nan) : codes;
  }

 private:
  static constexpr std::uint8_t kNanScale = kNvfp4 ? core::UE4M3::kNan : core::E8M0::kNan;

  FP4PA_DEVICE ColumnScales(const CacheTensor& tensor, std::uint32_t head) {
    to_units = kNvfp4 ? 1.0f / tensor.view.global(static_cast<std::int32_t>(head)) : 1.0f;
    const std::uint32_t units = core::float_bits(to_units);
    direct = kDType == DType::kBF16 && (units & 0x007fffffu) == 0 && units >= 0x20000000u && units < 0x60000000u;
  }
  /// @return  its scale
  FP4PA_DEVICE std::uint8_t column(const CacheTensor& tensor, float amax, float* factor) {
    std::uint8_t scale;
    if constexpr (kNvfp4) {
      scale = ue4m3_of_amax(amax, to_units);
      *factor = scale == 0 ? 0.0f : near_reciprocal(ue4m3_scale(scale)) * core::kE2m1HalfUnit;
      direct = direct && scale != 0x7e;
    } else {
      scale = core::e8m0_from_amax<core::E2M1>(amax, tensor.rule.scale_mode);
      *factor = core::e8m0_reciprocal(scale) * core::kE2m1HalfUnit;
    }
    return scale;
  }
  FP4PA_DEVICE void make_direct() {
    if (!direct) return;
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) factors[i] *= to_units;
  }
};

}  // namespace fp4pa::FP4PA_GPU
