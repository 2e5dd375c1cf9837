// Every other kernel of fp4_linear once, in a product of a few blocks: short enough for compute-sanitizer. A call chooses its kernel by
// what is fastest on the device, so that kernels of many rows would want products that fill it; here they are launched by name.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "cuda/gemm_kernels.hpp"
#include "tests/gpu/product_kernels.hpp"

namespace {

using namespace fp4pa;
using namespace fp4pa::gpu_test;

void run_many(const gemm_test::Spec& spec, int x_rows, std::int32_t splits) {
  ProductOnDevice on_device(spec);
  cuda::Sm90Division d = division_of(spec.x, spec.k, splits);
  const sm90::ManyLayout layout{x_rows, spec.format == BlockFormat::kNvfp4, d.bf16};
  d.function = cuda::gemm_many_function(layout);
  d.x_rows = x_rows;
  d.w_rows = layout.kRows;
  d.row_tiles = blocks_for(spec.n, d.w_rows);
  d.m_tiles = blocks_for(spec.m, x_rows);
  d.threads = layout.threads();
  d.shared_bytes = layout.shared_bytes();
  launch_and_check(on_device, d);
}

void run_sm80(BlockFormat format, int x_tiles, bool prepared, std::int64_t m, std::int32_t splits) {
  const bool nvfp4 = format == BlockFormat::kNvfp4;
  const int shared_bytes = sm80::gemm_shared_bytes(nvfp4, x_tiles);
  if (shared_bytes > current().shared_bytes) {  // 64 rows of X are more than the 99 KB of compute capability 8.6, 8.9 and 12.x
    MESSAGE("not run: " << shared_bytes << " bytes of shared memory for " << 8 * x_tiles << " rows of X");
    return;
  }
  const gemm_test::Spec spec = spec_of(format, prepared ? DType::kBF16 : DType::kF16, m);
  ProductOnDevice on_device(spec);
  sm80::GemmParams params = prepared ? on_device.prepared_params() : on_device.params();
  params.stages = blocks_for(spec.k, sm80::kGemmStage);
  params.splits = splits;
  params.row_tiles = blocks_for(spec.n, sm80::gemm_rows(x_tiles));
  const void* const function = cuda::gemm_function(nvfp4, x_tiles, prepared);
  REQUIRE(function != nullptr);
  must(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "asking for shared memory");
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(splits), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(params.row_tiles * blocks_for(m, 8 * x_tiles) * splits));
  config.blockDim = dim3(static_cast<unsigned>(sm80::gemm_rows(x_tiles)));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.attrs = &cluster;
  config.numAttrs = splits > 1 ? 1 : 0;
  void* arguments[] = {&params};
  must(cudaLaunchKernelExC(&config, function, arguments), "launching a product");
  on_device.check();
}

}  // namespace

TEST_CASE("every product kernel once: sm_90, more rows of X") {
  if (!is_sm90()) return;
  for_operands([](BlockFormat format, DType x) {
    for (const int x_rows : {32, 64, 128, 192, 256}) {
      // The last two: rows of three blocks and of two, of which each has fewer than it has room for, and the last of two one fewer.
      for (const auto& [m, splits] :
           {std::pair<std::int64_t, std::int32_t>{x_rows, 1}, {x_rows - 5, 2}, {2 * x_rows + 2, 2}, {x_rows + 1, 2}}) {
        CAPTURE(m);
        CAPTURE(splits);
        run_many(spec_of(format, x, m), x_rows, splits);
      }
    }
  });
}

TEST_CASE("every product kernel once: sm_90, more rows of X, K divided by three blocks and more") {
  if (!is_sm90()) return;
  for_operands([](BlockFormat format, DType x) {
    for (const std::int32_t splits : {3, 5, 8}) {
      CAPTURE(splits);
      for (const int x_rows : {32, 64, 128}) {
        CAPTURE(x_rows);
        run_many(divided_spec(format, x, x_rows - 9, splits), x_rows, splits);
      }
    }
  });
}

TEST_CASE("every product kernel once: sm_80 and later") {
  const bool clusters = current().compute_capability >= 90;
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
    for (const bool prepared : {false, true}) {
      for (const int x_tiles : {1, 2, 4, 8}) {
        if (x_tiles > 2 && !prepared) continue;
        for (const std::int32_t splits : {1, 2}) {
          if (splits > 1 && !clusters) continue;
          CAPTURE(std::string(name_of(format)));
          CAPTURE(prepared);
          CAPTURE(x_tiles);
          CAPTURE(splits);
          run_sm80(format, x_tiles, prepared, 8 * x_tiles - splits, splits);
        }
      }
    }
  }
}

TEST_CASE("every product kernel once: fp4_linear chooses, quantises and divides") {
  struct Shape {
    std::int64_t m, k;
  };
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
    for (const ActivationForm form : {ActivationForm::k16Bit, ActivationForm::kFp4}) {
      for (const Shape shape :
           {Shape{1, 320}, {3, 328}, {8, 48}, {9, 301}, {16, 320}, {32, 328}, {64, 48}, {192, 160}, {256, 100}}) {
        gemm_test::Spec s = spec_of(format, shape.m % 3 == 0 ? DType::kF16 : DType::kBF16, shape.m);
        s.activations = form;
        s.k = shape.k;
        CAPTURE(gemm_test::text(s));
        gemm_test::Problem p(s, gpu_test::kBackendName);
        REQUIRE_MESSAGE(p.run() == Status::kOk, last_error_detail());
        CHECK(p.worst() <= 1.0);
        CHECK(p.out.memory.intact());
        CHECK(p.workspace->intact());
      }
    }
  }
}
