// The oracle applied to a pool: writes into an image of its memory what append must write, and reads back what gather
// must return.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/formats/hadamard.hpp"
#include "tests/cache/oracle.hpp"
#include "tests/cache/pool.hpp"

namespace test {

using Image = std::vector<std::uint8_t>;

/// The rotation is the library's own: its rounding is its definition. rotation_is_orthonormal in test_append_gather.cpp
/// holds it to the matrix.
inline std::vector<float> rotated(std::vector<float> x, fp4pa::Rotation rotation) {
  const int block = static_cast<int>(rotation);
  if (block != 0) fp4pa::core::hadamard(x.data(), static_cast<int>(x.size()), block);
  return x;
}

inline void put_nibble(std::uint8_t& byte, int element, int code) {
  byte = static_cast<std::uint8_t>(element % 2 == 0 ? (byte & 0xf0) | code : (byte & 0x0f) | code << 4);
}

/// One row of a format whose scales run along head_dim.
inline void expect_row(Image& image, const Pool& pool, const fp4pa::KvTensorDesc& t, std::int64_t page, int row,
                       int head, const std::vector<float>& x) {
  const float global = pool.global(t, head);
  std::uint8_t* const codes = image.data() + pool.code_offset(t, page, row, head);
  if (t.format == fp4pa::KvFormat::kBf16 || t.format == fp4pa::KvFormat::kF16) {
    const oracle::Float& half = t.format == fp4pa::KvFormat::kF16 ? oracle::kF16 : oracle::kBf16;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto code = static_cast<std::uint16_t>(half.nearest(x[i]));
      std::memcpy(codes + 2 * i, &code, 2);
    }
    return;
  }
  if (t.format == fp4pa::KvFormat::kFp8E4m3) {
    for (std::size_t i = 0; i < x.size(); ++i)
      codes[i] = static_cast<std::uint8_t>(oracle::kE4m3.nearest(x[i] / global));
    return;
  }
  std::uint8_t* const scales = image.data() + pool.scale_offset(t, page, row, head);
  const bool mxfp8 = t.format == fp4pa::KvFormat::kMxfp8;
  const std::size_t group = t.format == fp4pa::KvFormat::kMxfp4   ? 32
                            : mxfp8                               ? 32
                            : t.format == fp4pa::KvFormat::kNvfp4 ? 16
                                                                  : x.size();
  for (std::size_t g = 0; g * group < x.size(); ++g) {
    const auto first = x.begin() + static_cast<std::ptrdiff_t>(g * group);
    const std::vector<float> values(first, first + static_cast<std::ptrdiff_t>(group));
    const oracle::Group encoded = t.format == fp4pa::KvFormat::kNvfp4
                                      ? oracle::nvfp4(values, global, pool.shape.nvfp4)
                                      : oracle::mx(values, mxfp8 ? oracle::kE4m3 : oracle::kE2m1, pool.shape.mode);
    scales[g] = static_cast<std::uint8_t>(encoded.scale);
    for (std::size_t i = 0; i < group; ++i) {
      const std::size_t element = g * group + i;
      if (mxfp8) {
        codes[element] = static_cast<std::uint8_t>(encoded.codes[i]);
        continue;
      }
      put_nibble(codes[element / 2], static_cast<int>(element), encoded.codes[i]);
    }
  }
}

/// V along tokens: rows first_row .. of one group; missing rows are given as zeros by padding with them here.
inline void expect_group(Image& image, const Pool& pool, std::int64_t page, int first_row, int head,
                         const std::vector<std::vector<float>>& rows) {
  const fp4pa::KvTensorDesc& t = pool.cache.v;
  const float global = pool.global(t, head);
  const auto group = static_cast<std::size_t>(token_group(t.format, t.scale_axis));
  std::uint8_t* const scales = image.data() + pool.scale_offset(t, page, first_row, head);
  for (std::size_t column = 0; column < rows[0].size(); ++column) {
    std::vector<float> values(group, 0.0f);
    for (std::size_t r = 0; r < rows.size(); ++r) values[r] = rows[r][column];
    const oracle::Group encoded = t.format == fp4pa::KvFormat::kNvfp4
                                      ? oracle::nvfp4(values, global, pool.shape.nvfp4)
                                      : oracle::mx(values, oracle::kE2m1, pool.shape.mode);
    scales[column] = static_cast<std::uint8_t>(encoded.scale);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::uint8_t* const codes = image.data() + pool.code_offset(t, page, first_row + static_cast<int>(r), head);
      put_nibble(codes[column / 2], static_cast<int>(column), encoded.codes[r]);
    }
  }
}

/// The value that bytes in `image` stand for.
inline float expect_value(const Image& image, const Pool& pool, const fp4pa::KvTensorDesc& t, std::int64_t page,
                          int row, int head, int element) {
  const float global = pool.global(t, head);
  const std::uint8_t* const codes = image.data() + pool.code_offset(t, page, row, head);
  const auto i = static_cast<std::size_t>(element);
  if (t.format == fp4pa::KvFormat::kBf16 || t.format == fp4pa::KvFormat::kF16) {
    const oracle::Float& half = t.format == fp4pa::KvFormat::kF16 ? oracle::kF16 : oracle::kBf16;
    std::uint16_t code = 0;
    std::memcpy(&code, codes + 2 * i, 2);
    return static_cast<float>(half.value(code));
  }
  if (t.format == fp4pa::KvFormat::kFp8E4m3) return static_cast<float>(oracle::kE4m3.value(codes[i])) * global;
  const std::uint8_t* const scales = image.data() + pool.scale_offset(t, page, row, head);
  if (t.format == fp4pa::KvFormat::kMxfp8) {
    return static_cast<float>(oracle::kE4m3.value(codes[i]) * std::ldexp(1.0, scales[i / 32] - 127));
  }
  const int code = element % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
  std::size_t at = 0;
  if (t.scale_axis == fp4pa::VScaleAxis::kTokens) {
    at = i;
  } else if (t.format != fp4pa::KvFormat::kE8m0PerToken) {
    at = i / (t.format == fp4pa::KvFormat::kMxfp4 ? 32 : 16);
  }
  if (t.format == fp4pa::KvFormat::kNvfp4) {
    return static_cast<float>(oracle::kE2m1.value(code) * oracle::kE4m3.value(scales[at])) * global;
  }
  return static_cast<float>(oracle::kE2m1.value(code) * std::ldexp(1.0, scales[at] - 127));
}

}  // namespace test
