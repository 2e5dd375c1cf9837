// See decode_case.hpp.
#include "tools/fp4pa/decode_case.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"

namespace fp4pa::tool {
namespace {

constexpr std::int32_t kGroupTokens = 32;
constexpr std::int32_t kRecentPageTokens = 16;

std::int32_t pages_of(std::int32_t tokens, int page_size) {
  return static_cast<std::int32_t>((std::int64_t{tokens} + page_size - 1) / page_size);
}

}  // namespace

std::vector<std::int32_t> lengths_of(const DecodeSpec& spec) {
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(spec.batch), spec.kv_len);
  if (!spec.ragged) return lengths;
  std::mt19937_64 random(7);
  for (std::int32_t& length : lengths) {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    length = std::max(spec.q_len, static_cast<std::int32_t>(std::exp2(u * std::log2(static_cast<double>(spec.kv_len)))));
  }
  return lengths;
}

DecodeCase::DecodeCase(Device& device, const DecodeSpec& spec, const char* backend) : lengths_(lengths_of(spec)) {
  KvCacheDesc desc;
  desc.k.format = spec.k;
  desc.v.format = spec.v;
  desc.v.scale_axis = spec.v_scale_axis;
  desc.num_kv_heads = spec.kv_heads;
  desc.head_dim = spec.head_dim;
  desc.page_size = spec.page_size;
  desc.rotation = parse_rotation(spec.rotation);
  for (const std::int32_t length : lengths_) desc.num_pages += pages_of(length, spec.page_size);
  check_description(desc);

  config_.cache = without_memory(desc, order_of(spec.page_order));
  config_.num_q_heads = spec.heads;
  config_.q_dtype = config_.o_dtype = spec.dtype;
  config_.causal = spec.causal;
  same_lengths_ = spec.same_lengths;
  config_.sliding_window = spec.sliding_window;
  config_.max_batch = spec.batch;
  config_.max_q_len = spec.q_len;
  config_.max_q_tokens = spec.batch * spec.q_len;
  config_.max_kv_len = spec.kv_len;
  config_.kv_split_tokens = spec.splits;
  config_.backend = backend;
  if (spec.window != 0) describe_recent_tier(spec, desc);
  plans_.resize(static_cast<std::size_t>(spec.layers));
  check(fp4pa::plan(config_, &plans_.front()), "plan");  // refuses what is too large, before there is memory for it

  for (int layer = 0; layer < spec.layers; ++layer) {
    caches_.emplace_back(device, desc, spec.page_order).fill_random(device, 1 + 2 * layer);
    if (spec.window != 0) recent_.emplace_back(device, config_.recent, PageLayout::kHnd).fill_random(device, 2 + 2 * layer);
  }
  add_tables(device, spec);
  const auto rows = static_cast<std::size_t>(config_.max_q_tokens) * static_cast<std::size_t>(spec.heads);
  const std::size_t row_bytes = static_cast<std::size_t>(spec.head_dim * size_of(spec.dtype));
  q_ = device.allocate(rows * row_bytes);
  device.fill(q_, fill_of(spec.dtype), 9);
  o_ = device.allocate(rows * row_bytes);
  lse_ = device.allocate(rows * sizeof(float));
  args_.q = q_.data();
  args_.o = o_.data();
  args_.lse = lse_.as<float>();
  args_.batch = spec.batch;
}

/// Pages are handed out sequence by sequence, from an order that is scattered unless asked otherwise.
void DecodeCase::add_tables(Device& device, const DecodeSpec& spec) {
  const std::int32_t stride = pages_of(spec.kv_len, spec.page_size);
  const std::vector<std::int32_t> order = page_order(config_.cache.num_pages, spec.in_order ? 0 : 7);
  std::vector<std::int32_t> table(static_cast<std::size_t>(spec.batch) * static_cast<std::size_t>(stride), 0);
  std::vector<std::int32_t> indptr{0};
  auto next = order.begin();
  for (std::size_t b = 0; b < lengths_.size(); ++b) {
    const std::int32_t pages = pages_of(lengths_[b], spec.page_size);
    std::copy(next, next + pages, table.begin() + static_cast<std::ptrdiff_t>(b) * stride);
    next += pages;
    indptr.push_back(indptr.back() + spec.q_len);
  }
  table_ = uploaded(device, table);
  indptr_ = uploaded(device, indptr);
  lens_ = uploaded(device, lengths_);
  args_.qo_indptr = indptr_.as<std::int32_t>();
  args_.seq_lens = lens_.as<std::int32_t>();
  args_.block_table = table_.as<std::int32_t>();
  args_.table_stride = stride;
  if (!config_.two_tier) return;
  recent_table_ = uploaded(device, page_order(config_.recent.num_pages, 7));
  args_.recent_table = recent_table_.as<std::int32_t>();
}

void DecodeCase::describe_recent_tier(const DecodeSpec& spec, const KvCacheDesc& desc) {
  KvCacheDesc recent = desc;
  recent.k = KvTensorDesc{};
  recent.v = KvTensorDesc{};
  recent.k.format = recent.v.format = KvFormat::kBf16;
  recent.page_size = kRecentPageTokens;
  config_.two_tier = true;
  config_.window_tokens = spec.window;
  config_.group_tokens = kGroupTokens;
  config_.ring_pages = min_ring_pages(spec.window, kGroupTokens, kRecentPageTokens);
  recent.num_pages = std::int64_t{spec.batch} * config_.ring_pages;
  config_.recent = without_memory(recent, PageOrder::kHnd, Tier::kRecent);
}

std::function<void(void*)> DecodeCase::prepare(Device& device, int threads) {
  config_.num_threads = threads;
  for (std::size_t layer = 0; layer < plans_.size(); ++layer) {
    config_.cache = caches_[layer].desc();
    if (config_.two_tier) config_.recent = recent_[layer].desc();
    check(fp4pa::plan(config_, &plans_[layer]), "plan");
  }
  workspace_ = device.allocate(plan().workspace_bytes());
  args_.workspace = workspace_.data();
  args_.workspace_bytes = workspace_.bytes();
  args_.same_lengths = false;
  return [this](void* stream) {
    args_.stream = stream;
    for (const AttentionPlan& layer : plans_) {
      check(run(layer, args_), "run");
      args_.same_lengths = true;
    }
    args_.same_lengths = same_lengths_;
  };
}

double DecodeCase::bytes() const {
  double sum = 0.0;
  for (const std::int32_t length : lengths_) {
    const std::int64_t reach =
        config_.sliding_window == 0 ? length : std::int64_t{config_.sliding_window} + config_.max_q_len - 1;
    const auto visible = static_cast<std::int32_t>(std::min<std::int64_t>(length, reach));
    sum += visible * bytes_per_token(cache());
    if (!config_.two_tier) continue;
    const std::int32_t recent = length - quantised_tokens(length, config_.window_tokens, config_.group_tokens);
    sum += std::min(recent, visible) * (bytes_per_token(recent_.front().desc()) - bytes_per_token(cache()));
  }
  return sum;
}

double DecodeCase::operations() const {
  // Causal: query i of q_len stands at key length - q_len + i and sees the keys up to it, within the sliding window.
  double pairs = 0.0;
  for (const std::int32_t length : lengths_) {
    if (!config_.causal) {
      pairs += static_cast<double>(length) * config_.max_q_len;
      continue;
    }
    for (std::int32_t i = 0; i < config_.max_q_len; ++i) {
      const std::int32_t keys = std::max(0, length - config_.max_q_len + i + 1);
      pairs += config_.sliding_window == 0 ? keys : std::min(keys, config_.sliding_window);
    }
  }
  return 4.0 * pairs * config_.cache.head_dim * config_.num_q_heads;
}

double DecodeCase::tokens() const {
  double sum = 0.0;
  for (const std::int32_t length : lengths_) sum += length;
  return sum;
}

}  // namespace fp4pa::tool
