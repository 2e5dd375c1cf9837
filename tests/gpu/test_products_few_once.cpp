// Every kernel of fp4_linear for up to 16 rows of X on sm_90 once, in a product of a few blocks: short enough for compute-sanitizer.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/product_kernels.hpp"

namespace {

using namespace fp4pa;
using namespace fp4pa::gpu_test;

/// A product that is plain for blocks of `row_groups` that divide K in two.
gemm_test::Spec plain_of(BlockFormat format, DType x, std::int64_t m, std::int32_t row_groups) {
  gemm_test::Spec s = spec_of(format, x, m);
  s.layout = ScaleLayout::kLinear;
  s.n = 2 * sm90::few_rows(row_groups);
  s.k = 8 * sm80::kGemmStage;
  s.out = m % 2 == 0 ? DType::kF16 : DType::kBF16;
  s.bias = m != 2;
  s.bias_dtype = m % 4 == 0 ? DType::kBF16 : DType::kF16;
  return s;
}

/// Stages of which a block's warps have X under way together in plain products, by few_held() and sixteen_held(), which are device code's:
/// where a block has more, X comes in several rounds.
[[nodiscard]] constexpr std::int32_t stages_of_round(sm90::FewForm form, bool bf16, std::int64_t m) {
  if (form == sm90::FewForm::kHalves) return m <= 2 ? 64 : m <= 4 ? 32 : 16;
  return m <= 4 || (m <= sm90::kFewMostX && bf16 && form == sm90::FewForm::kPlain) ? 64 : 32;
}

/// Gaussian X, 32 times as large in even rows from a block's stage `late` on, and in odd rows before: in a unit of bf16 that was found
/// without the large ones they are more than f16 has room for.
std::vector<float> uneven_x(const gemm_test::Spec& s, std::int32_t block_stages, std::int32_t late) {
  std::vector<float> x = gemm_test::gaussian(static_cast<std::size_t>(s.m * s.k), s.seed);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const bool is_late = at % s.k / sm80::kGemmStage % block_stages >= late;
    const bool is_even = at / s.k % 2 == 0;
    if (is_late == is_even) x[i] *= 32.0f;
  }
  return x;
}

struct FewDivision {
  sm90::FewForm form = sm90::FewForm::kAny;
  std::int32_t row_groups = 1, splits = 1;
  std::int32_t tiles = sm90::kFewTiles;
};
[[nodiscard]] const void* few_function(bool nvfp4, bool bf16, std::int64_t m, const FewDivision& how) {
  return how.tiles == sm90::kFewTiles ? cuda::gemm_few_function(nvfp4, bf16, m, how.form)
                                      : cuda::gemm_few_tiles_function(nvfp4, bf16, how.tiles);
}

/// @param x_values   X's elements; of none, Gaussian ones
/// @param scales_at  bytes from 256-byte alignment to W's scales
void run_few(const gemm_test::Spec& spec, const FewDivision& how, const std::vector<float>& x_values = {}, std::size_t scales_at = 0) {
  const bool nvfp4 = spec.format == BlockFormat::kNvfp4;
  const DType x = spec.x;
  const std::int64_t m = spec.m;
  ProductOnDevice on_device(spec, x_values, scales_at);
  cuda::Sm90Division d = division_of(x, spec.k, how.splits);
  d.function = few_function(nvfp4, d.bf16, m, how);
  d.few = true;
  d.x_rows = static_cast<std::int32_t>(m);
  d.row_groups = how.row_groups;
  d.tiles = how.tiles;
  d.row_tiles = blocks_for(spec.n, sm90::few_rows(d.row_groups, d.tiles));
  d.m_tiles = 1;
  d.threads = sm90::kFewThreads;
  d.shared_bytes = m <= sm90::kFewMostX ? sm90::few_shared_bytes(nvfp4, d.row_groups, d.block_stages, d.x_rows, d.tiles)
                                        : sm90::sixteen_shared_bytes(nvfp4, d.row_groups, d.block_stages, d.x_rows);
  launch_and_check(on_device, d);
}

}  // namespace

TEST_CASE("every product kernel once: sm_90, up to 16 rows of X") {
  if (!is_sm90()) return;
  for_operands([](BlockFormat format, DType x) {
    for (const std::int64_t m : {1, 3, 4, 8, 9, 16}) {
      // More than 8 rows of X: no more rows of W than there are.
      for (const auto& [row_groups, splits] : {std::pair{1, 1}, {m <= sm90::kFewMostX ? 4 : 2, 2}}) {
        CAPTURE(m);
        CAPTURE(row_groups);
        CAPTURE(splits);
        run_few(spec_of(format, x, m), {sm90::FewForm::kAny, row_groups, splits});
      }
    }
  });
}

TEST_CASE("every product kernel once: sm_90, plain products of up to 16 rows of X") {
  if (!is_sm90()) return;
  for_operands([](BlockFormat format, DType x) {
    for (const std::int64_t m : {1, 2, 3, 4, 5, 8, 9, 16}) {
      for (const std::int32_t row_groups : {1, 2, 4, 8}) {
        CAPTURE(m);
        CAPTURE(row_groups);
        if (row_groups == 1) run_few(plain_of(format, x, m, 1), {sm90::FewForm::kPlain});
        if (row_groups > 1 && m <= 4) continue;  // there is no such kernel
        run_few(plain_of(format, x, m, row_groups), {row_groups == 1 ? sm90::FewForm::kHalves : sm90::FewForm::kWideHalves, row_groups, 2});
      }
    }
  });
}

TEST_CASE("every product kernel once: sm_90, plain products, blocks of 48, 80 and 96 rows of W") {
  if (!is_sm90()) return;
  for_operands([](BlockFormat format, DType x) {
    for (const int tiles : sm90::kFewOtherTiles) {
      CAPTURE(tiles);
      for (const std::int64_t m : {1, 2}) {
        CAPTURE(m);
        // Whole blocks, and a last one that has most rows in common with the one before.
        for (const std::int64_t rows : {2 * 16 * tiles, 3 * 16 * tiles - 21}) {
          CAPTURE(rows);
          for (const std::int64_t stages : {8, 40}) {  // half of the warps have one; some have two, others three
            CAPTURE(stages);
            gemm_test::Spec s = plain_of(format, x, m, 1);
            s.n = rows;
            s.k = stages * sm80::kGemmStage;
            run_few(s, {sm90::FewForm::kPlain, 1, 1, tiles});
          }
        }
      }
    }
  });
}

TEST_CASE("every product kernel once: sm_90, plain products, X in several rounds") {
  if (!is_sm90()) return;
  using enum sm90::FewForm;
  // Mostly four stages more than whole rounds, so that some warps have nothing in the last; 52, so that all of a turn have two. A block's
  // scales are whole pieces. Of 5 to 8 rows in bf16 kPlain has memory for no more than its first round, whole in MXFP4.
  struct Shape {
    std::int64_t m;
    sm90::FewForm form;
    std::int32_t row_groups;
    std::int32_t block_stages[2];  // MXFP4, NVFP4; 0: memory is too small for two rounds
  };
  constexpr Shape kShapes[] = {
      {1, kPlain, 1, {68, 68}},       {2, kPlain, 1, {68, 68}},       {3, kPlain, 1, {68, 68}},
      {5, kPlain, 1, {64, 54}},       {7, kPlain, 1, {36, 36}},       {9, kPlain, 1, {52, 52}},
      {12, kPlain, 1, {36, 36}},      {16, kPlain, 1, {36, 34}},
      {1, kHalves, 1, {68, 68}},      {2, kHalves, 1, {68, 68}},      {3, kHalves, 1, {36, 36}},
      {5, kHalves, 1, {36, 36}},      {7, kHalves, 1, {20, 20}},      {9, kHalves, 1, {36, 36}},  // three with 5 and with 9 rows
      {16, kHalves, 1, {20, 20}},
      {5, kWideHalves, 2, {52, 36}},  {6, kWideHalves, 4, {36, 0}},   {7, kWideHalves, 2, {36, 34}},
      {8, kWideHalves, 2, {36, 0}},   {9, kWideHalves, 2, {52, 48}},  {12, kWideHalves, 2, {44, 40}},
      {10, kWideHalves, 4, {36, 34}},  {14, kWideHalves, 2, {36, 34}},
  };
  for_operands([&](BlockFormat format, DType x) {
    for (const Shape& shape : kShapes) {
      const std::int32_t stages = shape.block_stages[format == BlockFormat::kNvfp4 ? 1 : 0];
      if (stages == 0) continue;
      const std::int32_t splits = shape.form == kPlain ? 1 : 2;
      const std::int32_t round = stages_of_round(shape.form, x == DType::kBF16, shape.m);
      gemm_test::Spec s = plain_of(format, x, shape.m, shape.row_groups);
      s.n = std::min<std::int64_t>(s.n, 512);
      s.k = std::int64_t{splits} * stages * sm80::kGemmStage;
      CAPTURE(gemm_test::text(s));
      CAPTURE(shape.row_groups);
      run_few(s, {shape.form, shape.row_groups, splits}, uneven_x(s, stages, (stages - 1) / round * round));
    }
  });
}

TEST_CASE("every product kernel once: fp4_linear finds what is plain") {
  struct Shape {
    std::int64_t m, n, k;
  };
  const cuda::DeviceProperties device = current();
  int plain = 0, halves = 0, wide = 0, others = 0;
  for_operands([&](BlockFormat format, DType x) {
    for (const Shape shape : {Shape{1, 8192, 512},
                              {3, 8192, 1024},
                              {8, 8100, 512},
                              {2, 4096, 4096},
                              {2, 10230, 2048},
                              {5, 4096, 4096},
                              {16, 8192, 1024},
                              {11, 8192, 4096},
                              {8, 8192, 8192}}) {
      for (const bool f32 : {false, true}) {
        gemm_test::Spec s = plain_of(format, x, shape.m, 1);
        s.n = shape.n;
        s.k = shape.k;
        s.bias = true;
        if (f32) (shape.m % 2 == 0 ? s.out : s.bias_dtype) = DType::kF32;
        CAPTURE(gemm_test::text(s));
        gemm_test::Problem p(s, gpu_test::kBackendName);
        REQUIRE_MESSAGE(p.run() == Status::kOk, last_error_detail());
        CHECK(p.worst() <= 1.0);
        CHECK(p.out.memory.intact());

        // That the kernel is the one for what was asked and for how the blocks divide it.
        LinearArgs args = p.arguments();
        cuda::Sm90Division d{};
        REQUIRE(cuda::divide_sm90(args, device, &d) == Status::kOk);
        if (d.function == nullptr) continue;
        const bool whole = (d.tiles != sm90::kFewTiles || s.n % sm90::few_rows(d.row_groups) == 0) && !f32;
        sm90::FewForm form = sm90::FewForm::kAny;
        if (whole && d.splits == 1 && d.row_groups == 1) form = sm90::FewForm::kPlain;
        if (whole && d.splits == 2 && d.row_groups == 1) form = sm90::FewForm::kHalves;
        if (whole && d.splits == 2 && d.row_groups > 1 && s.m > 4) form = sm90::FewForm::kWideHalves;
        CHECK(d.function == few_function(format == BlockFormat::kNvfp4, d.bf16, s.m, {form, d.row_groups, d.splits, d.tiles}));
        others += d.tiles != sm90::kFewTiles ? 1 : 0;
        plain += form == sm90::FewForm::kPlain ? 1 : 0;
        halves += form == sm90::FewForm::kHalves ? 1 : 0;
        wide += form == sm90::FewForm::kWideHalves ? 1 : 0;
      }
    }
  });
  if (device.compute_capability == 90 && device.multiprocessors == 132) {
    CHECK(plain > 0);
    CHECK(halves > 0);
    CHECK(wide > 0);
    CHECK(others > 0);
  }
}

TEST_CASE("every product kernel once: sm_90, up to 16 rows of X, K divided by three blocks and more") {
  if (!is_sm90()) return;
  for_operands([](BlockFormat format, DType x) {
    for (const std::int32_t splits : {3, 5, 8}) {
      CAPTURE(splits);
      for (const std::int64_t m : {1, 5, 8, 11, 16}) {
        CAPTURE(m);
        for (const std::int32_t row_groups : {1, m <= sm90::kFewMostX ? 8 : 2}) {
          CAPTURE(row_groups);
          run_few(divided_spec(format, x, m, splits), {sm90::FewForm::kAny, row_groups, splits});
        }
      }
    }
  });
}

TEST_CASE("every product kernel once: sm_90, up to 16 rows of X, scales that begin within a piece") {
  if (!is_sm90()) return;
  for_operands([](BlockFormat format, DType x) {
    // MXFP4's 64, 44, 46 and 45 scales a row: all rows begin like the first, or like one of the seven before; of the last, in words alone.
    // Blocks of K begin within a piece where three divide 16 stages, or four 11 or 12.
    for (const std::int64_t k : {2048, 1408, 1472, 1440}) {
      CAPTURE(k);
      for (const std::int64_t m : {2, 4, 7, 12}) {
        CAPTURE(m);
        for (const std::int32_t splits : {1, 3, 4}) {
          CAPTURE(splits);
          for (const std::size_t scales_at : {0, 4, 16}) {
            CAPTURE(scales_at);
            gemm_test::Spec s = spec_of(format, x, m);
            s.layout = ScaleLayout::kLinear;
            s.k = k;
            run_few(s, {sm90::FewForm::kAny, m == 4 ? 2 : 1, splits}, {}, scales_at);
          }
        }
      }
    }
  });
}
