// Scales at the ends of their range, as the products of a kernel meet them on the emulator.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "tests/attention/scene.hpp"
#include "tests/cache/random.hpp"
#include "tests/emulator/emulated_backend.hpp"

namespace fp4pa::extreme {

/// Elements that share a scale.
inline int group_of(const scene::Scene& s, bool value) { return (value ? s.spec.v : s.spec.k) == KvFormat::kNvfp4 ? 16 : 32; }

/// Scales along head_dim of all tokens of two sequences: the byte scale(token, random) for each.
template <class Scale>
void set_scales(scene::Scene& s, bool value, Scale&& scale) {
  test::Random random(17);
  const int blocks = s.spec.head_dim / group_of(s, value);
  for (std::int32_t b = 0; b < 2; ++b) {
    for (std::int32_t token = 0; token < s.seq_lens[static_cast<std::size_t>(b)]; ++token) {
      for (int i = 0; i < s.spec.kv_heads * blocks; ++i) {
        s.scales(value, b, token, i / blocks)[i % blocks] = static_cast<std::uint8_t>(scale(token, random));
      }
    }
  }
}
inline auto within(int low, int high) {
  return [=](int, test::Random& r) { return low + static_cast<int>(r.below(high - low + 1)); };
}

/// A run of which the emulator says nothing; the number of the instance that planning chose.
inline int run_without_findings(scene::Scene& s, const emulator_test::Emulation& emulation) {
  emulator::Findings findings;
  emulator_test::current.emulation = &emulation;
  emulator_test::current.watch = {emulator::Order::forwards(), &findings, nullptr};
  s.reset_outputs();
  REQUIRE(s.run() == Status::kOk);
  CHECK(findings.text() == "");
  return emulator_test::current.planned;
}

/// Calls with key scales from each of these ranges of E8M0 codes, on O and LSE.
/// @param check  makes the call, and looks at who served it
template <class Check>
void check_key_scales(scene::Scene& s, std::initializer_list<std::pair<int, int>> ranges, Check&& check, double* worst_o, double* worst_lse) {
  for (const auto& [low, high] : ranges) {
    CAPTURE(low);
    set_scales(s, false, within(low, high));
    check();
    const scene::Scene::Error error = s.error();
    *worst_o = std::max(*worst_o, error.o);
    *worst_lse = std::max(*worst_lse, error.lse);
  }
}

/// A NaN scale of a key makes NaN of all that sees it, of a value of its group of dims. It stays in the scene.
template <class Run>
void expect_nans_apart(scene::Scene& s, Run&& run) {
  s.scales(true, 0, 3, 0)[1] = 255;
  run();
  for (int d = 0; d < s.spec.head_dim; ++d) {
    CHECK(std::isnan(s.o_row(0, 0)[static_cast<std::size_t>(d)]) == (d / group_of(s, true) == 1));
  }
  CHECK_FALSE(std::isnan(s.o_row(0, 4)[40]));
  s.scales(false, 0, 3, 1)[0] = 255;
  run();
  CHECK(std::isnan(s.lse_of(0, 4)));
  CHECK_FALSE(std::isnan(s.lse_of(0, 0)));
}

}  // namespace fp4pa::extreme
