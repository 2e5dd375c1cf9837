// `fp4pa bench append`: new tokens into a paged cache (rotated and quantised on the way), and back out of it (gather).
//
// Bytes are those of both sides: the input read and the codes and scales written, or the other way round. Slots are
// scattered page by page, as a serving engine's are.
#include <fmt/format.h>

#include <memory>

#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/paged_cache.hpp"

namespace fp4pa::tool {
namespace {

struct AppendOptions {
  BenchOptions common;
  std::string formats = "bf16,mxfp4,nvfp4", page_sizes = "64", v_scale_axis = "head_dim", scale_mode = "floor",
              dtype = "bf16";
  int tokens = 32768, kv_heads = 8, head_dim = 128, rotation = 0;
  bool four_over_six = false;
};

struct Tensors {
  Buffer k, v, slots;
};

BenchResult result_of(const AppendOptions& o, const char* name, const std::string& format, int page_size, int threads) {
  BenchResult r;
  r.bench = name;
  r.config = {{"op", name},
              {"format", format},
              {"page_size", page_size},
              {"threads", threads},
              {"tokens", o.tokens},
              {"kv_heads", o.kv_heads},
              {"head_dim", o.head_dim},
              {"rotation", o.rotation},
              {"v_scale_axis", o.v_scale_axis},
              {"scale_mode", o.scale_mode},
              {"four_over_six", o.four_over_six},
              {"dtype", o.dtype}};
  return r;
}

void append_and_gather(Device& device, const AppendOptions& o, const std::string& format, int page_size, int threads,
                       BenchReport& report) {
  const DType dtype = parse_name<DType>(o.dtype, kAllDTypes, "dtype");
  KvCacheDesc desc;
  desc.k.format = desc.v.format = parse_format(format);
  const bool has_axis = desc.v.format == KvFormat::kMxfp4 || desc.v.format == KvFormat::kNvfp4;
  if (has_axis) desc.v.scale_axis = parse_name<VScaleAxis>(o.v_scale_axis, kAllScaleAxes, "V scale axis");
  desc.num_kv_heads = o.kv_heads;
  desc.head_dim = o.head_dim;
  desc.page_size = page_size;
  desc.rotation = parse_rotation(o.rotation);
  desc.scale_mode = parse_name<ScaleMode>(o.scale_mode, kAllScaleModes, "scale mode");
  desc.nvfp4_scale = o.four_over_six ? Nvfp4Scale::kFourOverSix : Nvfp4Scale::kAmaxOver6;
  desc.num_pages = (o.tokens + page_size - 1) / page_size;
  PagedCache cache(device, desc, PageLayout::kHnd);
  cache.fill_random(device, 1);

  const std::int64_t row = std::int64_t{o.kv_heads} * o.head_dim;
  const auto input_bytes = static_cast<std::size_t>(o.tokens * row * size_of(dtype));
  Tensors t{device.allocate(input_bytes), device.allocate(input_bytes), {}};
  const Fill pattern = dtype == DType::kF32 ? Fill::kF32 : dtype == DType::kF16 ? Fill::kF16 : Fill::kBf16;
  device.fill(t.k, pattern, 3);
  device.fill(t.v, pattern, 4);
  const std::vector<std::int32_t> pages = page_order(desc.num_pages, 7);
  std::vector<std::int64_t> slots(static_cast<std::size_t>(o.tokens));
  for (int i = 0; i < o.tokens; ++i) {
    slots[static_cast<std::size_t>(i)] =
        std::int64_t{pages[static_cast<std::size_t>(i / page_size)]} * page_size + i % page_size;
  }
  t.slots = device.allocate(slots.size() * sizeof(std::int64_t));
  device.upload(t.slots.data(), slots.data(), t.slots.bytes());

  const ExecDesc exec{o.common.backend.empty() ? nullptr : o.common.backend.c_str(), nullptr, threads};
  const double bytes = 2.0 * static_cast<double>(input_bytes) + o.tokens * bytes_per_token(cache.desc());
  BenchResult in = result_of(o, "append", format, page_size, threads);
  in.time = measure(device, o.common, [&] {
    check(append(cache.desc(), {t.k.data(), dtype, row, o.head_dim}, {t.v.data(), dtype, row, o.head_dim},
                 t.slots.data(), IndexType::kInt64, o.tokens, exec),
          "append");
  });
  BenchResult out = result_of(o, "gather", format, page_size, threads);
  out.time = measure(device, o.common, [&] {
    check(gather(cache.desc(), t.slots.data(), IndexType::kInt64, o.tokens, {t.k.data(), dtype, row, o.head_dim},
                 {t.v.data(), dtype, row, o.head_dim}, exec),
          "gather");
  });
  for (BenchResult* r : {&in, &out}) {
    r->bytes = bytes;
    r->figures["Mtoken_heads_per_s"] = 1e-6 * o.tokens * o.kv_heads / r->time.median;
    report.add(std::move(*r));
  }
}

void bench_append(const AppendOptions& o) {
  const std::vector<std::string> formats = split_list(o.formats, "--format");
  const std::vector<int> page_sizes = split_integers(o.page_sizes, "--page-size");
  const std::vector<int> threads = split_integers(o.common.threads, "--threads");
  const auto device = make_device(o.common.backend);
  BenchReport report(*device, o.common);
  {
    Progress progress(static_cast<int>(formats.size() * page_sizes.size() * threads.size()), o.common.progress);
    for (const int t : threads) (void)report.bandwidth(t);
    for (const std::string& format : formats) {
      for (const int page_size : page_sizes) {
        for (const int t : threads) {
          progress.step(fmt::format("append and gather {} page {} threads {}", format, page_size, t));
          append_and_gather(*device, o, format, page_size, t, report);
        }
      }
    }
  }
  report.finish({"op", "format", "page_size", "threads"}, {"Mtoken_heads_per_s"});
}

}  // namespace

void add_bench_append(CLI::App& bench) {
  auto o = std::make_shared<AppendOptions>();
  CLI::App* command = bench.add_subcommand("append", "Append to a paged cache, and gather from it");
  command->add_option("--tokens", o->tokens, "Tokens of a call")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--kv-heads", o->kv_heads, "KV heads")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--head-dim", o->head_dim, "Head size")->capture_default_str();
  command->add_option("--page-size", o->page_sizes, "Tokens of a page, a list")->capture_default_str();
  command->add_option("--format", o->formats, "KV formats, a list")->capture_default_str();
  command->add_option("--v-scale-axis", o->v_scale_axis, "head_dim or tokens")->capture_default_str();
  command->add_option("--scale-mode", o->scale_mode, "floor, ceil, rceil or even")->capture_default_str();
  command->add_flag("--four-over-six", o->four_over_six, "NVFP4: amax/6 or amax/4, whichever errs less");
  command->add_option("--rotation", o->rotation, "Hadamard block: 0, 16, 32, 64, 128");
  command->add_option("--dtype", o->dtype, "Of the tokens")->capture_default_str();
  add_bench_options(*command, o->common);
  command->callback([o] { bench_append(*o); });
}

}  // namespace fp4pa::tool
