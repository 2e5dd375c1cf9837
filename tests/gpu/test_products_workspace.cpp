// HIP: the workspace of a product is that of the way which the device multiplies it.
#include <doctest/doctest.h>

#include "fp4pa/fp4pa.hpp"
#include "hip/device.hpp"
#include "tests/gpu/backend_name.hpp"

namespace {

using namespace fp4pa;

/// Bytes of workspace for an element of X.
double bytes_each(BlockFormat format, ActivationForm form) {
  LinearArgs a;
  a.weight.format = format;
  a.weight.rows = 256;
  a.weight.cols = 4096;
  a.m = 64;
  a.activations = form;
  std::size_t bytes = 0;
  REQUIRE(fp4_linear_workspace(a, &bytes, ExecDesc{gpu_test::kBackendName}) == Status::kOk);
  return static_cast<double>(bytes) / (64.0 * 4096.0);
}

}  // namespace

TEST_CASE("products: the workspace holds X as this device takes it, and no more") {
  hip::DeviceProperties device{};
  REQUIRE(hip::current_device(&device) == Status::kOk);
  const bool gfx950 = device.architecture == hip::kGfx950;
  const auto is = [](double bytes, double wanted) { return bytes >= wanted && bytes < wanted + 0.03; };  // beside it some bytes a row
  // Three terms, their scales and the rest; codes and scales; where W is decoded f16.
  CHECK(is(bytes_each(BlockFormat::kMxfp4, ActivationForm::k16Bit), gfx950 ? 3 + 0.125 + 2 : 2));
  CHECK(is(bytes_each(BlockFormat::kMxfp4, ActivationForm::kFp4), gfx950 ? 17.0 / 32 : 2));
  CHECK(is(bytes_each(BlockFormat::kNvfp4, ActivationForm::k16Bit), 2));
  CHECK(is(bytes_each(BlockFormat::kNvfp4, ActivationForm::kFp4), 2));
}
