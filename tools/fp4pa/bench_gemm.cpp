// `fp4pa bench gemm`: x times an FP4 weight. Bytes are those of the weight, x and the result.
//
// Where the device has graphs a run is a round of calls, recorded as one graph and each on a weight of its own: the products of a
// model follow each other at once, too, and a call alone would be timed with the beginning and the end of a launch, which take as
// long as a small product. perf/peers.py does the same with cuBLAS.
#include <fmt/format.h>

#include <algorithm>
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

constexpr std::size_t kRoundBytes = std::size_t{400} << 20;  // of the codes that a round reads
constexpr std::size_t kMostCalls = 64;                       // of a round: enough for a launch to count for nothing

/// Calls of a run.
int calls_of(const Device& device, std::size_t code_bytes) {
  if (!device.has_graphs()) return 1;
  return static_cast<int>(std::clamp<std::size_t>((kRoundBytes + code_bytes - 1) / code_bytes, 2, kMostCalls));
}

/// Memory of so many arrays, one behind the other.
class Arrays {
 public:
  Arrays(Device& device, int count, std::size_t bytes, Fill pattern, std::uint64_t seed)
      : step_((bytes + 255) / 256 * 256), memory_(device.allocate(static_cast<std::size_t>(count) * step_)) {
    device.fill(memory_, pattern, seed);
  }
  [[nodiscard]] void* at(int i) const { return memory_.as<char>() + static_cast<std::size_t>(i) * step_; }

 private:
  std::size_t step_;
  Buffer memory_;
};

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
  // Calibrated for the largest x of the pattern, as a served model's is: 0 would add a pass over x that looks for it.
  if (format == BlockFormat::kNvfp4 && form == ActivationForm::kFp4) a.x_global_scale = 2.0f / 2688.0f;
  const std::size_t code_bytes = fp4_weight_code_bytes(format, s.n, s.k);
  const std::size_t scale_bytes = fp4_weight_scale_bytes(format, layout, s.n, s.k);
  const int calls = calls_of(device, code_bytes), weights = report.options().warm_caches ? 1 : calls;
  const Arrays codes(device, weights, code_bytes, Fill::kBytes, 1);
  const Arrays scales(device, weights, scale_bytes, format == BlockFormat::kNvfp4 ? Fill::kE4m3Scales : Fill::kE8m0Scales, 2);
  const Buffer x = device.allocate(static_cast<std::size_t>(size_of(dtype) * s.m * s.k));
  const Buffer out = device.allocate(static_cast<std::size_t>(size_of(dtype) * s.m * s.n));
  device.fill(x, fill_of(dtype), 3);
  a.x = x.data();
  a.out = out.data();
  for (const int t : threads) {
    const auto exec_on = [&](void* stream) { return ExecDesc{report.options().backend_name(), stream, t}; };
    check(fp4_linear_workspace(a, &a.workspace_bytes, exec_on(nullptr)), "fp4_linear_workspace");
    const Buffer workspace = device.allocate(a.workspace_bytes);
    a.workspace = workspace.data();
    const auto work = [&](void* stream) {
      for (int i = 0; i < calls; ++i) {
        a.weight.codes = codes.at(i % weights);
        a.weight.scales = scales.at(i % weights);
        check(fp4_linear(a, exec_on(stream)), "fp4_linear");
      }
    };
    const std::function<void()> run = device.has_graphs() ? device.recorded(work) : [&] { work(nullptr); };
    BenchResult r;
    r.bench = "gemm";
    r.config = {{"format", name_of(format)},
                {"activations", name_of(form)},
                {"shape", fmt::format("{}x{}x{}", s.m, s.n, s.k)},
                {"scale_layout", name_of(layout)},
                {"dtype", name_of(dtype)}};
    if (device.has_threads()) r.config["threads"] = t;
    r.config["backend"] = backend_in_use(report.options().backend);
    r.time = per_call(measure(device, report.options(), run), calls);
    r.bytes = static_cast<double>(code_bytes + scale_bytes + x.bytes() + out.bytes());
    r.figures["GFLOP_per_s"] =
        2e-9 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) / r.time.median;
    if (calls > 1) r.figures["calls"] = calls;
    report.add(std::move(r));
  }
}

class BenchGemm final : public Benchmark {
 public:
  void add_options(Command c) override {
    c.add_option("--shape", axes_.shapes, "MxNxK, a list").capture_default_str();
    c.add_option("--format", axes_.formats, "A list of " + formats()).capture_default_str();
    c.add_option("--activations", axes_.forms, "a16, a4, a list").capture_default_str();
    c.add_option("--scale-layout", axes_.layout, "linear or blocked").capture_default_str();
    c.add_option("--dtype", axes_.dtypes, "Of x and the result, a list of " + dtype_names() + "; f32 with a4 alone")
        .capture_default_str();
  }

  std::string formats() const override { return names_of<BlockFormat>(kWeightFormats); }

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
