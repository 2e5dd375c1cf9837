// Scores that are sums of equal products, whose roundings all go one way.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/formats/half.hpp"
#include "fp4pa/fp4pa.hpp"

namespace fp4pa::equal_products {

/// Error of LSE of one key of sixes, which every format holds, and a query of equal elements, whose products add up to `sum`.
inline double lse_error(const char* backend, KvFormat format, std::int32_t head_dim, double sum, bool bf16_query = false) {
  float x = static_cast<float>(sum / (6.0 * head_dim));
  const std::uint16_t rounded = core::f32_to_bf16(x);
  if (bf16_query) x = core::bf16_to_f32(rounded);

  KvCacheDesc cache;
  cache.k.format = cache.v.format = format;
  cache.num_kv_heads = cache.page_size = 1;
  cache.num_pages = 1;
  cache.head_dim = head_dim;
  set_dense_strides(cache, PageOrder::kHnd);
  alignas(16) std::uint8_t memory[4][512];
  cache.k.data = memory[0];
  cache.v.data = memory[1];
  if (dense_scale_bytes(cache, cache.k) > 0) {
    cache.k.scales = memory[2];
    cache.v.scales = memory[3];
  }
  const std::vector<float> sixes(static_cast<std::size_t>(head_dim), 6.0f);
  const std::int32_t slot = 0, length = 1, table = 0;
  const std::int32_t indptr[2] = {0, 1};
  const KvInput row{sixes.data(), DType::kF32};
  REQUIRE(append(cache, row, row, &slot, IndexType::kInt32, 1, {backend}) == Status::kOk);

  AttentionConfig config;
  config.cache = cache;
  config.num_q_heads = 1;
  config.q_dtype = bf16_query ? DType::kBF16 : DType::kF32;
  config.o_dtype = DType::kF32;
  config.sm_scale = 1.0f;
  config.max_batch = config.max_q_tokens = config.max_q_len = config.max_kv_len = 1;
  config.backend = backend;
  AttentionPlan made;
  REQUIRE(plan(config, &made) == Status::kOk);
  struct alignas(256) Line {
    std::uint8_t bytes[256];
  };
  std::vector<Line> workspace(made.workspace_bytes() / sizeof(Line) + 1);
  alignas(16) float q[256], o[256];
  std::fill(q, q + head_dim, x);
  if (bf16_query) std::fill(reinterpret_cast<std::uint16_t*>(q), reinterpret_cast<std::uint16_t*>(q) + head_dim, rounded);
  float lse = 0.0f;
  AttentionArgs args;
  args.q = q;
  args.o = o;
  args.lse = &lse;
  args.batch = 1;
  args.qo_indptr = indptr;
  args.seq_lens = &length;
  args.block_table = &table;
  args.table_stride = 1;
  args.workspace = workspace.data();
  args.workspace_bytes = made.workspace_bytes();
  REQUIRE(run(made, args) == Status::kOk);
  return std::abs(double{lse} - 6.0 * double{x} * head_dim);
}

}  // namespace fp4pa::equal_products
