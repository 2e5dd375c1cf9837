// `fp4pa bench quantize`: tensors to codes and scales, and back. Bytes are those of both sides.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "fp4pa/gemm.hpp"
#include "fp4pa/quantize.hpp"
#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"

namespace fp4pa::tool {
namespace {

struct QuantizeAxes {
  std::string shapes = "1024x1024,4096x8192", formats = "mxfp4,nvfp4,mxfp8", layouts = "linear", scale_mode = "floor",
              dtypes = "f32";
  bool four_over_six = false, weights = false;
};

struct Shape {
  std::int64_t rows = 0, cols = 0;
};

Shape parse_shape(const std::string& text) {
  long long rows = 0, cols = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "%lldx%lld%n", &rows, &cols, &used) != 2 || static_cast<std::size_t>(used) != text.size() ||
      rows <= 0 || cols <= 0 || rows > (1 << 24) || cols > (1 << 24)) {
    throw Failure(Exit::kUsage, "--shape: '" + text + "' is not ROWSxCOLS with both from 1 to 2^24");
  }
  return {rows, cols};
}

struct QuantizeSpec {
  QuantizeConfig config;
  DType dtype = DType::kF32;
  Shape shape;
};

/// @param weights  fp4_quantize_weight in place of both
void quantize_and_back(const QuantizeSpec& spec, bool weights, const std::vector<int>& threads, BenchReport& report) {
  Device& device = report.device();
  const Buffer x = device.allocate(static_cast<std::size_t>(spec.shape.rows * spec.shape.cols * size_of(spec.dtype)));
  const auto [format, layout] = std::pair{spec.config.format, spec.config.scale_layout};
  const auto [rows, cols] = spec.shape;
  const Buffer codes = device.allocate(weights ? fp4_weight_code_bytes(format, rows, cols) : quantized_code_bytes(format, rows, cols));
  const Buffer scales =
      device.allocate(weights ? fp4_weight_scale_bytes(format, layout, rows, cols) : quantized_scale_bytes(format, layout, rows, cols));
  device.fill(x, fill_of(spec.dtype), 5);
  for (const int t : threads) {
    const ExecDesc exec{report.options().backend_name(), nullptr, t};
    const auto one = [&](const char* name, const std::function<void()>& work) {
      BenchResult r;
      r.bench = name;
      r.config = {{"format", name_of(spec.config.format)},
                  {"shape", fmt::format("{}x{}", spec.shape.rows, spec.shape.cols)},
                  {"scale_layout", name_of(spec.config.scale_layout)},
                  {"scale_mode", name_of(spec.config.scale_mode)},
                  {"four_over_six", spec.config.nvfp4_scale == Nvfp4Scale::kFourOverSix},
                  {"dtype", name_of(spec.dtype)}};
      if (device.has_threads()) r.config["threads"] = t;
      r.config["backend"] = backend_in_use(report.options().backend);
      r.time = measure(device, report.options(), work);
      r.bytes = static_cast<double>(x.bytes() + codes.bytes() + scales.bytes());
      r.figures["Melements_per_s"] = 1e-6 * static_cast<double>(spec.shape.rows * spec.shape.cols) / r.time.median;
      report.add(std::move(r));
    };
    if (weights) {
      const Buffer global = device.allocate(sizeof(float));
      Fp4Weight weight;
      one("quantize_weight", [&] {
        check(fp4_quantize_weight(spec.config, x.data(), spec.dtype, spec.shape.rows, spec.shape.cols, 1, codes.data(), scales.data(),
                                  spec.config.format == BlockFormat::kNvfp4 ? global.as<float>() : nullptr, &weight, exec),
              "fp4_quantize_weight");
      });
      continue;
    }
    one("quantize", [&] {
      check(quantize(spec.config, x.data(), spec.dtype, spec.shape.rows, spec.shape.cols, codes.data(), scales.data(), exec),
            "quantize");
    });
    one("dequantize", [&] {
      check(
          dequantize(spec.config, codes.data(), scales.data(), spec.shape.rows, spec.shape.cols, x.data(), spec.dtype, exec),
          "dequantize");
    });
  }
}

class BenchQuantize final : public Benchmark {
 public:
  void add_options(Command c) override {
    c.add_option("--shape", axes_.shapes, "ROWSxCOLS, a list").capture_default_str();
    c.add_option("--format", axes_.formats, "A list of " + formats()).capture_default_str();
    c.add_option("--scale-layout", axes_.layouts, "linear, blocked, a list").capture_default_str();
    c.add_option("--scale-mode", axes_.scale_mode, "floor, ceil, rceil or even").capture_default_str();
    c.add_flag("--four-over-six", axes_.four_over_six, "NVFP4: amax/6 or amax/4, whichever errs less");
    c.add_flag("--weights", axes_.weights, "fp4_quantize_weight, whose NVFP4 looks for the largest element first; any shape");
    c.add_option("--dtype", axes_.dtypes, "Of the tensor, a list of " + dtype_names()).capture_default_str();
  }

  std::string formats() const override { return names_of<BlockFormat>(kAllBlockFormats); }

  std::vector<BenchStep> steps(const std::vector<int>& threads) override {
    std::vector<BenchStep> steps;
    QuantizeSpec spec;
    spec.config.scale_mode = parse_name<ScaleMode>(axes_.scale_mode, kAllScaleModes, "scale mode");
    spec.config.nvfp4_scale = axes_.four_over_six ? Nvfp4Scale::kFourOverSix : Nvfp4Scale::kAmaxOver6;
    for (const std::string& format : split_list(axes_.formats, "--format")) {
      spec.config.format = parse_name<BlockFormat>(format, kAllBlockFormats, "block format");
      if (axes_.weights && spec.config.format == BlockFormat::kMxfp8) {
        throw Failure(Exit::kUsage, "--weights: no weight is mxfp8; allowed with it: --format " + names_of<BlockFormat>(kWeightFormats));
      }
      for (const std::string& shape : split_list(axes_.shapes, "--shape")) {
        spec.shape = parse_shape(shape);
        for (const std::string& dtype : split_list(axes_.dtypes, "--dtype")) {
          spec.dtype = parse_name<DType>(dtype, kAllDTypes, "dtype");
          for (const std::string& layout : split_list(axes_.layouts, "--scale-layout")) {
            spec.config.scale_layout = parse_scale_layout(layout);
            steps.push_back({fmt::format("{} {} {} {} {} {}{}", axes_.weights ? "quantize weight" : "quantize and dequantise", format,
                                         shape, dtype, layout, axes_.scale_mode, axes_.four_over_six ? " 4/6" : ""),
                             [spec, weights = axes_.weights, threads](BenchReport& report) {
                               quantize_and_back(spec, weights, threads, report);
                             }});
          }
        }
      }
    }
    return steps;
  }

 private:
  QuantizeAxes axes_;
};

}  // namespace

std::unique_ptr<Benchmark> make_bench_quantize() { return std::make_unique<BenchQuantize>(); }

}  // namespace fp4pa::tool
