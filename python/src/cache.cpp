#include "python/src/cache.hpp"

#include "python/src/error.hpp"
#include "python/src/names.hpp"

namespace nb = nanobind;

namespace fp4pa::python {
namespace {

/// Axes of a page in an order.
struct Axes {
  int heads, tokens;
};
Axes axes_of(PageOrder order) { return order == PageOrder::kHnd ? Axes{1, 2} : Axes{2, 1}; }

void require_4d(const Tensor& t, PageOrder order) {
  t.is_shape({-1, -1, -1, -1}, order == PageOrder::kHnd ? "[num_pages, num_kv_heads, page_size, row]"
                                                        : "[num_pages, page_size, num_kv_heads, row]");
  t.has_rows();
}

}  // namespace

KvTensor::KvTensor(const std::string& format, nb::handle data, nb::handle scales, const std::string& axis,
                   nb::handle global_scale)
    : format_(kv_format(format, "format")),
      axis_(scale_axis(axis, "scale_axis")),
      data_(data, "data", Access::kWrite),
      scales_(optional_tensor(scales, "scales", Access::kWrite)) {
  if (const std::optional<float> number = number_of(global_scale)) {
    global_ = *number;
  } else {
    global_tensor_.emplace(global_scale, "global_scale");
    global_tensor_->is_dtype(DType::kF32).is_dense();
  }
}

std::int64_t KvTensor::head_dim() const {
  const std::int64_t bytes = data_.extent(3) * data_.element_bytes();
  return is_fp4(format_) ? 2 * bytes : format_ == KvFormat::kBf16 || format_ == KvFormat::kF16 ? bytes / 2 : bytes;
}

KvTensorDesc KvTensor::describe(PageOrder order, std::int32_t heads, std::int32_t page_size, std::int64_t pages,
                                std::int32_t head_dim, const Place& place) const {
  const Axes axes = axes_of(order);
  const std::int64_t row = kv_data_bytes(format_, head_dim);
  const auto shape = [&](const Tensor& t, std::int64_t tokens, std::int64_t elements) {
    if (order == PageOrder::kHnd)
      t.is_shape({pages, heads, tokens, elements}, "[num_pages, num_kv_heads, tokens, row]");
    else
      t.is_shape({pages, tokens, heads, elements}, "[num_pages, tokens, num_kv_heads, row]");
  };
  place.also(data_);
  shape(data_, page_size, row / data_.element_bytes());

  KvTensorDesc desc;
  desc.format = format_;
  desc.scale_axis = axis_;
  desc.data = data_.data();
  desc.page_stride_bytes = data_.stride(0) * data_.element_bytes();
  desc.token_stride_bytes = data_.stride(axes.tokens) * data_.element_bytes();
  desc.head_stride_bytes = data_.stride(axes.heads) * data_.element_bytes();
  if (scales_) {
    if (!has_scales(format_)) {
      refuse(std::string("scales are given with format \"") + fp4pa::name_of(format_) + "\"", "None");
    }
    place.also(scales_->is_bytes());
    require_4d(*scales_, order);
    shape(*scales_, page_size / kv_token_group(format_, axis_), kv_scale_bytes(format_, axis_, head_dim));
    desc.scales = scales_->data();
    desc.scale_page_stride_bytes = scales_->stride(0);
    desc.scale_token_stride_bytes = scales_->stride(axes.tokens);
    desc.scale_head_stride_bytes = scales_->stride(axes.heads);
  }
  desc.global_scale = global_;
  if (global_tensor_) {
    place.also(*global_tensor_);
    if (global_tensor_->size() != 1 && global_tensor_->size() != heads) {
      refuse("global_scale has shape " + global_tensor_->shape_text(),
             "one element, or [num_kv_heads] = [" + std::to_string(heads) + "]");
    }
    desc.global_scale_ptr = static_cast<const float*>(global_tensor_->data());
    desc.global_scale_per_head = global_tensor_->size() != 1;
  }
  return desc;
}

KvCache::KvCache(const KvTensor& k, const KvTensor& v, const std::string& order, std::int64_t rotation, const std::string& mode,
                 const std::string& nvfp4)
    : k_(k), v_(v), order_(page_order(order)) {
  const Axes axes = axes_of(order_);
  for (const KvTensor* t : {&k_, &v_}) require_4d(t->data(), order_);
  desc_.num_pages = k_.data().extent(0);
  desc_.num_kv_heads = int32_of(k_.data().extent(axes.heads), "num_kv_heads");
  desc_.page_size = int32_of(k_.data().extent(axes.tokens), "page_size");
  desc_.head_dim = int32_of(k_.head_dim(), "head_dim");
  desc_.rotation = static_cast<Rotation>(int32_of(rotation, "rotation"));
  desc_.scale_mode = scale_mode(mode);
  desc_.nvfp4_scale = nvfp4_scale(nvfp4);
  const Place where = place();
  desc_.k = k_.describe(order_, desc_.num_kv_heads, desc_.page_size, desc_.num_pages, desc_.head_dim, where);
  desc_.v = v_.describe(order_, desc_.num_kv_heads, desc_.page_size, desc_.num_pages, desc_.head_dim, where);
  check(validate(desc_));
}

TwoTierKvCache::TwoTierKvCache(const KvCache& old_tier, const KvCache& recent, std::int64_t window_tokens,
                               std::int64_t group_tokens, std::int64_t ring_pages)
    : old_(old_tier), recent_(recent) {
  place().also(recent_.memory());
  desc_.old_tier = old_.desc();
  desc_.recent = recent_.desc();
  desc_.window_tokens = int32_of(window_tokens, "window_tokens");
  desc_.group_tokens = int32_of(group_tokens, "group_tokens");
  desc_.ring_pages = int32_of(ring_pages, "ring_pages");
  if (ring_pages == 0) desc_.ring_pages = min_ring_pages(desc_.window_tokens, desc_.group_tokens, recent_.desc().page_size);
  check(validate(desc_));
}

}  // namespace fp4pa::python
