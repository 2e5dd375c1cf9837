// Caches that are full to their last byte, behind which nothing may be read (tests/attention/fenced.hpp).
#include <doctest/doctest.h>

#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/emulator/gfx950_instances.hpp"
#include "tests/emulator/sm120_instances.hpp"
#include "tests/emulator/sm80_instances.hpp"
#include "tests/emulator/sm90_instances.hpp"

namespace {

using namespace fp4pa;
using emulator_test::Emulation;

/// By every instance.
void read_to_the_end(const Emulation& on) {
  for (int i = 0; i < on.instances; ++i) {
    if (on.run_block[i] == nullptr) continue;
    for (const grid::Layout layout : {grid::Layout::kHnd, grid::Layout::kNhd}) {
      grid::Case c = grid::full_cache_at(static_cast<std::uint64_t>(i), layout, on.config(i), on.tile_rows(i));
      c.backend = "cuda";
      INFO(on.name << ", instance " << i << ": " << grid::describe(c));
      emulator::Findings findings;
      emulator_test::Setup setup;
      setup.emulation = &on;
      setup.watch = {emulator::Order::forwards(), &findings, nullptr};
      setup.instance = i;
      const emulator_test::ScopedSetup scope(setup);
      CHECK(grid::run_case(c).failure == "");
      CHECK(findings.text() == "");
      CHECK(emulator_test::current.planned == i);
    }
  }
}

}  // namespace

TEST_CASE("nothing is read behind a full cache: sm_80 and SM120") {
  read_to_the_end(emulator_test::kSm80);
  read_to_the_end(emulator_test::kSm120);
}

TEST_CASE("nothing is read behind a full cache: gfx950 and gfx942") {
  read_to_the_end(emulator_test::kGfx950);
  read_to_the_end(emulator_test::kGfx942);
}

TEST_CASE("sm_90a: nothing is read behind a full cache") { read_to_the_end(emulator_test::kSm90); }
