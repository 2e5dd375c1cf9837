// X that is hard to hold in few bits: elements far below their neighbours, infinities and NaN.
#pragma once

#include "tests/gemm/problem.hpp"

namespace fp4pa::gemm_test {

/// Every eighth column of X is about 2^high, where W is 0 in every second row, all others are about 2^low: what is lost of a small
/// element beside large ones shows in those rows.
struct FarApart : Problem {
  /// @param weight_scale  the E8M0 code of all of W
  FarApart(DType x_type, int high, int low, int weight_scale, const char* backend, std::int64_t rows = 19)
      : Problem(spec_of(x_type, rows), backend) {
    std::mt19937 random(7);
    std::vector<float> values(static_cast<std::size_t>(s.m * s.k));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool large = static_cast<std::int64_t>(i) % s.k % 8 == 3;
      const float fraction = 1.0f + static_cast<float>(random() % 2048) / 2048.0f;
      const int exponent = large ? high : low - static_cast<int>(random() % 4);
      values[i] = std::ldexp(random() % 2 != 0 ? fraction : -fraction, exponent);
      if (x_type == DType::kF16) values[i] = std::fmin(std::fmax(values[i], -65504.0f), 65504.0f);
    }
    x = Tensor(s.x, values);
    std::fill_n(weight.scales.data(), weight.scales.bytes(), static_cast<std::uint8_t>(weight_scale));
    const std::int64_t row_bytes = (s.k + 31) / 32 * 16;
    for (std::int64_t j = 0; j < s.n; j += 2) {
      for (std::int64_t c = 3; c < s.k; c += 8) weight.codes.data()[j * row_bytes + c / 2] &= 0x0f;  // odd columns: the high nibble
    }
  }

 private:
  static Spec spec_of(DType x_type, std::int64_t rows) {
    Spec s;
    s.x = x_type;
    s.m = rows;
    s.n = 70;
    s.k = 300;
    return s;
  }
};

/// Rows with an infinity, two of one sign, two of both, a NaN, an infinity among zeros; the other rows have none.
struct SpecialX : Problem {
  /// @param rows  of X: with fewer than 19 not all of these are there
  SpecialX(DType x_type, const char* backend, std::int64_t rows = 35) : Problem(spec_of(x_type, rows), backend) {
    std::vector<float> values = gaussian(static_cast<std::size_t>(s.m * s.k), 5);
    const auto set = [&](std::int64_t row, std::int64_t col, float value) {
      if (row < s.m) values[static_cast<std::size_t>(row * s.k + col)] = value;
    };
    set(1, 0, INFINITY);
    set(3, 40, -INFINITY);
    set(3, 41, -INFINITY);
    set(4, 5, INFINITY);
    set(4, 190, -INFINITY);
    set(17, 131, std::nanf(""));
    for (std::int64_t c = 0; c < s.k; ++c) set(18, c, c == 199 ? INFINITY : 0.0f);
    x = Tensor(s.x, values);
  }

  /// Results that are not what the double product has: NaN, an infinity of a sign, or a number within the bound.
  [[nodiscard]] int wrong() const {
    const reference::Matrix a = multiplied_x(s, x, 0);
    const reference::Matrix bm = reference::decode(weight.view);
    int wrong = 0;
    for (std::int64_t i = 0; i < s.m; ++i) {
      bool finite = true;
      for (std::int64_t c = 0; c < s.k; ++c) finite = finite && std::isfinite(a.at[static_cast<std::size_t>(i * s.k + c)]);
      if (finite) wrong += !(worst_of_row(a, bm, 0, i) <= 1.0);
      for (std::int64_t j = 0; !finite && j < s.n; ++j) {
        double want = 0;
        for (std::int64_t c = 0; c < s.k; ++c) {
          want += a.at[static_cast<std::size_t>(i * s.k + c)] * bm.at[static_cast<std::size_t>(j * s.k + c)];
        }
        const double got = out.at(static_cast<std::size_t>(i * s.n + j));
        wrong += std::isnan(want) ? !std::isnan(got) : got != want;
      }
    }
    return wrong;
  }

 private:
  static Spec spec_of(DType x_type, std::int64_t rows) {
    Spec s;
    s.x = x_type;
    s.m = rows;
    s.n = 70;
    s.k = 200;
    return s;
  }
};

}  // namespace fp4pa::gemm_test
