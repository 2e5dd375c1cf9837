// LSE where scores are large, on the device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string>

#include "tests/attention/equal_products.hpp"
#include "tests/gpu/backend_name.hpp"

using namespace fp4pa;

TEST_CASE("LSE within 1e-3 where products add up to 2000") {
  double worst = 0.0, share = 0.0;
  for (const KvFormat format : {KvFormat::kBf16, KvFormat::kFp8E4m3, KvFormat::kMxfp8, KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    CAPTURE(std::string(name_of(format)));
    for (const std::int32_t head_dim : {64, 128, 256}) {
      CAPTURE(head_dim);
      for (const double sum : {333.3, 1999.9, 8012.8}) {
        CAPTURE(sum);
        const double error = equal_products::lse_error(gpu_test::kBackendName, format, head_dim, sum, true);
        if (sum < 2000.0) CHECK(error <= 1e-3);
        worst = sum < 2000.0 ? std::max(worst, error) : worst;
        share = std::max(share, error / sum);
      }
    }
  }
  std::printf("LSE of equal products, %s: within %.1e up to 2000, 2^%.1f of their sum\n", gpu_test::kBackendName, worst, std::log2(share));
}
