// The reference against values worked out by hand: whoever checks the checker must not use it.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/attention.hpp"

namespace {

using fp4pa::reference::attend_row;
using fp4pa::reference::QueryRow;

/// Keys that give logits of my choosing (q = 1, k = logit), values that name the key.
struct Line {
  std::vector<double> logits;
  std::vector<std::array<double, 2>> values;

  double attend(const QueryRow& row, std::vector<double>& out) const {
    out.assign(2, std::nan(""));
    return attend_row(
        row, [&](std::int64_t t) { return &logits[static_cast<std::size_t>(t)]; },
        [&](std::int64_t t) { return values[static_cast<std::size_t>(t)].data(); }, out);
  }
};

constexpr double kOne[] = {1.0};

QueryRow row_over(const Line& line) {
  QueryRow row;
  row.q = kOne;
  row.num_keys = static_cast<std::int64_t>(line.logits.size());
  return row;
}

/// Logits log(1), log(2), log(3), log(4): weights 0.1, 0.2, 0.3, 0.4 over values 1000, 100, 10, 1 and their negatives.
Line weights_one_to_four() {
  return {{0.0, std::log(2.0), std::log(3.0), std::log(4.0)}, {{1000, -1000}, {100, -100}, {10, -10}, {1, -1}}};
}

}  // namespace

TEST_CASE("attention: weights, output and natural-log LSE") {
  const Line line = weights_one_to_four();
  std::vector<double> out;
  const double lse = line.attend(row_over(line), out);
  CHECK(lse == doctest::Approx(std::log(10.0)));
  CHECK(out[0] == doctest::Approx(100 + 20 + 3 + 0.4));
  CHECK(out[1] == doctest::Approx(-123.4));
}

TEST_CASE("attention: the softmax scale multiplies logits") {
  const Line line = weights_one_to_four();
  QueryRow row = row_over(line);
  row.sm_scale = 2.0;  // weights 1, 4, 9, 16
  std::vector<double> out;
  CHECK(line.attend(row, out) == doctest::Approx(std::log(30.0)));
  CHECK(out[0] == doctest::Approx((1000 + 400 + 90 + 16) / 30.0));
}

TEST_CASE("attention: causal is aligned to the end") {
  const Line line = weights_one_to_four();
  QueryRow row = row_over(line);
  row.num_queries = 3;  // at positions 1, 2, 3
  std::vector<double> out;
  const double expected[] = {3.0, 6.0, 10.0};
  for (int i = 0; i < 3; ++i) {
    row.query_index = i;
    CHECK(line.attend(row, out) == doctest::Approx(std::log(expected[i])));
  }
  row.query_index = 0;
  CHECK(line.attend(row, out) == doctest::Approx(std::log(3.0)));
  CHECK(out[0] == doctest::Approx((1000 + 200) / 3.0));
  row.causal = false;
  CHECK(line.attend(row, out) == doctest::Approx(std::log(10.0)));
}

TEST_CASE("attention: a sliding window of W is the W newest visible keys") {
  const Line line = weights_one_to_four();
  QueryRow row = row_over(line);
  std::vector<double> out;
  const double expected[] = {4.0, 7.0, 9.0, 10.0, 10.0};
  for (int window = 1; window <= 5; ++window) {
    row.sliding_window = window;
    CHECK(line.attend(row, out) == doctest::Approx(std::log(expected[window - 1])));
  }
  row.num_queries = 2;  // the first of two queries: position 2
  row.query_index = 0;
  row.sliding_window = 2;
  CHECK(line.attend(row, out) == doctest::Approx(std::log(5.0)));
}

TEST_CASE("attention: softcap comes before ALiBi, and ALiBi counts from the query") {
  const Line line{{3.0, 1.0}, {{1, 0}, {0, 1}}};
  QueryRow row = row_over(line);
  row.softcap = 2.0;
  std::vector<double> out;
  const double a = 2.0 * std::tanh(1.5), b = 2.0 * std::tanh(0.5);
  CHECK(line.attend(row, out) == doctest::Approx(std::log(std::exp(a) + std::exp(b))));
  row.alibi_slope = 0.5;  // the older key is one step back
  CHECK(line.attend(row, out) == doctest::Approx(std::log(std::exp(a - 0.5) + std::exp(b))));
  CHECK(out[0] == doctest::Approx(std::exp(a - 0.5) / (std::exp(a - 0.5) + std::exp(b))));
  row.num_queries = 2;  // without causal a key may lie ahead: a positive distance
  row.query_index = 0;
  row.causal = false;
  CHECK(line.attend(row, out) == doctest::Approx(std::log(std::exp(a) + std::exp(b + 0.5))));
}

TEST_CASE("attention: a sink adds to the denominator only") {
  const Line line = weights_one_to_four();
  QueryRow row = row_over(line);
  row.sink = std::log(10.0);
  std::vector<double> out;
  CHECK(line.attend(row, out) == doctest::Approx(std::log(20.0)));
  CHECK(out[0] == doctest::Approx(123.4 / 2));
  for (const double sink : {800.0, std::numeric_limits<double>::infinity()}) {  // beyond exp's range, were it not the maximum
    row.sink = sink;
    CHECK(line.attend(row, out) == sink);
    CHECK(out[0] == 0.0);
  }
}

TEST_CASE("attention: a tree mask replaces the causal rule among the queries, and never hides the context") {
  const Line line = weights_one_to_four();
  QueryRow row = row_over(line);
  row.num_queries = 3;  // keys 1, 2, 3 are the queries' own; key 0 is context
  row.query_index = 1;
  std::vector<double> out;
  const double own[] = {2.0, 3.0, 4.0};
  for (std::uint64_t mask = 0; mask < 8; ++mask) {
    row.tree_mask = mask | ~std::uint64_t{7};  // bits of queries that do not exist mean nothing
    double sum = 1.0;
    for (int j = 0; j < 3; ++j) sum += (mask >> j & 1) != 0 ? own[j] : 0.0;
    CHECK(line.attend(row, out) == doctest::Approx(std::log(sum)));
  }
}

TEST_CASE("attention: in a tree a window counts from a query's depth") {
  QueryRow row;
  row.num_keys = 12;  // keys 0 to 7, queries at 8 to 11: 8 is the root, 9 and 10 behind it, 11 behind 10
  row.num_queries = 4;
  row.sliding_window = 5;
  const auto seen = [&](std::int64_t query, std::uint64_t mask) {
    row.query_index = query;
    row.tree_mask = mask | ~std::uint64_t{15};  // bits of queries that do not exist mean nothing
    std::vector<std::int64_t> keys;
    for (std::int64_t key = 0; key < row.num_keys; ++key) {
      if (sees(row, key)) keys.push_back(key);
    }
    return keys;
  };
  using Keys = std::vector<std::int64_t>;
  CHECK(seen(0, 0b0001) == Keys{4, 5, 6, 7, 8});
  CHECK(seen(1, 0b0011) == Keys{5, 6, 7, 8, 9});
  CHECK(seen(2, 0b0101) == Keys{5, 6, 7, 8, 10});
  CHECK(seen(3, 0b1101) == Keys{6, 7, 8, 10, 11});
  CHECK(seen(3, 0b0000) == Keys{4, 5, 6, 7});  // sees no query: as at the root
}

TEST_CASE("attention: a row that sees nothing") {
  const Line none{{}, {}};
  QueryRow row = row_over(none);
  std::vector<double> out;
  CHECK(none.attend(row, out) == -std::numeric_limits<double>::infinity());
  CHECK(out == std::vector<double>{0.0, 0.0});
  row.sink = -3.0;
  CHECK(none.attend(row, out) == -3.0);
  CHECK(out == std::vector<double>{0.0, 0.0});
  const Line one{{5.0}, {{7, 8}}};
  row = row_over(one);
  row.num_queries = 2;  // more queries than keys: the first stands before the beginning
  row.query_index = 0;
  CHECK(one.attend(row, out) == -std::numeric_limits<double>::infinity());
  CHECK(out == std::vector<double>{0.0, 0.0});
}

TEST_CASE("attention: magnitudes whose exponential overflows, and NaN that must not vanish") {
  const Line large{{1000.0, 1000.0}, {{1, 3}, {3, 5}}};
  std::vector<double> out;
  CHECK(large.attend(row_over(large), out) == doctest::Approx(1000.0 + std::log(2.0)));
  CHECK(out == std::vector<double>{2.0, 4.0});
  for (const double behind : {2.0, -std::numeric_limits<double>::infinity()}) {
    const Line broken{{1.0, std::nan(""), behind}, {{1, 1}, {1, 1}, {1, 1}}};
    CHECK(std::isnan(broken.attend(row_over(broken), out)));
    CHECK(std::isnan(out[0]));
  }
}

TEST_CASE("attention: the vectorised dot product is a dot product at every length") {
  for (std::size_t n = 0; n < 40; ++n) {
    std::vector<float> a(n);
    std::vector<double> b(n);
    double expected = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = static_cast<float>(i) - 3.0f;
      b[i] = 2.0 * static_cast<double>(i) + 1.0;
      expected += static_cast<double>(a[i]) * b[i];
    }
    CHECK(fp4pa::reference::dot(a.data(), b.data(), n) == expected);  // small integers: exact in any order
  }
}
