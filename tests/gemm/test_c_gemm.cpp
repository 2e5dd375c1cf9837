// The C functions of fp4pa_gemm.h say and do what the C++ ones do.
#include <doctest/doctest.h>

#include <set>

#include "fp4pa/fp4pa.h"
#include "tests/gemm/problem.hpp"

using namespace fp4pa;
using namespace fp4pa::gemm_test;

namespace {

/// A weight [12, 96], quantised, and three rows of X multiplied by it: every byte that the two calls write.
struct Written {
  [[nodiscard]] std::string bytes() const {
    std::string all;
    for (const Memory* part : {&codes, &scales, &out}) all.append(reinterpret_cast<const char*>(part->data()), part->bytes());
    return all;
  }
  Memory codes{12 * 96 / 2}, scales{4096, 0}, out{3 * 12 * 4}, workspace{1 << 16};
};

Written in_cpp(const QuantizeConfig& config, const std::vector<float>& w, LinearArgs args) {
  Written written;
  const ExecDesc exec{"cpu", nullptr, 1};
  REQUIRE(fp4_quantize_weight(config, w.data(), DType::kF32, 12, 96, 1, written.codes.data(), written.scales.data(), nullptr,
                              &args.weight, exec) == Status::kOk);
  args.out = written.out.data();
  args.workspace = written.workspace.data();
  args.workspace_bytes = written.workspace.bytes();
  REQUIRE(fp4_linear(args, exec) == Status::kOk);
  return written;
}

fp4pa_exec one_thread() {
  fp4pa_exec exec;
  fp4pa_exec_init(&exec);
  exec.backend = "cpu";
  exec.num_threads = 1;
  return exec;
}

Written in_c(const QuantizeConfig& config, const std::vector<float>& w, const LinearArgs& args) {
  Written written;
  const fp4pa_exec exec = one_thread();
  fp4pa_quantize_config c;
  fp4pa_quantize_config_init(&c);
  c.format = static_cast<int>(config.format);
  c.scale_layout = static_cast<int>(config.scale_layout);
  c.scale_mode = static_cast<int>(config.scale_mode);
  c.nvfp4_scale = static_cast<int>(config.nvfp4_scale);
  c.global_scale = config.global_scale;
  fp4pa_fp4_weight weight;
  fp4pa_fp4_weight_init(&weight);
  REQUIRE(fp4pa_fp4_quantize_weight(&c, w.data(), FP4PA_F32, 12, 96, 1, written.codes.data(), written.scales.data(), nullptr, &weight,
                                    &exec) == FP4PA_OK);
  fp4pa_linear_args a;
  fp4pa_linear_args_init(&a);
  a.weight = &weight;
  a.x = args.x;
  a.x_dtype = static_cast<int>(args.x_dtype);
  a.m = args.m;
  a.activations = static_cast<int>(args.activations);
  a.bias = args.bias;
  a.bias_dtype = static_cast<int>(args.bias_dtype);
  a.x_global_scale = args.x_global_scale;
  a.scale_mode = static_cast<int>(args.scale_mode);
  a.nvfp4_scale = static_cast<int>(args.nvfp4_scale);
  a.out = written.out.data();
  a.out_dtype = static_cast<int>(args.out_dtype);
  a.workspace = written.workspace.data();
  a.workspace_bytes = written.workspace.bytes();
  REQUIRE(fp4pa_fp4_linear(&a, &exec) == FP4PA_OK);
  return written;
}

}  // namespace

TEST_CASE("gemm in C: every choice does what it does in C++, and something") {
  const std::vector<float> w = gaussian(12 * 96, 1), x = gaussian(3 * 96, 2), offsets = gaussian(12, 3);
  const Tensor bias(DType::kF32, offsets), half_bias(DType::kF16, offsets);
  std::set<std::string> seen;
  const auto check = [&](const char* choice, auto&& change) {
    CAPTURE(std::string(choice));
    QuantizeConfig config;
    config.format = BlockFormat::kNvfp4;
    LinearArgs args;
    args.x = x.data();
    args.x_dtype = args.out_dtype = DType::kF32;
    args.m = 3;
    args.activations = ActivationForm::kFp4;
    change(config, args);
    const std::string wanted = in_cpp(config, w, args).bytes();
    CHECK(in_c(config, w, args).bytes() == wanted);
    CHECK(seen.insert(wanted).second);
  };
  check("none", [](auto&, auto&) {});
  check("bias in f32", [&](auto&, auto& a) { a.bias = bias.memory.data(), a.bias_dtype = DType::kF32; });
  check("bias in f16", [&](auto&, auto& a) { a.bias = half_bias.memory.data(), a.bias_dtype = DType::kF16; });
  check("X's multiplier", [](auto&, auto& a) { a.x_global_scale = 0.013f; });
  check("X's rule of scales", [](auto&, auto& a) { a.nvfp4_scale = Nvfp4Scale::kFourOverSix; });
  check("W's rule of scales", [](auto& c, auto&) { c.nvfp4_scale = Nvfp4Scale::kFourOverSix; });
  check("W's multiplier", [](auto& c, auto&) { c.global_scale = 0.004f; });
  check("W's layout", [](auto& c, auto&) { c.scale_layout = ScaleLayout::kBlocked; });
  check("MXFP4", [](auto& c, auto&) { c.format = BlockFormat::kMxfp4; });
  check("X's rounding of scales", [](auto& c, auto& a) { c.format = BlockFormat::kMxfp4, a.scale_mode = ScaleMode::kEven; });
  check("W's rounding of scales", [](auto& c, auto&) { c.format = BlockFormat::kMxfp4, c.scale_mode = ScaleMode::kCeil; });
}

TEST_CASE("gemm in C: the same result, and structs of another age are refused") {
  const std::vector<float> w = gaussian(12 * 40, 1), x = gaussian(3 * 40, 2);
  Memory codes(fp4pa_fp4_weight_code_bytes(FP4PA_BLOCK_NVFP4, 12, 40, 1));
  Memory scales(fp4pa_fp4_weight_scale_bytes(FP4PA_BLOCK_NVFP4, FP4PA_SCALES_BLOCKED, 12, 40, 1));
  float global = 0;
  fp4pa_quantize_config config;
  fp4pa_quantize_config_init(&config);
  config.format = FP4PA_BLOCK_NVFP4;
  config.scale_layout = FP4PA_SCALES_BLOCKED;
  const fp4pa_exec exec = one_thread();
  fp4pa_fp4_weight weight;
  fp4pa_fp4_weight_init(&weight);
  REQUIRE(fp4pa_fp4_quantize_weight(&config, w.data(), FP4PA_F32, 12, 40, 1, codes.data(), scales.data(), &global, &weight,
                                    &exec) == FP4PA_OK);
  CHECK(weight.global_scale_ptr == &global);
  CHECK(weight.struct_size == sizeof weight);
  fp4pa_linear_args args;
  fp4pa_linear_args_init(&args);
  args.weight = &weight;
  args.x = x.data();
  args.x_dtype = FP4PA_F32;
  args.activations = FP4PA_ACTIVATIONS_FP4;
  float out[36], again[36];
  args.out = out;
  args.out_dtype = FP4PA_F32;
  args.m = 3;
  size_t bytes = 0;
  REQUIRE(fp4pa_fp4_linear_workspace(&args, &bytes, &exec) == FP4PA_OK);
  Memory memory(bytes);
  args.workspace = memory.data();
  args.workspace_bytes = bytes;
  REQUIRE(fp4pa_fp4_linear(&args, &exec) == FP4PA_OK);

  fp4pa_matmul_args m;
  fp4pa_matmul_args_init(&m);
  m.format = FP4PA_BLOCK_NVFP4;
  m.a = x.data();
  m.b = w.data();
  m.out = again;
  m.a_dtype = m.b_dtype = m.out_dtype = FP4PA_F32;
  m.m = 3;
  m.n = 12;
  m.k = 40;
  REQUIRE(fp4pa_fp4_matmul_workspace(&m, &bytes, &exec) == FP4PA_OK);
  Memory more(bytes);
  m.workspace = more.data();
  m.workspace_bytes = bytes;
  REQUIRE(fp4pa_fp4_matmul(&m, &exec) == FP4PA_OK);
  CHECK(std::memcmp(out, again, sizeof out) == 0);

  args.struct_size = 8;
  CHECK(fp4pa_fp4_linear(&args, &exec) == FP4PA_INVALID_ARGUMENT);
  args.struct_size = sizeof args;
  args.weight = nullptr;
  CHECK(fp4pa_fp4_linear(&args, &exec) == FP4PA_NULL_POINTER);
  args.weight = &weight;
  args.weight_settled = 1;
  std::memset(out, 0, sizeof out);
  REQUIRE(fp4pa_fp4_linear(&args, &exec) == FP4PA_OK);
  CHECK(std::memcmp(out, again, sizeof out) == 0);
  args.weight_settled = 2;
  CHECK(fp4pa_fp4_linear(&args, &exec) == FP4PA_INVALID_ARGUMENT);
  CHECK(std::string(fp4pa_last_error_detail()) == "weight_settled is 2; allowed: 0, 1");
  args.weight_settled = 0;
  weight.reserved = 1;
  CHECK(fp4pa_fp4_linear(&args, &exec) == FP4PA_INVALID_ARGUMENT);
}
