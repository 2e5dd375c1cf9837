// Pieces: neighbouring elements of a row in one thread's registers, read and written in words. Encoding, rotating and decoding them stand in
// piece_encode.hpp, piece_rotate.hpp and piece_decode.hpp.
//
// A piece that is quantised has sixteen elements, which is a group of NVFP4, and half of one of MXFP4 and MXFP8: its other half is the
// neighbouring lane's. Or it has 32. Loads and stores have up to 16 bytes, neighbouring threads' side by side. Bytes are those that
// core/paging's functions write; what they do for any address and length stands in cache_rows.hpp.
#pragma once

#include <cstdint>

#include "core/formats/half.hpp"
#include "core/math.hpp"
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

}  // namespace fp4pa::FP4PA_GPU
