// `fp4pa bench gemm`: x times an FP4 weight. Bytes are those of the weight, x and the result.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "fp4pa/gemm.hpp"
#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"

namespace fp4pa::tool {
namespace {

constexpr ActivationForm kAllForms[] = {ActivationForm::k16Bit, ActivationForm::kFp4};

struct GemmBenchOptions {
  BenchOptions common;
  std::string shapes = "1x4096x4096,16x4096x4096,128x2880x2880", formats = "mxfp4,nvfp4", forms = "a16,a4", layout = "linear";
};

struct Shape {
  long long m = 0, n = 0, k = 0;
};

Shape parse_shape(const std::string& text) {
  Shape s;
  int used = 0;
  constexpr long long kMost = 1 << 20;
  if (std::sscanf(text.c_str(), "%lldx%lldx%lld%n", &s.m, &s.n, &s.k, &used) != 3 ||
      static_cast<std::size_t>(used) != text.size() || s.m <= 0 || s.n <= 0 || s.k <= 0 || s.m > kMost || s.n > kMost || s.k > kMost) {
    throw Failure(Exit::kUsage, "--shape: '" + text + "' is not MxNxK with all three from 1 to 2^20");
  }
  return s;
}

void one(Device& device, const GemmBenchOptions& o, BlockFormat format, ActivationForm form, const Shape& s, int threads,
         BenchReport& report) {
  LinearArgs a;
  a.weight.format = format;
  a.weight.scale_layout = o.layout == "blocked" ? ScaleLayout::kBlocked : parse_name<ScaleLayout>(o.layout, kAllScaleLayouts, "scale layout");
  a.weight.rows = s.n;
  a.weight.cols = s.k;
  a.m = s.m;
  a.activations = form;
  const ExecDesc exec{o.common.backend.empty() ? nullptr : o.common.backend.c_str(), nullptr, threads};
  check(fp4_linear_workspace(a, &a.workspace_bytes, exec), "fp4_linear_workspace");
  const Buffer codes = device.allocate(fp4_weight_code_bytes(format, s.n, s.k));
  const Buffer scales = device.allocate(fp4_weight_scale_bytes(format, a.weight.scale_layout, s.n, s.k));
  const Buffer x = device.allocate(static_cast<std::size_t>(2 * s.m * s.k));
  const Buffer out = device.allocate(static_cast<std::size_t>(2 * s.m * s.n));
  const Buffer workspace = device.allocate(a.workspace_bytes);
  device.fill(codes, Fill::kBytes, 1);
  device.fill(scales, format == BlockFormat::kNvfp4 ? Fill::kE4m3Scales : Fill::kE8m0Scales, 2);
  device.fill(x, Fill::kBf16, 3);
  a.weight.codes = codes.data();
  a.weight.scales = scales.data();
  a.x = x.data();
  a.out = out.data();
  a.workspace = workspace.data();

  BenchResult r;
  r.bench = "gemm";
  r.config = {{"format", name_of(format)}, {"activations", name_of(form)}, {"shape", fmt::format("{}x{}x{}", s.m, s.n, s.k)}, {"threads", threads}, {"scale_layout", o.layout}};
  r.time = measure(device, o.common, [&] { check(fp4_linear(a, exec), "fp4_linear"); });
  r.bytes = static_cast<double>(codes.bytes() + scales.bytes() + x.bytes() + out.bytes());
  r.figures["GFLOP_per_s"] = 2e-9 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) / r.time.median;
  report.add(std::move(r));
}

void bench_gemm(const GemmBenchOptions& o) {
  std::vector<Shape> shapes;
  for (const std::string& text : split_list(o.shapes, "--shape")) shapes.push_back(parse_shape(text));
  std::vector<BlockFormat> formats;
  for (const std::string& text : split_list(o.formats, "--format")) {
    formats.push_back(parse_name<BlockFormat>(text, std::span(kAllBlockFormats).first(2), "format"));
  }
  std::vector<ActivationForm> forms;
  for (const std::string& text : split_list(o.forms, "--activations")) {
    forms.push_back(parse_name<ActivationForm>(text, kAllForms, "activations"));
  }
  const std::vector<int> threads = split_integers(o.common.threads, "--threads");
  const auto device = make_device(o.common.backend);
  BenchReport report(*device, o.common);
  {
    Progress progress(static_cast<int>(shapes.size() * formats.size() * forms.size() * threads.size()), o.common.progress);
    for (const int t : threads) (void)report.bandwidth(t);
    for (const Shape& s : shapes) {
      for (const BlockFormat format : formats) {
        for (const ActivationForm form : forms) {
          for (const int t : threads) {
            progress.step(fmt::format("gemm {} {} {}x{}x{} threads {}", name_of(format), name_of(form), s.m, s.n, s.k, t));
            one(*device, o, format, form, s, t, report);
          }
        }
      }
    }
  }
  report.finish({"format", "activations", "shape", "threads"}, {"GFLOP_per_s"});
}

}  // namespace

void add_bench_gemm(CLI::App& bench) {
  auto o = std::make_shared<GemmBenchOptions>();
  CLI::App* command = bench.add_subcommand("gemm", "Multiply bf16 activations with an FP4 weight");
  command->add_option("--shape", o->shapes, "MxNxK, a list")->capture_default_str();
  command->add_option("--format", o->formats, "mxfp4, nvfp4, a list")->capture_default_str();
  command->add_option("--activations", o->forms, "a16, a4, a list")->capture_default_str();
  command->add_option("--scale-layout", o->layout, "linear or blocked")->capture_default_str();
  add_bench_options(*command, o->common);
  command->callback([o] { bench_gemm(*o); });
}

}  // namespace fp4pa::tool
