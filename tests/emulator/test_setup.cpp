// How calls are run is a global of the emulator's tests; what leaves a test must leave it as it was.
#include <doctest/doctest.h>

#include <stdexcept>

#include "tests/emulator/sm120_instances.hpp"

namespace {

using namespace fp4pa;

TEST_CASE("a setup ends with its scope, also by an exception") {
  const emulator_test::Emulation* const emulation = emulator_test::current.emulation;
  const int workers = emulator_test::current.workers;
  const auto fail_inside = [] {
    const emulator_test::ScopedSetup on(emulator_test::kSm120, 2);
    emulator_test::current.workers = 1;
    CHECK(emulator_test::current.emulation == &emulator_test::kSm120);
    CHECK(emulator_test::current.instance == 2);
    throw std::runtime_error("as a REQUIRE does");
  };
  CHECK_THROWS_AS(fail_inside(), std::runtime_error);
  CHECK(emulator_test::current.emulation == emulation);
  CHECK(emulator_test::current.instance == -1);
  CHECK(emulator_test::current.workers == workers);
}

}  // namespace
