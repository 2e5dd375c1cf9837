// LSE where scores are large.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string>

#include "tests/attention/equal_products.hpp"

using namespace fp4pa;

TEST_CASE("LSE within 1e-3 where products add up to 2000, and within 2^-21 of their sum beyond") {
  for (const char* backend : {"cpu", "cpu-scalar"}) {
    CAPTURE(std::string(backend));
    double worst = 0.0, share = 0.0;
    for (const KvFormat format : {KvFormat::kBf16, KvFormat::kF16, KvFormat::kFp8E4m3, KvFormat::kMxfp8, KvFormat::kMxfp4, KvFormat::kNvfp4}) {
      CAPTURE(std::string(name_of(format)));
      for (const std::int32_t head_dim : {64, 96, 128, 256}) {
        for (const float sum : {100.0f, 333.3f, 707.7f, 999.9f, 1451.7f, 1999.9f, 3667.2f, 4006.4f, 8012.8f, 11699.2f, 15999.0f}) {
          const double error = equal_products::lse_error(backend, format, head_dim, double{sum});
          CAPTURE(head_dim);
          CAPTURE(sum);
          CHECK(error <= (sum < 2000.0f ? 1e-3 : 0x1p-21 * double{sum}));
          worst = sum < 2000.0f ? std::max(worst, error) : worst;
          share = std::max(share, error / double{sum});
        }
      }
    }
    std::printf("LSE of equal products, %s: within %.1e up to 2000, 2^%.1f of their sum\n", backend, worst, std::log2(share));
  }
}
