// The native kernels of SM120, as cuda/ compiles them, on the emulator.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/attention/scene.hpp"
#include "tests/cache/random.hpp"
#include "tests/emulator/sink_scene.hpp"
#include "tests/emulator/sm120_instances.hpp"
#include "tests/emulator/sweep.hpp"
#include "tests/gpu/bounds.hpp"

namespace {

using namespace fp4pa;
using emulator_test::current;
using emulator_test::ScopedSetup;

/// A query and P in all their terms are as good as 16-bit operands, and have the bounds of the decode path; which values that no
/// hardware scale expresses go through.
emulator_test::Bounds bounds(const grid::Case& c, const core::SimtConfig&) {
  return {grid::has_bf16_operands(c) ? 8e-3 : 2e-3, 1e-3};
}

/// Both products native.
std::unique_ptr<scene::Scene> native_scene(DType q = DType::kBF16, std::int32_t head_dim = 128, KvFormat format = KvFormat::kMxfp4) {
  scene::Spec spec;
  spec.k = spec.v = format;
  spec.v_axis = VScaleAxis::kTokens;
  spec.head_dim = head_dim;
  spec.group_heads = 4;
  spec.page_size = 32;
  spec.q_dtype = q;
  spec.sequences = {{1, 300, 0}, {2, 77, 1}};
  auto s = std::make_unique<scene::Scene>(spec);
  s->config.backend = "cuda";
  return s;
}

/// @param steep  LSE to 1e-3 of its size and not absolutely: three terms of an f32 query leave 2^-14 of a logit
void check(scene::Scene& s, double o_bound, bool steep = false) {
  s.reset_outputs();
  REQUIRE(s.run() == Status::kOk);
  const scene::Scene::Error error = s.error();
  CHECK(error.o <= o_bound);
  double size = 1.0;
  if (steep) {
    for (const float lse : s.lse) size = std::max(size, static_cast<double>(std::abs(lse)));
    MESSAGE("LSE up to ", size, ", off by ", error.lse);
  }
  CHECK(error.lse <= 1e-3 * size);
}

}  // namespace

TEST_CASE("SM120: the grid on the emulator") {
  CHECK(emulator_test::run_sweep({&emulator_test::kSm120, bounds, 400, 12, 4}) > 84);
}

TEST_CASE("SM120: what tests on a card hold kernels to is by the kernel that serves") {
  constexpr int kSharedBytes = 99 * 1024;  // that a block may ask for on compute capability 12.x
  const auto lse_bound = [](const AttentionConfig& c, int compute_capability) {
    const core::SimtConfig* const native = gpu_test::native_instance(c, compute_capability, kSharedBytes);
    CHECK(gpu_test::bounds_of(8e-3, native).o == 8e-3);
    return gpu_test::bounds_of(8e-3, native).lse;
  };
  const auto s = native_scene();
  CHECK(lse_bound(s->config, 120) == 1e-3);
  CHECK(lse_bound(s->config, 121) == 1e-3);
  CHECK(lse_bound(s->config, 90) == 1e-4);
  s->config.matrix_path = MatrixPath::kDecode;
  CHECK(lse_bound(s->config, 120) == 1e-4);
  const auto decoded = native_scene(DType::kBF16, 256);
  CHECK(lse_bound(decoded->config, 120) == 1e-4);
}

#ifdef FP4PA_LONG_TESTS
/// Bounds twice what was measured, of which the printed table tells. A row's errors are what the contract would be with so
/// many terms: E4M3 once for each of Q and P is off by more than 4e-2 where scores are as steep as the grid's.
TEST_CASE("SM120: what each term of Q and P is worth") {
  struct Limit {
    double o, lse;
  };
  constexpr Limit kLimits[emulator_test::Sm120Terms::kCount] = {{1.5e-1, 6e-1},   {1.5e-1, 6e-1},   {4e-2, 1.2e-2}, {2.6e-3, 1.2e-2},
                                                               {4e-2, 3e-4},     {9e-4, 3e-4},     {4.4e-1, 1.7},  {4e-2, 9e-2},
                                                               {3.8e-3, 6.6e-3}, {6e-4, 1.1e-3},   {3.2e-4, 8e-5},
                                                               {2.2e-1, 8.4e-5}, {3e-2, 8.4e-5},   {4e-3, 8.4e-5}, {6.8e-4, 7e-4},
                                                               {6.8e-4, 8.4e-5}};
  const int cases = 12;
  std::printf("%-24s %10s %10s %10s %10s\n", "terms of Q, P", "O worst", "O mean", "LSE worst", "LSE mean");
  for (int i = 0; i < emulator_test::Sm120Terms::kCount; ++i) {
    const auto& row = emulator_test::Sm120Terms::kRows[i];
    const ScopedSetup on(emulator_test::kSm120Terms, i);
    double o = 0.0, lse = 0.0, o_sum = 0.0, lse_sum = 0.0;
    for (int seed = 0; seed < cases; ++seed) {
      grid::Case c = grid::at_instance(grid::draw(static_cast<std::uint64_t>(300000 + seed)), emulator_test::kSm120Terms.config(i), 8);
      c.backend = "cuda";
      c.q_dtype = c.o_dtype = DType::kF32;  // which needs all terms
      c.sm_scale = 0.0f;
      c.alibi = c.tree = false;
      const grid::Outcome outcome = grid::run_case(c);
      REQUIRE(outcome.failure == "");
      CHECK(current.planned == i);
      o = std::max(o, outcome.error);
      lse = std::max(lse, outcome.lse_error);
      o_sum += outcome.error;
      lse_sum += outcome.lse_error;
    }
    CHECK(o <= kLimits[i].o);
    CHECK(lse <= kLimits[i].lse);
    std::printf("%-12s %d, %d         %10.2e %10.2e %10.2e %10.2e\n", row.instance == 0 ? "mxfp4" : row.instance == 4 ? "nvfp4 K" : "nvfp4", row.terms.query,
                row.terms.probability, o, o_sum / cases, lse, lse_sum / cases);
  }
}
#endif

TEST_CASE("SM120: terms of E4M3 are a bf16 query exactly, and an f16 one") {
  // In the company of an element 2^14 times as large, which is the group's scale.
  for (int bits : {8, 11}) {
    for (int significand = 1 << (bits - 1); significand < 1 << bits; ++significand) {
      for (const int exponent : {0, -7, -14}) {
        float x[4] = {std::ldexp(static_cast<float>(significand), exponent - bits + 1), 1.0f, -1.0f, 0.0f};
        for (int term = 0; term < (bits == 8 ? 2 : 3); ++term) {
          std::uint32_t amax = 0;
          for (const float e : x) amax = std::max(amax, core::magnitude_bits(e));
          static_cast<void>(sm120::round_to_e4m3(x, amax));
        }
        CAPTURE(significand);
        CAPTURE(exponent);
        CHECK(x[0] == 0.0f);
      }
    }
  }
}

TEST_CASE("SM120: queries of every type and head_dim, flat and steep scores") {
  const ScopedSetup on(emulator_test::kSm120);
  struct Shape {
    KvFormat format;
    std::int32_t head_dim;
  };
  for (const DType q : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const Shape shape : {Shape{KvFormat::kMxfp4, 64}, {KvFormat::kMxfp4, 128}, {KvFormat::kNvfp4, 64}, {KvFormat::kNvfp4, 128}}) {
      const auto s = native_scene(q, shape.head_dim, shape.format);
      // All scores alike; as usual; one dominates.
      for (const float scale : {1e-6f, 0.0f, 1.0f}) {
        CAPTURE(std::string(name_of(q)));
        CAPTURE(std::string(name_of(shape.format)));
        CAPTURE(shape.head_dim);
        CAPTURE(scale);
        s->config.sm_scale = scale;
        check(*s, 2e-3, scale == 1.0f);
      }
    }
  }
}

TEST_CASE("SM120: small probabilities keep their precision, a group of 32 tokens apart from the next") {
  // The first 32 tokens have nearly all of the weight and no value: the output is what all others add up to.
  const ScopedSetup on(emulator_test::kSm120);
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    CAPTURE(std::string(name_of(format)));
    const auto s = native_scene(DType::kF32, 128, format);
    const int eight = format == KvFormat::kMxfp4 ? 130 : 0x50;
    const auto scale_bytes = static_cast<std::size_t>(kv_scale_bytes(format, VScaleAxis::kHeadDim, 128));
    float* const q = reinterpret_cast<float*>(s->q.data());
    for (std::int64_t i = 0; i < std::int64_t{s->q_tokens()} * s->q_heads() * 128; ++i) q[i] = 1.0f;
    s->config.sm_scale = 1.0f / 128.0f;
    for (std::int32_t b = 0; b < s->args.batch; ++b) {
      for (std::int32_t token = 0; token < s->seq_lens[static_cast<std::size_t>(b)]; ++token) {
        for (std::int32_t head = 0; head < s->spec.kv_heads; ++head) {
          // Scores of 8, and 23 binades below, of -8.06.
          std::memset(s->codes(false, b, token, head), token < 32 ? 0x22 : 0xAA, 64);
          std::memset(s->scales(false, b, token, head), eight, scale_bytes);
          if (token >= 32) s->codes(false, b, token, head)[token % 64] = 0xBB;
          if (token < 32) std::memset(s->codes(true, b, token, head), 0, 64);
        }
      }
    }
    check(*s, 2e-3);
  }
}

TEST_CASE("SM120: keys with most of the weight and no value, among others of their group of 16") {
  const ScopedSetup on(emulator_test::kSm120);
  for (const auto& [head_dim, queries] : {std::pair{128, 1}, {128, 9}, {64, 1}, {64, 9}}) {  // of 8 heads: few rows, and many
    scene::Spec spec;
    spec.k = spec.v = KvFormat::kNvfp4;
    spec.v_axis = VScaleAxis::kTokens;
    spec.head_dim = head_dim;
    spec.kv_heads = 1;
    spec.group_heads = 8;
    spec.page_size = 32;
    spec.sequences = {{queries, 512, 1}};
    scene::Scene s(spec);
    s.config.backend = "cuda";
    s.config.causal = false;
    const auto dims = static_cast<std::size_t>(head_dim);
    constexpr std::uint16_t kOne = 0x3f80;  // in bf16
    for (std::size_t i = 0; i < static_cast<std::size_t>(queries) * 8 * dims; ++i) std::memcpy(s.q.data() + 2 * i, &kOne, 2);
    for (const int sinks : {1, 3}) {
      for (std::int32_t token = 0; token < 512; ++token) {
        // Products of 1.5 and of 1.
        std::memset(s.codes(false, 0, token, 0), token < sinks ? 0x33 : 0x22, dims / 2);
        std::memset(s.scales(false, 0, token, 0), 0x38, dims / 16);
        if (token % 16 == 0) std::memset(s.scales(true, 0, token, 0), 0x38, dims);
        if (token < sinks) std::memset(s.codes(true, 0, token, 0), 0, dims / 2);
      }
      for (const float binades : {8.0f, 11.4f, 15.4f}) {  // that the sinks' probability is above the others'
        CAPTURE(head_dim);
        CAPTURE(queries);
        CAPTURE(sinks);
        CAPTURE(binades);
        s.config.sm_scale = binades / (static_cast<float>(head_dim) / 2 * 1.44269504f);
        check(s, 2e-4);  // met with 7.5e-5 at worst; four terms alone are off by up to 1.6e-1
      }
    }
  }
}

TEST_CASE("SM120: scales from one end of E8M0 to the other") {
  const ScopedSetup on(emulator_test::kSm120);
  const auto s = native_scene(DType::kF32);
  for (const auto& [low, high] : {std::pair{127, 127}, {10, 30}, {230, 240}, {60, 200}, {1, 240}}) {
    CAPTURE(low);
    s->fill_scales(true, low, high, 12);
    check(*s, 2e-3);
  }
  s->fill_scales(true, 120, 134, 12);
  for (const auto& [low, high] : {std::pair{1, 127}, {60, 126}, {1, 20}}) {
    CAPTURE(low);
    s->fill_scales(false, low, high, 13);
    check(*s, 2e-3);
  }
}

TEST_CASE("SM120: scales from one end of UE4M3 to the other") {
  const ScopedSetup on(emulator_test::kSm120);
  const auto s = native_scene(DType::kF32, 128, KvFormat::kNvfp4);
  for (const auto& [low, high] : {std::pair{0x38, 0x38}, {1, 7}, {0x70, 0x7e}, {0, 0x7e}}) {
    CAPTURE(low);
    s->fill_scales(true, low, high, 12);
    check(*s, 2e-3);
  }
}

TEST_CASE("SM120: probabilities far below a row's largest, with decoded V of any one scale") {
  const ScopedSetup restored;
  for (const auto& [format, head_dim] : {std::pair{KvFormat::kMxfp8, 64}, {KvFormat::kMxfp8, 128}, {KvFormat::kMxfp4, 128}}) {
    CAPTURE(static_cast<int>(format));
    CAPTURE(head_dim);
    scene::Scene s(sink::spec_of(format, head_dim, 4, 1024));
    s.config.matrix_path = MatrixPath::kNative;
    sink::check_probabilities(s, emulator_test::kSm120, {105, 112, 119, 127});
    CHECK(emulator_test::kSm120.native(current.planned));
  }
}

TEST_CASE("SM120: a NaN scale reaches the results that it belongs to, and no others") {
  const ScopedSetup on(emulator_test::kSm120);
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    CAPTURE(std::string(name_of(format)));
    const std::uint8_t nan = format == KvFormat::kMxfp4 ? 0xff : 0x7f;
    {
      const auto s = native_scene(DType::kBF16, 128, format);
      s->scales(true, 0, 64, 0)[37] = nan;  // dim 37 of the tokens from 64 on
      REQUIRE(s->run() == Status::kOk);
      for (std::int32_t head = 0; head < 4; ++head) {
        const std::vector<double> row = s->o_row(0, head);
        for (int d = 0; d < 128; ++d) {
          CAPTURE(d);
          CHECK(std::isnan(row[static_cast<std::size_t>(d)]) == (d == 37));
        }
      }
      for (const double x : s->o_row(0, 4)) CHECK(std::isfinite(x));  // the other KV head
      for (const double x : s->o_row(1, 0)) CHECK(std::isfinite(x));  // the other sequence
    }
    const auto s = native_scene(DType::kBF16, 128, format);
    s->scales(false, 0, 40, 0)[2] = nan;
    REQUIRE(s->run() == Status::kOk);
    for (const double x : s->o_row(0, 0)) CHECK(std::isnan(x));
    CHECK(std::isnan(s->lse_of(0, 0)));
    for (const double x : s->o_row(0, 4)) CHECK(std::isfinite(x));
  }
}

TEST_CASE("SM120: what four terms of E2M1 leave of a group's probabilities") {
  test::Random random(5);
  double worst = 0.0;
  for (int i = 0; i < 20000; ++i) {
    // The largest of one group is in [2^10, 2^11), of the other up to ten binades below.
    const int below = random.below(11);
    float largest[2] = {0.0f, 0.0f};
    std::uint32_t x[4];
    for (std::uint32_t& pair : x) {
      const float first = std::ldexp(1.0f + static_cast<float>(random.uniform()), 10 - random.below(4));
      const float second = std::ldexp(1.0f + static_cast<float>(random.uniform()), 10 - below - random.below(4));
      pair = sm80::pack_f16(first, second);
      largest[0] = std::max(largest[0], sm80::host::f16(pair, 0));
      largest[1] = std::max(largest[1], sm80::host::f16(pair, 16));
    }
    std::uint32_t scale = sm80::pack_f16(largest[0], largest[1]);
    for (int term = 0; term < 4; ++term) {
      std::uint32_t codes = 0;
      static_cast<void>(sm120::round_term(x, scale, true, codes, 0));
    }
    for (const std::uint32_t pair : x) {
      worst = std::max(worst, static_cast<double>(std::abs(sm80::host::f16(pair, 0)) / largest[0]));
      // Six binades below the scales become subnormal; what is left is counted against the larger group then.
      worst = std::max(worst, static_cast<double>(std::abs(sm80::host::f16(pair, 16)) / std::max(largest[1], 16.0f)));
    }
  }
  MESSAGE("worst ", worst);
  CHECK(worst <= 1.3 / (6.5 * 6.5 * 6.5 * 6.5));
}

TEST_CASE("SM120: what the native value products read is free of bank conflicts") {
  for (int i = 0; i < emulator_test::Sm120Instances::kCount; ++i) {
    const core::SimtConfig& config = emulator_test::Sm120Instances::config(i);
    if (!core::along_tokens(config.v[0])) continue;
    grid::Case c;
    c.backend = "cuda";
    c.group_heads = 8;
    c.q_lens = {1};
    c.kv_lens = {2048};
    c = grid::at_instance(c, config, emulator_test::Sm120Instances::tile_rows(i));
    emulator::Findings findings;
    emulator::BankTable banks;
    const ScopedSetup setup({&emulator_test::kSm120, {emulator::Order::forwards(), &findings, &banks}, 1, i, -1});
    CHECK(grid::run_case(c).failure == "");
    CHECK(findings.text() == "");
    int places = 0;
    for (const auto& [site, n] : banks.rows()) {
      if (site.find("value_product.hpp") == std::string::npos) continue;
      ++places;
      CAPTURE(i);
      CAPTURE(site);
      CHECK(n.extra == 0);
    }
    CHECK(places >= 2);
  }
}

TEST_CASE("SM120: queries that are no numbers") {
  const ScopedSetup on(emulator_test::kSm120);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const auto s = native_scene(DType::kF32);
    reinterpret_cast<float*>(s->q.data())[5] = bad;  // token 0, head 0
    REQUIRE(s->run() == Status::kOk);
    CHECK(std::isnan(s->lse_of(0, 0)));
    for (std::int32_t head = 1; head < 8; ++head) CHECK(std::isfinite(s->lse_of(0, head)));
  }
}

TEST_CASE("SM120: which kernel a configuration gets") {
  const auto s = native_scene();
  AttentionConfig& c = s->config;
  CHECK(cuda::is_native(cuda::select_variant(c, 120)));
  CHECK(cuda::is_native(cuda::select_variant(c, 121)));
  CHECK_FALSE(cuda::is_native(cuda::select_variant(c, 90)));
  CHECK_FALSE(cuda::is_native(cuda::select_variant(c, 100)));
  c.matrix_path = MatrixPath::kDecode;
  CHECK_FALSE(cuda::is_native(cuda::select_variant(c, 120)));
  CHECK(cuda::select_variant(c, 120) >= 0);
  c.matrix_path = MatrixPath::kNative;
  CHECK(cuda::is_native(cuda::select_variant(c, 120)));
  CHECK(cuda::select_variant(c, 90) == -1);
  // NVFP4 along tokens, two head_dims: passes of 64 rows where they are cheaper than those of 8, for queries of every type.
  c.cache.k.format = c.cache.v.format = KvFormat::kNvfp4;
  for (const MatrixPath path : {MatrixPath::kNative, MatrixPath::kAuto}) {
    c.matrix_path = path;
    for (const std::int32_t head_dim : {64, 128}) {
      c.cache.head_dim = head_dim;
      for (const auto& [q_len, many] : {std::pair{1, false}, {8, false}, {9, true}, {512, true}}) {
        for (const DType q : {DType::kBF16, DType::kF16, DType::kF32}) {
          CAPTURE(head_dim);
          CAPTURE(q_len);
          c.max_q_len = q_len;
          c.q_dtype = q;
          const int variant = cuda::select_variant(c, 120, 99 * 1024);  // the shared memory of a block on these chips
          CHECK(cuda::is_native(variant));
          CHECK(cuda::shape_of(variant).v[0] == core::KvKind::kNvfp4Tokens);
          CHECK(core::divides_rows(cuda::shape_of(variant)) == many);
          // Two blocks a multiprocessor, each with 1 KB for the system.
          CHECK(cuda::shared_layout_of(variant, c, cuda::shape_of(variant).warps).bytes <= 49 * 1024);
        }
      }
    }
  }
  c.matrix_path = MatrixPath::kNative;
  c.q_dtype = DType::kBF16;
  c.max_q_len = 2;
  c.cache.k.format = c.cache.v.format = KvFormat::kMxfp4;
  // No native kernel has values of 16 bits, or a head_dim of 256.
  c.cache.v.format = KvFormat::kBf16;
  CHECK(cuda::select_variant(c, 120) == -1);
  c.matrix_path = MatrixPath::kAuto;
  CHECK_FALSE(cuda::is_native(cuda::select_variant(c, 120)));
  // Prefill with scales along head_dim: a native kernel as wide as the decoding one where queries are bf16. Others would need a
  // third term, and the decoding kernel has more query rows to a tile than the native one that is left.
  c.cache.v.format = KvFormat::kMxfp4;
  c.cache.v.scale_axis = VScaleAxis::kHeadDim;
  c.max_q_len = 1;
  CHECK_FALSE(core::divides_rows(cuda::shape_of(cuda::select_variant(c, 120))));
  CHECK(cuda::is_native(cuda::select_variant(c, 120)));
  c.max_q_len = 512;
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kE8m0PerToken, KvFormat::kMxfp8}) {
    c.cache.k.format = c.cache.v.format = format;
    c.q_dtype = DType::kBF16;
    const int variant = cuda::select_variant(c, 120);
    CHECK((cuda::is_native(variant) && core::divides_rows(cuda::shape_of(variant))));
    // The shared memory of a block on these chips.
    CHECK(cuda::shared_layout_of(variant, c, cuda::shape_of(variant).warps).bytes <= 99 * 1024);
  }
  c.cache.k.format = c.cache.v.format = KvFormat::kMxfp4;
  c.q_dtype = DType::kF32;
  CHECK_FALSE(cuda::is_native(cuda::select_variant(c, 120)));
  c.matrix_path = MatrixPath::kNative;
  CHECK(cuda::is_native(cuda::select_variant(c, 120)));
  c.matrix_path = MatrixPath::kAuto;
  c.cache.v.scale_axis = VScaleAxis::kTokens;
  CHECK(cuda::is_native(cuda::select_variant(c, 120)));
}
