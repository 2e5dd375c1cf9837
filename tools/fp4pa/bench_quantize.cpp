// `fp4pa bench quantize`: tensors to codes and scales, and back. Bytes are those of both sides.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "fp4pa/quantize.hpp"
#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"

namespace fp4pa::tool {
namespace {

struct QuantizeBenchOptions {
  BenchOptions common;
  std::string shapes = "1024x1024,4096x8192", formats = "mxfp4,nvfp4,mxfp8", layout = "linear", scale_mode = "floor",
              dtype = "f32";
  bool four_over_six = false;
};

struct Shape {
  std::int64_t rows = 0, cols = 0;
};

Shape parse_shape(const std::string& text) {
  long long rows = 0, cols = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "%lldx%lld%n", &rows, &cols, &used) != 2 ||
      static_cast<std::size_t>(used) != text.size() || rows <= 0 || cols <= 0 || rows > (1 << 24) || cols > (1 << 24)) {
    throw Failure(Exit::kUsage, "--shape: '" + text + "' is not ROWSxCOLS with both from 1 to 2^24");
  }
  return {rows, cols};
}

void quantize_and_back(Device& device, const QuantizeBenchOptions& o, const std::string& format, const Shape& shape,
                       int threads, BenchReport& report) {
  QuantizeConfig config;
  config.format = parse_name<BlockFormat>(format, kAllBlockFormats, "block format");
  config.scale_layout = o.layout == "blocked" ? ScaleLayout::kBlocked
                                              : parse_name<ScaleLayout>(o.layout, kAllScaleLayouts, "scale layout");
  config.scale_mode = parse_name<ScaleMode>(o.scale_mode, kAllScaleModes, "scale mode");
  config.nvfp4_scale = o.four_over_six ? Nvfp4Scale::kFourOverSix : Nvfp4Scale::kAmaxOver6;
  const DType dtype = parse_name<DType>(o.dtype, kAllDTypes, "dtype");
  const Buffer x = device.allocate(static_cast<std::size_t>(shape.rows * shape.cols * size_of(dtype)));
  const Buffer codes = device.allocate(quantized_code_bytes(config.format, shape.rows, shape.cols));
  const Buffer scales =
      device.allocate(quantized_scale_bytes(config.format, config.scale_layout, shape.rows, shape.cols));
  device.fill(x, dtype == DType::kF32 ? Fill::kF32 : dtype == DType::kF16 ? Fill::kF16 : Fill::kBf16, 5);
  const ExecDesc exec{o.common.backend.empty() ? nullptr : o.common.backend.c_str(), nullptr, threads};

  const auto one = [&](const char* name, const std::function<void()>& work) {
    BenchResult r;
    r.bench = name;
    r.config = {{"op", name},
                {"format", format},
                {"shape", fmt::format("{}x{}", shape.rows, shape.cols)},
                {"threads", threads},
                {"scale_layout", o.layout},
                {"scale_mode", o.scale_mode},
                {"four_over_six", o.four_over_six},
                {"dtype", o.dtype}};
    r.time = measure(device, o.common, work);
    r.bytes = static_cast<double>(x.bytes() + codes.bytes() + scales.bytes());
    r.figures["Melements_per_s"] = 1e-6 * static_cast<double>(shape.rows * shape.cols) / r.time.median;
    report.add(std::move(r));
  };
  one("quantize", [&] {
    check(quantize(config, x.data(), dtype, shape.rows, shape.cols, codes.data(), scales.data(), exec), "quantize");
  });
  one("dequantize", [&] {
    check(dequantize(config, codes.data(), scales.data(), shape.rows, shape.cols, x.data(), dtype, exec), "dequantize");
  });
}

void bench_quantize(const QuantizeBenchOptions& o) {
  std::vector<Shape> shapes;
  for (const std::string& text : split_list(o.shapes, "--shape")) shapes.push_back(parse_shape(text));
  const std::vector<std::string> formats = split_list(o.formats, "--format");
  const std::vector<int> threads = split_integers(o.common.threads, "--threads");
  const auto device = make_device(o.common.backend);
  BenchReport report(*device, o.common);
  {
    Progress progress(static_cast<int>(formats.size() * shapes.size() * threads.size()), o.common.progress);
    for (const int t : threads) (void)report.bandwidth(t);
    for (const std::string& format : formats) {
      for (const Shape& shape : shapes) {
        for (const int t : threads) {
          progress.step(fmt::format("quantize {} {}x{} threads {}", format, shape.rows, shape.cols, t));
          quantize_and_back(*device, o, format, shape, t, report);
        }
      }
    }
  }
  report.finish({"op", "format", "shape", "threads"}, {"Melements_per_s"});
}

}  // namespace

void add_bench_quantize(CLI::App& bench) {
  auto o = std::make_shared<QuantizeBenchOptions>();
  CLI::App* command = bench.add_subcommand("quantize", "Quantise tensors, and dequantise them");
  command->add_option("--shape", o->shapes, "ROWSxCOLS, a list")->capture_default_str();
  command->add_option("--format", o->formats, "mxfp4, nvfp4, mxfp8, a list")->capture_default_str();
  command->add_option("--scale-layout", o->layout, "linear or blocked")->capture_default_str();
  command->add_option("--scale-mode", o->scale_mode, "floor, ceil, rceil or even")->capture_default_str();
  command->add_flag("--four-over-six", o->four_over_six, "NVFP4: amax/6 or amax/4, whichever errs less");
  command->add_option("--dtype", o->dtype, "Of the tensor")->capture_default_str();
  add_bench_options(*command, o->common);
  command->callback([o] { bench_quantize(*o); });
}

}  // namespace fp4pa::tool
