// A cache that owns its pages, on any device: what `attend` fills and `bench` reads.
//
// Pages are handed out in an order that is shuffled on request, because a page table that happens to be 0, 1, 2, ...
// hides both wrong page arithmetic and the cost of jumping around memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp4pa/cache.hpp"
#include "tools/fp4pa/device.hpp"

namespace fp4pa::tool {

/// Order of a page's contents; kInterleaved keeps K, its scales, V and its scales together in each page.
enum class PageLayout { kHnd, kNhd, kInterleaved };
inline constexpr PageLayout kAllPageLayouts[] = {PageLayout::kHnd, PageLayout::kNhd, PageLayout::kInterleaved};
inline constexpr PageLayout kRandomPageLayouts[] = {PageLayout::kHnd, PageLayout::kNhd};  // that fill_random knows
[[nodiscard]] constexpr const char* name_of(PageLayout layout) noexcept {
  switch (layout) {
    case PageLayout::kHnd:
      return "hnd";
    case PageLayout::kNhd:
      return "nhd";
    case PageLayout::kInterleaved:
      return "interleaved";
  }
  return "unknown";
}

/// Of a page's rows, or of those of its parts.
[[nodiscard]] constexpr PageOrder order_of(PageLayout layout) noexcept {
  return layout == PageLayout::kNhd ? PageOrder::kNhd : PageOrder::kHnd;
}

/// A description (everything but pointers and strides set) with the strides of dense pages and with pointers that nothing
/// may be read through: what validates a cache, or plans a call on it, before there is memory.
/// Two tiers of one call have memory that does not overlap.
enum class Tier { kOld, kRecent };
[[nodiscard]] KvCacheDesc without_memory(KvCacheDesc desc, PageOrder order = PageOrder::kHnd, Tier tier = Tier::kOld);
/// Refuses, in the library's words, a description that no cache can have. Whoever forms sizes from one calls this first.
void check_description(const KvCacheDesc& desc);
/// The same of a head_dim that no cache has.
void check_head_dim(std::int32_t head_dim);

/// Allocates the pages of `desc` (everything but pointers and strides set), poisons them with 0xFF bytes when asked,
/// and fills in pointers and strides.
class PagedCache {
 public:
  PagedCache() = default;
  PagedCache(Device& device, const KvCacheDesc& desc, PageLayout layout);
  [[nodiscard]] const KvCacheDesc& desc() const noexcept { return desc_; }
  /// Writes 0xFF to every byte: NaN in every format that has one.
  void poison(Device& device);
  /// Random codes and scales, valid and finite.
  void fill_random(Device& device, std::uint64_t seed);
  /// The same cache in host memory; the copy owns its bytes.
  [[nodiscard]] PagedCache host_copy(Device& device, Device& host) const;

 private:
  void point_at_parts();
  KvCacheDesc desc_;
  PageLayout layout_ = PageLayout::kHnd;
  std::vector<Buffer> parts_;  // K codes, K scales, V codes, V scales; or all of them in one
};

/// Page ids 0 .. count-1, shuffled by `seed` unless it is 0.
[[nodiscard]] std::vector<std::int32_t> page_order(std::int64_t count, std::uint64_t seed);

/// Bytes of codes and scales that a token's K and V take, over all heads.
[[nodiscard]] double bytes_per_token(const KvCacheDesc& cache);

}  // namespace fp4pa::tool
