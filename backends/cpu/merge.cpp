// Merging two partial attention results over disjoint keys.
//
// A state is (o, lse) with o = sum_j e^(s_j) v_j / e^lse. The merged output is the mean of the two, weighted by e^lse;
// both weights are taken relative to the larger lse, so that nothing overflows. An empty state (lse = -inf) is left out
// by selection and not by a weight of zero: its o is allowed to hold anything, NaN included.
#include "backends/cpu/merge.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

#include "backends/cpu/cache_rows.hpp"
#include "backends/cpu/cache_threads.hpp"
#include "core/paging/plain_row.hpp"

namespace fp4pa::cpu {
namespace {

inline constexpr float kEmpty = -std::numeric_limits<float>::infinity();

struct Weights {
  float a, b;  // of the normalised outputs; they add up to 1
  float lse;
};

// Both states hold something.
Weights weights_of(float lse_a, float lse_b) {
  // The smaller weight is formed from e^-distance <= 1 and the sum is at least 1: no overflow, and no division by a
  // small number. Swapping a and b swaps the weights exactly.
  const bool a_larger = lse_a >= lse_b;
  const float small = std::exp(a_larger ? lse_b - lse_a : lse_a - lse_b);
  const float sum = 1.0f + small;
  const float large_weight = 1.0f / sum;
  const float small_weight = small / sum;
  const float lse = (a_larger ? lse_a : lse_b) + std::log1p(small);
  return a_larger ? Weights{large_weight, small_weight, lse} : Weights{small_weight, large_weight, lse};
}

void merge_row(const RowKernels& rows, const api::MergeRequest& r, std::int64_t row) {
  const float lse_a = r.lse_a[row];
  const float lse_b = r.lse_b[row];
  const std::int64_t first = row * r.head_dim;
  alignas(64) float a[kMaxRow];
  alignas(64) float b[kMaxRow];
  float lse = kEmpty;
  if (lse_a == kEmpty && lse_b == kEmpty) {
    for (std::int32_t i = 0; i < r.head_dim; ++i) a[i] = 0.0f;
  } else if (lse_a == kEmpty || lse_b == kEmpty) {
    rows.load(core::element_address(lse_a == kEmpty ? r.ob : r.oa, r.dtype, first), r.dtype, r.head_dim, a);
    lse = lse_a == kEmpty ? lse_b : lse_a;
  } else {
    rows.load(core::element_address(r.oa, r.dtype, first), r.dtype, r.head_dim, a);
    rows.load(core::element_address(r.ob, r.dtype, first), r.dtype, r.head_dim, b);
    const Weights weights = weights_of(lse_a, lse_b);
    for (std::int32_t i = 0; i < r.head_dim; ++i) a[i] = weights.a * a[i] + weights.b * b[i];
    lse = weights.lse;
  }
  // Everything of this row has been read: o and lse may be the inputs.
  rows.store(a, r.head_dim, r.dtype, core::element_address(r.o, r.dtype, first));
  r.lse[row] = lse;
}

}  // namespace

Status merge_states(const api::MergeRequest& request, const ExecDesc& exec) noexcept {
  const RowKernels& rows = fastest_rows();
  const int threads = num_threads(exec, request.rows, 64);
  for_each(threads, request.rows, [&](std::int64_t row) { merge_row(rows, request, row); });
  return Status::kOk;
}

}  // namespace fp4pa::cpu
