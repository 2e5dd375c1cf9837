// validate_device_data of append and gather: what the CPU refuses of a slot list, said of one that had to be read back first.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "api/validate_slots.hpp"
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
