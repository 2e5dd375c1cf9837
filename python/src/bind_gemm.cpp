// FP4 weights, products with them, and their files.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <filesystem>

#include "fp4pa/gemm.hpp"
#include "python/src/bind.hpp"
#include "python/src/error.hpp"
#include "python/src/exec.hpp"
#include "python/src/names.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fp4pa::python {
namespace {

/// A weight and the tensors that it lies in.
class PyWeight {
 public:
  PyWeight(const Fp4Weight& weight, Tensor codes, Tensor scales, std::optional<Tensor> global)
      : weight_(weight), codes_(std::move(codes)), scales_(std::move(scales)), global_(std::move(global)) {
    const Place place(codes_);
    place.also(scales_);
    place.also(global_);
    if (fp4_weight_code_bytes(weight_.format, weight_.rows, weight_.cols, weight_.batch) == 0) {
      refuse("rows, cols and batch are " + std::to_string(weight_.rows) + ", " + std::to_string(weight_.cols) + " and " +
                 std::to_string(weight_.batch),
             "at least 1 each, and a weight that fits in memory");
    }
    codes_.is_bytes_of(fp4_weight_code_bytes(weight_.format, weight_.rows, weight_.cols, weight_.batch));
    scales_.is_bytes_of(fp4_weight_scale_bytes(weight_.format, weight_.scale_layout, weight_.rows, weight_.cols, weight_.batch));
    weight_.codes = codes_.data();
    weight_.scales = scales_.data();
    if (global_) {
      global_->is_dtype(DType::kF32).is_dense();
      if (global_->size() != weight_.batch) {
        refuse(std::string(global_->name()) + " has shape " + global_->shape_text(),
               "[batch] = [" + std::to_string(weight_.batch) + "]");
      }
      weight_.global_scale_ptr = static_cast<const float*>(global_->data());
    }
  }
  [[nodiscard]] const Fp4Weight& weight() const { return weight_; }
  [[nodiscard]] const Tensor& codes() const { return codes_; }

 private:
  Fp4Weight weight_;
  Tensor codes_, scales_;
  std::optional<Tensor> global_;
};

PyWeight make_weight(nb::handle codes, nb::handle scales, std::int64_t rows, std::int64_t cols, const std::string& format,
                     const std::string& layout, std::int64_t batch, nb::handle global_scale) {
  Fp4Weight weight;
  weight.format = fp4_format(format);
  weight.scale_layout = scale_layout(layout);
  weight.rows = rows;
  weight.cols = cols;
  weight.batch = batch;
  std::optional<Tensor> global;
  if (const std::optional<float> number = number_of(global_scale))
    weight.global_scale = *number;
  else
    global.emplace(global_scale, "global_scale");
  return {weight, Tensor(codes, "codes"), Tensor(scales, "scales"), std::move(global)};
}

/// The sizes of [m, n] or [batch, m, n].
struct Matrices {
  std::int64_t batch, rows, cols;
};
Matrices matrices_of(const Tensor& t) {
  if (t.ndim() == 2) return {1, t.extent(0), t.extent(1)};
  t.is_shape({-1, -1, -1}, "[rows, cols] or [batch, rows, cols]");
  return {t.extent(0), t.extent(1), t.extent(2)};
}

/// linear's arguments but for the workspace, with their tensors.
struct Linear {
  Tensor x, out;
  std::optional<Tensor> bias;
  LinearArgs args;

  Linear(nb::handle x_given, const PyWeight& weight, nb::handle out_given, nb::handle bias_given, const std::string& activations,
         const std::string& mode, const std::string& nvfp4, double x_global_scale, bool weight_settled)
      : x(x_given, "x"), out(out_given, "out", Access::kWrite), bias(optional_tensor(bias_given, "bias")) {
    const Matrices a = matrices_of(x.is_dense());
    if (x.ndim() == 2)
      out.is_shape({a.rows, weight.weight().rows}, "[m, weight rows]");
    else
      out.is_shape({a.batch, a.rows, weight.weight().rows}, "[batch, m, weight rows]");
    if (a.cols != weight.weight().cols) {
      refuse("x has shape " + x.shape_text(),
             "the weight's " + std::to_string(weight.weight().cols) + " columns in its last axis");
    }
    const Place place(x);
    place.also(out.is_dense());
    place.also(weight.codes());
    if (bias) {
      place.also(bias->is_shape({weight.weight().rows}, "[weight rows]").is_dense());
      args.bias = bias->data();
      args.bias_dtype = bias->dtype();
    }
    args.weight = weight.weight();
    args.x = x.data();
    args.x_dtype = x.dtype();
    args.out = out.data();
    args.out_dtype = out.dtype();
    args.m = a.rows;
    args.batch = a.batch;
    args.activations = activation_form(activations);
    args.scale_mode = scale_mode(mode);
    args.nvfp4_scale = nvfp4_scale(nvfp4);
    args.x_global_scale = float_of(x_global_scale, "x_global_scale");
    args.weight_settled = weight_settled;
  }
};

/// matmul's likewise.
struct Matmul {
  Tensor a, b, out;
  MatmulArgs args;

  Matmul(nb::handle a_given, nb::handle b_given, nb::handle out_given, const std::string& format, const std::string& mode,
         const std::string& nvfp4)
      : a(a_given, "a"), b(b_given, "b"), out(out_given, "out", Access::kWrite) {
    const Matrices left = matrices_of(a.is_dense());
    const Matrices right = matrices_of(b.is_dense());
    const Place place(a);
    if (a.ndim() == 2) {
      b.is_shape({-1, left.cols}, "[n, k]");
      out.is_shape({left.rows, right.rows}, "[m, n]");
    } else {
      b.is_shape({left.batch, -1, left.cols}, "[batch, n, k]");
      out.is_shape({left.batch, left.rows, right.rows}, "[batch, m, n]");
    }
    place.also(b);
    place.also(out.is_dense());
    args.format = fp4_format(format);
    args.scale_mode = scale_mode(mode);
    args.nvfp4_scale = nvfp4_scale(nvfp4);
    args.a = a.data();
    args.a_dtype = a.dtype();
    args.b = b.data();
    args.b_dtype = b.dtype();
    args.out = out.data();
    args.out_dtype = out.dtype();
    args.m = left.rows;
    args.n = right.rows;
    args.k = left.cols;
    args.batch = left.batch;
  }
};

/// For the C++ interface, to which a zero byte is the end of a text.
const char* whole(const std::string& text, const char* what) {
  if (const auto zero = text.find('\0'); zero != std::string::npos) {
    refuse(std::string(what) + " has a zero byte at " + std::to_string(zero), "none");
  }
  return text.c_str();
}

/// A weight in a file.
struct Entry {
  Entry(const std::filesystem::path& file, const std::string& weight) : path(whole(file.native(), "path")), name(whole(weight, "name")) {}
  const char *path, *name;
};

Fp4Weight found_weight(const Entry& entry) {
  Fp4Weight weight;
  check(fp4_find_weight(entry.path, entry.name, &weight));
  return weight;
}

const Tensor& on_host(const Tensor& t) {
  if (t.device() != Device::kHost) refuse(std::string(t.name()) + " is in a GPU's memory", "the host's");
  return t;
}

}  // namespace

void bind_gemm(nb::module_& m) {
  m.def(
      "weight_code_bytes",
      [](const std::string& format, std::int64_t rows, std::int64_t cols, std::int64_t batch) {
        return fp4_weight_code_bytes(fp4_format(format), rows, cols, batch);
      },
      "format"_a, "rows"_a, "cols"_a, "batch"_a = 1,
      "Bytes of the codes of `batch` weights [rows, cols]; 0 for sizes that have none.");
  m.def(
      "weight_scale_bytes",
      [](const std::string& format, std::int64_t rows, std::int64_t cols, std::int64_t batch, const std::string& layout) {
        return fp4_weight_scale_bytes(fp4_format(format), scale_layout(layout), rows, cols, batch);
      },
      "format"_a, "rows"_a, "cols"_a, "batch"_a = 1, nb::kw_only(), "scale_layout"_a = "linear",
      "Bytes of their scales, padding included.");

  nb::class_<PyWeight>(m, "Fp4Weight",
                       R"(An FP4 weight [rows, cols], or a batch of them: your memory, described; it keeps the tensors.

codes: weight_code_bytes of uint8, of any shape, contiguous; two E2M1 codes a byte, the even column in the low nibble; rows of whole groups.
scales: weight_scale_bytes of 8-bit elements, E8M0 or E4M3.
format: "mxfp4" or "nvfp4". scale_layout: "linear" or "blocked_128x4". gpt-oss's and ModelOpt's weights are both "linear".
global_scale: NVFP4's decode multiplier, a number or a float32 tensor [batch]. Starts: 16 bytes (codes), 4 (scales).)")
      .def(
          "__init__",
          [](PyWeight* self, nb::handle codes, nb::handle scales, std::int64_t rows, std::int64_t cols, const std::string& format,
             const std::string& layout, std::int64_t batch, nb::handle global_scale) {
            new (self) PyWeight(make_weight(codes, scales, rows, cols, format, layout, batch, global_scale));
          },
          "codes"_a, "scales"_a, "rows"_a, "cols"_a, nb::kw_only(), "format"_a = "mxfp4", "scale_layout"_a = "linear",
          "batch"_a = 1, "global_scale"_a = 1.0)
      .def_prop_ro(
          "rows", [](const PyWeight& w) { return w.weight().rows; }, "Output features.")
      .def_prop_ro(
          "cols", [](const PyWeight& w) { return w.weight().cols; }, "Input features.")
      .def_prop_ro("batch", [](const PyWeight& w) { return w.weight().batch; })
      .def_prop_ro("format", [](const PyWeight& w) { return fp4pa::name_of(w.weight().format); })
      .def_prop_ro("scale_layout", [](const PyWeight& w) { return fp4pa::name_of(w.weight().scale_layout); });

  m.def(
      "quantize_weight",
      [](nb::handle w_given, nb::handle codes_given, nb::handle scales_given, nb::handle globals_given, const std::string& format,
         const std::string& layout, const std::string& mode, const std::string& nvfp4, float global_scale,
         const std::optional<std::string>& backend, nb::handle stream, std::int32_t num_threads) {
        const Tensor w(w_given, "w");
        Tensor codes(codes_given, "codes", Access::kWrite), scales(scales_given, "scales", Access::kWrite);
        std::optional<Tensor> globals = optional_tensor(globals_given, "global_scales", Access::kWrite);
        const Matrices shape = matrices_of(w.is_dense());
        const QuantizeConfig config = quantize_config(fp4_format(format), layout, mode, nvfp4, global_scale);
        Fp4Weight described;
        described.format = config.format;
        described.scale_layout = config.scale_layout;
        described.rows = shape.rows;
        described.cols = shape.cols;
        described.batch = shape.batch;
        described.global_scale = config.format == BlockFormat::kNvfp4 ? global_scale : 1.0f;
        PyWeight weight(described, std::move(codes), std::move(scales), globals);
        const Place place(w);
        place.also(weight.codes());
        const DType type = w.dtype();
        run_there(place, {backend, stream, num_threads}, [&](const ExecDesc& exec) {
          const Fp4Weight& to = weight.weight();
          return fp4_quantize_weight(config, w.data(), type, shape.rows, shape.cols, shape.batch, const_cast<void*>(to.codes),
                                     const_cast<void*>(to.scales), const_cast<float*>(to.global_scale_ptr), &described, exec);
        });
        return weight;
      },
      "w"_a, "codes"_a, "scales"_a, "global_scales"_a = nb::none(), nb::kw_only(), "format"_a = "mxfp4",
      "scale_layout"_a = "linear", "scale_mode"_a = "floor", "nvfp4_scale"_a = "amax_over_6", "global_scale"_a = 1.0f,
      "backend"_a = nb::none(), "stream"_a = nb::none(), "num_threads"_a = 0,
      R"(Quantises w [rows, cols] or [batch, rows, cols] (float32, float16 or bfloat16, contiguous) into codes and scales, and returns the Fp4Weight.

codes, scales: weight_code_bytes and weight_scale_bytes of uint8. global_scales: NVFP4, [batch] float32 that receive amax / 2688 of each weight; None:
global_scale is used. The rest as quantize's.)");

  m.def(
      "linear",
      [](nb::handle x, const PyWeight& weight, nb::handle out, nb::handle bias, const std::string& activations,
         const std::string& mode, const std::string& nvfp4, double x_global_scale, nb::handle workspace_given, bool weight_settled,
         const std::optional<std::string>& backend, nb::handle stream, std::int32_t num_threads) {
        Linear call(x, weight, out, bias, activations, mode, nvfp4, x_global_scale, weight_settled);
        const std::optional<Tensor> workspace = optional_tensor(workspace_given, "workspace", Access::kWrite);
        const Place place(call.x);
        set_workspace(call.args, workspace, place);
        run_there(place, {backend, stream, num_threads}, [&](const ExecDesc& exec) { return fp4_linear(call.args, exec); });
      },
      "x"_a, "weight"_a, "out"_a, "bias"_a = nb::none(), nb::kw_only(), "activations"_a = "a16", "scale_mode"_a = "floor",
      "nvfp4_scale"_a = "amax_over_6", "x_global_scale"_a = 0.0, "workspace"_a = nb::none(), "weight_settled"_a = false,
      "backend"_a = nb::none(), "stream"_a = nb::none(), "num_threads"_a = 0,
      R"(out = x weight^T + bias.

x: [m, cols] or [batch, m, cols], float16 or bfloat16 ("a4": float32 too). out: [m, rows] or [batch, m, rows], float32, float16 or bfloat16.
bias: [rows] or None. All contiguous. A weight with batch 1 serves every x.
activations: "a16", x as it is, or "a4", quantised to the weight's format in the call (scale_mode, nvfp4_scale; x_global_scale 0: amax / 2688 of x).
workspace: linear_workspace_bytes of the same call; None where that is 0.
weight_settled: your promise that the weight was complete before the preceding kernel in the stream began (fp4pa/gemm.hpp).
backend, stream, num_threads: as append's.)");
  m.def(
      "linear_workspace_bytes",
      [](nb::handle x, const PyWeight& weight, nb::handle out, nb::handle bias, const std::string& activations,
         double x_global_scale, const std::optional<std::string>& backend, std::int32_t num_threads) {
        const Linear call(x, weight, out, bias, activations, "floor", "amax_over_6", x_global_scale, false);
        std::size_t bytes = 0;
        run_there(Place(call.x), {backend, nb::none(), num_threads},
                  [&](const ExecDesc& exec) { return fp4_linear_workspace(call.args, &bytes, exec); });
        return with_alignment(bytes);
      },
      "x"_a, "weight"_a, "out"_a, "bias"_a = nb::none(), nb::kw_only(), "activations"_a = "a16", "x_global_scale"_a = 0.0,
      "backend"_a = nb::none(), "num_threads"_a = 0,
      "Bytes of workspace for linear() with these tensors, wherever it starts. Contents are not looked at.");

  m.def(
      "matmul",
      [](nb::handle a, nb::handle b, nb::handle out, const std::string& format, const std::string& mode, const std::string& nvfp4,
         nb::handle workspace_given, const std::optional<std::string>& backend, nb::handle stream, std::int32_t num_threads) {
        Matmul call(a, b, out, format, mode, nvfp4);
        const std::optional<Tensor> workspace = optional_tensor(workspace_given, "workspace", Access::kWrite);
        const Place place(call.a);
        set_workspace(call.args, workspace, place);
        run_there(place, {backend, stream, num_threads}, [&](const ExecDesc& exec) { return fp4_matmul(call.args, exec); });
      },
      "a"_a, "b"_a, "out"_a, nb::kw_only(), "format"_a = "mxfp4", "scale_mode"_a = "floor", "nvfp4_scale"_a = "amax_over_6",
      "workspace"_a = nb::none(), "backend"_a = nb::none(), "stream"_a = nb::none(), "num_threads"_a = 0,
      R"(out = a b^T, both quantised to `format` ("mxfp4" or "nvfp4") in the call.

a: [m, k] or [batch, m, k]. b: [n, k] or [batch, n, k]. out: [m, n] or [batch, m, n]. float32, float16 or bfloat16 each, contiguous.
workspace: matmul_workspace_bytes of the same call.)");
  m.def(
      "matmul_workspace_bytes",
      [](nb::handle a, nb::handle b, nb::handle out, const std::string& format, const std::optional<std::string>& backend,
         std::int32_t num_threads) {
        const Matmul call(a, b, out, format, "floor", "amax_over_6");
        std::size_t bytes = 0;
        run_there(Place(call.a), {backend, nb::none(), num_threads},
                  [&](const ExecDesc& exec) { return fp4_matmul_workspace(call.args, &bytes, exec); });
        return with_alignment(bytes);
      },
      "a"_a, "b"_a, "out"_a, nb::kw_only(), "format"_a = "mxfp4", "backend"_a = nb::none(), "num_threads"_a = 0,
      "Bytes of workspace for matmul() with these tensors, wherever it starts.");

  m.def(
      "find_weight",
      [](const std::filesystem::path& path, const std::string& name) {
        const Fp4Weight weight = found_weight({path, name});
        nb::dict found;
        found["format"] = fp4pa::name_of(weight.format);
        found["scale_layout"] = fp4pa::name_of(weight.scale_layout);
        found["rows"] = weight.rows;
        found["cols"] = weight.cols;
        found["batch"] = weight.batch;
        return found;
      },
      "path"_a, "name"_a,
      "Describes the weight called `name` in a safetensors file: format, scale_layout, rows, cols and batch (fp4pa/gemm.hpp has "
      "the forms).");
  m.def(
      "load_weight",
      [](const std::filesystem::path& path, const std::string& name, nb::handle codes_given, nb::handle scales_given,
         nb::handle globals_given) {
        const Entry entry(path, name);
        Fp4Weight described = found_weight(entry);
        std::optional<Tensor> globals = optional_tensor(globals_given, "global_scales", Access::kWrite);
        const bool wanted = described.format == BlockFormat::kNvfp4;
        if (globals && !wanted) refuse("global_scales are given for a weight in mxfp4", "None");
        if (!globals && wanted) refuse("global_scales is None for a weight in nvfp4", "[batch] float32");
        PyWeight weight(described, Tensor(codes_given, "codes", Access::kWrite), Tensor(scales_given, "scales", Access::kWrite),
                        globals);
        on_host(weight.codes());
        const Fp4Weight& to = weight.weight();
        check_unlocked([&] {
          return fp4_load_weight(entry.path, entry.name, const_cast<void*>(to.codes), const_cast<void*>(to.scales),
                                 const_cast<float*>(to.global_scale_ptr), &described);
        });
        return weight;
      },
      "path"_a, "name"_a, "codes"_a, "scales"_a, "global_scales"_a = nb::none(),
      "Reads a weight into host memory of weight_code_bytes and weight_scale_bytes (NVFP4: and [batch] float32), and returns the "
      "Fp4Weight.");
  m.def(
      "save_weight",
      [](const std::filesystem::path& path, const std::string& name, const PyWeight& weight) {
        on_host(weight.codes());
        const Entry entry(path, name);
        check_unlocked([&] { return fp4_save_weight(entry.path, entry.name, weight.weight()); });
      },
      "path"_a, "name"_a, "weight"_a, "Writes a safetensors file of this one weight, in host memory.");
}

}  // namespace fp4pa::python
