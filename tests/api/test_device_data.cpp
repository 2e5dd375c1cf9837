// validate_device_data of the cache operations: what the CPU refuses of slots, tables and page ids, said of what had to be read
// back first.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "api/validate_page_copies.hpp"
#include "api/validate_slots.hpp"
#include "api/validate_two_tier_tables.hpp"
#include "tests/api/small_cache.hpp"

using namespace fp4pa;

namespace {

int reads = 0;

/// A back end whose memory happens to be the host's.
Status read_back(void* to_host, const void* from, std::size_t bytes, void*) noexcept {
  ++reads;
  std::memcpy(to_host, from, bytes);
  return Status::kOk;
}

constexpr api::Backend kDevice{.name = "device",
                               .available = nullptr,
                               .plan = nullptr,
                               .run = nullptr,
                               .append = nullptr,
                               .append_two_tier = nullptr,
                               .gather = nullptr,
                               .copy_pages = nullptr,
                               .quantize = nullptr,
                               .dequantize = nullptr,
                               .merge_states = nullptr,
                               .read_back = read_back};

}  // namespace

TEST_CASE("slots of a device: read back once, and refused as on the CPU") {
  const test::SmallCache cache(KvFormat::kMxfp4, KvFormat::kMxfp4, VScaleAxis::kTokens);  // slots 0 to 95
  const auto status = [&](const std::vector<std::int64_t>& slots, std::int32_t group) {
    return api::check_device_slots(kDevice, "append", cache.desc, {slots.data(), IndexType::kInt64, static_cast<std::int64_t>(slots.size())},
                                   group, nullptr);
  };
  reads = 0;
  CHECK(status({32, 33, -1, 34}, 32) == Status::kOk);
  CHECK(reads == 1);
  FP4PA_CHECK_REFUSED(status({0, 1, 96}, 1), Status::kSlotOutOfRange, "append: token 2 has slot 96", "0 to 95");
  // A token on its own inside a group: decoding with V along tokens and no recent tier.
  FP4PA_CHECK_REFUSED(status({33}, 32), Status::kIncompleteGroup, "token 0 (slot 33) is row 1");
  CHECK(status({33}, 1) == Status::kOk);
  const std::int32_t narrow[] = {5, 1 << 20};
  FP4PA_CHECK_REFUSED(api::check_device_slots(kDevice, "gather", cache.desc, {narrow, IndexType::kInt32, 2}, 1, nullptr),
                      Status::kSlotOutOfRange, "gather: token 1 has slot 1048576");
  api::Backend mute = kDevice;
  mute.read_back = nullptr;
  FP4PA_CHECK_REFUSED(api::check_device_slots(mute, "append", cache.desc, {narrow, IndexType::kInt32, 2}, 1, nullptr),
                      Status::kBackendUnavailable, "validate_device_data");
}

TEST_CASE("tables of a two-tier append on a device: each read back once, and refused as on the CPU") {
  const test::SmallCache old_tier;  // 3 pages of 32 tokens, as the ring has
  const test::SmallCache recent(KvFormat::kBf16, KvFormat::kBf16);
  const TwoTierDesc desc{old_tier.desc, recent.desc, 32, 32, 3};
  const KvInput none{};
  std::vector<std::int32_t> indptr = {0, 40, 80}, seq_lens = {0, 60}, old_table = {0, 7, 1, 2}, recent_table = {0, 1, 2, 2, 1, 0};
  const auto status = [&](const api::Backend& backend) {
    return api::check_device_two_tier(backend,
                                      {desc, none, none, indptr.data(), seq_lens.data(), 2, 80, old_table.data(), 2, recent_table.data()},
                                      nullptr);
  };
  reads = 0;
  CHECK(status(kDevice) == Status::kOk);  // 60 + 40 tokens need two old pages, 40 one: page 7 is not looked at
  CHECK(reads == 4);
  old_table[3] = 3;
  FP4PA_CHECK_REFUSED(status(kDevice), Status::kBlockIdOutOfRange, "old_table of sequence 1 has page id 3 at entry 1", "0 to 2");
  old_table[3] = 2;
  recent_table[5] = -1;
  FP4PA_CHECK_REFUSED(status(kDevice), Status::kBlockIdOutOfRange, "recent_table of sequence 1 has page id -1");
  recent_table[5] = 0;
  seq_lens[1] = 92;
  FP4PA_CHECK_REFUSED(status(kDevice), Status::kLengthExceedsTable, "sequence 1 will have 132 tokens", "old_table has 2");
  seq_lens[1] = 60;
  indptr[2] = 81;
  FP4PA_CHECK_REFUSED(status(kDevice), Status::kInvalidIndptr, "indptr[2] = 81", "80 tokens");
  api::Backend mute = kDevice;
  mute.read_back = nullptr;
  FP4PA_CHECK_REFUSED(status(mute), Status::kBackendUnavailable, "append_two_tier", "validate_device_data");
}

TEST_CASE("pages to copy on a device: read back once, and refused as on the CPU") {
  const test::SmallCache cache;  // pages 0 to 2
  const auto status = [&](const std::vector<std::int32_t>& src, const std::vector<std::int32_t>& dst) {
    return api::check_device_page_copies(kDevice, cache.desc, src.data(), dst.data(), static_cast<std::int64_t>(src.size()), nullptr);
  };
  reads = 0;
  CHECK(status({0, 0}, {1, 2}) == Status::kOk);
  CHECK(reads == 2);
  FP4PA_CHECK_REFUSED(status({0, 3}, {1, 2}), Status::kBlockIdOutOfRange, "src[1] = 3", "0 to 2");
  FP4PA_CHECK_REFUSED(status({0}, {-1}), Status::kBlockIdOutOfRange, "dst[0] = -1");
  FP4PA_CHECK_REFUSED(status({0, 1}, {2, 2}), Status::kInvalidArgument, "page 2 is a destination twice");
  FP4PA_CHECK_REFUSED(status({0, 1}, {1, 2}), Status::kInvalidArgument, "page 1 is the source of copy 1 and a destination");
}
