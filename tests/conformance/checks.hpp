// The conformance checks: what must be true of any atom, whoever executes it.
//
// A check packs matrices by the traits under test, has the executor multiply, unpacks, and compares. It returns the
// first failure as text, or nothing. Traits and the executor's atom are two template parameters so that tests can
// plant a fault in the former.
#pragma once

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

#include "tests/conformance/operands.hpp"

namespace fp4pa::conformance {

/// Empty when the check passed.
using Failure = std::string;

/// Every valid pair of selects in which at most one differs from the default: all that a device test instantiates.
template <class Atom>
std::vector<Selects> select_pairs() {
  std::vector<Selects> pairs;
  if constexpr (!core::kIsScaled<Atom>) {
    pairs.push_back({});
  } else {
    for (int byte = 0; byte < 4; ++byte) {
      for (int thread = 0; thread < 4; ++thread) {
        const core::ScaleSelect s{byte, thread};
        if (Atom::valid_select_a(s)) pairs.push_back({s, {}});
        if (Atom::valid_select_b(s) && s != core::ScaleSelect{}) pairs.push_back({{}, s});
      }
    }
  }
  return pairs;
}

inline std::string text(const Selects& s) {
  return "selects A(byte " + std::to_string(s.a.byte) + ", thread " + std::to_string(s.a.thread) + ") B(byte " +
         std::to_string(s.b.byte) + ", thread " + std::to_string(s.b.thread) + ")";
}

/// Packs by Traits, executes, unpacks by Traits; batches of any size.
template <class Traits, class Executor>
std::vector<std::vector<float>> multiply(Executor& executor, const std::vector<Matrices<Traits>>& products,
                                         Selects pack_selects, Selects run_selects) {
  using Atom = typename Executor::Atom;
  static_assert(sizeof(Inputs<Traits>) == sizeof(Inputs<Atom>) && sizeof(Outputs<Traits>) == sizeof(Outputs<Atom>));
  std::vector<Inputs<Atom>> in(products.size());
  std::vector<Outputs<Atom>> out(products.size());
  for (std::size_t i = 0; i < products.size(); ++i) {
    in[i] = std::bit_cast<Inputs<Atom>>(pack<Traits>(products[i], pack_selects));
  }
  executor.run(run_selects, in, out);
  std::vector<std::vector<float>> results(products.size());
  for (std::size_t i = 0; i < products.size(); ++i) results[i] = unpack<Traits>(std::bit_cast<Outputs<Traits>>(out[i]));
  return results;
}

/// A single 1 in A at (m, k) and in B at (k, n) gives a single 1 in C at (m, n), for every m, n and k.
template <class Traits, class Executor>
Failure check_one_hot(Executor& executor) {
  const std::uint32_t one_a = core::value_code<typename Traits::ElementA>(1.0f);
  const std::uint32_t one_b = core::value_code<typename Traits::ElementB>(1.0f);
  using Atom = typename Executor::Atom;
  std::vector<Inputs<Atom>> in(Traits::kN * Traits::kK);  // [k][n]; B's part stays, A's is put in for each m
  std::vector<Outputs<Atom>> out(in.size());
  Matrices<Traits> unit;
  unit.set_unit_scales();
  for (int k = 0; k < Traits::kK; ++k) {
    for (int n = 0; n < Traits::kN; ++n) {
      Matrices<Traits> b_only = unit;
      b_only.b[n][k] = one_b;
      in[k * Traits::kN + n] = std::bit_cast<Inputs<Atom>>(pack<Traits>(b_only, {}));
    }
  }
  for (int m = 0; m < Traits::kM; ++m) {
    for (int k = 0; k < Traits::kK; ++k) {
      Matrices<Traits> a_only;
      a_only.a[m][k] = one_a;
      const auto packed = pack<Traits>(a_only, {});
      for (int n = 0; n < Traits::kN; ++n) std::memcpy(in[k * Traits::kN + n].a, packed.a, sizeof packed.a);
    }
    executor.run({}, in, out);
    for (int k = 0; k < Traits::kK; ++k) {
      for (int n = 0; n < Traits::kN; ++n) {
        const auto d = unpack<Traits>(std::bit_cast<Outputs<Traits>>(out[k * Traits::kN + n]));
        for (int i = 0; i < Traits::kM * Traits::kN; ++i) {
          if (d[i] == (i == m * Traits::kN + n ? 1.0f : 0.0f)) continue;
          return "one-hot m " + std::to_string(m) + " n " + std::to_string(n) + " k " + std::to_string(k) + ": C(" +
                 std::to_string(i / Traits::kN) + ", " + std::to_string(i % Traits::kN) + ") is " +
                 std::to_string(d[i]);
        }
      }
    }
  }
  return {};
}

/// A different scale in every block of A and of B; one group of k at a time, so that every result is a single exact
/// number.
template <class Traits, class Executor>
Failure check_scales(Executor& executor, Selects pack_selects, Selects run_selects) {
  static_assert(core::kIsScaled<Traits>);
  constexpr int kGroups = Traits::kScaleGroups;
  Matrices<Traits> base;
  // Distinct codes around 1: as many powers of two as there are blocks, or the UE4M3 codes from 0x10 up.
  const auto code = [](int block, int blocks) {
    return static_cast<std::uint8_t>(std::same_as<typename Traits::Scale, core::E8M0> ? 127 - blocks / 2 + block
                                                                                      : 0x10 + block);
  };
  for (int m = 0; m < Traits::kM; ++m) {
    for (int g = 0; g < kGroups; ++g) base.sfa[m][g] = code(m * kGroups + g, Traits::kM * kGroups);
  }
  for (int n = 0; n < Traits::kN; ++n) {
    for (int g = 0; g < kGroups; ++g) base.sfb[n][g] = code(n * kGroups + g, Traits::kN * kGroups);
  }
  for (int n = 0; n < Traits::kN; ++n) {
    for (int k = 0; k < Traits::kK; ++k) base.b[n][k] = core::value_code<typename Traits::ElementB>(1.0f);
  }
  std::vector<Matrices<Traits>> products(kGroups, base);
  for (int g = 0; g < kGroups; ++g) {
    for (int m = 0; m < Traits::kM; ++m) {
      for (int k = g * Traits::kScaleGroup; k < (g + 1) * Traits::kScaleGroup; ++k) {
        products[g].a[m][k] = core::value_code<typename Traits::ElementA>(1.0f);
      }
    }
  }
  const auto results = multiply<Traits>(executor, products, pack_selects, run_selects);
  for (int g = 0; g < kGroups; ++g) {
    const Reference expected = reference<Traits>(products[g]);
    for (int i = 0; i < Traits::kM * Traits::kN; ++i) {
      if (static_cast<double>(results[g][i]) == expected.d[i]) continue;
      return text(run_selects) + ", group " + std::to_string(g) + ": C(" + std::to_string(i / Traits::kN) + ", " +
             std::to_string(i % Traits::kN) + ") is " + std::to_string(results[g][i]) + " and not " +
             std::to_string(expected.d[i]);
    }
  }
  return {};
}

/// Pairs of selects to be checked; the default is every one that a device test instantiates.
using SelectPairs = std::vector<Selects>;

template <class Traits, class Executor>
Failure check_scales(Executor& executor, const SelectPairs& pairs = select_pairs<typename Executor::Atom>()) {
  for (const Selects& select : pairs) {
    if (Failure f = check_scales<Traits>(executor, select, select); !f.empty()) return f;
  }
  return {};
}

/// C of 24 significant bits with nothing, a 1 and a -1 added: what an accumulator with fewer bits than an f32 cuts off, less than
/// random products may be off by.
template <class Traits, class Random>
void add_full_width(Random& random, std::vector<Matrices<Traits>>& products, std::vector<std::string>& names) {
  for (const float term : {0.0f, 1.0f, -1.0f}) {
    Matrices<Traits> m;
    m.set_unit_scales();
    for (auto& row : m.a) row[0] = core::value_code<typename Traits::ElementA>(term);
    for (auto& col : m.b) col[0] = core::value_code<typename Traits::ElementB>(std::abs(term));
    for (auto& row : m.c) {
      for (auto& x : row) {
        // 2^20 to 2^21 in eighths, an odd number of them.
        const auto eighths = static_cast<float>(0x800001u | (random() & 0x7ffffeu));
        x = (random() % 2 == 0 ? eighths : -eighths) / 8.0f;
      }
    }
    products.push_back(m);
    names.push_back("C of 24 bits, and " + std::to_string(static_cast<int>(term)));
  }
}

/// Products that any f32 accumulator gets right, bit for bit: identities, small integers with a C, all ones under scales 1
/// and 2, a C of all of f32's bits.
template <class Traits, class Executor>
Failure check_exact(Executor& executor) {
  std::mt19937 random(20260301);
  std::vector<Matrices<Traits>> products;
  std::vector<std::string> names;
  const auto small = [&random] { return static_cast<float>(static_cast<int>(random() % 5) - 2); };

  for (int offset = 0; offset < Traits::kK; offset += Traits::kN) {  // B picks columns offset .. offset + kN - 1 of A
    Matrices<Traits> m;
    m.set_unit_scales();
    for (auto& row : m.a) {
      for (auto& x : row) x = core::value_code<typename Traits::ElementA>(small());
    }
    for (int n = 0; n < Traits::kN; ++n) m.b[n][offset + n] = core::value_code<typename Traits::ElementB>(1.0f);
    products.push_back(m);
    names.push_back("identity at k = " + std::to_string(offset));
  }
  for (int i = 0; i < 16; ++i) {
    Matrices<Traits> m;
    m.set_unit_scales();
    for (auto& row : m.a) {
      for (auto& x : row) x = core::value_code<typename Traits::ElementA>(small());
    }
    for (auto& col : m.b) {
      for (auto& x : col) x = core::value_code<typename Traits::ElementB>(small());
    }
    for (auto& row : m.c) {
      for (auto& x : row) x = small() * 16.0f;
    }
    products.push_back(m);
    names.push_back("integers " + std::to_string(i));
  }
  for (int twos = 0; twos < 3; ++twos) {  // kK, 2 kK, 4 kK: 32, 64, 128, 256, ...
    Matrices<Traits> m;
    m.set_unit_scales();
    if constexpr (core::kIsScaled<Traits>) {
      const auto two = static_cast<std::uint8_t>(core::value_code<typename Traits::Scale>(2.0f));
      for (auto& row : m.sfa) {
        for (auto& s : row) s = twos >= 1 ? two : s;
      }
      for (auto& col : m.sfb) {
        for (auto& s : col) s = twos >= 2 ? two : s;
      }
    }
    for (auto& row : m.a) {
      for (auto& x : row) x = core::value_code<typename Traits::ElementA>(1.0f);
    }
    for (auto& col : m.b) {
      for (auto& x : col) x = core::value_code<typename Traits::ElementB>(1.0f);
    }
    products.push_back(m);
    names.push_back("ones, " + std::to_string(twos) + " scales of 2");
  }
  add_full_width<Traits>(random, products, names);

  const auto results = multiply<Traits>(executor, products, {}, {});
  for (std::size_t p = 0; p < products.size(); ++p) {
    const Reference expected = reference<Traits>(products[p]);
    for (int i = 0; i < Traits::kM * Traits::kN; ++i) {
      if (static_cast<double>(results[p][i]) == expected.d[i]) continue;
      return names[p] + ": C(" + std::to_string(i / Traits::kN) + ", " + std::to_string(i % Traits::kN) + ") is " +
             std::to_string(results[p][i]) + " and not " + std::to_string(expected.d[i]);
    }
  }
  return {};
}

/// Random codes of every kind but NaN and infinity, random scales and C, against double.
/// @param worst  receives the largest error over the sum of magnitudes
template <class Traits, class Executor>
Failure check_random(Executor& executor, int count, double* worst) {
  std::mt19937 random(20260302);
  std::vector<Matrices<Traits>> products(count);
  const auto finite = [&random]<class Element>(Element) {
    for (;;) {
      const std::uint32_t code = random() & ((1u << Element::kBits) - 1u);
      // 16-bit elements are kept to a range in which no product leaves f32.
      if (std::abs(core::code_value<Element>(code)) < 65536.0f) return code;
    }
  };
  for (auto& m : products) {
    for (auto& row : m.a) {
      for (auto& x : row) x = finite(typename Traits::ElementA{});
    }
    for (auto& col : m.b) {
      for (auto& x : col) x = finite(typename Traits::ElementB{});
    }
    for (auto& row : m.c) {
      for (auto& x : row) x = static_cast<float>(random() % 2001) - 1000.0f;
    }
    if constexpr (core::kIsScaled<Traits>) {
      constexpr bool kPowers = std::same_as<typename Traits::Scale, core::E8M0>;
      const auto scale = [&random] {
        return static_cast<std::uint8_t>(kPowers ? 112 + random() % 31 : (random() % 0x7f) | (random() & 0x80));
      };
      for (auto& row : m.sfa) {
        for (auto& s : row) s = scale();
      }
      for (auto& col : m.sfb) {
        for (auto& s : col) s = scale();
      }
    }
  }
  const auto results = multiply<Traits>(executor, products, {}, {});
  *worst = 0.0;
  for (int p = 0; p < count; ++p) {
    const Reference expected = reference<Traits>(products[p]);
    for (int i = 0; i < Traits::kM * Traits::kN; ++i) {
      const double error = std::abs(static_cast<double>(results[p][i]) - expected.d[i]) / expected.magnitude[i];
      if (!(error <= Executor::kTolerance)) {
        return "random product " + std::to_string(p) + ": C(" + std::to_string(i / Traits::kN) + ", " +
               std::to_string(i % Traits::kN) + ") is " + std::to_string(results[p][i]) + " and not " +
               std::to_string(expected.d[i]);
      }
      *worst = error > *worst ? error : *worst;
    }
  }
  return {};
}

/// A NaN scale makes NaN of its row (column) and of nothing else, also over elements that are zero.
template <class Traits, class Executor>
Failure check_nan_scales(Executor& executor) {
  static_assert(core::kIsScaled<Traits>);
  Matrices<Traits> base;
  base.set_unit_scales();
  std::vector<Matrices<Traits>> products(2, base);
  products[0].sfa[Traits::kM - 3][Traits::kScaleGroups - 1] = Traits::Scale::kNan;
  products[1].sfb[Traits::kN - 3][0] = Traits::Scale::kNan;
  const auto results = multiply<Traits>(executor, products, {}, {});
  for (int i = 0; i < Traits::kM * Traits::kN; ++i) {
    const bool row = i / Traits::kN == Traits::kM - 3;
    const bool col = i % Traits::kN == Traits::kN - 3;
    if (std::isnan(results[0][i]) != row) return "NaN scale of A: wrong at element " + std::to_string(i);
    if (std::isnan(results[1][i]) != col) return "NaN scale of B: wrong at element " + std::to_string(i);
  }
  return {};
}

/// Everything. Prints the worst random error under `name`, if there is one.
template <class Traits, class Executor>
Failure check_all(Executor& executor, const char* name,
                  [[maybe_unused]] const SelectPairs& pairs = select_pairs<typename Executor::Atom>()) {
  double worst = 0.0;
  Failure f = check_one_hot<Traits>(executor);
  if (f.empty()) f = check_exact<Traits>(executor);
  if (f.empty()) f = check_random<Traits>(executor, 50, &worst);
  if constexpr (core::kIsScaled<Traits>) {
    if (f.empty()) f = check_scales<Traits>(executor, pairs);
    if (f.empty()) f = check_nan_scales<Traits>(executor);
  }
  if (name == nullptr) return f;
  std::printf("  %-46s %s  worst error %.2e of the sum of magnitudes\n", name, f.empty() ? "conforms" : "FAILS", worst);
  return f;
}

}  // namespace fp4pa::conformance
