// validate(TwoTierDesc): failures of a tier are told with the tier's name, and what must agree between them does.
#include <doctest/doctest.h>

#include "tests/api/small_cache.hpp"

using namespace fp4pa;
using test::SmallCache;

namespace {

/// 64 + 32 tokens of window and group in 3 pages of 32.
struct SmallTwoTier {
  explicit SmallTwoTier(KvFormat recent_format = KvFormat::kBf16, VScaleAxis v_axis = VScaleAxis::kHeadDim)
      : old_tier(KvFormat::kMxfp4, KvFormat::kMxfp4, v_axis), recent(recent_format, recent_format) {
    desc.old_tier = old_tier.desc;
    desc.recent = recent.desc;
    desc.ring_pages = 3;
  }
  SmallCache old_tier, recent;
  TwoTierDesc desc;
};

}  // namespace

TEST_CASE("two tiers: the recent one may be bf16, f16 or fp8") {
  for (const KvFormat format : {KvFormat::kBf16, KvFormat::kF16, KvFormat::kFp8E4m3}) {
    CHECK(validate(SmallTwoTier(format).desc) == Status::kOk);
  }
  FP4PA_CHECK_REFUSED(validate(SmallTwoTier(KvFormat::kMxfp4).desc), Status::kUnsupportedFormat,
                      "recent.k.format is mxfp4", "bf16, f16, fp8_e4m3");
  FP4PA_CHECK_REFUSED(validate(SmallTwoTier(KvFormat::kMxfp8).desc), Status::kUnsupportedFormat,
                      "recent.k.format is mxfp8", "bf16, f16, fp8_e4m3");
}

TEST_CASE("two tiers: a failure names its tier") {
  SmallTwoTier tiers;
  tiers.desc.old_tier.head_dim = 48;
  FP4PA_CHECK_REFUSED(validate(tiers.desc), Status::kUnsupportedHeadDim, "old_tier: head_dim is 48", "multiples of 32");
  SmallTwoTier other;
  other.desc.recent.v.data = nullptr;
  FP4PA_CHECK_REFUSED(validate(other.desc), Status::kNullPointer, "recent: v.data is null");
}

TEST_CASE("two tiers: no row of one lies in the other") {
  SmallTwoTier same;
  same.desc.old_tier.k.data = same.desc.recent.k.data;
  FP4PA_CHECK_REFUSED(validate(same.desc), Status::kInvalidStrides, "recent.k.data is 0x", "old_tier.k.data at 0x", "do not overlap");
  // Pages of one size in one pool, which page ids keep apart.
  same.desc.old_tier.k.page_stride_bytes = same.desc.recent.k.page_stride_bytes;
  CHECK(validate(same.desc) == Status::kOk);
  SmallTwoTier within;
  within.desc.old_tier.v.scales = within.recent.v_data.data() + 1;
  FP4PA_CHECK_REFUSED(validate(within.desc), Status::kInvalidStrides, "recent.v.data is 0x", "old_tier.v.scales at 0x");
}

TEST_CASE("two tiers: heads, head_dim and rotation agree") {
  SmallTwoTier heads;
  heads.desc.recent.num_kv_heads = 1;
  FP4PA_CHECK_REFUSED(validate(heads.desc), Status::kInvalidSize, "recent.num_kv_heads is 1", "2, as in old_tier");
  SmallTwoTier dim;
  dim.desc.recent.head_dim = 32;
  FP4PA_CHECK_REFUSED(validate(dim.desc), Status::kInvalidSize, "recent.head_dim is 32", "64, as in old_tier");
  SmallTwoTier rotation;
  rotation.desc.recent.rotation = Rotation::kHadamard64;
  FP4PA_CHECK_REFUSED(validate(rotation.desc), Status::kUnsupportedFormat, "recent.rotation is 64", "0, as in old_tier");
}

TEST_CASE("two tiers: window_tokens") {
  for (const std::int32_t bad : {15, 0, -64, 257}) {
    SmallTwoTier tiers;
    tiers.desc.window_tokens = bad;
    FP4PA_CHECK_REFUSED(validate(tiers.desc), Status::kInvalidSize, "window_tokens is ", std::to_string(bad).c_str(),
                        "16 to 256");
  }
}

TEST_CASE("two tiers: group_tokens") {
  for (const std::int32_t bad : {0, -32}) {
    SmallTwoTier tiers;
    tiers.desc.group_tokens = bad;
    FP4PA_CHECK_REFUSED(validate(tiers.desc), Status::kInvalidSize, "group_tokens is ", std::to_string(bad).c_str(),
                        "positive multiples of 1");
  }
  SmallTwoTier along_tokens(KvFormat::kBf16, VScaleAxis::kTokens);
  along_tokens.desc.group_tokens = 16;
  FP4PA_CHECK_REFUSED(validate(along_tokens.desc), Status::kInvalidSize, "group_tokens is 16", "multiples of 32");
  SmallTwoTier page;
  page.desc.group_tokens = 24;
  FP4PA_CHECK_REFUSED(validate(page.desc), Status::kInvalidSize, "group_tokens is 24", "old_tier.page_size, 32");
}

TEST_CASE("two tiers: ring_pages") {
  for (const std::int32_t bad : {2, 0, -3}) {
    SmallTwoTier tiers;
    tiers.desc.ring_pages = bad;
    FP4PA_CHECK_REFUSED(validate(tiers.desc), Status::kInvalidSize, "ring_pages is ", std::to_string(bad).c_str(),
                        "at least 3", "96");
  }
  CHECK(min_ring_pages(64, 32, 32) == 3);
}

TEST_CASE("two tiers: pages of the old tier follow from the length alone") {
  const SmallTwoTier tiers;
  CHECK(old_tier_pages(tiers.desc, 0) == 0);
  CHECK(old_tier_pages(tiers.desc, 64) == 0);
  CHECK(old_tier_pages(tiers.desc, 95) == 0);
  CHECK(old_tier_pages(tiers.desc, 96) == 1);
  CHECK(old_tier_pages(tiers.desc, 127) == 1);
  CHECK(old_tier_pages(tiers.desc, 128) == 2);
  CHECK(old_tier_pages(tiers.desc, -5) == 0);
  TwoTierDesc empty;
  empty.group_tokens = 0;
  CHECK(old_tier_pages(empty, 1000) == 0);
}
