// Pieces (piece.hpp) from values to codes and scales, of E2M1 in MXFP4 and NVFP4 and of E4M3.
#pragma once

#include "core/formats/block.hpp"
#include "core/formats/e2m1_pairs.hpp"
#include "core/formats/e2m1_words.hpp"
#include "core/math.hpp"
#include "core/paging/encode_row.hpp"
#include "kernels/piece_decode.hpp"

namespace fp4pa::FP4PA_GPU {

/// The largest of `lanes` neighbouring lanes' magnitudes; `lanes` is a power of two.
[[nodiscard]] FP4PA_DEVICE inline float amax_of_lanes(float of_lane, int lanes) {
  std::uint32_t amax = core::float_bits(of_lane);
  for (int bit = 1; bit < lanes; bit *= 2) {
    const std::uint32_t peer = shuffle_xor(amax, bit);
    amax = peer > amax ? peer : amax;
  }
  return core::float_from_bits(amax);
}
/// The largest magnitude of kN elements; NaN is larger than any.
template <int kN>
[[nodiscard]] FP4PA_DEVICE inline float piece_amax(const float* x) {
  constexpr int kChains = kN >= 16 ? 4 : 1;  // so that one comparison does not wait for another
  float most[kChains] = {};
  FP4PA_UNROLL
  for (int i = 0; i < kN; ++i) most[i % kChains] = larger_magnitude(most[i % kChains], x[i]);
  FP4PA_UNROLL
  for (int i = 1; i < kChains; ++i) most[0] = larger_magnitude(most[0], most[i]);
  return most[0];
}

/// Eight codes of x * factor, `factor` being the reciprocal of a scale times kE2m1HalfUnit.
enum class Reciprocal {
  kOfFewBits,  ///< to 20 bits; the elements are bfloat16's
  kRounded,    ///< to 20 bits
  kPowerOfTwo,
};
template <Reciprocal kReciprocal>
[[nodiscard]] FP4PA_DEVICE inline std::uint32_t e2m1_word(const float* x, float factor) {
  std::uint32_t halves[4];
  FP4PA_UNROLL
  for (int p = 0; p < 4; ++p) {
    const float a = x[p];
    const float b = x[p + 4];
    if constexpr (kReciprocal == Reciprocal::kOfFewBits) {
      halves[p] = pack_f16(a * factor, b * factor);
    } else if constexpr (kReciprocal == Reciprocal::kRounded) {
      halves[p] = pack_f16(core::odd_bf16(a) * factor, core::odd_bf16(b) * factor);
    } else {
      const auto rounded = [&](float v) {
        return core::e2m1_rounded(magnitude(v) * factor);
      };
      halves[p] = pack_f16(rounded(a), rounded(b)) | (upper_halves(a, b) & 0x80008000u);
    }
  }
  return kReciprocal == Reciprocal::kPowerOfTwo ? core::e2m1_codes_of_rounded<Bf16Pairs>(halves)
                                                    : core::e2m1_codes<Bf16Pairs>(halves);
}
template <Reciprocal kReciprocal, int kN>
FP4PA_DEVICE inline void e2m1_words(const float* x, float factor, std::uint32_t* words) {
  FP4PA_UNROLL
  for (int i = 0; i < kN / 8; ++i) words[i] = e2m1_word<kReciprocal>(x + 8 * i, factor);
}
/// What a group that holds NaN or infinity becomes.
template <int kWords>
FP4PA_DEVICE inline void nan_codes(bool nan, std::uint32_t* words) {
  FP4PA_UNROLL
  for (int i = 0; i < kWords; ++i) words[i] = nan ? 0x77777777u : words[i];
}

struct PieceCodes {
  Words<16> codes;         // of sixteen E2M1 the first two words
  std::uint8_t scales[2];  // of 32 elements of NVFP4 both
};

/// @param kFewBits  whether the elements are bfloat16's
/// @param carry     of the scale mode (scale_mode.hpp)
/// @param lanes     neighbours that share a scale
/// @param norm      that elements are to be multiplied by first
template <bool kFewBits, int kN>
[[nodiscard]] FP4PA_DEVICE inline PieceCodes encode_mxfp4_piece(float (&x)[kN], std::uint32_t carry, int lanes,
                                                                float norm = 1.0f) {
  PieceCodes out;
  // Rounding keeps the order: the largest product is that of the largest.
  out.scales[0] = core::e8m0_with_carry<core::E2M1>(amax_of_lanes(piece_amax<kN>(x), lanes) * norm, carry);
  const bool nan = out.scales[0] == core::E8M0::kNan;
  float factor = nan ? 0.0f : core::e8m0_reciprocal(out.scales[0]) * core::kE2m1HalfUnit;
  if (norm != 1.0f) {
    if (out.scales[0] >= 16 && out.scales[0] < 224) {
      factor *= norm;  // exact, and products round where they did
    } else {
      FP4PA_UNROLL
      for (int i = 0; i < kN; ++i) x[i] *= norm;  // the factor or a product may be a subnormal
    }
  }
  e2m1_words<kFewBits ? Reciprocal::kOfFewBits : Reciprocal::kPowerOfTwo, kN>(x, factor, out.codes.w);
  nan_codes<kN / 8>(nan, out.codes.w);
  return out;
}
/// The same of elements as they lie in memory: pairs of bfloat16 are encoded as pairs by devices that can.
template <DType kDType, int kN>
[[nodiscard]] FP4PA_DEVICE inline PieceCodes encode_mxfp4_piece(const RawPiece<kDType, kN>& raw, std::uint32_t carry, int lanes) {
  if constexpr (kDType == DType::kBF16 && Bf16Pairs::kThere) {
    std::uint32_t x[kN / 2];
    raw.pairs(x);
    PieceCodes out;
    out.scales[0] = core::e8m0_with_carry<core::E2M1>(amax_of_lanes(core::bf16_amax<Bf16Pairs, kN / 2>(x), lanes), carry);
    const auto to_units = core::Bf16ToUnits::of(out.scales[0]);
    if (to_units.twice) {
      FP4PA_UNROLL
      for (int i = 0; i < kN / 2; ++i) x[i] = Bf16Pairs::mul(x[i], core::Bf16ToUnits::kFirst);
    }
    FP4PA_UNROLL
    for (int i = 0; i < kN / 8; ++i) {
      out.codes.w[i] = core::e2m1_codes_of_bf16<Bf16Pairs>(
          x + 4 * i, {to_units.factor, to_units.factor, to_units.factor, to_units.factor});
    }
    nan_codes<kN / 8>(out.scales[0] == core::E8M0::kNan, out.codes.w);
    return out;
  } else {
    float x[kN];
    raw.values(x);
    return encode_mxfp4_piece<kDType == DType::kBF16>(x, carry, lanes);
  }
}

/// UE4M3 of amax / 6 in units, as core's nvfp4_candidates_in_units has it.
[[nodiscard]] FP4PA_DEVICE inline std::uint8_t ue4m3_of_amax(float amax, float to_units) {
  if (core::magnitude_bits(amax) >= core::kFloatInfBits) return core::UE4M3::kNan;
  const float t = core::nvfp4_in_units(amax, to_units);
  // t / 6 as a division rounds it, but for subnormals, whose code is 0.
  constexpr float kSixth = 1.0f / 6.0f;
  const float near = t * kSixth;
  const float sixth = core::math::fma(core::math::fma(near, -6.0f, t), kSixth, near);
  return static_cast<std::uint8_t>(pack_e4m3(sixth, 0.0f, 0.0f, 0.0f));
}

/// A group of sixteen.
/// @param to_units  1 / global
/// @param words     its two words of codes
/// @return          its scale
template <bool kFewBits, Nvfp4Scale kChoice>
[[nodiscard]] FP4PA_DEVICE inline std::uint8_t encode_nvfp4_group(const float* x, float amax, float global, float to_units,
                                                                  std::uint32_t* words) {
  std::uint8_t scale;
  if constexpr (kChoice == Nvfp4Scale::kAmaxOver6) {
    scale = ue4m3_of_amax(amax, to_units);
  } else {
    const core::Nvfp4Candidates candidates = core::nvfp4_candidates_in_units(amax, to_units, kChoice);
    scale = candidates.six;
    if (candidates.six != candidates.four) {
      scale = core::nvfp4_better(16, [&](int i) { return x[i]; }, amax, global, candidates);
    }
  }
  const bool nan = scale == core::UE4M3::kNan;
  const float sf = ue4m3_scale(scale);
  const float factor = nan || scale == 0 ? 0.0f : near_reciprocal(sf) * core::kE2m1HalfUnit;
  const std::uint32_t units = core::float_bits(to_units);
  constexpr Reciprocal kReciprocal = kFewBits ? Reciprocal::kOfFewBits : Reciprocal::kRounded;
  if ((units & 0x007fffffu) == 0 && units >= 0x20000000u && units < 0x60000000u && scale != 0x7e) {
    // Units of a power of two leave the bits what they are, and multiply with the scale.
    e2m1_words<kReciprocal, 16>(x, factor * to_units, words);
  } else {
    float t[16];
    FP4PA_UNROLL
    for (int i = 0; i < 16; ++i) {
      // 6 times the largest scale. Under that scale values may pass it by any amount; under others none does.
      t[i] = core::math::max(-core::math::max(-(x[i] * to_units), -2688.0f), -2688.0f);
    }
    e2m1_words<Reciprocal::kRounded, 16>(t, factor, words);
  }
  nan_codes<2>(nan, words);
  return scale;
}
template <bool kFewBits, Nvfp4Scale kChoice, int kN>
[[nodiscard]] FP4PA_DEVICE inline PieceCodes encode_nvfp4_piece(const float (&x)[kN], float global, float to_units) {
  PieceCodes out;
  FP4PA_UNROLL
  for (int g = 0; g < kN / 16; ++g) {
    out.scales[g] = encode_nvfp4_group<kFewBits, kChoice>(x + 16 * g, piece_amax<16>(x + 16 * g), global, to_units,
                                                          out.codes.w + 2 * g);
  }
  return out;
}
template <Nvfp4Scale kChoice, DType kDType, int kN>
[[nodiscard]] FP4PA_DEVICE inline PieceCodes encode_nvfp4_piece(const RawPiece<kDType, kN>& raw, float global, float to_units) {
  float x[kN];
  raw.values(x);
  if constexpr (kDType == DType::kBF16 && Bf16Pairs::kThere) {
    std::uint32_t pairs[kN / 2];
    raw.pairs(pairs);
    PieceCodes out;
    FP4PA_UNROLL
    for (int g = 0; g < kN / 16; ++g) {
      const float amax = core::bf16_amax<Bf16Pairs, 8>(pairs + 8 * g);
      out.scales[g] = encode_nvfp4_group<true, kChoice>(x + 16 * g, amax, global, to_units, out.codes.w + 2 * g);
    }
    return out;
  } else {
    return encode_nvfp4_piece<kDType == DType::kBF16, kChoice>(x, global, to_units);
  }
}

/// A piece of either FP4 format, as `c` says; of MXFP4 the neighbouring lane has the other half of the group.
/// @param global    of NVFP4, whatever `c` has
/// @param to_units  1 / global
template <DType kDType>
[[nodiscard]] FP4PA_DEVICE inline PieceCodes encode_fp4_piece(const RawPiece<kDType, 16>& raw, const QuantizeConfig& c, float global,
                                                              float to_units) {
  if (c.format != BlockFormat::kNvfp4) return encode_mxfp4_piece(raw, core::e8m0_carry<core::E2M1>(c.scale_mode), 2);
  if (c.nvfp4_scale == Nvfp4Scale::kAmaxOver6) return encode_nvfp4_piece<Nvfp4Scale::kAmaxOver6>(raw, global, to_units);
  return encode_nvfp4_piece<Nvfp4Scale::kFourOverSix>(raw, global, to_units);
}

[[nodiscard]] FP4PA_DEVICE inline PieceCodes encode_mxfp8_piece(const float (&x)[16], std::uint32_t carry) {
  PieceCodes out;
  out.scales[0] = core::e8m0_with_carry<core::E4M3>(amax_of_lanes(piece_amax<16>(x), 2), carry);
  const float factor = core::e8m0_reciprocal(out.scales[0]);
  FP4PA_UNROLL
  for (int i = 0; i < 4; ++i) {
    out.codes.w[i] = pack_e4m3(x[4 * i] * factor, x[4 * i + 1] * factor, x[4 * i + 2] * factor, x[4 * i + 3] * factor);
  }
  return out;
}

[[nodiscard]] FP4PA_DEVICE inline Words<16> encode_fp8_piece(const float (&x)[16], float global) {
  Words<16> out;
  // A power of two divides as its reciprocal multiplies.
  const bool exact = (core::float_bits(global) & 0x007fffffu) == 0;
  const float reciprocal = 1.0f / global;
  FP4PA_UNROLL
  for (int i = 0; i < 4; ++i) {
    float y[4];
    FP4PA_UNROLL
    for (int j = 0; j < 4; ++j) y[j] = exact ? x[4 * i + j] * reciprocal : x[4 * i + j] / global;
    out.w[i] = pack_e4m3(y[0], y[1], y[2], y[3]);
  }
  return out;
}

}  // namespace fp4pa::FP4PA_GPU
