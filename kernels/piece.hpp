// Pieces: neighbouring elements of a row in one thread's registers, read, encoded, decoded and written in words.
//
// A quantised piece has sixteen elements, which is a group of NVFP4, and half of one of MXFP4 and MXFP8: its other half is the
// neighbouring lane's. Loads and stores have up to 16 bytes, neighbouring threads' side by side. Bytes are those that
// core/paging's functions write; what they do for any address and length stands in cache_rows.hpp.
#pragma once

#include <cstdint>

#include "core/formats/block.hpp"
#include "core/formats/e2m1_words.hpp"
#include "core/formats/hadamard.hpp"
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

/// f<dtype>, for a kernel that is a template.
#define FP4PA_OF_DTYPE(dtype, f) \
  ((dtype) == DType::kF32 ? f<DType::kF32> : (dtype) == DType::kF16 ? f<DType::kF16> : f<DType::kBF16>)

[[nodiscard]] inline bool aligned(const void* p, std::int64_t to) { return reinterpret_cast<std::uintptr_t>(p) % to == 0; }

/// kN elements of `kDType` at 16-byte steps.
template <DType kDType, int kN>
FP4PA_DEVICE inline void load_piece(const void* from, float (&x)[kN]) {
  constexpr int kPerLoad = 16 / size_of(kDType);
  const auto* const source = static_cast<const Words<16>*>(from);
  FP4PA_UNROLL
  for (int i = 0; i < kN / kPerLoad; ++i) {
    const Words<16> four = source[i];
    FP4PA_UNROLL
    for (int j = 0; j < 4; ++j) {
      if constexpr (kDType == DType::kF32) {
        x[4 * i + j] = core::float_from_bits(four.w[j]);
      } else if constexpr (kDType == DType::kBF16) {
        x[8 * i + 2 * j] = core::float_from_bits(four.w[j] << 16);
        x[8 * i + 2 * j + 1] = core::float_from_bits(four.w[j] & 0xffff0000u);
      } else {
        unpack_f16(four.w[j], &x[8 * i + 2 * j], &x[8 * i + 2 * j + 1]);
      }
    }
  }
}

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

/// The largest magnitude, as bits, of `lanes` neighbouring lanes' pieces; `lanes` is a power of two.
template <int kN>
[[nodiscard]] FP4PA_DEVICE inline float piece_amax(const float (&x)[kN], int lanes) {
  std::uint32_t amax = 0;
  FP4PA_UNROLL
  for (int i = 0; i < kN; ++i) amax = core::amax_step(amax, x[i]);
  for (int bit = 1; bit < lanes; bit *= 2) {
    const std::uint32_t peer = shuffle_xor(amax, bit);
    amax = peer > amax ? peer : amax;
  }
  return core::float_from_bits(amax);
}

/// Codes of x * factor, `factor` being the reciprocal of a scale times kE2m1HalfUnit.
template <bool kFewBits>
[[nodiscard]] FP4PA_DEVICE inline Words<8> e2m1_piece(const float (&x)[16], float factor) {
  Words<8> codes;
  FP4PA_UNROLL
  for (int i = 0; i < 2; ++i) {
    std::uint32_t halves[4];
    FP4PA_UNROLL
    for (int p = 0; p < 4; ++p) {
      const float a = x[8 * i + p];
      const float b = x[8 * i + p + 4];
      halves[p] = kFewBits ? pack_f16(a * factor, b * factor)
                           : pack_f16(core::odd_bf16(a) * factor, core::odd_bf16(b) * factor);
    }
    codes.w[i] = core::e2m1_codes(halves);
  }
  return codes;
}

struct PieceCodes {
  Words<16> codes;  // of E2M1 the first two words
  std::uint8_t scale;
};

/// @param kFewBits  whether the elements are bfloat16's
/// @param lanes     neighbours that share a scale
template <bool kFewBits>
[[nodiscard]] FP4PA_DEVICE inline PieceCodes encode_mxfp4_piece(const float (&x)[16], ScaleMode mode, int lanes) {
  PieceCodes out;
  out.scale = core::e8m0_from_amax<core::E2M1>(piece_amax(x, lanes), mode);
  const bool nan = out.scale == core::E8M0::kNan;
  const Words<8> codes = e2m1_piece<kFewBits>(x, nan ? 0.0f : core::e8m0_reciprocal(out.scale) * core::kE2m1HalfUnit);
  out.codes.w[0] = nan ? 0x77777777u : codes.w[0];
  out.codes.w[1] = nan ? 0x77777777u : codes.w[1];
  return out;
}

template <bool kFewBits>
[[nodiscard]] FP4PA_DEVICE inline PieceCodes encode_nvfp4_piece(const float (&x)[16], float global, Nvfp4Scale choice) {
  PieceCodes out;
  const float amax = piece_amax(x, 1);
  const core::Nvfp4Candidates candidates = core::nvfp4_candidates(amax, global, choice);
  out.scale = candidates.six;
  if (candidates.six != candidates.four) out.scale = core::nvfp4_better(16, [&](int i) { return x[i]; }, amax, global, candidates);

  const bool nan = out.scale == core::UE4M3::kNan;
  const float sf = core::UE4M3::decode(out.scale);
  const float factor = nan || out.scale == 0 ? 0.0f : (1.0f / sf) * core::kE2m1HalfUnit;
  const float to_units = 1.0f / global;
  float t[16];
  FP4PA_UNROLL
  for (int i = 0; i < 16; ++i) t[i] = x[i] * to_units;
  if (out.scale == 0x7e) {  // the largest: values may pass 6 times it by any amount, where others stay below 8 times
    FP4PA_UNROLL
    for (int i = 0; i < 16; ++i) t[i] = t[i] > 2688.0f ? 2688.0f : t[i] < -2688.0f ? -2688.0f : t[i];
  }
  // Units of a power of two leave bfloat16's bits what they are.
  const bool few_bits = kFewBits && (core::float_bits(global) & 0x007fffffu) == 0;
  const Words<8> codes = few_bits ? e2m1_piece<true>(t, factor) : e2m1_piece<false>(t, factor);
  out.codes.w[0] = nan ? 0x77777777u : codes.w[0];
  out.codes.w[1] = nan ? 0x77777777u : codes.w[1];
  return out;
}

[[nodiscard]] FP4PA_DEVICE inline PieceCodes encode_mxfp8_piece(const float (&x)[16], ScaleMode mode) {
  PieceCodes out;
  out.scale = core::e8m0_from_amax<core::E4M3>(piece_amax(x, 2), mode);
  const float factor = core::e8m0_reciprocal(out.scale);
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

/// The transform of hadamard.hpp on neighbouring lanes' pieces: every value passes the same additions.
FP4PA_DEVICE inline void rotate_pieces(float (&x)[16], int block) {
  FP4PA_UNROLL
  for (int distance = 1; distance < 16; distance *= 2) {
    FP4PA_UNROLL
    for (int i = 0; i < 16; ++i) {
      if ((i & distance) != 0) continue;
      const float a = x[i];
      const float b = x[i + distance];
      x[i] = a + b;
      x[i + distance] = a - b;
    }
  }
  for (int lanes = 1; 16 * lanes < block; lanes *= 2) {
    const std::uint32_t sign = (thread_id() & lanes) != 0 ? core::kFloatSignBit : 0u;
    FP4PA_UNROLL
    for (int i = 0; i < 16; ++i) {
      const std::uint32_t own = core::float_bits(x[i]);
      x[i] = core::float_from_bits(shuffle_xor(own, lanes)) + core::float_from_bits(own ^ sign);
    }
  }
  const float norm = core::hadamard_norm(block);
  FP4PA_UNROLL
  for (int i = 0; i < 16; ++i) x[i] *= norm;
}

/// kN elements of E2M1, 4 or 8, without a scale.
template <int kN>
FP4PA_DEVICE inline void load_e2m1(const std::uint8_t* from, float (&x)[kN]) {
  std::uint32_t halves[4];
  core::e2m1_halves(reinterpret_cast<const Words<kN / 2>*>(from)->w[0], halves);
  FP4PA_UNROLL
  for (int p = 0; p < 4; ++p) {
    float low, high;
    unpack_f16(halves[p], &low, &high);
    x[p] = low * (1.0f / core::kE2m1HalfUnit);
    if constexpr (kN == 8) x[p + 4] = high * (1.0f / core::kE2m1HalfUnit);
  }
}
/// kN elements of E4M3, 4 or 8, without a scale.
template <int kN>
FP4PA_DEVICE inline void load_e4m3(const std::uint8_t* from, float (&x)[kN]) {
  const auto codes = *reinterpret_cast<const Words<kN>*>(from);
  FP4PA_UNROLL
  for (int i = 0; i < kN / 4; ++i) unpack_e4m3(codes.w[i], x + 4 * i);
}

}  // namespace fp4pa::FP4PA_GPU
