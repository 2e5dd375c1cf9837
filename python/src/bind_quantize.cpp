// quantize and dequantize.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "fp4pa/quantize.hpp"
#include "python/src/bind.hpp"
#include "python/src/error.hpp"
#include "python/src/exec.hpp"
#include "python/src/names.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fp4pa::python {
namespace {

/// Rows and columns of a tensor whose last axis is quantised; the others are rows.
struct Matrix {
  std::int64_t rows, cols;
};
Matrix matrix_of(const Tensor& t, BlockFormat format) {
  const std::int64_t cols = t.ndim() == 0 ? 0 : t.extent(t.ndim() - 1);
  if (t.ndim() == 0 || cols % group_size(format) != 0) {
    refuse(std::string(t.name()) + " has shape " + t.shape_text(),
           "[..., cols], cols a multiple of " + std::to_string(group_size(format)));
  }
  return {cols == 0 ? 0 : t.size() / cols, cols};
}

}  // namespace

void bind_quantize(nb::module_& m) {
  m.def(
      "quantized_code_bytes",
      [](const std::string& format, std::int64_t rows, std::int64_t cols) {
        return quantized_code_bytes(block_format(format), rows, cols);
      },
      "format"_a, "rows"_a, "cols"_a, "Bytes of the codes of a [rows, cols] tensor; 0 for a shape that cannot be quantised.");
  m.def(
      "quantized_scale_bytes",
      [](const std::string& format, std::int64_t rows, std::int64_t cols, const std::string& layout) {
        return quantized_scale_bytes(block_format(format), scale_layout(layout), rows, cols);
      },
      "format"_a, "rows"_a, "cols"_a, nb::kw_only(), "scale_layout"_a = "linear", "Bytes of its scales, padding included.");

  m.def(
      "quantize",
      [](nb::handle x_given, nb::handle codes_given, nb::handle scales_given, const std::string& format,
         const std::string& layout, const std::string& mode, const std::string& nvfp4, float global_scale,
         const std::optional<std::string>& backend, nb::handle stream, std::int32_t num_threads) {
        const Tensor x(x_given, "x"), codes(codes_given, "codes", Access::kWrite), scales(scales_given, "scales", Access::kWrite);
        const QuantizeConfig config = quantize_config(block_format(format), layout, mode, nvfp4, global_scale);
        const Matrix shape = matrix_of(x.is_dense(), config.format);
        const Place place(x);
        place.also(codes);
        place.also(scales);
        codes.is_bytes_of(quantized_code_bytes(config.format, shape.rows, shape.cols));
        scales.is_bytes_of(quantized_scale_bytes(config.format, config.scale_layout, shape.rows, shape.cols));
        const DType type = x.dtype();
        run_there(place, {backend, stream, num_threads}, [&](const ExecDesc& exec) {
          return quantize(config, x.data(), type, shape.rows, shape.cols, codes.data(), scales.data(), exec);
        });
      },
      "x"_a, "codes"_a, "scales"_a, nb::kw_only(), "format"_a = "mxfp4", "scale_layout"_a = "linear", "scale_mode"_a = "floor",
      "nvfp4_scale"_a = "amax_over_6", "global_scale"_a = 1.0f, "backend"_a = nb::none(), "stream"_a = nb::none(),
      "num_threads"_a = 0,
      R"(Quantises x [..., cols] (float32, float16 or bfloat16, contiguous) into codes and scales, in groups along its last axis.

format: "mxfp4", "nvfp4" or "mxfp8". cols: a multiple of 32 (NVFP4: 16). codes, scales: quantized_code_bytes and quantized_scale_bytes of uint8, of any
shape; two E2M1 codes a byte, the even element in the low nibble.
scale_layout: "linear" or "blocked_128x4". scale_mode: "floor", "ceil", "rceil", "even" (MXFP4, MXFP8). nvfp4_scale: "amax_over_6", "four_over_six".
global_scale: NVFP4's decode multiplier; amax / 2688 uses the whole range.
backend, stream, num_threads: as append's.)");

  m.def(
      "dequantize",
      [](nb::handle codes_given, nb::handle scales_given, nb::handle y_given, const std::string& format,
         const std::string& layout, float global_scale, const std::optional<std::string>& backend, nb::handle stream,
         std::int32_t num_threads) {
        const Tensor codes(codes_given, "codes"), scales(scales_given, "scales"), y(y_given, "y", Access::kWrite);
        const QuantizeConfig config = quantize_config(block_format(format), layout, "floor", "amax_over_6", global_scale);
        const Matrix shape = matrix_of(y.is_dense(), config.format);
        const Place place(y);
        place.also(codes);
        place.also(scales);
        codes.is_bytes_of(quantized_code_bytes(config.format, shape.rows, shape.cols));
        scales.is_bytes_of(quantized_scale_bytes(config.format, config.scale_layout, shape.rows, shape.cols));
        const DType type = y.dtype();
        run_there(place, {backend, stream, num_threads}, [&](const ExecDesc& exec) {
          return dequantize(config, codes.data(), scales.data(), shape.rows, shape.cols, y.data(), type, exec);
        });
      },
      "codes"_a, "scales"_a, "y"_a, nb::kw_only(), "format"_a = "mxfp4", "scale_layout"_a = "linear", "global_scale"_a = 1.0f,
      "backend"_a = nb::none(), "stream"_a = nb::none(), "num_threads"_a = 0,
      "The inverse of quantize: y [..., cols] = code * scale (* global_scale) in float32, then rounded to y's dtype.");
}

}  // namespace fp4pa::python
