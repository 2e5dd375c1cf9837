// One variant of `fp4pa attend`: fill a paged cache through the public API, attend, compare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/metrics.hpp"
#include "tools/fp4pa/attend_input.hpp"
#include "tools/fp4pa/device.hpp"
#include "tools/fp4pa/paged_cache.hpp"
#include "tools/fp4pa/variant.hpp"

namespace fp4pa::tool {

/// What the command line sets for every variant alike.
struct AttendSettings {
  std::string backend;  ///< empty = default
  std::int32_t threads = 0;
  std::int32_t split_tokens = 0;
  std::int32_t page_size = 64;
  PageLayout layout = PageLayout::kHnd;
  std::uint64_t shuffle_seed = 0;  ///< 0 = pages in order
  std::int32_t batch = 1;          ///< the file's sequence, repeated
  std::int32_t q_len = 0;          ///< the last q_len of the file's queries; 0 = all
  float sm_scale = 0.0f;
  bool causal = true;
  std::int32_t sliding_window = 0;
  float softcap = 0.0f;
  DType o_dtype = DType::kF32;
  std::int32_t repeats = 5;
};

/// Double-precision O [queries, heads, head_dim] and LSE [queries, heads] of one sequence.
struct Expected {
  std::vector<double> o;
  std::vector<double> lse;
};

struct AttendResult {
  std::string backend;
  std::int32_t workers = 0;
  reference::Difference against_cache;
  reference::Difference against_input;
  double lse_error_cache = 0.0;
  double lse_error_input = 0.0;
  double bytes_per_token = 0.0;  ///< K and V, all heads, mean over the sequence's tokens
  double bf16_bytes_per_token = 0.0;
  double append_seconds = 0.0;  ///< quantising and writing the whole batch, once
  double seconds = 0.0;         ///< median of the runs
  double query_tokens_per_second = 0.0;
  std::vector<float> o;  ///< first sequence [queries, heads, head_dim]
  std::vector<float> lse;
};

/// The answer without quantisation.
[[nodiscard]] Expected expected_of_input(const AttendSettings& settings, const AttendInput& input);

[[nodiscard]] AttendResult attend_variant(Device& device, const AttendSettings& settings, const AttendInput& input,
                                          const Variant& variant, const Expected& unquantised);

/// DESIGN's bounds for operands of f16 precision or better, which every back end with a decode path holds.
inline constexpr double kMaxRelativeError = 2e-3;
inline constexpr double kMaxLseError = 1e-3;
[[nodiscard]] inline bool within_contract(const AttendResult& r) {
  return r.against_cache.relative() <= kMaxRelativeError && r.lse_error_cache <= kMaxLseError;
}

}  // namespace fp4pa::tool
