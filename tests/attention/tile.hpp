// A tile of K or V rows for the tests of the CPU's tile operations: bytes at the very end of mapped memory, what they stand
// for in double precision, and the scores that a table of operations makes of them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "backends/cpu/tile_ops.hpp"
#include "core/paging/tensor_view.hpp"
#include "reference/element.hpp"
#include "tests/attention/fenced.hpp"
#include "tests/cache/random.hpp"

namespace tile {

using namespace fp4pa;
using cpu::TileInput;
using cpu::TileRows;
using test::Fenced;

/// A tile of K or V rows and what they stand for.
struct Tile {
  Tile(KvFormat f, std::int32_t dim, std::int32_t count, VScaleAxis scale_axis = VScaleAxis::kHeadDim,
       std::int32_t first = 0)
      : format(f),
        head_dim(dim),
        axis(scale_axis),
        first_in_group(first),
        group(1 << core::token_group_shift(f, scale_axis)),
        scale_bytes(core::scale_row_bytes(f, scale_axis, dim)),
        codes(static_cast<std::size_t>(core::row_bytes(f, dim) * count)),
        scales(static_cast<std::size_t>(scale_bytes * ((first + count + group - 1) / group))) {
    rows.count = count;
    for (std::int32_t t = 0; t < count; ++t) {
      rows.row[t] = codes.data() + t * core::row_bytes(f, dim);
      rows.scale[t] = scale_bytes == 0 ? nullptr : scales.data() + (first + t) / group * scale_bytes;
    }
  }
  void fill(test::Random& random) {
    for (std::size_t i = 0; i < codes.size(); ++i) codes.data()[i] = static_cast<std::uint8_t>(random.bits());
    for (std::size_t i = 0; i < scales.size(); ++i) {
      // E8M0 from 2^-6 to 2^2, UE4M3 from 2^-6 to 2^2, with a random mantissa and its ignored sign bit.
      scales.data()[i] = static_cast<std::uint8_t>(
          format == KvFormat::kNvfp4 ? 8 + random.below(64) + 128 * random.below(2) : 121 + random.below(9));
    }
    if (format == KvFormat::kFp8E4m3 || format == KvFormat::kMxfp8) {
      for (std::size_t i = 0; i < codes.size(); ++i) {
        if ((codes.data()[i] & 0x7F) == 0x7F) codes.data()[i] = 0x7E;
      }
    }
    if (format != KvFormat::kBf16 && format != KvFormat::kF16) return;
    for (std::size_t i = 0; i + 1 < codes.size(); i += 2) {
      auto bits = static_cast<std::uint16_t>(random.bits());
      bits = format == KvFormat::kBf16 ? static_cast<std::uint16_t>((bits & 0x807F) | (124 + (bits >> 8 & 3)) << 7)
                                       : static_cast<std::uint16_t>((bits & 0x83FF) | (bits >> 10 & 15) << 10);
      std::memcpy(codes.data() + i, &bits, 2);
    }
  }
  [[nodiscard]] double value(std::int32_t t, std::int32_t d) const {
    const std::uint8_t* row = rows.row[t];
    switch (format) {
      case KvFormat::kBf16:
        return reference::decode_plain(row, DType::kBF16, d);
      case KvFormat::kF16:
        return reference::decode_plain(row, DType::kF16, d);
      case KvFormat::kFp8E4m3:
        return reference::decode_e4m3(row[d]);
      case KvFormat::kMxfp8:
        return reference::decode_e4m3(row[d]) * reference::decode_e8m0(rows.scale[t][d / 32]);
      default:
        break;
    }
    const std::int32_t block = format == KvFormat::kMxfp4 ? 32 : format == KvFormat::kNvfp4 ? 16 : head_dim;
    const std::uint8_t scale = rows.scale[t][axis == VScaleAxis::kTokens ? d : d / block];
    const double code = reference::decode_e2m1(d % 2 == 0 ? row[d / 2] & 15u : row[d / 2] >> 4);
    return code * (format == KvFormat::kNvfp4 ? reference::decode_e4m3(scale & 0x7F) : reference::decode_e8m0(scale));
  }
  [[nodiscard]] TileInput input() const {
    return {&rows, nullptr, core::row_bytes(format, head_dim), head_dim, first_in_group, group};
  }

  KvFormat format;
  std::int32_t head_dim;
  VScaleAxis axis;
  std::int32_t first_in_group, group, scale_bytes;
  Fenced codes, scales;
  TileRows rows{};
};

/// The table that this process dispatched to, and the scalar one.
inline std::vector<const cpu::TileOps*> tables() { return {&cpu::tile_ops(), &cpu::scalar_tile_ops()}; }

/// Scores of a tile by one table.
inline std::vector<float> scores_of(const cpu::TileOps& ops, const Tile& tile, const std::vector<float>& query, std::int32_t rows,
                                    float scale = 1.0f) {
  alignas(64) static thread_local unsigned char operand[cpu::kQueryOperandBytes];
  alignas(64) float scores[cpu::kMaxRows * cpu::kTileKeys];
  std::fill(std::begin(scores), std::end(scores), std::nanf(""));
  ops.prepare_query(tile.format, query.data(), rows, tile.head_dim, scale, operand);
  ops.multiply_query_key(tile.format, tile.input(), operand, rows, scores);
  return {scores, scores + rows * cpu::kTileKeys};
}

}  // namespace tile
