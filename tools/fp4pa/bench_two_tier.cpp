// `fp4pa bench append_two_tier`: new tokens into a cache of two tiers, whose ring gives up what leaves the window. Bytes are those of the
// input and of both tiers' new rows; rows that are read back from the ring, and those that it has no room for, are not counted.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "fp4pa/cache.hpp"
#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/options.hpp"
#include "tools/fp4pa/paged_cache.hpp"

namespace fp4pa::tool {
namespace {

struct TwoTierAxes {
  std::string formats = "mxfp4,nvfp4", batches = "64", lengths = "8K", tokens = "1", v_scale_axes = "head_dim";
  int kv_heads = 8, head_dim = 128, page_size = 64, window = 64, group = 32;
};

struct TwoTierSpec {
  std::string format;
  VScaleAxis v_scale_axis = VScaleAxis::kHeadDim;
  TwoTierDesc desc;
  int batch = 0, length = 0, tokens = 0;

  [[nodiscard]] std::string label() const {
    return fmt::format("append_two_tier {} batch {} {} new tokens after {}, window {} group {}, {} heads D{} V along {}", format, batch, tokens,
                       length, desc.window_tokens, desc.group_tokens, desc.old_tier.num_kv_heads, desc.old_tier.head_dim,
                       fp4pa::name_of(v_scale_axis));
  }
};

void append_both(TwoTierSpec spec, const std::vector<int>& threads, BenchReport& report) {
  Device& device = report.device();
  const int after = spec.length + spec.tokens;
  const std::int64_t pages = std::max(old_tier_pages(spec.desc, after), 1);
  spec.desc.old_tier.num_pages = spec.batch * pages;
  spec.desc.recent.num_pages = std::int64_t{spec.batch} * spec.desc.ring_pages;
  PagedCache old_tier(device, spec.desc.old_tier, PageLayout::kHnd), recent(device, spec.desc.recent, PageLayout::kHnd);
  old_tier.fill_random(device, 1);
  recent.fill_random(device, 2);
  spec.desc.old_tier = old_tier.desc();
  spec.desc.recent = recent.desc();

  const std::int64_t row = std::int64_t{spec.desc.old_tier.num_kv_heads} * spec.desc.old_tier.head_dim;
  const std::int64_t num_tokens = std::int64_t{spec.batch} * spec.tokens;
  const auto input_bytes = static_cast<std::size_t>(2 * num_tokens * row);
  const Buffer k = device.allocate(input_bytes), v = device.allocate(input_bytes);
  device.fill(k, Fill::kBf16, 3);
  device.fill(v, Fill::kBf16, 4);
  const auto uploaded = [&](const std::vector<std::int32_t>& values) {
    Buffer buffer = device.allocate(values.size() * sizeof(std::int32_t));
    device.upload(buffer.data(), values.data(), buffer.bytes());
    return buffer;
  };
  std::vector<std::int32_t> starts(static_cast<std::size_t>(spec.batch) + 1);
  for (std::size_t b = 0; b < starts.size(); ++b) starts[b] = static_cast<std::int32_t>(b) * spec.tokens;
  const Buffer indptr = uploaded(starts);
  const Buffer seq_lens = uploaded(std::vector<std::int32_t>(static_cast<std::size_t>(spec.batch), spec.length));
  const Buffer old_table = uploaded(page_order(spec.desc.old_tier.num_pages, 7));
  const Buffer ring = uploaded(page_order(spec.desc.recent.num_pages, 8));

  const auto quantised = [&](int length) { return quantised_tokens(length, spec.desc.window_tokens, spec.desc.group_tokens); };
  const int left = quantised(after) - quantised(spec.length);
  const int kept = std::min(spec.tokens, spec.desc.ring_pages * spec.desc.recent.page_size);
  for (const int t : threads) {
    const ExecDesc exec{report.options().backend_name(), nullptr, t};
    BenchResult r;
    r.bench = "append_two_tier";
    r.config = {{"format", spec.format},
                {"batch", spec.batch},
                {"length", spec.length},
                {"tokens", spec.tokens},
                {"window", spec.desc.window_tokens},
                {"group", spec.desc.group_tokens},
                {"leave", left},
                {"page_size", spec.desc.old_tier.page_size},
                {"kv_heads", spec.desc.old_tier.num_kv_heads},
                {"head_dim", spec.desc.old_tier.head_dim},
                {"v_scale_axis", fp4pa::name_of(spec.v_scale_axis)}};
    if (device.has_threads()) r.config["threads"] = t;
    r.config["backend"] = backend_in_use(report.options().backend);
    r.time = measure(device, report.options(), [&] {
      const std::int64_t head = spec.desc.old_tier.head_dim;
      check(append_two_tier(spec.desc, {k.data(), DType::kBF16, row, head}, {v.data(), DType::kBF16, row, head}, indptr.as<std::int32_t>(),
                            seq_lens.as<std::int32_t>(), spec.batch, num_tokens, old_table.as<std::int32_t>(), pages, ring.as<std::int32_t>(),
                            exec),
            "append_two_tier");
    });
    r.bytes = 2.0 * static_cast<double>(input_bytes) +
              spec.batch * (left * bytes_per_token(spec.desc.old_tier) + kept * bytes_per_token(spec.desc.recent));
    r.figures["Mtoken_heads_per_s"] = 1e-6 * static_cast<double>(num_tokens * spec.desc.old_tier.num_kv_heads) / r.time.median;
    report.add(std::move(r));
  }
}

class BenchTwoTier final : public Benchmark {
 public:
  void add_options(Command c) override {
    c.add_option("--batch", axes_.batches, "Sequences, a list").capture_default_str();
    c.add_option("--length", axes_.lengths, "Tokens of each before, a list: 8K,8191; no group leaves where 1 is appended to 8K")
        .capture_default_str();
    c.add_option("--tokens", axes_.tokens, "New tokens of each, a list").capture_default_str();
    c.add_option("--window", axes_.window, "Tokens that stay, in bf16").check(integer_from(1)).capture_default_str();
    c.add_option("--group", axes_.group, "Tokens that leave together").check(integer_from(1)).capture_default_str();
    c.add_option("--kv-heads", axes_.kv_heads, "KV heads").check(integer_from(1)).capture_default_str();
    c.add_option("--head-dim", axes_.head_dim, "Head size").capture_default_str();
    c.add_option("--page-size", axes_.page_size, "Tokens of a page of the old tier; the recent one's has 32")
        .check(integer_from(1))
        .capture_default_str();
    c.add_option("--format", axes_.formats, "Of the old tier, a list of " + format_names()).capture_default_str();
    c.add_option("--v-scale-axis", axes_.v_scale_axes, "head_dim, tokens, a list").capture_default_str();
  }

  std::vector<BenchStep> steps(const std::vector<int>& threads) override {
    std::vector<BenchStep> steps;
    TwoTierSpec spec;
    KvCacheDesc& old_tier = spec.desc.old_tier;
    KvCacheDesc& recent = spec.desc.recent;
    old_tier.num_kv_heads = recent.num_kv_heads = axes_.kv_heads;
    old_tier.head_dim = recent.head_dim = axes_.head_dim;
    old_tier.page_size = axes_.page_size;
    recent.page_size = 32;
    recent.k.format = recent.v.format = KvFormat::kBf16;
    spec.desc.window_tokens = axes_.window;
    spec.desc.group_tokens = axes_.group;
    spec.desc.ring_pages = min_ring_pages(axes_.window, axes_.group, recent.page_size);
    for (const std::string& format : split_list(axes_.formats, "--format")) {
      spec.format = format;
      old_tier.k.format = old_tier.v.format = parse_format(format);
      for (const std::string& axis : split_list(axes_.v_scale_axes, "--v-scale-axis")) {
        spec.v_scale_axis = old_tier.v.scale_axis = parse_v_scale_axis(axis, old_tier.v.format);
        for (const int batch : split_integers(axes_.batches, "--batch")) {
          for (const int length : split_integers(axes_.lengths, "--length", 0)) {
            for (const int tokens : split_integers(axes_.tokens, "--tokens")) {
              spec.batch = batch;
              spec.length = length;
              spec.tokens = tokens;
              steps.push_back({spec.label(), [spec, threads](BenchReport& report) { append_both(spec, threads, report); }});
            }
          }
        }
      }
    }
    return steps;
  }

 private:
  TwoTierAxes axes_;
};

}  // namespace

std::unique_ptr<Benchmark> make_bench_two_tier() { return std::make_unique<BenchTwoTier>(); }

}  // namespace fp4pa::tool
