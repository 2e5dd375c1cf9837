// The main of every test program: says what is tested, then hands over to doctest.
//
// Compiled once per test area, with FP4PA_TESTS_LIBRARY where the area links the library (it then names the back ends, so
// that a log shows which ones a run could have used) and FP4PA_TESTS_KOKKOS where Kokkos drives its grids.
#include <doctest/doctest.h>

#include <cstdio>

#ifdef FP4PA_TESTS_KOKKOS
#include <Kokkos_Core.hpp>
#endif
#ifdef FP4PA_TESTS_LIBRARY
#include "fp4pa/backends.hpp"

static void say_what_runs() {
  std::printf("fp4pa %s\n", fp4pa::version_string());
  fp4pa::BackendInfo info[16];
  const int count = fp4pa::available_backends(info, 16);
  for (int i = 0; i < count && i < 16; ++i) {
    std::printf("  back end %s: %s (%s)\n", info[i].name, info[i].available ? "available" : "unavailable", info[i].detail);
  }
  std::fflush(stdout);
}
#else
static void say_what_runs() {}
#endif

int main(int argc, char** argv) {
#ifdef FP4PA_TESTS_KOKKOS
  Kokkos::ScopeGuard kokkos(argc, argv);
#endif
  doctest::Context context(argc, argv);
  if (!context.shouldExit()) say_what_runs();
  return context.run();
}
