// A call that fails leaves the pools and the outputs as they were, byte for byte.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "fp4pa/attention.hpp"
#include "tests/api/small_cache.hpp"

using namespace fp4pa;
using test::Bytes;
using test::SmallCache;

namespace {

constexpr std::int64_t kTokens = 3;
const ExecDesc kOnCpu{"cpu", nullptr, 0};

/// Three tokens of ordinary numbers for SmallCache.
struct Input {
  Input() : values(kTokens * 2 * 64) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i);
  }
  [[nodiscard]] KvInput rows() const { return {values.data(), DType::kF32, 0, 0}; }
  std::vector<float> values;
};

}  // namespace

TEST_CASE("append: the good call writes, so that the others mean something") {
  SmallCache cache;
  const Input in;
  const std::int32_t slots[kTokens] = {5, -1, 95};
  CHECK(append(cache.desc, in.rows(), in.rows(), slots, IndexType::kInt32, kTokens, kOnCpu) == Status::kOk);
  CHECK(!cache.untouched());
}

TEST_CASE("append: nothing is written when an argument is refused") {
  SmallCache cache;
  const Input in;
  const std::int32_t slots[kTokens] = {0, 1, 2};
  KvInput spoiled = in.rows();

  SUBCASE("null k") {
    spoiled.data = nullptr;
    FP4PA_CHECK_REFUSED(append(cache.desc, spoiled, in.rows(), slots, IndexType::kInt32, kTokens, kOnCpu),
                        Status::kNullPointer, "k.data is null");
  }
  SUBCASE("null v") {
    spoiled.data = nullptr;
    FP4PA_CHECK_REFUSED(append(cache.desc, in.rows(), spoiled, slots, IndexType::kInt32, kTokens, kOnCpu),
                        Status::kNullPointer, "v.data is null");
  }
  SUBCASE("misaligned k") {
    spoiled.data = reinterpret_cast<const char*>(in.values.data()) + 2;
    FP4PA_CHECK_REFUSED(append(cache.desc, spoiled, in.rows(), slots, IndexType::kInt32, kTokens, kOnCpu),
                        Status::kMisalignedPointer, "k.data is 0x", "multiples of 4");
  }
  SUBCASE("unknown dtype") {
    spoiled.dtype = static_cast<DType>(3);
    FP4PA_CHECK_REFUSED(append(cache.desc, spoiled, in.rows(), slots, IndexType::kInt32, kTokens, kOnCpu),
                        Status::kUnsupportedFormat, "k.dtype is 3", "f32", "bf16");
  }
  SUBCASE("overlapping input rows") {
    spoiled.head_stride = 63;
    FP4PA_CHECK_REFUSED(append(cache.desc, spoiled, in.rows(), slots, IndexType::kInt32, kTokens, kOnCpu),
                        Status::kInvalidStrides, "k.head_stride is 63", "at least 64");
  }
  SUBCASE("negative input stride") {
    spoiled.token_stride = -128;
    FP4PA_CHECK_REFUSED(append(cache.desc, spoiled, in.rows(), slots, IndexType::kInt32, kTokens, kOnCpu),
                        Status::kInvalidStrides, "k.token_stride is -128", "not negative");
  }
  SUBCASE("input stride out of the address space") {
    spoiled.token_stride = std::numeric_limits<std::int64_t>::max() / 2;
    FP4PA_CHECK_REFUSED(append(cache.desc, spoiled, in.rows(), slots, IndexType::kInt32, kTokens, kOnCpu),
                        Status::kInvalidStrides, "k.token_stride is ", "address space");
  }
  SUBCASE("null slots") {
    FP4PA_CHECK_REFUSED(append(cache.desc, in.rows(), in.rows(), nullptr, IndexType::kInt32, kTokens, kOnCpu),
                        Status::kNullPointer, "slots is null");
  }
  SUBCASE("misaligned slots") {
    FP4PA_CHECK_REFUSED(append(cache.desc, in.rows(), in.rows(), reinterpret_cast<const char*>(slots) + 2,
                               IndexType::kInt32, 1, kOnCpu),
                        Status::kMisalignedPointer, "slots is 0x", "multiples of 4");
  }
  SUBCASE("unknown slot type") {
    FP4PA_CHECK_REFUSED(append(cache.desc, in.rows(), in.rows(), slots, static_cast<IndexType>(2), kTokens, kOnCpu),
                        Status::kUnsupportedFormat, "slot_type is 2", "int32", "int64");
  }
  SUBCASE("negative count") {
    FP4PA_CHECK_REFUSED(append(cache.desc, in.rows(), in.rows(), slots, IndexType::kInt32, -1, kOnCpu),
                        Status::kInvalidSize, "num_tokens is -1", "0 or more");
  }
  SUBCASE("a slot outside the pool, after good ones") {
    const std::int32_t bad[kTokens] = {0, 1, 96};
    FP4PA_CHECK_REFUSED(append(cache.desc, in.rows(), in.rows(), bad, IndexType::kInt32, kTokens, kOnCpu),
                        Status::kSlotOutOfRange, "96", "95");
  }
  SUBCASE("a bad description") {
    KvCacheDesc desc = cache.desc;
    desc.head_dim = 48;
    FP4PA_CHECK_REFUSED(append(desc, in.rows(), in.rows(), slots, IndexType::kInt32, kTokens, kOnCpu),
                        Status::kUnsupportedHeadDim, "48");
  }
  CHECK(cache.untouched());
}

TEST_CASE("append: no tokens is no work, and needs no pointers") {
  SmallCache cache;
  CHECK(append(cache.desc, {}, {}, nullptr, IndexType::kInt32, 0, kOnCpu) == Status::kOk);
  CHECK(cache.untouched());
}

TEST_CASE("append_two_tier: nothing is written when an argument is refused") {
  SmallCache old_tier;
  SmallCache recent(KvFormat::kBf16, KvFormat::kBf16);
  const TwoTierDesc desc{old_tier.desc, recent.desc, 64, 32, 3};
  const Input in;
  const std::int32_t indptr[2] = {0, kTokens};
  const std::int32_t seq_lens[1] = {0};
  const std::int32_t old_table[1] = {0};
  const std::int32_t recent_table[3] = {0, 1, 2};

  SUBCASE("null indptr") {
    FP4PA_CHECK_REFUSED(append_two_tier(desc, in.rows(), in.rows(), nullptr, seq_lens, 1, kTokens, old_table, 1,
                                        recent_table, kOnCpu),
                        Status::kNullPointer, "indptr is null");
  }
  SUBCASE("null seq_lens") {
    FP4PA_CHECK_REFUSED(append_two_tier(desc, in.rows(), in.rows(), indptr, nullptr, 1, kTokens, old_table, 1,
                                        recent_table, kOnCpu),
                        Status::kNullPointer, "seq_lens is null");
  }
  SUBCASE("null tables") {
    FP4PA_CHECK_REFUSED(append_two_tier(desc, in.rows(), in.rows(), indptr, seq_lens, 1, kTokens, nullptr, 1,
                                        recent_table, kOnCpu),
                        Status::kNullPointer, "old_table is null");
    FP4PA_CHECK_REFUSED(append_two_tier(desc, in.rows(), in.rows(), indptr, seq_lens, 1, kTokens, old_table, 1, nullptr,
                                        kOnCpu),
                        Status::kNullPointer, "recent_table is null");
  }
  SUBCASE("tokens without sequences, and negative counts") {
    FP4PA_CHECK_REFUSED(append_two_tier(desc, in.rows(), in.rows(), indptr, seq_lens, 0, kTokens, old_table, 1,
                                        recent_table, kOnCpu),
                        Status::kInvalidSize, "batch is 0", "at least 1");
    FP4PA_CHECK_REFUSED(append_two_tier(desc, in.rows(), in.rows(), indptr, seq_lens, -1, kTokens, old_table, 1,
                                        recent_table, kOnCpu),
                        Status::kInvalidSize, "batch is -1", "0 or more");
    FP4PA_CHECK_REFUSED(append_two_tier(desc, in.rows(), in.rows(), indptr, seq_lens, 1, kTokens, old_table, -4,
                                        recent_table, kOnCpu),
                        Status::kInvalidSize, "old_table_stride is -4", "0 or more");
  }
  SUBCASE("a stride of the table whose rows leave the address space") {
    FP4PA_CHECK_REFUSED(append_two_tier(desc, in.rows(), in.rows(), indptr, seq_lens, 3, kTokens, old_table,
                                        std::int64_t{1} << 62, recent_table, kOnCpu),
                        Status::kInvalidSize, "old_table_stride is 4611686018427387904", "over 3 rows",
                        "allowed with batch 3: up to 144115188075855872");
  }
  SUBCASE("an indptr with tokens for a call that has none") {
    FP4PA_CHECK_REFUSED(append_two_tier(desc, {}, {}, indptr, seq_lens, 1, 0, nullptr, 0, nullptr, kOnCpu), Status::kInvalidIndptr,
                        "indptr[1] = 3", "0 tokens", "allowed");
    const std::int32_t none[2] = {0, 0};
    CHECK(append_two_tier(desc, {}, {}, none, nullptr, 1, 0, nullptr, 0, nullptr, kOnCpu) == Status::kOk);
    CHECK(append_two_tier(desc, {}, {}, nullptr, nullptr, 0, 0, nullptr, 0, nullptr, kOnCpu) == Status::kOk);
    CHECK(append_two_tier(desc, {}, {}, nullptr, nullptr, 1, 0, nullptr, 0, nullptr, kOnCpu) == Status::kOk);
  }
  SUBCASE("a bad tier") {
    TwoTierDesc bad = desc;
    bad.recent.page_size = 0;
    FP4PA_CHECK_REFUSED(append_two_tier(bad, in.rows(), in.rows(), indptr, seq_lens, 1, kTokens, old_table, 1,
                                        recent_table, kOnCpu),
                        Status::kInvalidSize, "recent: page_size is 0");
  }
  SUBCASE("a page of the recent table outside its pool") {
    const std::int32_t bad_table[3] = {0, 1, 3};
    const Status s =
        append_two_tier(desc, in.rows(), in.rows(), indptr, seq_lens, 1, kTokens, old_table, 1, bad_table, kOnCpu);
    // Page 3 is not written by three tokens: a back end may refuse it or never look. It may not write it.
    CHECK((s == Status::kOk || s == Status::kBlockIdOutOfRange));
    if (s == Status::kOk) return;
  }
  CHECK(old_tier.untouched());
  CHECK(recent.untouched());
}

TEST_CASE("gather: nothing is written when an argument is refused") {
  SmallCache cache;
  Bytes out(kTokens * 2 * 64 * 4);
  const KvOutput rows{out.data(), DType::kF32, 0, 0};
  const std::int64_t slots[kTokens] = {0, 1, 2};

  SUBCASE("both outputs null") {
    FP4PA_CHECK_REFUSED(gather(cache.desc, slots, IndexType::kInt64, kTokens, {}, {}, kOnCpu), Status::kNullPointer,
                        "both null");
  }
  SUBCASE("overlapping output rows") {
    KvOutput bad = rows;
    bad.token_stride = 64;
    FP4PA_CHECK_REFUSED(gather(cache.desc, slots, IndexType::kInt64, kTokens, bad, {}, kOnCpu), Status::kInvalidStrides,
                        "k.head_stride is 64", "allowed");
  }
  SUBCASE("misaligned output") {
    KvOutput bad = rows;
    bad.data = out.data() + 1;
    FP4PA_CHECK_REFUSED(gather(cache.desc, slots, IndexType::kInt64, kTokens, {}, bad, kOnCpu),
                        Status::kMisalignedPointer, "v.data is 0x", "multiples of 4");
  }
  SUBCASE("a slot outside the pool, after good ones") {
    const std::int64_t bad[kTokens] = {0, 1, std::int64_t{1} << 40};
    FP4PA_CHECK_REFUSED(gather(cache.desc, bad, IndexType::kInt64, kTokens, rows, {}, kOnCpu), Status::kSlotOutOfRange,
                        "1099511627776");
  }
  CHECK(out.untouched());
}

TEST_CASE("copy_pages: nothing is written when an argument is refused") {
  SmallCache cache;
  const std::int32_t src[2] = {0, 1};
  SUBCASE("null list") {
    FP4PA_CHECK_REFUSED(copy_pages(cache.desc, src, nullptr, 2, kOnCpu), Status::kNullPointer, "dst is null");
  }
  SUBCASE("negative count") {
    FP4PA_CHECK_REFUSED(copy_pages(cache.desc, src, src, -2, kOnCpu), Status::kInvalidSize, "num_copies is -2");
  }
  SUBCASE("more copies than pages that could be destinations: nothing is read behind the lists") {
    const std::int64_t too_many = std::int64_t{1} << 62;
    FP4PA_CHECK_REFUSED(copy_pages(cache.desc, src, src + 1, too_many, kOnCpu), Status::kInvalidSize, "num_copies is 4611686018427387904",
                        "allowed: 0 to 2");
  }
  SUBCASE("a page outside the pool, after a good one") {
    const std::int32_t dst[2] = {2, 3};
    FP4PA_CHECK_REFUSED(copy_pages(cache.desc, src, dst, 2, kOnCpu), Status::kBlockIdOutOfRange, "3");
  }
  SUBCASE("a page that is both source and destination") {
    const std::int32_t dst[2] = {1, 2};
    FP4PA_CHECK_REFUSED(copy_pages(cache.desc, src, dst, 2, kOnCpu), Status::kInvalidArgument, "1");
  }
  CHECK(cache.untouched());
}

TEST_CASE("merge_states: nothing is written when an argument is refused") {
  Bytes o(2 * 64 * 4), lse(2 * 4);
  const std::vector<float> a(2 * 64, 1.0f), l(2, 0.0f);
  auto* const out = o.data();
  auto* const out_lse = reinterpret_cast<float*>(lse.data());
  FP4PA_CHECK_REFUSED(merge_states(a.data(), l.data(), a.data(), l.data(), out, out_lse, DType::kF32, 2, 65, kOnCpu),
                      Status::kUnsupportedHeadDim, "65", "multiples of 32");
  FP4PA_CHECK_REFUSED(merge_states(nullptr, l.data(), a.data(), l.data(), out, out_lse, DType::kF32, 2, 64, kOnCpu),
                      Status::kNullPointer, "oa is null");
  FP4PA_CHECK_REFUSED(merge_states(a.data(), l.data(), a.data(), nullptr, out, out_lse, DType::kF32, 2, 64, kOnCpu),
                      Status::kNullPointer, "lse_b is null");
  FP4PA_CHECK_REFUSED(merge_states(a.data(), l.data(), a.data(), l.data(), out, out_lse, static_cast<DType>(8), 2, 64,
                                   kOnCpu),
                      Status::kUnsupportedFormat, "dtype is 8");
  FP4PA_CHECK_REFUSED(merge_states(a.data(), l.data(), a.data(), l.data(), out, out_lse, DType::kF32, -1, 64, kOnCpu),
                      Status::kInvalidSize, "rows is -1");
  CHECK(o.untouched());
  CHECK(lse.untouched());
}
