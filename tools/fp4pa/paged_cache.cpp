// See paged_cache.hpp.
#include "tools/fp4pa/paged_cache.hpp"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "tools/fp4pa/exit_codes.hpp"

namespace fp4pa::tool {
namespace {

Fill code_pattern(KvFormat format) {
  switch (format) {
    case KvFormat::kFp8E4m3:
    case KvFormat::kMxfp8:
      return Fill::kE4m3;
    case KvFormat::kBf16:
      return Fill::kBf16;
    case KvFormat::kF16:
      return Fill::kF16;
    default:
      return Fill::kBytes;
  }
}

Fill scale_pattern(KvFormat format) { return format == KvFormat::kNvfp4 ? Fill::kE4m3Scales : Fill::kE8m0Scales; }

double tensor_bytes_per_token(const KvTensorDesc& tensor, std::int32_t head_dim) {
  return static_cast<double>(kv_data_bytes(tensor.format, head_dim)) +
         static_cast<double>(kv_scale_bytes(tensor.format, tensor.scale_axis, head_dim)) /
             kv_token_group(tensor.format, tensor.scale_axis);
}

}  // namespace

KvCacheDesc without_memory(KvCacheDesc desc, PageOrder order, Tier tier) {
  // Arrays may not overlap: these are further apart than any of them is long. Nobody looks there.
  std::uintptr_t array = tier == Tier::kRecent ? 4 : 0;
  const auto next = [&array] { return reinterpret_cast<void*>(++array << 60); };
  set_dense_strides(desc, order);
  for (KvTensorDesc* tensor : {&desc.k, &desc.v}) {
    tensor->data = next();
    tensor->scales = tensor->scale_page_stride_bytes != 0 ? next() : nullptr;
  }
  return desc;
}

void check_description(const KvCacheDesc& desc) { check(validate(without_memory(desc)), "cache"); }

void check_head_dim(std::int32_t head_dim) {
  KvCacheDesc cache;
  cache.head_dim = head_dim;
  cache.num_kv_heads = cache.page_size = 1;
  cache.num_pages = 1;
  check_description(cache);
}

PagedCache::PagedCache(Device& device, const KvCacheDesc& desc, PageLayout layout) : desc_(desc), layout_(layout) {
  check_description(desc);
  if (layout == PageLayout::kInterleaved) {
    alignas(16) static char somewhere[16];  // set_interleaved_pages says how large a page is only once it has a base
    const std::int64_t page_bytes = set_interleaved_pages(desc_, order_of(layout), somewhere);
    parts_.push_back(device.allocate(static_cast<std::size_t>(page_bytes * desc_.num_pages)));
  } else {
    set_dense_strides(desc_, order_of(layout));
    for (const KvTensorDesc* tensor : {&desc_.k, &desc_.v}) {
      parts_.push_back(device.allocate(static_cast<std::size_t>(dense_data_bytes(desc_, *tensor))));
      parts_.push_back(device.allocate(static_cast<std::size_t>(dense_scale_bytes(desc_, *tensor))));
    }
  }
  point_at_parts();
}

void PagedCache::point_at_parts() {
  if (layout_ == PageLayout::kInterleaved) {
    (void)set_interleaved_pages(desc_, order_of(layout_), parts_[0].data());
    return;
  }
  desc_.k.data = parts_[0].data();
  desc_.k.scales = parts_[1].bytes() != 0 ? parts_[1].data() : nullptr;
  desc_.v.data = parts_[2].data();
  desc_.v.scales = parts_[3].bytes() != 0 ? parts_[3].data() : nullptr;
}

void PagedCache::poison(Device& device) {
  for (const Buffer& part : parts_) {
    const std::vector<unsigned char> bytes(part.bytes(), 0xFF);
    device.upload(part.data(), bytes.data(), bytes.size());
  }
}

void PagedCache::fill_random(Device& device, std::uint64_t seed) {
  if (layout_ == PageLayout::kInterleaved) {
    throw Failure(Exit::kUsage, "random pages are made for hnd and nhd only, not for interleaved");
  }
  device.fill(parts_[0], code_pattern(desc_.k.format), seed);
  device.fill(parts_[1], scale_pattern(desc_.k.format), seed + 1);
  device.fill(parts_[2], code_pattern(desc_.v.format), seed + 2);
  device.fill(parts_[3], scale_pattern(desc_.v.format), seed + 3);
}

PagedCache PagedCache::host_copy(Device& device, Device& host) const {
  PagedCache copy;
  copy.desc_ = desc_;
  copy.layout_ = layout_;
  for (const Buffer& part : parts_) {
    copy.parts_.push_back(host.allocate(part.bytes()));
    device.download(copy.parts_.back().data(), part.data(), part.bytes());
  }
  copy.point_at_parts();
  return copy;
}

std::vector<std::int32_t> page_order(std::int64_t count, std::uint64_t seed) {
  std::vector<std::int32_t> pages(static_cast<std::size_t>(count));
  std::iota(pages.begin(), pages.end(), 0);
  if (seed == 0) return pages;
  // Fisher-Yates by hand: std::shuffle and the standard distributions may differ between standard libraries.
  std::mt19937_64 random(seed);
  for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random() % i]);
  return pages;
}

double bytes_per_token(const KvCacheDesc& cache) {
  return cache.num_kv_heads *
         (tensor_bytes_per_token(cache.k, cache.head_dim) + tensor_bytes_per_token(cache.v, cache.head_dim));
}

}  // namespace fp4pa::tool
