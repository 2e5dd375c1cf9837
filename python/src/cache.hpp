// Python's caches: tensors of pages and what they hold, checked against each other once, as the library's descriptions.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "fp4pa/cache.hpp"
#include "python/src/exec.hpp"
#include "python/src/tensor.hpp"

namespace fp4pa::python {

/// The K or the V of every page, as given; what its axes mean is the cache's to say.
class KvTensor {
 public:
  KvTensor(const std::string& format, nanobind::handle data, nanobind::handle scales, const std::string& axis,
           nanobind::handle global_scale);

  /// The library's description of it, in pages of this order.
  [[nodiscard]] KvTensorDesc describe(PageOrder order, std::int32_t heads, std::int32_t page_size, std::int64_t pages,
                                      std::int32_t head_dim, const Place& place) const;
  /// What a row of `data` holds, in elements of the format.
  [[nodiscard]] std::int64_t head_dim() const;

  [[nodiscard]] KvFormat format() const { return format_; }
  [[nodiscard]] VScaleAxis axis() const { return axis_; }
  [[nodiscard]] const Tensor& data() const { return data_; }

 private:
  KvFormat format_;
  VScaleAxis axis_;
  Tensor data_;
  std::optional<Tensor> scales_;
  std::optional<Tensor> global_tensor_;
  float global_ = 1.0f;
};

/// One pool of pages. Keeps its tensors.
class KvCache {
 public:
  KvCache(const KvTensor& k, const KvTensor& v, const std::string& order, std::int64_t rotation, const std::string& mode,
          const std::string& nvfp4);

  [[nodiscard]] const KvCacheDesc& desc() const { return desc_; }
  [[nodiscard]] Place place() const { return Place(memory()); }
  [[nodiscard]] const Tensor& memory() const { return k_.data(); }  ///< whose device is the cache's
  [[nodiscard]] PageOrder order() const { return order_; }

 private:
  KvTensor k_, v_;
  PageOrder order_;
  KvCacheDesc desc_;
};

/// The newest tokens in 16 or 8 bits, everything older in another format. Keeps both caches.
class TwoTierKvCache {
 public:
  TwoTierKvCache(const KvCache& old_tier, const KvCache& recent, std::int64_t window_tokens, std::int64_t group_tokens,
                 std::int64_t ring_pages);

  [[nodiscard]] const TwoTierDesc& desc() const { return desc_; }
  [[nodiscard]] Place place() const { return old_.place(); }

 private:
  KvCache old_, recent_;
  TwoTierDesc desc_;
};

}  // namespace fp4pa::python
