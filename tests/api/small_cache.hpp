// A small, valid cache with memory behind it, for tests that spoil one thing at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "fp4pa/cache.hpp"

namespace fp4pa::test {

/// Bytes at a 64-byte boundary, filled with a pattern that no test writes by accident.
class Bytes {
 public:
  explicit Bytes(std::int64_t size) : storage_(static_cast<std::size_t>(size) + 64, kFill) {}
  [[nodiscard]] std::uint8_t* data() noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    return storage_.data() + (64 - address % 64) % 64;
  }
  [[nodiscard]] bool untouched() const noexcept {
    for (const std::uint8_t byte : storage_) {
      if (byte != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr std::uint8_t kFill = 0xA5;
  std::vector<std::uint8_t> storage_;
};

/// 3 pages of 32 tokens, 2 heads of 64, dense HND.
struct SmallCache {
  explicit SmallCache(KvFormat k_format = KvFormat::kMxfp4, KvFormat v_format = KvFormat::kMxfp4,
                      VScaleAxis v_axis = VScaleAxis::kHeadDim)
      : desc(describe(k_format, v_format, v_axis)),
        k_data(dense_data_bytes(desc, desc.k)),
        k_scales(dense_scale_bytes(desc, desc.k)),
        v_data(dense_data_bytes(desc, desc.v)),
        v_scales(dense_scale_bytes(desc, desc.v)) {
    desc.k.data = k_data.data();
    desc.v.data = v_data.data();
    if (has_scales(k_format)) desc.k.scales = k_scales.data();
    if (has_scales(v_format)) desc.v.scales = v_scales.data();
  }
  SmallCache(const SmallCache&) = delete;

  [[nodiscard]] bool untouched() const noexcept {
    return k_data.untouched() && k_scales.untouched() && v_data.untouched() && v_scales.untouched();
  }

  KvCacheDesc desc;
  Bytes k_data, k_scales, v_data, v_scales;

 private:
  [[nodiscard]] static KvCacheDesc describe(KvFormat k_format, KvFormat v_format, VScaleAxis v_axis) {
    KvCacheDesc desc;
    desc.k.format = k_format;
    desc.v.format = v_format;
    desc.v.scale_axis = v_axis;
    desc.num_kv_heads = 2;
    desc.head_dim = 64;
    desc.page_size = 32;
    desc.num_pages = 3;
    set_dense_strides(desc, PageOrder::kHnd);
    return desc;
  }
};

/// Whether the last failure's sentence has all of these pieces.
[[nodiscard]] inline bool detail_has(std::initializer_list<const char*> pieces) {
  const std::string detail = last_error_detail();
  for (const char* piece : pieces) {
    if (detail.find(piece) == std::string::npos) return false;
  }
  return true;
}

}  // namespace fp4pa::test

/// A call must fail with this status, and its sentence must name the offending value and what is allowed.
#define FP4PA_CHECK_REFUSED(call, status, ...)              \
  do {                                                      \
    const ::fp4pa::Status refused = (call);                 \
    const std::string detail = ::fp4pa::last_error_detail(); \
    INFO(::fp4pa::status_name(refused), ": ", detail);      \
    CHECK(refused == (status));                             \
    CHECK(::fp4pa::test::detail_has({__VA_ARGS__}));        \
  } while (false)
