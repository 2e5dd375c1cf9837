// How far a product is from the one in double.
#pragma once

#include <vector>

#include "reference/gemm.hpp"

namespace fp4pa::tool {

struct ProductError {
  double correlation;  ///< Pearson's
  double relative;     ///< in the Frobenius norm
};

/// @param out  [x.rows, w.rows], computed
[[nodiscard]] ProductError product_error(const reference::Matrix& x, const reference::Matrix& w, const std::vector<float>& out);

}  // namespace fp4pa::tool
