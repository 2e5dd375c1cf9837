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

struct GemmAxes {
  std::string shapes = "1x4096x4096,16x4096x4096,128x2880x2880", formats = "mxfp4,nvfp4", forms = "a16,a4",
              layout = "linear", dtypes = "bf16";
};

struct Shape {
  long long m = 0, n = 0, k = 0;
};

Shape parse_shape(const std::string& text) {
  Shape s;
  int used = 0;
  constexpr long long kMost = 1 << 20;
  if (std::sscanf(text.c_str(), "%lldx%lldx%lld%n", &s.m, &s.n, &s.k, &used) != 3 ||
      static_cast<std::size_t>(used) != text.size() || s.m <= 0 || s.n <= 0 || s.k <= 0 || s.m > kMost || s.n > kMost ||
      s.k > kMost) {
    throw Failure(Exit::kUsage, "--shape: '" + text + "' is not MxNxK with all three from 1 to 2^20");
  }
  return s;
}

void multiply(const Shape& s, BlockFormat format, ActivationForm form, ScaleLayout layout, DType dtype,
              const std::vector<int>& threads, BenchReport& report) {
  Device& device = report.device();
  LinearArgs a;
  a.weight.format = format;
  a.weight.scale_layout = layout;
  a.weight.rows = s.n;
  a.weight.cols = s.k;
  a.m = s.m;
  a.x_dtype = a.out_dtype = dtype;
  a.activations = form;
  a.weight_settled = true;  // as a loaded model's
  const Buffer codes = device.allocate(fp4_weight_code_bytes(format, s.n, s.k));
  const Buffer scales = device.allocate(fp4_weight_scale_bytes(format, layout, s.n, s.k));
  const Buffer x = device.allocate(static_cast<std::size_t>(size_of(dtype) * s.m * s.k));
  const Buffer out = device.allocate(static_cast<std::size_t>(size_of(dtype) * s.m * s.n));
  device.fill(codes, Fill::kBytes, 1);
  device.fill(scales, format == BlockFormat::kNvfp4 ? Fill::kE4m3Scales : Fill::kE8m0Scales, 2);
  device.fill(x, dtype == DType::kF32 ? Fill::kF32 : dtype == DType::kF16 ? Fill::kF16 : Fill::kBf16, 3);
  a.weight.codes = codes.data();
  a.weight.scales = scales.data();
  a.x = x.data();
  a.out = out.data();
  for (const int t : threads) {
    const ExecDesc exec{report.options().backend_name(), nullptr, t};
    check(fp4_linear_workspace(a, &a.workspace_bytes, exec), "fp4_linear_workspace");
    const Buffer workspace = device.allocate(a.workspace_bytes);
    a.workspace = workspace.data();
    BenchResult r;
    r.bench = "gemm";
    r.config = {{"format", name_of(format)},
                {"activations", name_of(form)},
                {"shape", fmt::format("{}x{}x{}", s.m, s.n, s.k)},
                {"scale_layout", name_of(layout)},
                {"dtype", name_of(dtype)}};
    if (device.has_threads()) r.config["threads"] = t;
    r.time = measure(device, report.options(), [&] { check(fp4_linear(a, exec), "fp4_linear"); });
    r.bytes = static_cast<double>(codes.bytes() + scales.bytes() + x.bytes() + out.bytes());
    r.figures["GFLOP_per_s"] =
        2e-9 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) / r.time.median;
    report.add(std::move(r));
  }
}

class BenchGemm final : public Benchmark {
 public:
  void add_options(CLI::App& c) override {
    c.add_option("--shape", axes_.shapes, "MxNxK, a list")->capture_default_str();
    c.add_option("--format", axes_.formats, "A list of " + names_of<BlockFormat>(kWeightFormats))->capture_default_str();
    c.add_option("--activations", axes_.forms, "a16, a4, a list")->capture_default_str();
    c.add_option("--scale-layout", axes_.layout, "linear or blocked")->capture_default_str();
    c.add_option("--dtype", axes_.dtypes, "Of x and the result, a list of " + dtype_names() + "; f32 with a4 alone")
        ->capture_default_str();
  }

  std::vector<BenchStep> steps(const std::vector<int>& threads) override {
    std::vector<BenchStep> steps;
    const ScaleLayout layout = parse_scale_layout(axes_.layout);
    for (const std::string& text : split_list(axes_.shapes, "--shape")) {
      const Shape shape = parse_shape(text);
      for (const std::string& format_text : split_list(axes_.formats, "--format")) {
        const auto format = parse_name<BlockFormat>(format_text, kWeightFormats, "format");
        for (const std::string& form_text : split_list(axes_.forms, "--activations")) {
          const auto form = parse_name<ActivationForm>(form_text, kAllForms, "activations");
          for (const std::string& dtype_text : split_list(axes_.dtypes, "--dtype")) {
            const auto dtype = parse_name<DType>(dtype_text, kAllDTypes, "dtype");
            steps.push_back({fmt::format("gemm {} {} {} {} {}", format_text, form_text, text, axes_.layout, dtype_text),
                             [=](BenchReport& report) { multiply(shape, format, form, layout, dtype, threads, report); }});
          }
        }
      }
    }
    return steps;
  }

 private:
  GemmAxes axes_;
};

}  // namespace

std::unique_ptr<Benchmark> make_bench_gemm() { return std::make_unique<BenchGemm>(); }

}  // namespace fp4pa::tool
