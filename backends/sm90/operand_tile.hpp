// Where the decoded tiles of keys and values lie in shared memory for wgmma, and how an instruction is told. No device code.
//
// A tile is [tokens][dims] of 16-bit elements in panels of 64 dims: a panel holds 128 bytes of every token, and the 16-byte
// chunks of a token's 128 bytes are exchanged by the token's last three bits (the 128-byte swizzle). Both products read the same
// form: keys along dims, which is K-major, and values along tokens, which is MN-major. Queries lie in pieces of eight rows with the
// same swizzle, K-major.
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
/// Warps of a warpgroup.
inline constexpr int kGroupWarps = 4;
/// Depth of an instruction.
inline constexpr int kStep = 16;

/// A matrix in shared memory as an instruction sees it.
struct SharedMatrix {
  std::uint32_t offset;   // of its first element, in bytes
  std::uint32_t leading;  // bytes from panel to panel where rows of the operand lie side by side (MN-major)
  std::uint32_t stride;   // bytes between groups of eight tokens or rows
};

/// The descriptor, with `address` in the shared window, of less than 2^18 bytes, in place of the offset.
[[nodiscard]] FP4PA_FN constexpr std::uint64_t matrix_descriptor(std::uint32_t address, const SharedMatrix& m) {
  constexpr std::uint64_t kSwizzle128 = 1;
  return std::uint64_t{address >> 4} | std::uint64_t{m.leading >> 4} << 16 |
         std::uint64_t{m.stride >> 4} << 32 | kSwizzle128 << 62;
}

template <int kTokens, int kHeadDim>
struct OperandTile {
  static_assert(kTokens % kStep == 0 && kHeadDim % kPanelDims == 0);
  static constexpr int kPanelBytes = kTokens * kPanelRowBytes;
  static constexpr int kBytes = kHeadDim / kPanelDims * kPanelBytes;

  /// Of token `token`, of which chunk_address() is told, in a tile aligned to kSwizzleBytes.
  [[nodiscard]] FP4PA_FN static constexpr std::uint32_t row_address(std::uint32_t tile, int token) {
    return tile + static_cast<std::uint32_t>(token * kPanelRowBytes + (token & (kSwizzleRows - 1)) * core::kChunkBytes);
  }
  /// Where chunk `chunk` (8 dims) of a token lies.
  [[nodiscard]] FP4PA_FN static constexpr std::uint32_t chunk_address(std::uint32_t row, int chunk) {
    const auto c = static_cast<std::uint32_t>(chunk);
    return (row ^ (c & (kSwizzleRows - 1)) * core::kChunkBytes) + c / kSwizzleRows * kPanelBytes;
  }
  /// Of a chunk of token t, `address`: that chunk of token t + more, where both numbers have no bit in common below kSwizzleRows.
  [[nodiscard]] FP4PA_FN static constexpr std::uint32_t later_row(std::uint32_t address, int more) {
    return (address ^ static_cast<std::uint32_t>(more % kSwizzleRows * core::kChunkBytes)) +
           static_cast<std::uint32_t>(more * kPanelRowBytes);
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

/// The queries of a warpgroup, 64 rows of up to two terms: warps of 16 rows one behind the other, in pieces of eight rows.
template <int kHeadDim>
struct QueryTile {
  static constexpr int kPieceBytes = kHeadDim / kPanelDims * kSwizzleBytes;
  static constexpr int kWarpPieces = 2;  // of a term

  /// Offset of chunk `chunk` of row `row` of a warp whose queries begin at `warp`.
  [[nodiscard]] FP4PA_FN static constexpr std::uint32_t chunk_address(std::uint32_t warp, int terms, int term, int row, int chunk) {
    const int piece = row / kSwizzleRows * terms + term;
    const int swizzled = (chunk ^ row) % kSwizzleRows;
    return warp + static_cast<std::uint32_t>(piece * kPieceBytes + chunk / kSwizzleRows * kSwizzleBytes +
                                             row % kSwizzleRows * kPanelRowBytes + swizzled * core::kChunkBytes);
  }
  /// Offset of the group's first warp, from that of warp `warp` of the block.
  [[nodiscard]] FP4PA_FN static std::uint32_t group(std::uint32_t query, int terms, int warp) {
    return query - static_cast<std::uint32_t>(warp % 4 * kWarpPieces * terms * kPieceBytes);
  }
  /// All rows at 16 dims, as A of scores.
  [[nodiscard]] FP4PA_FN static constexpr SharedMatrix step(std::uint32_t group, int terms, int term, int step) {
    constexpr int kPanelSteps = kPanelDims / kStep;
    return {group + static_cast<std::uint32_t>(term * kPieceBytes + step / kPanelSteps * kSwizzleBytes +
                                               step % kPanelSteps * 2 * kStep),
            core::kChunkBytes, static_cast<std::uint32_t>(terms * kPieceBytes)};
  }
};

}  // namespace fp4pa::sm90
