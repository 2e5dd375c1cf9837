// Which token is which key slot, and where a staged tile's bytes lie; for gfx942 and gfx950.
//
// Keys are the rows of A, queries the columns of B: lane (query n = lane % 16, g = lane / 16) ends the first product with the
// scores of key slots 16 t + 4 g + i, i = 0 .. 3, of every 16 keys t. It begins the second with eight probabilities a step of
// 32 tokens, those of t = 2 step and 2 step + 1. Slots take tokens so that these are eight neighbours:
//
//   narrow  (16-bit products)    slot 32 s + 16 t + 4 g + i = token 32 s + 8 g + 4 t + i, t = 0, 1
//   wide    (gfx950's FP8 P)     slot 16 (j/4) + 4 g + j%4  = token 16 g + j%16 + 64 (j/16), j = 0 .. 31
//
// The wide order is core::in_lane_token_order of the block-scaled atoms and needs tiles of 128 keys. Staging lies in the
// tokens' own order; slots are a matter of the address that a lane reads.
#pragma once

#include <cstdint>

#include "core/simt/key_stream.hpp"

namespace fp4pa::gfx942 {

using core::KvKind;

[[nodiscard]] FP4PA_FN constexpr int token_of_slot(bool wide, int slot) {
  const int t = slot / 16;
  const int g = slot / 4 % 4;
  const int i = slot % 4;
  if (wide) return 16 * g + 4 * (t % 4) + i + 64 * (t / 4);
  return 32 * (t / 2) + 8 * g + 4 * (t % 2) + i;
}
/// First of the eight neighbouring tokens whose probabilities lanes 16 g to 16 g + 15 hold for a step of 32.
[[nodiscard]] FP4PA_FN constexpr int first_token(bool wide, int step, int g) {
  return wide ? 16 * g + 8 * (step % 2) + 64 * (step / 2) : 32 * step + 8 * g;
}

/// A row's chunks are permuted by what tells apart the rows that neighbouring lanes read: sixteen key slots lie in four runs of
/// four neighbouring rows, sixteen or eight rows apart. The run's number, its bits swapped so that pairs of chunks
/// separate too.
[[nodiscard]] FP4PA_FN constexpr int swizzle_bits(bool wide, int row, int chunks) {
  const int run = row >> (wide ? 4 : 3);
  const int reversed = ((run & 1) << 1) | ((run >> 1) & 1);
  return (chunks >= 4 ? reversed : reversed >> 1) & (chunks - 1);
}

/// Whether rows of the tokens whose probabilities a lane holds are all permuted alike.
[[nodiscard]] consteval bool rows_of_lane_agree(bool wide, int tile_keys) {
  for (int i = 0; i < tile_keys; ++i) {
    const int step = i / 32, g = i / 8 % 4, t = i % 8;
    for (int chunks = 1; chunks <= 32; chunks *= 2) {
      if (swizzle_bits(wide, first_token(wide, step, g) + t, chunks) != swizzle_bits(wide, first_token(wide, 0, g), chunks)) return false;
    }
  }
  return true;
}

/// Whether the rows of a lane's keys, one in every 16 slots, are all permuted alike, and lie as far apart in every lane.
[[nodiscard]] consteval bool rows_of_key_tiles_agree(bool wide, int tile_keys) {
  for (int slot = 0; slot < tile_keys; ++slot) {
    const int first = token_of_slot(wide, slot % 16), row = token_of_slot(wide, slot);
    if (row - first != token_of_slot(wide, slot / 16 * 16)) return false;
    for (int chunks = 1; chunks <= 32; chunks *= 2) {
      if (swizzle_bits(wide, row, chunks) != swizzle_bits(wide, first, chunks)) return false;
    }
  }
  return true;
}

/// Byte `byte` of row `row` in codes at `codes` whose rows have `chunks` chunks.
[[nodiscard]] FP4PA_FN std::uint32_t byte_offset(bool wide, std::uint32_t codes, int row, int chunks, int byte) {
  const int chunk = (byte / core::kChunkBytes) ^ swizzle_bits(wide, row, chunks);
  return codes + static_cast<std::uint32_t>((row * chunks + chunk) * core::kChunkBytes + byte % core::kChunkBytes);
}

}  // namespace fp4pa::gfx942
