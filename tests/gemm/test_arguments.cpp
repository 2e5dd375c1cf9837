// Wrong arguments: the code, a sentence with the value, and nothing written.
#include <doctest/doctest.h>
#include <omp.h>

#include <utility>

#include "tests/gemm/problem.hpp"

using namespace fp4pa;
using namespace fp4pa::gemm_test;

namespace {

/// A call that is right, to be broken.
struct Call {
  Call() : weight(BlockFormat::kNvfp4, ScaleLayout::kLinear, 8, 64), x(DType::kBF16, gaussian(4 * 64, 1)), out(32 * 4), memory(1 << 16) {
    const Tensor w(DType::kF32, gaussian(8 * 64, 2));
    REQUIRE(weight.quantize(w, ExecDesc{"cpu"}) == Status::kOk);
    args.weight = weight.view;
    args.x = x.memory.data();
    args.out = out.data();
    args.out_dtype = DType::kF32;
    args.m = 4;
    args.workspace = memory.data();
    args.workspace_bytes = memory.bytes();
  }
  void fails(Status status, const char* text) {
    const std::vector<std::uint8_t> before(out.data(), out.data() + out.bytes());
    CHECK(status_name(fp4_linear(args, ExecDesc{"cpu", nullptr, 1})) == std::string(status_name(status)));
    const std::string detail = last_error_detail();
    CAPTURE(detail);
    CHECK(detail.find(text) != std::string::npos);
    CHECK(std::memcmp(before.data(), out.data(), before.size()) == 0);
  }
  OwnedWeight weight;
  Tensor x;
  Memory out, memory;
  LinearArgs args;
};

}  // namespace

TEST_CASE("gemm arguments: each wrong one is named") {
  { Call c; REQUIRE(fp4_linear(c.args, ExecDesc{"cpu", nullptr, 1}) == Status::kOk); }
  { Call c; c.args.m = 0; REQUIRE(fp4_linear(c.args, ExecDesc{"cpu"}) == Status::kOk); }
  { Call c; c.args.m = -1; c.fails(Status::kInvalidSize, "m is -1; allowed: 0 to"); }
  { Call c; c.args.batch = 0; c.fails(Status::kInvalidSize, "batch is 0; allowed: 1 to 65535"); }
  { Call c; c.args.weight.batch = 2; c.args.batch = 3; c.fails(Status::kInvalidSize, "weight.batch is 2; allowed: 1, or batch, which is 3"); }
  { Call c; c.args.weight.rows = 0; c.fails(Status::kInvalidSize, "weight.rows is 0"); }
  { Call c; c.args.weight.cols = -5; c.fails(Status::kInvalidSize, "weight.cols is -5"); }
  { Call c; c.args.weight.cols = 2147483521; c.fails(Status::kInvalidSize, "weight.cols is 2147483521; allowed: 1 to 2147483520"); }
  { Call c; c.args.weight.format = BlockFormat::kMxfp8; c.fails(Status::kUnsupportedFormat, "weight.format is 2 (mxfp8); allowed: 0 (mxfp4), 1 (nvfp4)"); }
  { Call c; c.args.weight.scale_layout = static_cast<ScaleLayout>(7); c.fails(Status::kUnsupportedFormat, "scale_layout is 7"); }
  { Call c; c.args.x_dtype = DType::kF32; c.fails(Status::kUnsupportedFormat, "x_dtype is f32; allowed with activations a16: f16, bf16"); }
  { Call c; c.args.out_dtype = static_cast<DType>(9); c.fails(Status::kUnsupportedFormat, "out_dtype is 9"); }
  { Call c; c.args.activations = static_cast<ActivationForm>(3); c.fails(Status::kUnsupportedFormat, "activations is 3"); }
  { Call c; c.args.x = nullptr; c.fails(Status::kNullPointer, "x is null"); }
  { Call c; c.args.out = nullptr; c.fails(Status::kNullPointer, "out is null"); }
  { Call c; c.args.weight.codes = nullptr; c.fails(Status::kNullPointer, "weight.codes is null"); }
  { Call c; c.args.weight.codes = c.weight.codes.data() + 8; c.fails(Status::kMisalignedPointer, "weight.codes"); }
  { Call c; c.args.weight.scales = c.weight.scales.data() + 1; c.fails(Status::kMisalignedPointer, "weight.scales"); }
  { Call c; c.args.weight.global_scale_ptr = nullptr; c.args.weight.global_scale = -1.0f; c.fails(Status::kInvalidGlobalScale, "weight.global_scale is -1"); }
  for (const auto& [wrong, shown] : {std::pair(std::nanf(""), "nan"), {0.0f, "0"}, {-1.0f, "-1"}, {INFINITY, "inf"}}) {
    Call c;
    c.args.weight.global_scale_ptr = &wrong;
    c.fails(Status::kInvalidGlobalScale, ("weight.global_scale_ptr[0] is " + std::string(shown) + "; allowed: 2^-126 to 2^126").c_str());
  }
  { Call c; c.args.x_global_scale = 0.5f; c.fails(Status::kInvalidGlobalScale, "x_global_scale is 0.5; allowed with activations a16"); }
  { Call c; c.args.activations = ActivationForm::kFp4; c.args.x_global_scale = INFINITY; c.fails(Status::kInvalidGlobalScale, "x_global_scale is inf"); }
  { Call c; c.args.activations = ActivationForm::kFp4; c.args.scale_mode = static_cast<ScaleMode>(4); c.fails(Status::kUnsupportedFormat, "scale_mode is 4"); }
  { Call c; c.args.workspace_bytes = 256; c.fails(Status::kWorkspaceTooSmall, "workspace_bytes is 256; allowed: at least"); }
  { Call c; c.args.workspace = nullptr; c.fails(Status::kNullPointer, "workspace is null"); }
  { Call c; c.args.workspace = c.memory.data() + 16; c.fails(Status::kMisalignedPointer, "workspace"); }
}

TEST_CASE("gemm arguments: of the quantiser and of fp4_matmul") {
  Memory codes(4096), scales(4096);
  float globals[1];
  Fp4Weight w;
  const std::vector<float> x = gaussian(8 * 64, 1);
  const auto quantize = [&](const QuantizeConfig& config, std::int64_t rows, void* to, float* g) {
    return fp4_quantize_weight(config, x.data(), DType::kF32, rows, 64, 1, to, scales.data(), g, &w, ExecDesc{"cpu"});
  };
  QuantizeConfig config;
  CHECK(quantize(config, 8, codes.data(), nullptr) == Status::kOk);
  CHECK(quantize(config, 0, codes.data(), nullptr) == Status::kInvalidSize);
  CHECK(quantize(config, 8, nullptr, nullptr) == Status::kNullPointer);
  CHECK(quantize(config, 8, codes.data() + 1, nullptr) == Status::kMisalignedPointer);
  CHECK(quantize(config, 8, codes.data(), globals) == Status::kInvalidArgument);
  CHECK(std::string(last_error_detail()) == "global_scales is set; allowed for format mxfp4: null");
  config.format = BlockFormat::kMxfp8;
  CHECK(quantize(config, 8, codes.data(), nullptr) == Status::kUnsupportedFormat);
  CHECK(fp4_weight_code_bytes(BlockFormat::kMxfp8, 8, 64) == 0);
  CHECK(fp4_weight_code_bytes(BlockFormat::kMxfp4, std::int64_t{1} << 40, 64) == 0);
  CHECK(fp4_weight_code_bytes(BlockFormat::kMxfp4, 1, 2147483520) == 2147483520 / 2);  // K in whole stages of 128 fits 32 bits
  CHECK(fp4_weight_code_bytes(BlockFormat::kMxfp4, 1, 2147483521) == 0);
  CHECK(fp4_weight_code_bytes(BlockFormat::kMxfp4, 2, 33) == 2 * 32);
  CHECK(fp4_weight_scale_bytes(BlockFormat::kNvfp4, ScaleLayout::kBlocked, 129, 65, 2) == 2 * 256 * 8);

  MatmulArgs m;
  std::size_t bytes = 0;
  m.m = m.n = m.k = 16;
  CHECK(fp4_matmul_workspace(m, &bytes) == Status::kOk);
  MatmulArgs wide = m;
  wide.k = 2147483521;
  CHECK(fp4_matmul_workspace(wide, &bytes) == Status::kInvalidSize);
  CHECK(std::string(last_error_detail()) == "k is 2147483521; allowed: 1 to 2147483520");
  m.k = 0;
  CHECK(fp4_matmul_workspace(m, &bytes) == Status::kInvalidSize);
  CHECK(std::string(last_error_detail()).find("k is 0") == 0);
}

TEST_CASE("gemm arguments: sizes whose bytes would wrap around") {
  constexpr std::int64_t kMost = 2147483647;
  const auto sized = [](std::int64_t m, std::int64_t rows, std::int64_t cols) {
    LinearArgs a;
    a.weight.rows = rows;
    a.weight.cols = cols;
    a.m = m;
    a.batch = 65535;
    std::size_t bytes = 0;
    return fp4_linear_workspace(a, &bytes, ExecDesc{"cpu", nullptr, 1});
  };
  CHECK(sized(16, 32, 64) == Status::kOk);
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>(1, 2147483520), {kMost, 1}}) {  // those of X, of the result
    CHECK(sized(kMost, rows, cols) == Status::kInvalidSize);
    CHECK(std::string(last_error_detail()) == "m is 2147483647; allowed: what fits the address space with batch 65535");
  }
}

TEST_CASE("gemm arguments: one thread's workspace serves any number of threads") {
  // What OpenMP would start is a matter of the calling thread: what is asked for on one must do on another.
  Spec s;
  s.format = BlockFormat::kNvfp4;
  s.activations = ActivationForm::kFp4;
  s.x = DType::kF32;
  s.m = 3;
  s.n = 50;
  s.k = 80;
  for (const char* const backend : {"cpu", "cpu-scalar"}) {
    CAPTURE(std::string(backend));
    Problem p(s, backend);
    REQUIRE(p.run() == Status::kOk);
    LinearArgs a;
    a.weight = p.weight.view;
    a.x = p.x.memory.data();
    a.x_dtype = s.x;
    a.out_dtype = s.out;
    a.m = s.m;
    a.activations = s.activations;
    MatmulArgs mm;
    mm.format = s.format;
    mm.a = p.x.memory.data();
    mm.a_dtype = s.x;
    mm.b = p.w.memory.data();
    mm.b_dtype = p.w.dtype;
    mm.out_dtype = s.out;
    mm.m = s.m;
    mm.n = s.n;
    mm.k = s.k;
    const auto check = [&](auto args, auto&& bytes_of, auto&& call) {
      std::size_t one = 0, four = 0, automatic = 0;
      std::thread([&] {
        omp_set_num_threads(1);
        REQUIRE(bytes_of(args, &automatic, ExecDesc{backend}) == Status::kOk);
      }).join();
      REQUIRE(bytes_of(args, &one, ExecDesc{backend, nullptr, 1}) == Status::kOk);
      REQUIRE(bytes_of(args, &four, ExecDesc{backend, nullptr, 4}) == Status::kOk);
      CHECK(automatic == one);
      CHECK(one < four);  // what is reported is for every thread
      for (const std::size_t bytes : {one, one + 256, four}) {
        for (const std::int32_t threads : {0, 1, 3, 4}) {
          CAPTURE(bytes);
          CAPTURE(threads);
          Memory out(p.out.memory.bytes()), workspace(bytes, 0xff);
          args.out = out.data();
          args.workspace = workspace.data();
          args.workspace_bytes = bytes;
          Status status = Status::kOk;
          std::string detail;
          std::thread([&] {
            omp_set_num_threads(4);
            status = call(args, ExecDesc{backend, nullptr, threads});
            detail = last_error_detail();
          }).join();
          CHECK_MESSAGE(status == Status::kOk, detail);
          CHECK(std::memcmp(out.data(), p.out.memory.data(), out.bytes()) == 0);
          CHECK(workspace.intact());
        }
      }
      args.workspace_bytes = one - 1;
      CHECK(call(args, ExecDesc{backend, nullptr, 4}) == Status::kWorkspaceTooSmall);
      CHECK(std::string(last_error_detail()) ==
            "workspace_bytes is " + std::to_string(one - 1) + "; allowed: at least " + std::to_string(one));
      args.m = 0;
      CHECK(call(args, ExecDesc{backend, nullptr, -1}) == Status::kInvalidArgument);
    };
    check(a, fp4_linear_workspace, fp4_linear);
    check(mm, fp4_matmul_workspace, fp4_matmul);
  }
}
