// Two pools, their tables and inputs: what the tests of the two-tier cache start from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "fp4pa/cache.hpp"
#include "tests/cache/pool.hpp"

namespace test {

using fp4pa::DType;
using fp4pa::KvFormat;
using fp4pa::TwoTierDesc;
using fp4pa::VScaleAxis;

struct Config {
  Shape old_shape;
  Shape recent_shape;
  int window = 64;
  int group = 32;
  int spare_ring_pages = 0;  // beyond what the window and the group need
  std::vector<int> lengths;  // one sequence each
};

// Pools, tables and inputs of one configuration.
struct Fixture {
  explicit Fixture(const Config& c, std::uint64_t seed)
      : config(c),
        random(seed),
        old_pool(sized(c.old_shape, old_pages_needed(c))),
        recent_pool(sized(c.recent_shape, ring(c) * batch(c) + 2)) {
    desc.old_tier = old_pool.cache;
    desc.recent = recent_pool.cache;
    desc.window_tokens = c.window;
    desc.group_tokens = c.group;
    desc.ring_pages = ring(c);
    old_stride = old_pages_of_longest(c) + 1;
    old_table.assign(static_cast<std::size_t>(batch(c) * old_stride), -1);
    recent_table.assign(static_cast<std::size_t>(batch(c) * ring(c)), -1);
    std::vector<std::int32_t> old_ids = shuffled(old_pool.shape.num_pages);
    std::vector<std::int32_t> recent_ids = shuffled(recent_pool.shape.num_pages);
    for (int b = 0; b < batch(c); ++b) {
      // Exactly the pages that the final length needs: one page id too many asked for is an error.
      const int quantised = tokens_quantised(c, c.lengths[static_cast<std::size_t>(b)]);
      const int pages = (quantised + c.old_shape.page_size - 1) / c.old_shape.page_size;
      for (int p = 0; p < pages; ++p) {
        old_table[static_cast<std::size_t>(b * old_stride + p)] = old_ids.back();
        old_ids.pop_back();
      }
      for (int p = 0; p < ring(c); ++p) {
        recent_table[static_cast<std::size_t>(b * ring(c) + p)] = recent_ids.back();
        recent_ids.pop_back();
      }
      k.emplace_back(dtype(), c.lengths[static_cast<std::size_t>(b)], c.old_shape.heads, c.old_shape.head_dim, random);
      v.emplace_back(dtype(), c.lengths[static_cast<std::size_t>(b)], c.old_shape.heads, c.old_shape.head_dim, random);
    }
  }

  static int batch(const Config& c) { return static_cast<int>(c.lengths.size()); }
  /// By counting: groups leave whole, and at least `window` tokens stay.
  static int tokens_quantised(const Config& c, int length) {
    int quantised = 0;
    while (length - quantised - c.group >= c.window) quantised += c.group;
    return quantised;
  }
  static int ring(const Config& c) {
    int pages = 0;
    while (pages * c.recent_shape.page_size < c.window + c.group) ++pages;
    return pages + c.spare_ring_pages;
  }
  static int old_pages_of_longest(const Config& c) {
    return tokens_quantised(c, *std::max_element(c.lengths.begin(), c.lengths.end())) / c.old_shape.page_size + 1;
  }
  static int old_pages_needed(const Config& c) { return batch(c) * old_pages_of_longest(c) + 2; }
  static Shape sized(Shape shape, int pages) {
    shape.num_pages = pages;
    return shape;
  }
  static DType dtype() { return DType::kBF16; }

  std::vector<std::int32_t> shuffled(int n) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
    std::iota(ids.begin(), ids.end(), 0);
    for (std::size_t i = ids.size(); i > 1; --i)
      std::swap(ids[i - 1], ids[static_cast<std::size_t>(random.below(static_cast<int>(i)))]);
    return ids;
  }

  Config config;
  Random random;
  Pool old_pool;
  Pool recent_pool;
  TwoTierDesc desc;
  int old_stride = 0;
  std::vector<std::int32_t> old_table, recent_table;
  std::vector<Rows> k, v;  // one per sequence
};

inline Config two_tier_config(KvFormat k, KvFormat v, VScaleAxis axis, int old_page, KvFormat recent, int recent_page) {
  Config c;
  c.old_shape.k_format = k;
  c.old_shape.v_format = v;
  c.old_shape.axis = axis;
  c.old_shape.page_size = old_page;
  c.old_shape.head_dim = 32;
  c.recent_shape.k_format = recent;
  c.recent_shape.v_format = recent;
  c.recent_shape.page_size = recent_page;
  c.recent_shape.head_dim = 32;
  return c;
}

}  // namespace test
