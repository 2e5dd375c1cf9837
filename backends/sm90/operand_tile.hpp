// Where the decoded tiles of keys and values lie in shared memory for wgmma, and how an instruction is told. No device code.
//
// A tile is [tokens][dims] of 16-bit elements in panels of 64 dims: a panel holds 128 bytes of every token, and the 16-byte
// chunks of a token's 128 bytes are exchanged by the token's last three bits (the 128-byte swizzle). Both products read the same
// form: keys along dims, which is K-major, and values along tokens, which is MN-major.
// Source: PTX ISA 9.0, "Shared memory matrix layout" and "Matrix descriptor format" of wgmma.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "core/simt/shared_layout.hpp"

namespace fp4pa::sm90 {

inline constexpr int kPanelDims = 64;
inline constexpr int kPanelRowBytes = 2 * kPanelDims;
inline constexpr int kSwizzleRows = 8;
/// Eight tokens of a panel: the piece that the swizzle repeats with, and a tile's alignment.
inline constexpr int kSwizzleBytes = kSwizzleRows * kPanelRowBytes;
/// Depth of an instruction.
inline constexpr int kStep = 16;

/// A matrix in shared memory as an instruction sees it.
struct SharedMatrix {
  std::uint32_t offset;   // of its first element, in bytes
  std::uint32_t leading;  // bytes from panel to panel where rows of the operand lie side by side (MN-major)
  std::uint32_t stride;   // bytes between groups of eight tokens
};

/// The descriptor, with `address` in the shared window in place of the offset.
[[nodiscard]] FP4PA_FN constexpr std::uint64_t matrix_descriptor(std::uint32_t address, const SharedMatrix& m) {
  constexpr std::uint64_t kSwizzle128 = 1;
  return static_cast<std::uint64_t>((address & 0x3ffffu) >> 4) | std::uint64_t{m.leading >> 4} << 16 |
         std::uint64_t{m.stride >> 4} << 32 | kSwizzle128 << 62;
}

template <int kTokens, int kHeadDim>
struct OperandTile {
  static_assert(kTokens % kStep == 0 && kHeadDim % kPanelDims == 0);
  static constexpr int kPanelBytes = kTokens * kPanelRowBytes;
  static constexpr int kBytes = kHeadDim / kPanelDims * kPanelBytes;

  /// Where chunk `chunk` (8 dims) of token `token` of a tile lies.
  [[nodiscard]] FP4PA_FN static constexpr std::uint32_t chunk_address(std::uint32_t tile, int token, int chunk) {
    const int swizzled = chunk % kSwizzleRows ^ token % kSwizzleRows;
    return tile + static_cast<std::uint32_t>(chunk / kSwizzleRows * kPanelBytes + token * kPanelRowBytes + swizzled * core::kChunkBytes);
  }
  /// Keys: all tokens at 16 dims, as B of scores [queries, tokens].
  [[nodiscard]] FP4PA_FN static constexpr SharedMatrix key_step(std::uint32_t tile, int step) {
    constexpr int kPanelSteps = kPanelDims / kStep;
    return {tile + static_cast<std::uint32_t>(step / kPanelSteps * kPanelBytes + step % kPanelSteps * 2 * kStep),
            core::kChunkBytes, kSwizzleBytes};
  }
  /// Values: 16 tokens at all dims, as B of outputs [queries, dims].
  [[nodiscard]] FP4PA_FN static constexpr SharedMatrix value_step(std::uint32_t tile, int step) {
    return {tile + static_cast<std::uint32_t>(step * kStep * kPanelRowBytes), kPanelBytes, kSwizzleBytes};
  }
};

}  // namespace fp4pa::sm90
