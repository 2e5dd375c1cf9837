// A random product: inputs, outputs between guards, the call, and what it must give.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/formats/half.hpp"
#include "fp4pa/fp4pa.hpp"
#include "reference/gemm.hpp"

// Of the grid, unless the environment says otherwise; a program for simulators asks for fewer.
#if !defined(FP4PA_GEMM_CASES)
#define FP4PA_GEMM_CASES 150
#endif

namespace fp4pa::gemm_test {

/// A simulator has the same kernels on less work.
[[nodiscard]] constexpr bool on_a_simulator() { return FP4PA_GEMM_CASES < 100; }

/// Memory aligned to 256 bytes, filled with `fill`, with guard bytes behind it.
class Memory {
 public:
  explicit Memory(std::size_t bytes, std::uint8_t fill = 0xa5) : bytes_(bytes), all_(bytes + 256 + kGuard, fill), fill_(fill) {
    start_ = 256 - reinterpret_cast<std::uintptr_t>(all_.data()) % 256;
  }
  [[nodiscard]] std::uint8_t* data() { return all_.data() + start_; }
  [[nodiscard]] const std::uint8_t* data() const { return all_.data() + start_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// Whether nothing behind the memory was written.
  [[nodiscard]] bool intact() const {
    for (std::size_t i = start_ + bytes_; i < all_.size(); ++i) {
      if (all_[i] != fill_) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  std::size_t bytes_, start_ = 0;
  std::vector<std::uint8_t> all_;
  std::uint8_t fill_;
};

/// A dense tensor of `dtype`, and its values.
struct Tensor {
  Tensor(DType type, const std::vector<float>& x) : dtype(type), memory(x.size() * static_cast<std::size_t>(size_of(type))) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint16_t half = dtype == DType::kF16 ? core::f32_to_f16(x[i]) : core::f32_to_bf16(x[i]);
      if (dtype == DType::kF32) {
        std::memcpy(memory.data() + 4 * i, &x[i], 4);
      } else {
        std::memcpy(memory.data() + 2 * i, &half, 2);
      }
    }
  }
  [[nodiscard]] double at(std::size_t i) const {
    if (dtype == DType::kF32) {
      float x;
      std::memcpy(&x, memory.data() + 4 * i, 4);
      return x;
    }
    std::uint16_t half;
    std::memcpy(&half, memory.data() + 2 * i, 2);
    return dtype == DType::kF16 ? core::f16_to_f32(half) : core::bf16_to_f32(half);
  }
  DType dtype;
  Memory memory;
};

inline std::vector<float> gaussian(std::size_t n, std::uint32_t seed, float sigma = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

/// Back ends of this build that can run here; with FP4PA_FORCE_BACKEND only that one.
inline std::vector<std::string> runnable_backends() {
  const char* const forced = std::getenv("FP4PA_FORCE_BACKEND");
  if (forced != nullptr && *forced != '\0') return {forced};
  BackendInfo info[16];
  const std::int32_t count = available_backends(info, 16);
  std::vector<std::string> names;
  for (std::int32_t i = 0; i < count && i < 16; ++i) {
    if (info[i].available) names.emplace_back(info[i].name);
  }
  return names;
}

/// A weight in memory of its own.
struct OwnedWeight {
  OwnedWeight(BlockFormat format, ScaleLayout layout, std::int64_t rows, std::int64_t cols, std::int64_t batch = 1)
      : codes(fp4_weight_code_bytes(format, rows, cols, batch)),
        scales(fp4_weight_scale_bytes(format, layout, rows, cols, batch)),
        globals(static_cast<std::size_t>(batch) * 4) {
    config.format = format;
    config.scale_layout = layout;
    view.format = format;
    view.scale_layout = layout;
    view.rows = rows;
    view.cols = cols;
    view.batch = batch;
    view.codes = codes.data();
    view.scales = scales.data();
  }
  OwnedWeight(const OwnedWeight&) = delete;
  OwnedWeight& operator=(const OwnedWeight&) = delete;

  [[nodiscard]] Status quantize(const Tensor& w, const ExecDesc& exec) {
    float* const g = config.format == BlockFormat::kNvfp4 ? reinterpret_cast<float*>(globals.data()) : nullptr;
    return fp4_quantize_weight(config, w.memory.data(), w.dtype, view.rows, view.cols, view.batch, codes.data(),
                               scales.data(), g, &view, exec);
  }
  Memory codes, scales, globals;
  QuantizeConfig config;
  Fp4Weight view;
};

struct Spec {
  BlockFormat format = BlockFormat::kMxfp4;
  ScaleLayout layout = ScaleLayout::kLinear;
  ActivationForm activations = ActivationForm::k16Bit;
  DType x = DType::kBF16, out = DType::kF32, bias_dtype = DType::kF32;
  std::int64_t m = 1, n = 1, k = 32, batch = 1;
  bool shared_weight = false, bias = false;
  float x_global_scale = 0.0f, sigma = 1.0f;
  ScaleMode scale_mode = ScaleMode::kFloor;  // of weight and x, as is the next
  Nvfp4Scale nvfp4_scale = Nvfp4Scale::kAmaxOver6;
  std::uint32_t seed = 1;
};

inline std::string text(const Spec& s) {
  return std::string(name_of(s.format)) + " " + name_of(s.layout) + " " + name_of(s.activations) + " x " + name_of(s.x) +
         " out " + name_of(s.out) + " m " + std::to_string(s.m) + " n " + std::to_string(s.n) + " k " + std::to_string(s.k) +
         " batch " + std::to_string(s.batch) + (s.shared_weight ? " shared" : "") + (s.bias ? " bias" : "") + " seed " +
         std::to_string(s.seed);
}

/// What x is multiplied as: itself, or its quantised and decoded copy.
inline reference::Matrix multiplied_x(const Spec& s, const Tensor& x, std::int64_t b) {
  reference::Matrix plain{s.m, s.k, std::vector<double>(static_cast<std::size_t>(s.m * s.k))};
  for (std::size_t i = 0; i < plain.at.size(); ++i) plain.at[i] = x.at(static_cast<std::size_t>(b * s.m * s.k) + i);
  if (s.activations == ActivationForm::k16Bit) return plain;
  // Quantised as a weight of its own by the definition: the scalar back end's encoders are core's.
  std::vector<float> values(plain.at.begin(), plain.at.end());
  float amax = 0.0f;
  for (const float v : values) amax = std::fmax(amax, std::fabs(v));
  OwnedWeight q(s.format, ScaleLayout::kBlocked, s.m, s.k);
  q.config.global_scale = s.format != BlockFormat::kNvfp4 ? 1.0f : s.x_global_scale != 0 ? s.x_global_scale
                          : amax > 0                      ? amax / 2688.0f
                                                          : 1.0f;
  q.config.scale_mode = s.scale_mode;
  q.config.nvfp4_scale = s.nvfp4_scale;
  const Tensor copy(DType::kF32, values);
  REQUIRE(fp4_quantize_weight(q.config, copy.memory.data(), DType::kF32, s.m, s.k, 1, q.codes.data(), q.scales.data(),
                              nullptr, &q.view, ExecDesc{"cpu-scalar"}) == Status::kOk);
  return reference::decode(q.view);
}

/// A problem, run once.
struct Problem {
  explicit Problem(const Spec& spec, const char* backend)
      : s(spec),
        exec{backend},
        x(s.x, gaussian(static_cast<std::size_t>(s.batch * s.m * s.k), s.seed, s.sigma)),
        w(DType::kBF16, gaussian(static_cast<std::size_t>((s.shared_weight ? 1 : s.batch) * s.n * s.k), s.seed + 1)),
        bias(s.bias_dtype, gaussian(static_cast<std::size_t>(s.n), s.seed + 2, 10.0f)),
        weight(s.format, s.layout, s.n, s.k, s.shared_weight ? 1 : s.batch),
        out(s.out, std::vector<float>(static_cast<std::size_t>(s.batch * s.m * s.n), std::nanf(""))) {
    weight.config.scale_mode = s.scale_mode;
    weight.config.nvfp4_scale = s.nvfp4_scale;
    REQUIRE(weight.quantize(w, exec) == Status::kOk);
    REQUIRE(weight.codes.intact());
    REQUIRE(weight.scales.intact());
  }

  /// Of a call, but for its workspace.
  [[nodiscard]] LinearArgs arguments() {
    LinearArgs a;
    a.weight = weight.view;
    a.x = x.memory.data();
    a.x_dtype = s.x;
    a.out = out.memory.data();
    a.out_dtype = s.out;
    a.bias = s.bias ? bias.memory.data() : nullptr;
    a.bias_dtype = s.bias_dtype;
    a.m = s.m;
    a.batch = s.batch;
    a.activations = s.activations;
    a.scale_mode = s.scale_mode;
    a.nvfp4_scale = s.nvfp4_scale;
    a.x_global_scale = s.x_global_scale;
    a.weight_settled = s.seed % 2 == 0;
    return a;
  }

  Status run() {
    LinearArgs a = arguments();
    std::size_t bytes = 0;
    if (const Status status = fp4_linear_workspace(a, &bytes, exec); status != Status::kOk) return status;
    workspace = std::make_unique<Memory>(bytes, std::uint8_t{0xff});  // NaN in every float
    a.workspace = workspace->data();
    a.workspace_bytes = bytes;
    return fp4_linear(a, exec);
  }

  /// The worst error over its bound. The bound is that of K f32 sums in any order, each rounded or truncated (2^-23), and
  /// of three roundings of the sum at the end; then half an ulp of the output's type.
  [[nodiscard]] double worst() const {
    double worst = 0;
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const reference::Matrix a = multiplied_x(s, x, b);
      const reference::Matrix bm = reference::decode(weight.view, s.shared_weight ? 0 : b);
      // Threads take turns at the rows: a GPU's products are long work for one.
      const std::int64_t threads = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, s.m);
      std::vector<double> of_thread(static_cast<std::size_t>(threads), 0.0);
      {
        std::vector<std::jthread> running;
        for (std::int64_t t = 0; t < threads; ++t) {
          running.emplace_back([&, t] {
            for (std::int64_t i = t; i < s.m; i += threads) {
              double& mine = of_thread[static_cast<std::size_t>(t)];
              mine = std::max(mine, worst_of_row(a, bm, b, i));
            }
          });
        }
      }
      worst = std::max(worst, *std::max_element(of_thread.begin(), of_thread.end()));
    }
    return worst;
  }
  /// Of one row of X; 1e30 if there is a NaN.
  [[nodiscard]] double worst_of_row(const reference::Matrix& a, const reference::Matrix& bm, std::int64_t b, std::int64_t i) const {
    double worst = 0;
    for (std::int64_t j = 0; j < s.n; ++j) {
      const reference::Element e = reference::product(a, i, bm, j);
      const double offset = s.bias ? bias.at(static_cast<std::size_t>(j)) : 0.0;
      const double want = e.sum + offset;
      const double half_ulp = s.out == DType::kF16 ? 0x1p-11 : s.out == DType::kBF16 ? 0x1p-8 : 0x1p-24;
      const double bound = 0x1p-23 * static_cast<double>(s.k + 8) * (e.magnitude + std::fabs(offset)) +
                           half_ulp * std::fabs(want) * 1.01 + 0x1p-25;
      const double got = out.at(static_cast<std::size_t>((b * s.m + i) * s.n + j));
      const double error = std::fabs(got - want) / bound;
      if (!(error <= worst)) worst = std::isnan(error) ? 1e30 : error;
    }
    return worst;
  }

  Spec s;
  ExecDesc exec;
  Tensor x, w, bias;
  OwnedWeight weight;
  Tensor out;
  std::unique_ptr<Memory> workspace;
};

}  // namespace fp4pa::gemm_test
