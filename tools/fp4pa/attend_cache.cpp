// See attend_cache.hpp.
#include "tools/fp4pa/attend_cache.hpp"

#include <algorithm>

#include "reference/rotation.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/global_scale.hpp"

namespace fp4pa::tool {
namespace {

constexpr std::int32_t kGroupTokens = 32;  // what leaves the window together: one MXFP4 V group
constexpr std::int32_t kRecentPageTokens = 16;
constexpr std::int64_t kSparePages = 3;  // never named by a table; they stay poisoned

/// The largest finite magnitude that will be encoded: of K after its rotation.
double largest_magnitude(const InputTensor& tensor, Rotation rotation) {
  double largest = 0.0;
#pragma omp parallel for reduction(max : largest)
  for (std::int64_t t = 0; t < tensor.tokens; ++t) {
    std::vector<double> row(static_cast<std::size_t>(tensor.head_dim));
    for (std::int64_t h = 0; h < tensor.heads; ++h) {
      for (std::int64_t d = 0; d < tensor.head_dim; ++d) row[static_cast<std::size_t>(d)] = tensor.at(h, t, d);
      reference::rotate(row, rotation);
      for (const double x : row) largest = larger_finite(largest, x);
    }
  }
  return largest;
}

float nvfp4_global_scale(const InputTensor& tensor, Rotation rotation) {
  return default_global_scale(largest_magnitude(tensor, rotation));
}

KvInput kv_input(const InputTensor& tensor, const void* token_major) {
  return {token_major, tensor.dtype, tensor.heads * tensor.head_dim, tensor.head_dim};
}

}  // namespace

FilledCache::FilledCache(Device& device, const AttendSettings& settings, const AttendInput& input,
                         const Variant& variant)
    : length_(static_cast<std::int32_t>(input.k.tokens)) {
  KvCacheDesc desc;
  desc.k.format = variant.k;
  desc.v.format = variant.v;
  desc.v.scale_axis = variant.v_axis;
  desc.num_kv_heads = static_cast<std::int32_t>(input.k.heads);
  desc.head_dim = static_cast<std::int32_t>(input.k.head_dim);
  desc.page_size = settings.page_size;
  desc.rotation = variant.rotation;
  desc.scale_mode = variant.scale_mode;
  desc.nvfp4_scale = variant.nvfp4_scale;
  if (variant.k == KvFormat::kNvfp4) desc.k.global_scale = nvfp4_global_scale(input.k, variant.rotation);
  if (variant.v == KvFormat::kNvfp4) desc.v.global_scale = nvfp4_global_scale(input.v, Rotation::kNone);

  pages_per_sequence_ = (length_ + settings.page_size - 1) / settings.page_size;
  desc.num_pages = std::int64_t{settings.batch} * pages_per_sequence_ + kSparePages;
  table_ = page_order(desc.num_pages, settings.shuffle_seed);
  table_.resize(static_cast<std::size_t>(settings.batch) * static_cast<std::size_t>(pages_per_sequence_));
  old_tier_ = PagedCache(device, desc, settings.layout);
  old_tier_.poison(device);
  tiers_.old_tier = old_tier_.desc();
  tiers_.window_tokens = variant.window;
  tiers_.group_tokens = 0;
  if (variant.window != 0) {
    // A group and a page of the old tier must nest; a page that no group fits gives its own size.
    tiers_.group_tokens = settings.page_size % kGroupTokens == 0 || kGroupTokens % settings.page_size == 0
                              ? kGroupTokens
                              : settings.page_size;
    KvCacheDesc recent = desc;
    recent.k = KvTensorDesc{};
    recent.v = KvTensorDesc{};
    recent.k.format = recent.v.format = KvFormat::kBf16;
    recent.page_size = kRecentPageTokens;
    tiers_.ring_pages = min_ring_pages(tiers_.window_tokens, tiers_.group_tokens, recent.page_size);
    recent.num_pages = std::int64_t{settings.batch} * tiers_.ring_pages + kSparePages;
    recent_table_ = page_order(recent.num_pages, settings.shuffle_seed);
    recent_table_.resize(static_cast<std::size_t>(settings.batch) * static_cast<std::size_t>(tiers_.ring_pages));
    recent_ = PagedCache(device, recent, settings.layout);
    recent_.poison(device);
    tiers_.recent = recent_.desc();
  }
  device_table_ = uploaded(device, table_);
  device_recent_table_ = uploaded(device, recent_table_);
  variant.window != 0 ? append_two_tiers(device, settings, input) : append_one_tier(device, settings, input);
}

void FilledCache::append_one_tier(Device& device, const AttendSettings& settings, const AttendInput& input) {
  const std::vector<std::byte> k = input.k.token_major(0, length_), v = input.v.token_major(0, length_);
  const Buffer device_k = uploaded(device, k), device_v = uploaded(device, v);
  const ExecDesc exec{settings.backend.empty() ? nullptr : settings.backend.c_str(), nullptr, settings.threads};
  for (std::int32_t b = 0; b < settings.batch; ++b) {
    std::vector<std::int64_t> slots(static_cast<std::size_t>(length_));
    for (std::int32_t t = 0; t < length_; ++t) {
      const auto entry = static_cast<std::size_t>(b) * static_cast<std::size_t>(pages_per_sequence_) +
                         static_cast<std::size_t>(t / settings.page_size);
      slots[static_cast<std::size_t>(t)] = std::int64_t{table_[entry]} * settings.page_size + t % settings.page_size;
    }
    const Buffer device_slots = uploaded(device, slots);
    append_seconds_ += device.seconds([&] {
      check(append(tiers_.old_tier, kv_input(input.k, device_k.data()), kv_input(input.v, device_v.data()),
                   device_slots.data(), IndexType::kInt64, length_, exec),
            "append");
    });
  }
}

void FilledCache::append_two_tiers(Device& device, const AttendSettings& settings, const AttendInput& input) {
  const std::vector<std::byte> k = input.k.token_major(0, length_), v = input.v.token_major(0, length_);
  const Buffer device_k = uploaded(device, k), device_v = uploaded(device, v);
  const Buffer indptr = uploaded(device, std::vector<std::int32_t>{0, length_});
  const Buffer empty = uploaded(device, std::vector<std::int32_t>{0});
  const ExecDesc exec{settings.backend.empty() ? nullptr : settings.backend.c_str(), nullptr, settings.threads};
  for (std::int32_t b = 0; b < settings.batch; ++b) {
    append_seconds_ += device.seconds([&] {
      check(
          append_two_tier(tiers_, kv_input(input.k, device_k.data()), kv_input(input.v, device_v.data()),
                          indptr.as<std::int32_t>(), empty.as<std::int32_t>(), 1, length_,
                          device_table_.as<std::int32_t>() + std::int64_t{b} * pages_per_sequence_, pages_per_sequence_,
                          device_recent_table_.as<std::int32_t>() + std::int64_t{b} * tiers_.ring_pages, exec),
          "append_two_tier");
    });
  }
}

void FilledCache::describe(AttentionConfig& config) const {
  config.cache = tiers_.old_tier;
  config.two_tier = tiers_.window_tokens != 0;
  if (!config.two_tier) return;
  config.recent = tiers_.recent;
  config.window_tokens = tiers_.window_tokens;
  config.group_tokens = tiers_.group_tokens;
  config.ring_pages = tiers_.ring_pages;
}

void FilledCache::describe(AttentionArgs& args) const {
  args.block_table = device_table_.as<std::int32_t>();
  args.table_stride = pages_per_sequence_;
  args.recent_table = tiers_.window_tokens != 0 ? device_recent_table_.as<std::int32_t>() : nullptr;
}

FilledCache::HostCopy FilledCache::host_copy(Device& device, Device& host) const {
  HostCopy copy;
  copy.old_tier = old_tier_.host_copy(device, host);
  if (tiers_.window_tokens != 0) copy.recent = recent_.host_copy(device, host);
  return copy;
}

void FilledCache::describe_host(const HostCopy& copy, AttentionConfig& config, AttentionArgs& args) const {
  describe(config);
  config.cache = copy.old_tier.desc();
  if (config.two_tier) config.recent = copy.recent.desc();
  args.block_table = table_.data();
  args.table_stride = pages_per_sequence_;
  args.recent_table = recent_table_.data();
}

double FilledCache::bytes_per_token() const {
  const double old_bytes = tool::bytes_per_token(tiers_.old_tier);
  if (tiers_.window_tokens == 0) return old_bytes;
  const double old_tokens = quantised_tokens(length_, tiers_.window_tokens, tiers_.group_tokens);
  return (old_tokens * old_bytes + (length_ - old_tokens) * tool::bytes_per_token(tiers_.recent)) / length_;
}

}  // namespace fp4pa::tool
