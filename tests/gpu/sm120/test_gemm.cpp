// SM120's native matrix products on real warps, with the instructions in software: the emulator's results, bit for bit.
#include <doctest/doctest.h>

#include "tests/gpu/sm120/gemm.hpp"

using namespace fp4pa;
using namespace fp4pa::gpu_test;

TEST_CASE("SM120 gemm in software: the emulator's bits") {
  for (const bool nvfp4 : {false, true}) {
    for (const int x_tiles : {1, 2, 4, 8}) {
      for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
        for (const std::int32_t k : {100, 144, 512, 700}) {
          const GemmSpec spec{nvfp4, x_tiles, layout, 8 * x_tiles + 3, 150, k, 2};
          CAPTURE(nvfp4);
          CAPTURE(x_tiles);
          CAPTURE(static_cast<int>(layout));
          CAPTURE(k);
          const GemmBothWays both = run_gemm(spec);
          CHECK(both.findings == "");
          CHECK(both.results > 2 * spec.m * spec.n * 9 / 10);
          CHECK(both.different == 0);
        }
      }
    }
  }
}
