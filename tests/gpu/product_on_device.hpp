// A product on the device for calls of its kernels by name: operands, parameters, and a look at all that was written.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "api/gemm_params.hpp"
#include "core/gemm/weight.hpp"
#include "cuda/gemm_kernels.hpp"
#include "kernels/gemm_ops.hpp"
#include "tests/gemm/problem.hpp"
#include "tests/gpu/backend_name.hpp"
#include "tests/gpu/mirror.hpp"

namespace fp4pa::gpu_test {

/// A problem on the device, as the kernels are given it.
class ProductOnDevice {
 public:
  /// @param x          X's elements; of none, Gaussian ones
  /// @param scales_at  bytes from 256-byte alignment to where W's scales begin
  explicit ProductOnDevice(const gemm_test::Spec& spec, const std::vector<float>& x = {}, std::size_t scales_at = 0)
      : problem(spec, kBackendName),
        s_(spec),
        weight_(problem.weight.view),
        scales_(scales_at + problem.weight.scales.bytes()),
        scales_at_(scales_at) {
    std::memcpy(scales_.data() + scales_at, problem.weight.scales.data(), problem.weight.scales.bytes());
    mirror_.add(scales_.data() + scales_at, static_cast<std::int64_t>(problem.weight.scales.bytes()));
    if (!x.empty()) std::memcpy(problem.x.memory.data(), gemm_test::Tensor(s_.x, x).memory.data(), problem.x.memory.bytes());
    problem.out.memory = gemm_test::Memory(problem.out.memory.bytes(), 0xff);  // NaN
    args_.weight = weight_;
    args_.x_dtype = s_.x;
    args_.m = s_.m;
    prepared_ = api::PreparedX::of(args_);
    workspace_ = std::make_unique<gemm_test::Memory>(static_cast<std::size_t>(prepared_.bytes), std::uint8_t{0xff});
    for (gemm_test::Memory* memory : {&problem.x.memory, &problem.out.memory, &problem.bias.memory, &problem.weight.codes,
                                      &problem.weight.globals, workspace_.get()}) {
      mirror_.add(memory->data(), static_cast<std::int64_t>(memory->bytes()));
    }
    args_.x = mirror_.device(problem.x.memory.data());
    args_.workspace = mirror_.device(workspace_->data());
    args_.workspace_bytes = workspace_->bytes();
  }

  /// Parameters of a product of X as it lies.
  [[nodiscard]] sm80::GemmParams params() {
    const core::WeightLayout layout{weight_.format, weight_.scale_layout, weight_.rows, weight_.cols};
    sm80::GemmParams p{};
    p.codes = mirror_.device(problem.weight.codes.data());
    p.scales = mirror_.device(scales_.data() + scales_at_);
    p.w_globals = mirror_.device(weight_.global_scale_ptr);
    p.w_global = weight_.global_scale;
    p.row_bytes = layout.code_row_bytes();
    p.n = static_cast<std::int32_t>(s_.n);
    p.groups = static_cast<std::int32_t>(layout.groups());
    p.scale_layout = s_.layout;
    p.x = reinterpret_cast<const std::uint16_t*>(mirror_.device(problem.x.memory.data()));
    p.x_row = s_.k;
    p.x_cols = static_cast<std::int32_t>(s_.k);
    p.out = mirror_.device(problem.out.memory.data());
    if (s_.bias) p.bias = mirror_.device(problem.bias.memory.data());
    p.out_dtype = s_.out;
    p.bias_dtype = s_.bias_dtype;
    p.m = static_cast<std::int32_t>(s_.m);
    return p;
  }
  /// The same of X prepared in f16.
  [[nodiscard]] sm80::GemmParams prepared_params() {
    sm80::GemmParams p = params();
    REQUIRE(cuda::prepare_x(args_, prepared_, ExecDesc{}) == Status::kOk);
    const auto* const memory = static_cast<const std::uint8_t*>(args_.workspace);
    p.x = reinterpret_cast<const std::uint16_t*>(memory);
    p.x_row = prepared_.cols;
    p.x_cols = static_cast<std::int32_t>(prepared_.cols);
    p.x_inverse = reinterpret_cast<const float*>(memory + prepared_.inverse);
    return p;
  }
  /// Waits for the kernel, and looks at all that it may have written.
  void check() {
    mirror_.bring_home();
    CHECK(problem.worst() <= 1.0);
    CHECK(problem.out.memory.intact());
    CHECK(workspace_->intact());
  }

  gemm_test::Problem problem;

 private:
  gemm_test::Spec s_;
  Fp4Weight weight_;
  gemm_test::Memory scales_;
  std::size_t scales_at_;
  LinearArgs args_;
  api::PreparedX prepared_;
  std::unique_ptr<gemm_test::Memory> workspace_;
  Mirror mirror_;
};

}  // namespace fp4pa::gpu_test
