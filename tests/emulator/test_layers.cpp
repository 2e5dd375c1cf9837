// The instruction layers of each architecture deliver what the models say, through the lane functions that shims use.
#include <doctest/doctest.h>

#include <cstring>

#include "backends/emulator/gfx950_exec.hpp"
#include "backends/emulator/sm120_exec.hpp"
#include "core/atom/pack.hpp"

namespace {

using namespace fp4pa;
using core::E2M1;
using core::E4M3;

template <class Exec, class F>
emulator::Findings& run_warp(emulator::Findings& findings, F&& f) {
  emulator::run_block<Exec>({{}, &findings}, 0, 1, 4096, f);
  return findings;
}

template <class Exec, class Atom>
void check_ones() {
  // All codes 1.0, all scales 4 and 2: every element of D is kK * 8, on top of what D held.
  emulator::Findings findings;
  run_warp<Exec>(findings, [](Exec& exec) {
    using Lane = typename Exec::Lane;
    typename Exec::template PerLane<typename core::AtomRegisters<Atom>::A> a;
    typename Exec::template PerLane<typename core::AtomRegisters<Atom>::B> b;
    typename Exec::template PerLane<typename core::AtomRegisters<Atom>::C> d;
    typename Exec::template PerLane<std::uint32_t> sfa, sfb;
    exec.each_lane([&](Lane lane) {
      std::memset(a[lane], 0, sizeof a[lane]);
      std::memset(b[lane], 0, sizeof b[lane]);
      for (int v = 0; v < Atom::kValuesA; ++v) {
        core::put_code<typename Atom::ElementA>(a[lane], v, Atom::kPackingA, core::value_code<typename Atom::ElementA>(1.0f));
      }
      for (int v = 0; v < Atom::kValuesB; ++v) {
        core::put_code<typename Atom::ElementB>(b[lane], v, Atom::kPackingB, core::value_code<typename Atom::ElementB>(1.0f));
      }
      for (float& x : d[lane]) x = 0.5f;
    });
    float expected = 0.5f + Atom::kK;
    const auto a_of = [&](Lane lane) -> auto& { return a[lane]; };
    const auto b_of = [&](Lane lane) -> auto& { return b[lane]; };
    const auto d_of = [&](Lane lane) -> auto& { return d[lane]; };
    if constexpr (core::kIsScaled<Atom>) {
      const std::uint32_t four = core::value_code<typename Atom::Scale>(4.0f);
      const std::uint32_t two = core::value_code<typename Atom::Scale>(2.0f);
      exec.each_lane([&](Lane lane) {
        sfa[lane] = four * 0x01010101u;
        sfb[lane] = two * 0x01010101u;
      });
      exec.template multiply_scaled<Atom, core::ScaleSelect{}, core::ScaleSelect{}>(
          d_of, a_of, b_of, [&](Lane lane) { return sfa[lane]; }, [&](Lane lane) { return sfb[lane]; });
      expected = 0.5f + 8.0f * Atom::kK;
    } else {
      exec.template multiply<Atom>(d_of, a_of, b_of);
    }
    exec.each_lane([&](Lane lane) {
      for (const float x : d[lane]) CHECK(x == expected);
    });
  });
  CHECK(findings.empty());
}

}  // namespace

TEST_CASE("products through lane functions") {
  using namespace emulator;
  check_ones<Sm120Exec, sm120::MmaMxf8f6f4M16N8K32<E4M3, E2M1>>();
  check_ones<Sm120Exec, sm120::MmaMxf4M16N8K64>();
  check_ones<Sm120Exec, sm120::MmaMxf4nvf4Ue4m3M16N8K64>();
  check_ones<Gfx950Exec, gfx950::MfmaScaleF32_16x16x128_F8f6f4<E2M1, E4M3>>();
  check_ones<Gfx950Exec, gfx950::MfmaScaleF32_32x32x64_F8f6f4<E4M3, E4M3>>();
  check_ones<Gfx950Exec, gfx942::MfmaF32_16x16x32_Fp8Fp8>();
  check_ones<Gfx950Exec, gfx942::MfmaF32_16x16x16_F16>();
}
