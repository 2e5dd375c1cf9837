// merge_states as an algebra: against double precision, with empty states, in place, in any order.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backends/cpu/merge.hpp"
#include "tests/cache/oracle.hpp"
#include "tests/cache/random.hpp"

using namespace fp4pa;

namespace {

constexpr float kEmpty = -std::numeric_limits<float>::infinity();
constexpr int kHeadDim = 64;

struct State {
  std::vector<float> o, lse;
};

State random_state(std::int64_t rows, test::Random& random, double lse_range) {
  State s;
  for (std::int64_t i = 0; i < rows * kHeadDim; ++i) s.o.push_back(static_cast<float>(2.0 * random.uniform() - 1.0));
  for (std::int64_t i = 0; i < rows; ++i) {
    s.lse.push_back(static_cast<float>(lse_range * (2.0 * random.uniform() - 1.0)));
  }
  return s;
}

State merged(const State& a, const State& b, int threads = 1) {
  State m{std::vector<float>(a.o.size()), std::vector<float>(a.lse.size())};
  ExecDesc exec;
  exec.num_threads = threads;
  const auto rows = static_cast<std::int64_t>(a.lse.size());
  REQUIRE(cpu::merge_states({a.o.data(), b.o.data(), a.lse.data(), b.lse.data(), m.o.data(), m.lse.data(), DType::kF32,
                             rows, kHeadDim},
                            exec) == Status::kOk);
  return m;
}

void check_close(const State& a, const State& b, double tolerance) {
  double worst = 0.0;
  for (std::size_t i = 0; i < a.o.size(); ++i) worst = std::fmax(worst, std::fabs(double{a.o[i]} - b.o[i]));
  for (std::size_t i = 0; i < a.lse.size(); ++i) {
    const double scale = std::fmax(1.0, std::fabs(double{b.lse[i]}));
    worst = std::fmax(worst, std::fabs(double{a.lse[i]} - b.lse[i]) / scale);
  }
  CHECK(worst <= tolerance);
}

}  // namespace

TEST_CASE("merge_states: against double precision, up to lse 1e4 apart") {
  test::Random random(1);
  for (const double range : {0.1, 3.0, 30.0, 300.0, 1e4}) {
    const State a = random_state(200, random, range);
    const State b = random_state(200, random, range);
    const State m = merged(a, b, 2);
    for (std::size_t row = 0; row < 200; ++row) {
      const double la = a.lse[row];
      const double lb = b.lse[row];
      const double top = std::fmax(la, lb);
      const double wa = std::exp(la - top);
      const double wb = std::exp(lb - top);
      CHECK(std::fabs(m.lse[row] - (top + std::log(wa + wb))) <= 2e-7 * std::fmax(1.0, std::fabs(top)));
      double worst = 0.0;
      for (std::size_t i = row * kHeadDim; i < (row + 1) * kHeadDim; ++i) {
        // Distances of lse round in float before they are exponentiated: 1e-6 of the difference's size covers them.
        worst = std::fmax(worst, std::fabs(m.o[i] - (wa * a.o[i] + wb * b.o[i]) / (wa + wb)));
      }
      CHECK(worst <= 1e-6);
    }
  }
}

TEST_CASE("merge_states: an empty state contributes nothing, whatever its output holds") {
  test::Random random(2);
  State a = random_state(4, random, 5.0);
  State b = random_state(4, random, 5.0);
  a.lse[1] = kEmpty;
  b.lse[2] = kEmpty;
  a.lse[3] = b.lse[3] = kEmpty;
  for (std::size_t i = 0; i < kHeadDim; ++i) {
    a.o[1 * kHeadDim + i] = std::nanf("");
    b.o[2 * kHeadDim + i] = INFINITY;
    a.o[3 * kHeadDim + i] = b.o[3 * kHeadDim + i] = std::nanf("");
  }
  const State m = merged(a, b);
  CHECK(m.lse[1] == b.lse[1]);
  CHECK(m.lse[2] == a.lse[2]);
  CHECK(m.lse[3] == kEmpty);
  for (std::size_t i = 0; i < kHeadDim; ++i) {
    CHECK(m.o[1 * kHeadDim + i] == b.o[1 * kHeadDim + i]);
    CHECK(m.o[2 * kHeadDim + i] == a.o[2 * kHeadDim + i]);
    CHECK(m.o[3 * kHeadDim + i] == 0.0f);
  }
}

TEST_CASE("merge_states: commutative to the bit, associative to rounding") {
  test::Random random(3);
  const State a = random_state(100, random, 8.0);
  const State b = random_state(100, random, 8.0);
  const State c = random_state(100, random, 8.0);
  const State ab = merged(a, b);
  const State ba = merged(b, a);
  CHECK(ab.o == ba.o);
  CHECK(ab.lse == ba.lse);
  check_close(merged(ab, c), merged(a, merged(b, c)), 1e-6);
}

TEST_CASE("merge_states: output and lse may be either input's") {
  test::Random random(4);
  const State a = random_state(9, random, 3.0);
  const State b = random_state(9, random, 3.0);
  const State want = merged(a, b);
  for (const bool into_a : {true, false}) {
    State x = a;
    State y = b;
    State& target = into_a ? x : y;
    REQUIRE(cpu::merge_states({x.o.data(), y.o.data(), x.lse.data(), y.lse.data(), target.o.data(), target.lse.data(),
                               DType::kF32, 9, kHeadDim},
                              {}) == Status::kOk);
    CHECK(target.o == want.o);
    CHECK(target.lse == want.lse);
  }
}

TEST_CASE("merge_states: f16 and bf16 are rounded once, from the float result") {
  test::Random random(5);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const oracle::Float& half = dtype == DType::kF16 ? oracle::kF16 : oracle::kBf16;
    State a = random_state(6, random, 3.0);
    State b = random_state(6, random, 3.0);
    std::vector<std::uint16_t> a_codes;
    std::vector<std::uint16_t> b_codes;
    for (std::size_t i = 0; i < a.o.size(); ++i) {
      a_codes.push_back(static_cast<std::uint16_t>(half.nearest(a.o[i])));
      b_codes.push_back(static_cast<std::uint16_t>(half.nearest(b.o[i])));
      a.o[i] = static_cast<float>(half.value(a_codes[i]));
      b.o[i] = static_cast<float>(half.value(b_codes[i]));
    }
    const State want = merged(a, b);
    std::vector<std::uint16_t> o(a_codes.size());
    std::vector<float> lse(6);
    REQUIRE(cpu::merge_states(
                {a_codes.data(), b_codes.data(), a.lse.data(), b.lse.data(), o.data(), lse.data(), dtype, 6, kHeadDim},
                {}) == Status::kOk);
    CHECK(lse == want.lse);
    for (std::size_t i = 0; i < o.size(); ++i) CHECK(o[i] == half.nearest(want.o[i]));
  }
}
