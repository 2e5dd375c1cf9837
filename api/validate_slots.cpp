#include "api/validate_slots.hpp"

#include <memory>

#include "api/error.hpp"
#include "api/read_back.hpp"
#include "core/paging/slot.hpp"

namespace fp4pa::api {
namespace {

[[nodiscard]] core::SlotView view_of(const SlotList& slots) { return {slots.data, slots.type}; }

}  // namespace

Status check_slots(const char* operation, const KvCacheDesc& cache, const SlotList& slots) noexcept {
  const core::SlotView view = view_of(slots);
  const std::int64_t limit = cache.num_pages * cache.page_size;
  for (std::int64_t i = 0; i < slots.size; ++i) {
    if (view[i] < limit) continue;
    return fail(
        Status::kSlotOutOfRange,
        "%s: token %lld has slot %lld; allowed: 0 to %lld (%lld pages of %d tokens), and negative ones, which are skipped",
        operation, static_cast<long long>(i), static_cast<long long>(view[i]), static_cast<long long>(limit - 1),
        static_cast<long long>(cache.num_pages), cache.page_size);
  }
  return Status::kOk;
}

Status check_groups(const KvCacheDesc& cache, const SlotList& slots, std::int32_t group) noexcept {
  const core::SlotView view = view_of(slots);
  std::int64_t previous = -1;  // slot before this one in the list
  std::int64_t previous_token = -1;
  for (std::int64_t i = core::next_token(view, 0, slots.size); i < slots.size; i = core::next_token(view, i + 1, slots.size)) {
    const core::SlotPlace place = core::place_of(view[i], cache.page_size);
    const bool starts_group = place.row % group == 0;
    const bool continues = previous >= 0 && view[i] == previous + 1;
    if (!starts_group && !continues) {
      return fail(
          Status::kIncompleteGroup,
          "append: token %lld (slot %lld) is row %d of its page, inside a group of %d tokens that does not "
          "begin in this run; allowed where V is scaled along tokens: runs that begin at a multiple of %d",
          static_cast<long long>(i), static_cast<long long>(view[i]), place.row, group, group);
    }
    if (starts_group && !continues && previous >= 0) {
      // The run before ended. If it stopped inside a group, its page may not go on: rows in between would be
      // neither tokens nor missing.
      const core::SlotPlace end = core::place_of(previous, cache.page_size);
      const bool short_group = (end.row + 1) % group != 0 && end.row + 1 != cache.page_size;
      if (short_group && end.page == place.page) {
        return fail(
            Status::kIncompleteGroup,
            "append: the group that ends at token %lld (slot %lld) has %d of its %d tokens, but token %lld "
            "(slot %lld) is in the same page; allowed: a shorter group as the last one that the call writes in its page",
            static_cast<long long>(previous_token), static_cast<long long>(previous), end.row % group + 1, group,
            static_cast<long long>(i), static_cast<long long>(view[i]));
      }
    }
    previous = view[i];
    previous_token = i;
  }
  return Status::kOk;
}

Status check_device_slots(const Backend& backend, const char* operation, const KvCacheDesc& cache, const SlotList& slots,
                          std::int32_t group, void* stream) noexcept {
  const bool wide = slots.type == IndexType::kInt64;
  std::unique_ptr<std::int64_t[]> longs;
  std::unique_ptr<std::int32_t[]> ints;
  const Status read = wide ? read_back(backend, operation, "slots", static_cast<const std::int64_t*>(slots.data), slots.size, stream, longs)
                           : read_back(backend, operation, "slots", static_cast<const std::int32_t*>(slots.data), slots.size, stream, ints);
  if (read != Status::kOk) return read;
  const SlotList here{wide ? static_cast<const void*>(longs.get()) : ints.get(), slots.type, slots.size};
  const Status s = check_slots(operation, cache, here);
  return s != Status::kOk || group == 1 ? s : check_groups(cache, here, group);
}

}  // namespace fp4pa::api
