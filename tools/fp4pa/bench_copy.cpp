// `fp4pa bench copy`: pages of a cache to other pages of it, as a fork does. Bytes are those read and those written. Both kinds of pages
// are scattered over the pool.
#include <fmt/format.h>

#include <memory>

#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/options.hpp"
#include "tools/fp4pa/paged_cache.hpp"

namespace fp4pa::tool {
namespace {

struct CopyAxes {
  std::string formats = "bf16,mxfp4,nvfp4", page_sizes = "64", pages = "1K", layout = "hnd";
  int kv_heads = 8, head_dim = 128;
};

struct CopySpec {
  std::string format;
  PageLayout layout = PageLayout::kHnd;
  KvCacheDesc desc;
  int pages = 0;

  [[nodiscard]] std::string label() const {
    return fmt::format("copy {} pages {} of {} tokens {} heads D{} {}", pages, format, desc.page_size, desc.num_kv_heads, desc.head_dim,
                       name_of(layout));
  }
};

void copy_scattered(const CopySpec& spec, const std::vector<int>& threads, BenchReport& report) {
  Device& device = report.device();
  const PagedCache cache(device, spec.desc, spec.layout);
  const std::vector<std::int32_t> order = page_order(spec.desc.num_pages, 7);
  const Buffer ids = device.allocate(order.size() * sizeof(std::int32_t));
  device.upload(ids.data(), order.data(), ids.bytes());
  for (const int t : threads) {
    const ExecDesc exec{report.options().backend_name(), nullptr, t};
    BenchResult r;
    r.bench = "copy";
    r.config = {{"format", spec.format},          {"page_size", spec.desc.page_size}, {"pages", spec.pages},
                {"kv_heads", spec.desc.num_kv_heads}, {"head_dim", spec.desc.head_dim},   {"layout", name_of(spec.layout)}};
    if (device.has_threads()) r.config["threads"] = t;
    r.config["backend"] = backend_in_use(report.options().backend);
    r.time = measure(device, report.options(), [&] {
      check(copy_pages(cache.desc(), ids.as<std::int32_t>(), ids.as<std::int32_t>() + spec.pages, spec.pages, exec), "copy_pages");
    });
    r.bytes = 2.0 * spec.pages * spec.desc.page_size * bytes_per_token(cache.desc());
    r.figures["Mpages_per_s"] = 1e-6 * spec.pages / r.time.median;
    report.add(std::move(r));
  }
}

class BenchCopy final : public Benchmark {
 public:
  void add_options(Command c) override {
    c.add_option("--pages", axes_.pages, "Pages of a call, a list: 1,4K; the pool has twice as many").capture_default_str();
    c.add_option("--kv-heads", axes_.kv_heads, "KV heads").check(integer_from(1)).capture_default_str();
    c.add_option("--head-dim", axes_.head_dim, "Head size").capture_default_str();
    c.add_option("--page-size", axes_.page_sizes, "Tokens of a page, a list").capture_default_str();
    c.add_option("--format", axes_.formats, "KV formats, a list of " + format_names()).capture_default_str();
    c.add_option("--layout", axes_.layout, "Of a page: hnd, nhd, or interleaved: both tensors with their scales side by side").capture_default_str();
  }

  std::vector<BenchStep> steps(const std::vector<int>& threads) override {
    std::vector<BenchStep> steps;
    CopySpec spec;
    spec.layout = parse_name<PageLayout>(axes_.layout, kAllPageLayouts, "--layout");
    spec.desc.num_kv_heads = axes_.kv_heads;
    spec.desc.head_dim = axes_.head_dim;
    for (const std::string& format : split_list(axes_.formats, "--format")) {
      spec.format = format;
      spec.desc.k.format = spec.desc.v.format = parse_format(format);
      for (const int page_size : split_integers(axes_.page_sizes, "--page-size")) {
        spec.desc.page_size = page_size;
        for (const int pages : split_integers(axes_.pages, "--pages")) {
          spec.pages = pages;
          spec.desc.num_pages = 2 * std::int64_t{pages};
          steps.push_back({spec.label(), [spec, threads](BenchReport& report) { copy_scattered(spec, threads, report); }});
        }
      }
    }
    return steps;
  }

 private:
  CopyAxes axes_;
};

}  // namespace

std::unique_ptr<Benchmark> make_bench_copy() { return std::make_unique<BenchCopy>(); }

}  // namespace fp4pa::tool
