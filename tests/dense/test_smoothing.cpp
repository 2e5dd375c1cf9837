// K smoothing of dense attention: the keys' mean is taken off before they are quantised, and put back into LSE.
#include <limits>

#include "tests/dense/fixture.hpp"

using namespace dense_test;

namespace {

/// Keys with a mean far from zero, smoothed, in formats of 16 bits: their rounding is all that is left. 2^-11 and 2^-8 of keys of
/// about 1 (once centred) against queries of 64 elements and a scale of 1/8 move a logit by about as much.
struct FarFromZero : DenseCall {
  FarFromZero(KvFormat format, DType dtype, float sm_scale) : DenseCall({{40, 3, 0, 2}, {600, 3, 4, 0}, 4, 2, 64, true, sm_scale}, dtype) {
    fill(6, Distribution::kGaussian);
    k.fill([random = test::Random(8)](std::size_t i) mutable {
      return 3.0 * std::sin(static_cast<double>(i % 128)) + draw(random, Distribution::kGaussian);
    });
    config.k_format = config.v_format = format;
    config.smooth_k = true;
  }
};

}  // namespace

TEST_CASE("dense: K smoothing changes neither O nor LSE where nothing is rounded away") {
  for (const Target& target : kTargets) {
    for (const KvFormat format : {KvFormat::kF16, KvFormat::kBf16}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        FarFromZero call(format, dtype, 0.0f);
        REQUIRE(call.run(target.backend) == Status::kOk);
        const Error error = call.out.error(call.want());
        INFO(std::string(target.backend), " ", std::string(name_of(format)), " from ", std::string(name_of(dtype)),
             " O ", error.o, " LSE ", error.lse);
        CHECK(error.o <= (format == KvFormat::kF16 ? 2e-3 : 1.6e-2));
        CHECK(error.lse <= (format == KvFormat::kF16 ? 2e-3 : 1.6e-2));
        // Twice gives the same bits: the mean is summed in one order.
        const std::vector<std::uint8_t> bits = call.out.bits();
        REQUIRE(call.run(target.backend) == Status::kOk);
        CHECK(call.out.bits() == bits);
      }
    }
  }
}

TEST_CASE("dense: K smoothing puts the mean back into LSE with the softmax scale of the call") {
  for (const Target& target : kTargets) {
    FarFromZero call(KvFormat::kF16, DType::kF32, 0.3f);
    REQUIRE(call.run(target.backend) == Status::kOk);
    const Error error = call.out.error(call.want());
    INFO(std::string(target.backend), " O ", error.o, " LSE ", error.lse);
    // Of K in f16, twice what CPUs and sm_80's kernels in the emulator have (O 4.3e-4, LSE 7.4e-4).
    CHECK(error.o <= 8.6e-4);
    CHECK(error.lse <= 1.5e-3);
  }
}

TEST_CASE("dense: K smoothing of no keys at all reads no mean") {
  for (const Target& target : kTargets) {
    DenseCall call({{3, 2}, {0, 0}, 4, 2, 64, true, 0.0f});
    call.fill(6, Distribution::kGaussian);
    call.config.smooth_k = true;
    REQUIRE(call.run(target.backend) == Status::kOk);
    std::memset(call.workspace.data(), 0xFF, call.workspace.size());  // NaN where nobody writes a mean
    call.out.reset();
    REQUIRE(run_dense_attention(call.plan, call.args) == Status::kOk);
    for (const float lse : call.out.lse) CHECK(lse == -std::numeric_limits<float>::infinity());
  }
}
