// The Hadamard rotation against the matrix by its definition.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/formats/hadamard.hpp"
#include "formats_oracle.hpp"

using namespace fp4pa::core;

namespace {

constexpr int kBlocks[] = {16, 32, 64, 128};

consteval float transformed_impulse() {
  float x[16] = {};
  x[3] = 1.0f;
  hadamard(x, 16, 16);
  return x[1];  // popcount(3 & 1) is odd
}
static_assert(transformed_impulse() == -0.25f);

TEST_CASE("hadamard: the norm is 1 / sqrt(block), rounded to nearest") {
  for (int block : kBlocks) {
    CHECK(hadamard_norm(block) == static_cast<float>(1.0L / std::sqrt(static_cast<long double>(block))));
  }
}

TEST_CASE("hadamard: impulses give the rows of H, exactly") {
  for (int block : kBlocks) {
    for (int column = 0; column < block; ++column) {
      std::vector<float> x(static_cast<std::size_t>(block), 0.0f);
      x[static_cast<std::size_t>(column)] = 1.0f;
      hadamard(x.data(), block, block);
      for (int row = 0; row < block; ++row) {
        const bool negative = std::popcount(static_cast<unsigned>(row & column)) % 2 != 0;
        REQUIRE(x[static_cast<std::size_t>(row)] == (negative ? -hadamard_norm(block) : hadamard_norm(block)));
      }
    }
  }
}

TEST_CASE("hadamard: integers are transformed exactly up to the norm, block by block") {
  oracle::Random random{17};
  for (int block : kBlocks) {
    const int n = 3 * block;
    std::vector<int> integers;
    std::vector<float> x;
    for (int i = 0; i < n; ++i) {
      integers.push_back(random.below(2001) - 1000);
      x.push_back(static_cast<float>(integers.back()));
    }
    hadamard(x.data(), n, block);
    for (int i = 0; i < n; ++i) {
      const int start = i / block * block;
      int sum = 0;
      for (int j = 0; j < block; ++j) {
        const int sign = std::popcount(static_cast<unsigned>((i - start) & j)) % 2 != 0 ? -1 : 1;
        sum += sign * integers[static_cast<std::size_t>(start + j)];
      }
      REQUIRE(x[static_cast<std::size_t>(i)] == static_cast<float>(sum) * hadamard_norm(block));
    }
  }
}

TEST_CASE("hadamard: its own inverse, and keeps lengths and dot products") {
  oracle::Random random{19};
  for (int block : kBlocks) {
    const int n = 2 * block;
    std::vector<float> a, b;
    for (int i = 0; i < n; ++i) {
      a.push_back(random.uniform());
      b.push_back(random.uniform());
    }
    std::vector<float> ra = a, rb = b;
    hadamard(ra.data(), n, block);
    hadamard(rb.data(), n, block);
    double dot = 0, rotated_dot = 0, moved = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      dot += static_cast<double>(a[i]) * static_cast<double>(b[i]);
      rotated_dot += static_cast<double>(ra[i]) * static_cast<double>(rb[i]);
      moved += std::fabs(static_cast<double>(a[i]) - static_cast<double>(ra[i]));
    }
    CHECK(rotated_dot == doctest::Approx(dot).epsilon(1e-5));
    CHECK(moved > 0.1 * n);  // it is not the identity
    hadamard(ra.data(), n, block);
    for (std::size_t i = 0; i < a.size(); ++i) REQUIRE(std::fabs(ra[i] - a[i]) < 2e-6f);
  }
}

TEST_CASE("hadamard: elements after the last whole block stay") {
  float x[40];
  for (int i = 0; i < 40; ++i) x[i] = static_cast<float>(i);
  hadamard(x, 40, 32);
  for (int i = 32; i < 40; ++i) CHECK(x[i] == static_cast<float>(i));
  CHECK(x[0] != 0.0f);
}

}  // namespace
