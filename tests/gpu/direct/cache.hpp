// A paged cache on the current device, with tokens to put into it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "fp4pa/fp4pa.hpp"
#include "tests/gpu/direct/calls.hpp"

namespace fp4pa::direct_test {

inline constexpr std::int32_t kKvHeads = 2, kDim = 128, kPageSize = 64;
inline constexpr std::int32_t kBatch = 3, kPagesEach = 20;
inline constexpr std::int32_t kTokens = kBatch * kPagesEach * kPageSize;
inline constexpr std::int64_t kRow = std::int64_t{kKvHeads} * kDim;

/// A cache whose pages are scattered, tokens for it, and slots that fill it.
struct Cache {
  explicit Cache(KvFormat format) {
    desc.num_kv_heads = kKvHeads;
    desc.head_dim = kDim;
    desc.page_size = kPageSize;
    desc.num_pages = kBatch * kPagesEach;
    desc.k.format = desc.v.format = format;
    set_dense_strides(desc, PageOrder::kHnd);
    int i = 0;
    for (KvTensorDesc* t : {&desc.k, &desc.v}) {
      arrays[i] = Buffer<std::uint8_t>(static_cast<std::size_t>(dense_data_bytes(desc, *t)));
      t->data = arrays[i++].data();
      arrays[i] = Buffer<std::uint8_t>(static_cast<std::size_t>(dense_scale_bytes(desc, *t)));
      t->scales = arrays[i++].data();
    }
    pages.resize(static_cast<std::size_t>(desc.num_pages));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(3));
    std::vector<std::int64_t> ids;
    for (std::int32_t t = 0; t < kTokens; ++t)
      ids.push_back(std::int64_t{pages[static_cast<std::size_t>(t / kPageSize)]} * kPageSize + t % kPageSize);
    slots = Buffer<std::int64_t>(ids);
  }
  void fill(std::uint32_t seed) {
    k.upload(bf16_values(k.size(), seed));
    v.upload(bf16_values(v.size(), seed + 1));
  }
  /// What the cache holds becomes 0xff.
  void clear() {
    for (Buffer<std::uint8_t>& array : arrays) array.fill(0xff);
  }
  /// What the cache holds, behind other bytes.
  void append_to(std::vector<std::uint8_t>& all) const {
    for (const Buffer<std::uint8_t>& array : arrays) array.append_to(all);
  }
  Status append(cudaStream_t stream) const {
    return fp4pa::append(desc, {k.data(), DType::kBF16, kRow, kDim}, {v.data(), DType::kBF16, kRow, kDim}, slots.data(),
                         IndexType::kInt64, kTokens, {"cuda", stream, 0});
  }

  KvCacheDesc desc;
  Buffer<std::uint8_t> arrays[4];
  Buffer<std::uint16_t> k{std::size_t{kTokens} * kRow}, v{std::size_t{kTokens} * kRow};
  std::vector<std::int32_t> pages;
  Buffer<std::int64_t> slots;
};

}  // namespace fp4pa::direct_test
