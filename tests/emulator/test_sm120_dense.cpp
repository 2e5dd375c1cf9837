// Dense attention in FP4 throughout on SM120: NVFP4 keys and values as they lie, Q and P as sums of E2M1 operands, keys with and
// without their mean. Against the same call on the CPU, which computes with the same codes in f32.
#include <doctest/doctest.h>

#include <cstdio>
#include <vector>

#include "tests/dense/fixture.hpp"
#include "tests/emulator/sm120_instances.hpp"

using namespace dense_test;
using namespace fp4pa;

namespace {

/// The instance for NVFP4 keys and values, both native, with this head_dim whose warps divide what is asked for.
constexpr int find(std::int32_t head_dim, core::WarpsDivide divide) {
  int i = 0;
  for (const core::SimtConfig& c : sm120::kInstances) {
    if (c.k[0] == core::KvKind::kNvfp4 && c.v[0] == core::KvKind::kNvfp4Tokens && c.head_dim == head_dim && c.divide == divide) return i;
    ++i;
  }
  return -1;
}

/// Query lengths, and the kernel that they go to: a tile of 8 rows, or tiles of 64.
struct Queries {
  const char* name;
  std::vector<std::int32_t> q_lens;
  core::WarpsDivide divide;
};
const Queries kQueries[] = {{"few rows", {4, 1, 3}, core::WarpsDivide::kKeys}, {"many rows", {40, 7, 64}, core::WarpsDivide::kRows}};

/// Gaussian; or with 8 channels in 128 of K raised by 12, the common part that smoothing is for.
void fill(DenseCall& call, bool offset) {
  call.fill(11, Distribution::kGaussian);
  for (std::size_t i = 0; offset && i < call.k.values.size(); ++i) {
    if (i % 128 % 16 == 3) call.k.put(i, call.k.values[i] + 12.0);
  }
}

/// A call of these shapes, with and without its keys' mean, on the CPU and on the kernel.
void run(const Queries& queries, std::int32_t head_dim, bool causal, bool offset) {
  double cosine[2];
  for (const bool smooth : {false, true}) {
    DenseCall call({queries.q_lens, {200, 70, 64}, 4, 2, head_dim, causal, 0.0f}, DType::kBF16);
    fill(call, offset);
    call.config.k_format = call.config.v_format = KvFormat::kNvfp4;
    call.config.v_scale_axis = VScaleAxis::kTokens;
    call.config.nvfp4_scale = Nvfp4Scale::kFourOverSix;
    call.config.smooth_k = smooth;
    REQUIRE(call.run("cpu-scalar") == Status::kOk);
    Result same_codes;
    for (std::size_t i = 0; i < call.q.values.size(); ++i) same_codes.o.push_back(call.out.value(i));
    same_codes.lse.assign(call.out.lse.begin(), call.out.lse.end());

    const emulator_test::ScopedSetup on(emulator_test::kSm120);
    if (causal) call.config.matrix_path = MatrixPath::kNative;  // what auto takes as well
    REQUIRE(call.run("cuda") == Status::kOk);
    CHECK(emulator_test::current.planned == find(head_dim, queries.divide));

    const Error error = call.out.error(same_codes);
    const Result want = call.want();
    reference::Difference unquantised;
    for (std::size_t i = 0; i < want.o.size(); ++i) unquantised.add(call.out.value(i), want.o[i]);
    cosine[smooth ? 1 : 0] = unquantised.cosine();
    std::printf("  SM120 dense NVFP4, %d, %s%s%s%s: O %.2e, LSE %.2e off the CPU's; cosine with the unquantised %.6f\n", head_dim,
                queries.name, causal ? ", causal" : "", offset ? ", offset" : "", smooth ? ", smoothed" : "", error.o, error.lse,
                cosine[smooth ? 1 : 0]);
    CHECK(error.o <= 6e-4);  // twice what was measured, as is the next
    CHECK(error.lse <= 9e-5);
  }
  if (offset) CHECK(cosine[1] > cosine[0]);
}

}  // namespace

TEST_CASE("SM120 dense: FP4 throughout, with and without smoothing, few query rows and many") {
  for (const std::int32_t head_dim : {64, 128}) {
    for (const Queries& queries : kQueries) {
      for (const bool causal : {false, true}) {
        for (const bool offset : {false, true}) run(queries, head_dim, causal, offset);
      }
    }
  }
}
