// The vocabulary of libfp4pa: element types, KV formats and the choices that belong to them.
//
// Most enumerations have names, which `name_of` gives; the command line takes most of these. The values are
// part of the ABI: append, never renumber.
#pragma once

#include <cstdint>

namespace fp4pa {

/// Element type of a plain (unblocked) tensor: queries, outputs, the inputs of append and quantise.
enum class DType : std::int32_t { kF32 = 0, kF16 = 1, kBF16 = 2 };

/// How the K or the V of a page is encoded. Sizes are per token and KV head, for head_dim D.
enum class KvFormat : std::int32_t {
  kMxfp4 = 0,         ///< E2M1, one E8M0 scale per 32 elements: D/2 + D/32 bytes
  kNvfp4 = 1,         ///< E2M1, one E4M3 scale per 16 elements and an fp32 decode multiplier: D/2 + D/16 bytes
  kE8m0PerToken = 2,  ///< E2M1, one E8M0 scale per token and head: D/2 + 1 bytes
  kFp8E4m3 = 3,       ///< E4M3 (OCP), and an fp32 decode multiplier: D bytes
  kBf16 = 4,          ///< 2 D bytes
  kF16 = 5,           ///< 2 D bytes
  kMxfp8 = 6,         ///< E4M3 (OCP), one E8M0 scale per 32 elements: D + D/32 bytes
};

/// Which way the groups of V's scales run. K's always run along head_dim.
enum class VScaleAxis : std::int32_t {
  kHeadDim = 0,  ///< what engines write today
  kTokens = 1,   ///< groups of 32 tokens (MXFP4) or 16 (NVFP4) inside a page, one scale per head_dim column
};

/// How an E8M0 scale is chosen from a group's largest magnitude, with emax the element format's largest exponent
/// (2 for E2M1, 8 for E4M3). Source of the modes: OCP MX v1.0 (floor), torchao and AITER (the others).
enum class ScaleMode : std::int32_t {
  kFloor = 0,  ///< 2^(floor(log2 amax) - emax): the library's default for MXFP4, and OCP's
  kCeil = 1,   ///< one more whenever amax is no power of two
  kRceil = 2,  ///< the smallest power of two of at least amax / largest element
  kEven = 3,   ///< amax rounded to the element's mantissa width first, then floor
};

/// How NVFP4 picks the scale of a group of 16.
enum class Nvfp4Scale : std::int32_t {
  kAmaxOver6 = 0,    ///< amax / 6
  kFourOverSix = 1,  ///< amax / 6 or amax / 4, whichever leaves the smaller squared error; amax / 6 when equal. Errors are first rounded to
                     ///< 2^-22 of the power of two above amax, so that near ties are decided on rounded errors
};

/// Where a quantised tensor's scale factors lie.
enum class ScaleLayout : std::int32_t {
  kLinear = 0,   ///< row-major [rows, groups]
  kBlocked = 1,  ///< the 128x4 atom of block-scaled GEMMs; rows pad to 128 and groups to 4
};

/// Orthonormal Hadamard rotation along head_dim, block by block; 0 is none.
enum class Rotation : std::int32_t {
  kNone = 0,
  kHadamard16 = 16,
  kHadamard32 = 32,
  kHadamard64 = 64,
  kHadamard128 = 128,
};

/// How FP4 reaches the matrix cores of a GPU that can multiply it as it lies in the cache, its block scales included.
enum class MatrixPath : std::int32_t {
  kAuto = 0,    ///< native where there is such a kernel. On SM120 a decoding kernel is preferred to a native one for few query rows
                ///< when it reads the keys fewer times. Accuracy: docs/sm120.md (as decoding), docs/gfx950.md (O within 4e-3)
  kNative = 1,  ///< as it lies in the cache; plan() refuses what has no such kernel
  kDecode = 2,  ///< decoded to 16 bits (on CPUs, or to f32) before the product, as CPUs and other GPUs always do
};

/// Integer type of a slot mapping.
enum class IndexType : std::int32_t { kInt32 = 0, kInt64 = 1 };

[[nodiscard]] constexpr const char* name_of(DType v) noexcept {
  switch (v) {
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
  }
  return "unknown";
}

[[nodiscard]] constexpr const char* name_of(KvFormat v) noexcept {
  switch (v) {
    case KvFormat::kMxfp4: return "mxfp4";
    case KvFormat::kNvfp4: return "nvfp4";
    case KvFormat::kE8m0PerToken: return "e8m0_per_token";
    case KvFormat::kFp8E4m3: return "fp8_e4m3";
    case KvFormat::kBf16: return "bf16";
    case KvFormat::kF16: return "f16";
    case KvFormat::kMxfp8: return "mxfp8";
  }
  return "unknown";
}

[[nodiscard]] constexpr const char* name_of(MatrixPath v) noexcept {
  switch (v) {
    case MatrixPath::kAuto: return "auto";
    case MatrixPath::kNative: return "native";
    case MatrixPath::kDecode: return "decode";
  }
  return "unknown";
}

[[nodiscard]] constexpr const char* name_of(VScaleAxis v) noexcept {
  switch (v) {
    case VScaleAxis::kHeadDim: return "head_dim";
    case VScaleAxis::kTokens: return "tokens";
  }
  return "unknown";
}

[[nodiscard]] constexpr const char* name_of(ScaleMode v) noexcept {
  switch (v) {
    case ScaleMode::kFloor: return "floor";
    case ScaleMode::kCeil: return "ceil";
    case ScaleMode::kRceil: return "rceil";
    case ScaleMode::kEven: return "even";
  }
  return "unknown";
}

[[nodiscard]] constexpr const char* name_of(Nvfp4Scale v) noexcept {
  switch (v) {
    case Nvfp4Scale::kAmaxOver6: return "amax_over_6";
    case Nvfp4Scale::kFourOverSix: return "four_over_six";
  }
  return "unknown";
}

[[nodiscard]] constexpr const char* name_of(ScaleLayout v) noexcept {
  switch (v) {
    case ScaleLayout::kLinear: return "linear";
    case ScaleLayout::kBlocked: return "blocked_128x4";
  }
  return "unknown";
}

/// Bytes of one element of a plain tensor.
[[nodiscard]] constexpr int size_of(DType v) noexcept { return v == DType::kF32 ? 4 : 2; }

/// Whether a format packs two E2M1 codes into a byte (even element in the low nibble).
[[nodiscard]] constexpr bool is_fp4(KvFormat v) noexcept {
  return v == KvFormat::kMxfp4 || v == KvFormat::kNvfp4 || v == KvFormat::kE8m0PerToken;
}

/// Whether groups of a format's elements share a scale that is stored beside the codes.
[[nodiscard]] constexpr bool has_scales(KvFormat v) noexcept { return is_fp4(v) || v == KvFormat::kMxfp8; }

}  // namespace fp4pa
