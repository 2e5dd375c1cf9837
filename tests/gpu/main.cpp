// The tests of a GPU back end, CUDA or HIP. They say which device ran, and without one they fail, unless FP4PA_GPU_TESTS is
// "skip-if-no-device": then they exit with 77, which ctest reports as skipped.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/gpu/mirror.hpp"

int main(int argc, char** argv) {
  const char* detail = "";
  const bool available = fp4pa::gpu_test::kBackend.available(&detail);
  std::printf("back end %s: %s\n", fp4pa::gpu_test::kBackendName, detail);
  std::fflush(stdout);
  if (!available) {
    const char* choice = std::getenv("FP4PA_GPU_TESTS");
    if (choice != nullptr && std::strcmp(choice, "skip-if-no-device") == 0) return 77;
    std::printf("no test has run: these tests need a GPU (FP4PA_GPU_TESTS=skip-if-no-device makes this a skip)\n");
    return 1;
  }
  doctest::Context context(argc, argv);
  return context.run();
}
