// Stands in for tests/dense/target.hpp when the dense tests are compiled for the GPU, or for the emulator.
#pragma once

#include "tests/gpu/backend_name.hpp"
#include "tests/gpu/bounds.hpp"

namespace dense_test {

struct Target {
  const char* backend;
  double o_bound;
  double rounded_bound;
  bool sums_alike;
  double score_steps;
  bool exact_weight;
};

/// Whether a native kernel serves this, which is held to what follows instead. The query is bf16, as run_mxfp8_attention makes it: one
/// of more terms has no native kernel for many rows on SM120.
inline bool served_natively(fp4pa::KvFormat format, int head_dim) {
  fp4pa::AttentionConfig config;
  config.q_dtype = fp4pa::DType::kBF16;
  config.num_q_heads = 1;
  config.max_q_len = 64;
  config.cache.num_kv_heads = 1;
  config.cache.head_dim = head_dim;
  config.cache.page_size = 64;
  config.cache.k.format = config.cache.v.format = format;
  config.cache.v.scale_axis = fp4pa::VScaleAxis::kTokens;
  return fp4pa::gpu_test::native_instance(config) != nullptr;
}
inline constexpr double kNativeBound = 8e-3;
inline constexpr double kNativeLseBound = 1e-3;

// bf16 probabilities everywhere but with NVFP4 values; f16 queries hold what these tests give them. Scaled keys are summed
// 32 dims at a time and plain E4M3 across the row, so that sums of the same products may round differently.
// An E8M0 scale of keys is read with a stray last bit (backends/sm80/convert.hpp), once a block of 32 dims, so that a
// score may be two last places off. A row's factor is multiplied in with the subtraction of its maximum, rounded once where the
// maximum was rounded before: 2^(score - maximum) of the only key misses 1 by half a last place of the score. And P times V's
// scale is f16 relative to the largest scale seen, so that another scale may round small probabilities elsewhere.
inline constexpr Target kTargets[] = {{fp4pa::gpu_test::kBackendName, 8e-3, 8e-3, false, 2.0, false}};

}  // namespace dense_test
