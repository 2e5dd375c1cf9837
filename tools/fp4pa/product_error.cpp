// See product_error.hpp.
#include "tools/fp4pa/product_error.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace fp4pa::tool {
namespace {

struct Correlation {
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  void add(double a, double b) {
    n += 1;
    x += a;
    y += b;
    xx += a * a;
    yy += b * b;
    xy += a * b;
  }
  [[nodiscard]] double pearson() const { return (n * xy - x * y) / std::sqrt((n * xx - x * x) * (n * yy - y * y)); }
};

}  // namespace

ProductError product_error(const reference::Matrix& x, const reference::Matrix& w, const std::vector<float>& out) {
  Correlation correlation;
  double error = 0, norm = 0;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < w.rows; ++j) {
      const double want = reference::product(x, i, w, j).sum;
      const double got = out[static_cast<std::size_t>(i * w.rows + j)];
      correlation.add(got, want);
      error += (got - want) * (got - want);
      norm += want * want;
    }
  }
  return {correlation.pearson(), std::sqrt(error / norm)};
}

}  // namespace fp4pa::tool
