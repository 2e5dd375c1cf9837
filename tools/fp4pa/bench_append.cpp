// `fp4pa bench append`: new tokens into a paged cache (rotated and quantised on the way), and back out of it (gather).
//
// Bytes are those of both sides: the input read and the codes and scales written, or the other way round. Slots are
// scattered page by page, as a serving engine's are, or token by token.
#include <fmt/format.h>

#include <memory>

#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/options.hpp"
#include "tools/fp4pa/paged_cache.hpp"

namespace fp4pa::tool {
namespace {

/// What neighbouring tokens of the input share in the cache.
enum class Slots { kPages, kTokens };
constexpr Slots kAllSlots[] = {Slots::kPages, Slots::kTokens};
constexpr const char* name_of(Slots slots) { return slots == Slots::kPages ? "pages" : "tokens"; }

struct AppendAxes {
  std::string formats = "bf16,mxfp4,nvfp4", page_sizes = "64", tokens = "32768", rotations = "0", v_scale_axes = "head_dim",
              scale_mode = "floor", dtype = "bf16", slots = "pages";
  int kv_heads = 8, head_dim = 128;
  bool four_over_six = false;
};

struct AppendSpec {
  std::string format;
  KvCacheDesc desc;
  DType dtype = DType::kBF16;
  Slots slots = Slots::kPages;
  int tokens = 0;

  [[nodiscard]] std::string label() const {
    return fmt::format("append and gather {} page {} {} tokens {} heads D{} rotation {} V along {}, {} scattered, {} {}{}",
                       format, desc.page_size, tokens, desc.num_kv_heads, desc.head_dim, static_cast<int>(desc.rotation),
                       fp4pa::name_of(desc.v.scale_axis), name_of(slots), fp4pa::name_of(dtype),
                       fp4pa::name_of(desc.scale_mode), desc.nvfp4_scale == Nvfp4Scale::kFourOverSix ? " 4/6" : "");
  }
  [[nodiscard]] nlohmann::ordered_json config() const {
    return {{"format", format},
            {"page_size", desc.page_size},
            {"tokens", tokens},
            {"kv_heads", desc.num_kv_heads},
            {"head_dim", desc.head_dim},
            {"rotation", static_cast<int>(desc.rotation)},
            {"v_scale_axis", fp4pa::name_of(desc.v.scale_axis)},
            {"scale_mode", fp4pa::name_of(desc.scale_mode)},
            {"four_over_six", desc.nvfp4_scale == Nvfp4Scale::kFourOverSix},
            {"slots", name_of(slots)},
            {"dtype", fp4pa::name_of(dtype)}};
  }
};

std::vector<std::int64_t> slots_of(const AppendSpec& spec) {
  const int page_size = spec.desc.page_size;
  const std::vector<std::int32_t> order = page_order(spec.slots == Slots::kPages ? spec.desc.num_pages : spec.tokens, 7);
  std::vector<std::int64_t> slots(static_cast<std::size_t>(spec.tokens));
  for (int i = 0; i < spec.tokens; ++i) {
    slots[static_cast<std::size_t>(i)] =
        spec.slots == Slots::kTokens
            ? order[static_cast<std::size_t>(i)]
            : std::int64_t{order[static_cast<std::size_t>(i / page_size)]} * page_size + i % page_size;
  }
  return slots;
}

void append_and_gather(const AppendSpec& spec, const std::vector<int>& threads, BenchReport& report) {
  Device& device = report.device();
  PagedCache cache(device, spec.desc, PageLayout::kHnd);
  cache.fill_random(device, 1);
  const std::int64_t heads = spec.desc.num_kv_heads, dim = spec.desc.head_dim, row = heads * dim;
  const auto input_bytes = static_cast<std::size_t>(spec.tokens * row * size_of(spec.dtype));
  const Buffer k = device.allocate(input_bytes), v = device.allocate(input_bytes);
  const Fill pattern = fill_of(spec.dtype);
  device.fill(k, pattern, 3);
  device.fill(v, pattern, 4);
  const std::vector<std::int64_t> host_slots = slots_of(spec);
  const Buffer slots = device.allocate(host_slots.size() * sizeof(std::int64_t));
  device.upload(slots.data(), host_slots.data(), slots.bytes());

  for (const int t : threads) {
    const ExecDesc exec{report.options().backend_name(), nullptr, t};
    const auto one = [&](const char* name, const std::function<void()>& work) {
      BenchResult r;
      r.bench = name;
      r.config = spec.config();
      if (device.has_threads()) r.config["threads"] = t;
      r.config["backend"] = backend_in_use(report.options().backend);
      r.time = measure(device, report.options(), work);
      r.bytes = 2.0 * static_cast<double>(input_bytes) + spec.tokens * bytes_per_token(cache.desc());
      r.figures["Mtoken_heads_per_s"] = 1e-6 * spec.tokens * static_cast<double>(heads) / r.time.median;
      report.add(std::move(r));
    };
    one("append", [&] {
      check(append(cache.desc(), {k.data(), spec.dtype, row, dim}, {v.data(), spec.dtype, row, dim}, slots.data(),
                   IndexType::kInt64, spec.tokens, exec),
            "append");
    });
    one("gather", [&] {
      check(gather(cache.desc(), slots.data(), IndexType::kInt64, spec.tokens, {k.data(), spec.dtype, row, dim},
                   {v.data(), spec.dtype, row, dim}, exec),
            "gather");
    });
  }
}

class BenchAppend final : public Benchmark {
 public:
  void add_options(Command c) override {
    c.add_option("--tokens", axes_.tokens, "Tokens of a call, a list: 1K,64K").capture_default_str();
    c.add_option("--kv-heads", axes_.kv_heads, "KV heads").check(integer_from(1)).capture_default_str();
    c.add_option("--head-dim", axes_.head_dim, "Head size").capture_default_str();
    c.add_option("--page-size", axes_.page_sizes, "Tokens of a page, a list").capture_default_str();
    c.add_option("--format", axes_.formats, "KV formats, a list of " + format_names()).capture_default_str();
    c.add_option("--v-scale-axis", axes_.v_scale_axes, "head_dim, tokens, a list").capture_default_str();
    c.add_option("--scale-mode", axes_.scale_mode, "floor, ceil, rceil or even").capture_default_str();
    c.add_flag("--four-over-six", axes_.four_over_six, "NVFP4: amax/6 or amax/4, whichever errs less");
    c.add_option("--rotation", axes_.rotations, "Hadamard block: 0, 16, 32, 64, 128, a list").capture_default_str();
    c.add_option("--slots", axes_.slots, "What is scattered over the cache: pages or tokens").capture_default_str();
    c.add_option("--dtype", axes_.dtype, "Of the tokens: " + dtype_names()).capture_default_str();
  }

  std::vector<BenchStep> steps(const std::vector<int>& threads) override {
    std::vector<BenchStep> steps;
    for (const std::string& format : split_list(axes_.formats, "--format")) {
      for (const int page_size : split_integers(axes_.page_sizes, "--page-size")) {
        for (const int tokens : split_integers(axes_.tokens, "--tokens")) {
          for (const int rotation : split_integers(axes_.rotations, "--rotation", 0)) {
            for (const std::string& axis : split_list(axes_.v_scale_axes, "--v-scale-axis")) {
              const AppendSpec spec = spec_of(format, page_size, tokens, rotation, axis);
              steps.push_back(
                  {spec.label(), [spec, threads](BenchReport& report) { append_and_gather(spec, threads, report); }});
            }
          }
        }
      }
    }
    return steps;
  }

 private:
  [[nodiscard]] AppendSpec spec_of(const std::string& format, int page_size, int tokens, int rotation,
                                   const std::string& axis) const {
    AppendSpec spec;
    spec.format = format;
    spec.dtype = parse_name<DType>(axes_.dtype, kAllDTypes, "dtype");
    spec.slots = parse_name<Slots>(axes_.slots, kAllSlots, "--slots");
    spec.tokens = tokens;
    KvCacheDesc& desc = spec.desc;
    desc.k.format = desc.v.format = parse_format(format);
    desc.v.scale_axis = parse_v_scale_axis(axis, desc.v.format);
    if (desc.v.scale_axis == VScaleAxis::kTokens && spec.slots == Slots::kTokens) {
      throw Failure(Exit::kUsage,
                    "--slots tokens: V scaled along tokens is appended in whole groups of neighbours; allowed: pages");
    }
    desc.num_kv_heads = axes_.kv_heads;
    desc.head_dim = axes_.head_dim;
    desc.page_size = page_size;
    desc.rotation = parse_rotation(rotation);
    desc.scale_mode = parse_name<ScaleMode>(axes_.scale_mode, kAllScaleModes, "scale mode");
    desc.nvfp4_scale = axes_.four_over_six ? Nvfp4Scale::kFourOverSix : Nvfp4Scale::kAmaxOver6;
    desc.num_pages = (std::int64_t{tokens} + page_size - 1) / page_size;
    return spec;
  }
  AppendAxes axes_;
};

}  // namespace

std::unique_ptr<Benchmark> make_bench_append() { return std::make_unique<BenchAppend>(); }

}  // namespace fp4pa::tool
