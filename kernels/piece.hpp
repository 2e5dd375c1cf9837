// Pieces: neighbouring elements of a row in one thread's registers, read, encoded, decoded and written in words.
//
// A piece that is quantised has sixteen elements, which is a group of NVFP4, and half of one of MXFP4 and MXFP8: its other half is the
// neighbouring lane's. Or it has 32. Loads and stores have up to 16 bytes, neighbouring threads' side by side. Bytes are those that
// core/paging's functions write; what they do for any address and length stands in cache_rows.hpp.
#pragma once

#include <cstdint>

#include "core/formats/block.hpp"
#include "core/formats/e2m1_pairs.hpp"
#include "core/formats/e2m1_words.hpp"
#include "core/formats/hadamard.hpp"
#include "core/math.hpp"
#include "core/paging/encode_row.hpp"
#include "core/paging/plain_row.hpp"
#include "kernels/cache_ops.hpp"

namespace fp4pa::FP4PA_GPU {

inline constexpr int kPieceThreads = 256;

/// kBytes that move at once.
template <int kBytes>
struct alignas(kBytes) Words {
  static constexpr int kCount = kBytes / 4;
  std::uint32_t w[kCount];
};
template <>
struct alignas(2) Words<2> {
  std::uint16_t w[1];
};
/// x, word by word: a struct that is only ever moved as a whole clang does not keep in an AMD GPU's registers.
FP4PA_DEVICE inline Words<16> in_registers(const Words<16>& x) { return {{x.w[0], x.w[1], x.w[2], x.w[3]}}; }

/// f<dtype>, for a kernel that is a template.
#define FP4PA_OF_DTYPE(dtype, f) \
  ((dtype) == DType::kF32 ? f<DType::kF32> : (dtype) == DType::kF16 ? f<DType::kF16> : f<DType::kBF16>)

[[nodiscard]] inline bool aligned(const void* p, std::uintptr_t to) { return reinterpret_cast<std::uintptr_t>(p) % to == 0; }

/// kN elements of `kDType` as they lie in memory, at 16-byte steps.
template <DType kDType, int kN>
struct RawPiece {
  static constexpr int kLoads = kN * size_of(kDType) / 16;
  Words<16> words[kLoads];

  FP4PA_DEVICE void load(const void* from) {
    FP4PA_UNROLL
    for (int i = 0; i < kLoads; ++i) words[i] = static_cast<const Words<16>*>(from)[i];
  }
  FP4PA_DEVICE void pairs(std::uint32_t (&x)[kN * size_of(kDType) / 4]) const {
    FP4PA_UNROLL
    for (int i = 0; i < 4 * kLoads; ++i) x[i] = words[i / 4].w[i % 4];
  }
  FP4PA_DEVICE void values(float (&x)[kN]) const {
    FP4PA_UNROLL
    for (int i = 0; i < 4 * kLoads; ++i) {
      const std::uint32_t word = words[i / 4].w[i % 4];
      if constexpr (kDType == DType::kF32) {
        x[i] = core::float_from_bits(word);
      } else if constexpr (kDType == DType::kBF16) {
        x[2 * i] = core::float_from_bits(word << 16);
        x[2 * i + 1] = core::float_from_bits(word & 0xffff0000u);
      } else {
        unpack_f16(word, &x[2 * i], &x[2 * i + 1]);
      }
    }
  }
};

/// kN elements, 16 bytes of them, rounded by the device's conversion: a NaN is the device's.
template <DType kDType, int kN>
[[nodiscard]] FP4PA_DEVICE inline Words<16> pack_piece(const float (&x)[kN]) {
  static_assert(kN * size_of(kDType) == 16);
  Words<16> four;
  FP4PA_UNROLL
  for (int j = 0; j < 4; ++j) {
    if constexpr (kDType == DType::kF32) {
      four.w[j] = core::float_bits(x[j]);
    } else {
      four.w[j] = kDType == DType::kF16 ? pack_f16(x[2 * j], x[2 * j + 1]) : pack_bf16(x[2 * j], x[2 * j + 1]);
    }
  }
  return four;
}
/// The same with a NaN's sign and upper bits kept, as core's conversions do.
template <DType kDType, int kN>
[[nodiscard]] FP4PA_DEVICE inline Words<16> pack_piece_and_nan(const float (&x)[kN]) {
  Words<16> four = pack_piece<kDType>(x);
  if constexpr (kDType != DType::kF32) {
    constexpr bool kF16 = kDType == DType::kF16;
    constexpr std::uint32_t kToSign = kF16 ? 0x03ff03ffu : 0x007f007fu;  // what takes a NaN's magnitude to the sign bit
    std::uint32_t nan = 0;
    FP4PA_UNROLL
    for (int j = 0; j < 4; ++j) nan |= (four.w[j] & 0x7fff7fffu) + kToSign;
    if ((nan & 0x80008000u) != 0) {
      FP4PA_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float low = x[2 * j];
        const float high = x[2 * j + 1];
        four.w[j] = std::uint32_t{kF16 ? core::f32_to_f16(low) : core::f32_to_bf16(low)} |
                    std::uint32_t{kF16 ? core::f32_to_f16(high) : core::f32_to_bf16(high)} << 16;
      }
    }
  }
  return four;
}

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

/// A scale of NVFP4.
[[nodiscard]] FP4PA_DEVICE inline float ue4m3_scale(std::uint8_t code) {
  float values[4];
  unpack_e4m3(code & 0x7fu, values);
  return values[0];
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

/// The transform of hadamard.hpp on neighbouring lanes' pieces but for its norm: every value passes the same additions.
/// @tparam kBlock  16, 128, or 0 for any above 16, which costs a loop that nothing else can be done beside
template <int kBlock, int kN>
FP4PA_DEVICE inline void rotate_pieces(float (&x)[kN], int block) {
  FP4PA_UNROLL
  for (int distance = 1; distance < (kBlock == 16 ? 16 : kN); distance *= 2) {
    FP4PA_UNROLL
    for (int i = 0; i < kN; ++i) {
      if ((i & distance) != 0) continue;
      const float a = x[i];
      const float b = x[i + distance];
      x[i] = a + b;
      x[i + distance] = a - b;
    }
  }
  const auto across = [&](int lanes) {
    const float sign = (thread_id() & lanes) != 0 ? -1.0f : 1.0f;
    FP4PA_UNROLL
    for (int i = 0; i < kN; ++i) {
      const float peer = core::float_from_bits(shuffle_xor(core::float_bits(x[i]), lanes));
      x[i] = core::math::fma(x[i], sign, peer);  // a product that is exact
    }
  };
  if constexpr (kBlock == 0) {
    for (int lanes = 1; kN * lanes < block; lanes *= 2) across(lanes);
  } else {
    FP4PA_UNROLL
    for (int lanes = 1; kN * lanes < kBlock; lanes *= 2) across(lanes);
  }
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
