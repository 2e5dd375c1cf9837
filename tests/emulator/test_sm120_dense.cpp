// Dense attention in FP4 throughout on SM120: NVFP4 keys and values as they lie, Q and P as sums of E2M1 operands, keys with and
// without their mean. Against the same call on the CPU, which computes with the same codes in f32.
#include <doctest/doctest.h>

#include <cstdio>

#include "tests/dense/fixture.hpp"
#include "tests/emulator/sm120_instances.hpp"

using namespace dense_test;
using namespace fp4pa;

namespace {

/// NVFP4 keys and values, both native.
constexpr int kInstance = [] {
  int i = 0;
  while (sm120::kInstances[i].v[0] != core::KvKind::kNvfp4Tokens) ++i;
  return i;
}();
static_assert(sm120::kInstances[kInstance].k[0] == core::KvKind::kNvfp4);

/// Gaussian; or with 8 channels of K raised by 12, the common part that smoothing is for.
void fill(DenseCall& call, bool offset) {
  call.fill(11, Distribution::kGaussian);
  for (std::size_t i = 0; offset && i < call.k.values.size(); ++i) {
    if (i % 128 % 16 == 3) call.k.put(i, call.k.values[i] + 12.0);
  }
}

}  // namespace

TEST_CASE("SM120 dense: FP4 throughout, with and without smoothing") {
  for (const bool causal : {false, true}) {
    for (const bool offset : {false, true}) {
      double cosine[2];
      for (const bool smooth : {false, true}) {
        DenseCall call({{40, 7, 64}, {200, 70, 64}, 4, 2, 128, causal, 0.0f}, DType::kBF16);
        fill(call, offset);
        call.config.k_format = call.config.v_format = KvFormat::kNvfp4;
        call.config.v_scale_axis = VScaleAxis::kTokens;
        call.config.nvfp4_scale = Nvfp4Scale::kFourOverSix;
        call.config.smooth_k = smooth;
        REQUIRE(call.run("cpu-scalar") == Status::kOk);
        Result same_codes;
        for (std::size_t i = 0; i < call.q.values.size(); ++i) same_codes.o.push_back(call.out.value(i));
        same_codes.lse.assign(call.out.lse.begin(), call.out.lse.end());

        const emulator_test::Setup before = emulator_test::current;
        emulator_test::current.emulation = &emulator_test::kSm120;
        emulator_test::current.planned = -1;
        if (causal) call.config.matrix_path = MatrixPath::kNative;  // what auto takes as well
        REQUIRE(call.run("cuda") == Status::kOk);
        CHECK(emulator_test::current.planned == kInstance);
        emulator_test::current = before;

        const Error error = call.out.error(same_codes);
        const Result want = call.want();
        reference::Difference unquantised;
        for (std::size_t i = 0; i < want.o.size(); ++i) unquantised.add(call.out.value(i), want.o[i]);
        cosine[smooth ? 1 : 0] = unquantised.cosine();
        std::printf("  SM120 dense NVFP4%s%s%s: O %.2e, LSE %.2e off the CPU's; cosine with the unquantised %.6f\n",
                    causal ? ", causal" : "", offset ? ", offset" : "", smooth ? ", smoothed" : "", error.o, error.lse,
                    cosine[smooth ? 1 : 0]);
        CHECK(error.o <= 6e-4);  // twice what was measured, as is the next
        CHECK(error.lse <= 1.1e-3);
      }
      if (offset) CHECK(cosine[1] > cosine[0]);
    }
  }
}
