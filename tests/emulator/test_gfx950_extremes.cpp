// gfx950 and gfx942 where numbers are extreme: scales at the ends of their range, queries far from 1, one key that outweighs all
// others, sinks, keys that all weigh the same, queries whose roundings go one way, rows that see nothing, NaN.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/half.hpp"
#include "tests/attention/scene.hpp"
#include "tests/emulator/gfx950_instances.hpp"

namespace {

using namespace fp4pa;

/// A way to compute: which kernels, whether those that gfx950 prefers, and what their results are held to.
struct Path {
  const char* name;
  const emulator_test::Emulation* emulation;
  bool native;
  double o, lse;
};
const Path kNative = {"gfx950, native", &emulator_test::kGfx950, true, 4e-3, 1e-3};
const Path kPaths[] = {
    kNative,
    {"gfx950, decoding", &emulator_test::kGfx950, false, 8e-3, 1e-3},
    {"gfx942", &emulator_test::kGfx942, false, 8e-3, 1e-3},
};

std::unique_ptr<scene::Scene> scene_of(VScaleAxis axis, std::vector<scene::Sequence> sequences = {{1, 300, 0}, {2, 77, 1}}) {
  scene::Spec spec;
  spec.v_axis = axis;
  spec.head_dim = 128;
  spec.group_heads = 4;
  spec.page_size = 32;
  spec.sequences = sequences;
  auto s = std::make_unique<scene::Scene>(spec);
  s->config.backend = "cuda";
  return s;
}

/// Runs the scene on a path, with no finding.
void run(scene::Scene& s, const Path& path) {
  emulator::Findings findings;
  emulator_test::Setup setup;
  setup.emulation = path.emulation;
  setup.watch = {emulator::Order::forwards(), &findings, nullptr};
  if (!path.native) setup.instance = hip::select_instance(s.config, false);
  const emulator_test::ScopedSetup scoped(setup);
  s.reset_outputs();
  CHECK(s.run() == Status::kOk);
  CHECK(findings.text() == "");
  CHECK(hip::is_native(hip::kInstances[emulator_test::current.planned]) == path.native);
}

struct Worst {
  double o = 0.0, lse = 0.0;
};
void check(scene::Scene& s, const Path& path, Worst& worst) {
  run(s, path);
  const scene::Scene::Error error = s.error();
  CHECK(error.o <= path.o);
  CHECK(error.lse <= path.lse);
  worst.o = std::max(worst.o, error.o);
  worst.lse = std::max(worst.lse, error.lse);
}

float* query(scene::Scene& s) { return reinterpret_cast<float*>(s.q.data()); }

/// One KV head of MXFP4 keys without scales, all of whose codes are `code` in the lower half of the dims and `upper` in the other;
/// a query of `low` and `high` there.
std::unique_ptr<scene::Scene> scene_of_equal_keys(scene::Sequence sequence, DType q_dtype, float low, float high, std::uint8_t code,
                                                  std::uint8_t upper) {
  scene::Spec spec;
  spec.v_axis = VScaleAxis::kTokens;
  spec.head_dim = 128;
  spec.kv_heads = 1;
  spec.group_heads = 8;
  spec.page_size = 64;
  spec.q_dtype = q_dtype;
  spec.sequences = {sequence};
  auto s = std::make_unique<scene::Scene>(spec);
  s->config.backend = "cuda";
  s->config.causal = false;
  s->fill_scales(false, 127, 127, 1);
  for (int token = 0; token < sequence.kv_len; ++token) {
    std::memset(s->codes(false, 0, token, 0), code, 32);
    std::memset(s->codes(false, 0, token, 0) + 32, upper, 32);
  }
  for (int i = 0; i < s->q_tokens() * s->q_heads() * 128; ++i) {
    const float x = i % 128 < 64 ? low : high;
    if (q_dtype == DType::kF32) {
      query(*s)[i] = x;
    } else {
      reinterpret_cast<std::uint16_t*>(s->q.data())[i] = q_dtype == DType::kF16 ? core::f32_to_f16(x) : core::f32_to_bf16(x);
    }
  }
  return s;
}

template <class F>
void on_all_paths(const char* what, F&& f) {
  for (const Path& path : kPaths) {
    for (const VScaleAxis axis : {VScaleAxis::kTokens, VScaleAxis::kHeadDim}) {
      CAPTURE(std::string(path.name));
      CAPTURE(std::string(name_of(axis)));
      Worst worst;
      f(path, axis, worst);
      std::printf("%-28s %-18s V by %-10s O %.2e  LSE %.2e\n", what, path.name, name_of(axis), worst.o, worst.lse);
    }
  }
}

}  // namespace

TEST_CASE("gfx950, gfx942: scales far apart") {
  on_all_paths("scales of V", [](const Path& path, VScaleAxis axis, Worst& worst) {
    const auto s = scene_of(axis);
    for (const auto& [low, high] : {std::pair{127, 127}, {10, 30}, {220, 230}, {60, 200}}) {
      CAPTURE(low);
      s->fill_scales(true, low, high, 11);
      check(*s, path, worst);
    }
  });
  on_all_paths("scales of K", [](const Path& path, VScaleAxis axis, Worst& worst) {
    const auto s = scene_of(axis);
    for (const auto& [low, high] : {std::pair{1, 127}, {60, 126}, {1, 20}}) {
      CAPTURE(low);
      s->fill_scales(false, low, high, 11);
      check(*s, path, worst);
    }
  });
}

TEST_CASE("gfx950, gfx942: queries far from 1") {
  on_all_paths("queries", [](const Path& path, VScaleAxis axis, Worst& worst) {
    for (const float by : {1e30f, 1e-30f}) {
      CAPTURE(by);
      const auto s = scene_of(axis);
      const auto elements = s->q_tokens() * s->q_heads() * 128;
      for (int i = 0; i < elements; ++i) query(*s)[i] *= by;
      s->config.sm_scale = static_cast<float>(1.0 / std::sqrt(128.0) / by);
      check(*s, path, worst);
    }
  });
}

TEST_CASE("gfx950, gfx942: one key outweighs all, all weigh the same, a row sees none") {
  on_all_paths("one key", [](const Path& path, VScaleAxis axis, Worst& worst) {
    const auto s = scene_of(axis);
    // The key whose elements have the query's signs, 2^4 times as long as the others.
    for (std::int32_t b = 0; b < 2; ++b) {
      for (int d = 0; d < 128; ++d) {
        const bool negative = query(*s)[static_cast<std::int64_t>(s->indptr[static_cast<std::size_t>(b)]) * s->q_heads() * 128 + d] < 0.0f;
        std::uint8_t& byte = s->codes(false, b, 33, 0)[d / 2];
        const int code = negative ? 0xc : 0x4;
        byte = static_cast<std::uint8_t>(d % 2 == 0 ? (byte & 0xf0) | code : (byte & 0x0f) | code << 4);
      }
      for (int i = 0; i < 4; ++i) s->scales(false, b, 33, 0)[i] = 127;
    }
    check(*s, path, worst);
  });
  on_all_paths("equal keys", [](const Path& path, VScaleAxis axis, Worst& worst) {
    const auto s = scene_of(axis);
    std::fill_n(query(*s), s->q_tokens() * s->q_heads() * 128, 0.0f);
    check(*s, path, worst);
  });
  on_all_paths("rows without keys", [](const Path& path, VScaleAxis axis, Worst& worst) {
    const auto s = scene_of(axis, {{5, 3, 0}, {2, 77, 1}});
    check(*s, path, worst);
    for (std::int32_t head = 0; head < s->q_heads(); ++head) {
      for (const double x : s->o_row(0, head)) CHECK(x == 0.0);
      CHECK(s->lse_of(0, head) == -INFINITY);
    }
  });
}

// What a sink takes of a row adds nothing to it: all that O has comes from probabilities 2^-binades of the largest. Of 0.913 they lie
// halfway between two E4M3 numbers; one code for a tile of the sink's scale would lose them all from 18.2 on.
TEST_CASE("gfx950, native: a sink beside keys that weigh the same") {
  const auto of = [](std::int32_t q_len, std::int32_t kv_len, double binades, Worst& worst) {
    CAPTURE(binades);
    const auto s = scene_of_equal_keys({q_len, kv_len, 1}, DType::kBF16, 1.0f, 1.0f, 0x22, 0x22);
    std::memset(s->codes(false, 0, 0, 0), 0x33, 64);  // 1.5 where the others have 1
    std::memset(s->codes(true, 0, 0, 0), 0, 64);
    s->config.sm_scale = static_cast<float>(binades / (0.5 * 128 * std::log2(std::exp(1.0))));
    check(*s, kNative, worst);
  };
  for (const std::int32_t q_len : {1, 8}) {  // 8 rows and 64: waves divide the keys, and the rows
    Worst worst;
    for (const double binades : {0.913, 12.5, 14.5, 15.4, 16.6, 17.5}) of(q_len, 2048, binades, worst);
    of(q_len, 16384, 18.2, worst);
    std::printf("%-28s %-18s %2d rows          O %.2e  LSE %.2e\n", "a sink", kNative.name, 8 * q_len, worst.o, worst.lse);
  }
}

// Keys of 6 and -6, whose products with a query's halves nearly cancel: a score is 64 times the difference of two elements' errors and
// more. bf16 and f16 are exact; an f32 element is off by 2^-14 at most.
TEST_CASE("gfx950, native: queries whose roundings go one way") {
  for (const auto& [low, high] : {std::pair{34, 38}, {33, 35}, {66, 70}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const float by : {1.0f, 4.0f}) {
        CAPTURE(low);
        CAPTURE(by);
        CAPTURE(std::string(name_of(dtype)));
        const float below = dtype == DType::kF32 ? 0x1.55p-14f : 0.0f;  // what three terms cannot hold
        const auto s = scene_of_equal_keys({1, 64, 1}, dtype, by * (1 + low / 1024.0f + below), by * (1 + high / 1024.0f + 2 * below),
                                           0x77, 0xff);
        run(*s, kNative);
        const double of_products = 128 * 6 * 1.07 * by / std::sqrt(128.0);  // sum of their magnitudes
        CHECK(s->error().lse <= (dtype == DType::kF32 ? 0x1p-14 * of_products : 1e-5));
      }
    }
  }
}

TEST_CASE("gfx950, gfx942: what NVFP4 is decoded by") {
  const auto chosen = [](int head_dim, bool gfx950, MatrixPath path) -> const core::SimtConfig& {
    scene::Spec spec;
    spec.k = spec.v = KvFormat::kNvfp4;
    spec.head_dim = head_dim;
    scene::Scene s(spec);
    s.config.matrix_path = path;
    return hip::kInstances[hip::select_fitting(s.config, gfx950, gfx950 ? 160 << 10 : 64 << 10)];
  };
  for (const MatrixPath path : {MatrixPath::kAuto, MatrixPath::kDecode}) {
    CHECK(chosen(128, true, path).tile_keys == 64);
    CHECK(chosen(128, false, path).tile_keys == 32);
    CHECK(chosen(256, true, path).head_dim == 256);
    CHECK(chosen(256, true, path).exact_head_dim);
    CHECK_FALSE(chosen(256, false, path).exact_head_dim);
    for (const bool gfx950 : {true, false}) {
      CHECK(chosen(64, gfx950, path).exact_head_dim);
      for (const int head_dim : {64, 128, 256}) CHECK_FALSE(hip::is_native(chosen(head_dim, gfx950, path)));
    }
  }
}

TEST_CASE("gfx950: MXFP8 with 256 dims has room for two terms of a query") {
  scene::Spec spec;
  spec.k = spec.v = KvFormat::kMxfp8;
  spec.head_dim = 256;
  const auto native = [&](DType dtype, Rotation rotation) {
    spec.q_dtype = dtype;
    scene::Scene s(spec);
    s.config.cache.rotation = rotation;
    return hip::is_native(hip::kInstances[hip::select_instance(s.config, true)]);
  };
  CHECK(native(DType::kBF16, Rotation::kNone));
  CHECK_FALSE(native(DType::kBF16, Rotation::kHadamard32));
  CHECK_FALSE(native(DType::kF16, Rotation::kNone));
  CHECK_FALSE(native(DType::kF32, Rotation::kNone));
}

// Exponents of P and of scales are added as integers: a probability of 0 must stay 0 beside any scale.
TEST_CASE("gfx950, gfx942: what a row does not see adds nothing to it, however large") {
  for (const Path& path : kPaths) {
    CAPTURE(std::string(path.name));
    const auto outputs = [&](int scale, std::uint8_t code) {
      const auto s = scene_of(VScaleAxis::kHeadDim, {{4, 77, 0}, {1, 40, 1}});
      s->fill_scales(true, 112, 116, 5);
      for (std::int64_t i = 0; i < 4; ++i) s->scales(true, 0, 76, 0)[i] = static_cast<std::uint8_t>(scale);
      std::memset(s->codes(true, 0, 76, 0), code, 64);
      run(*s, path);
      std::vector<double> rows;
      for (int token = 0; token < 3; ++token) {
        for (const double x : s->o_row(token, 0)) rows.push_back(x);
      }
      return rows;
    };
    // The last key is seen by the last query alone.
    const std::vector<double> expected = outputs(114, 0);
    for (const int scale : {114, 140, 143, 144, 145, 170}) {
      CAPTURE(scale);
      CHECK(outputs(scale, 0x77) == expected);
    }
  }
}

TEST_CASE("gfx950, gfx942: NaN reaches the rows that it belongs to, and no others") {
  for (const Path& path : kPaths) {
    CAPTURE(std::string(path.name));
    const auto s = scene_of(VScaleAxis::kTokens);
    s->scales(false, 0, 40, 0)[0] = 0xff;
    run(*s, path);
    for (const double x : s->o_row(0, 0)) CHECK(std::isnan(x));
    CHECK(std::isnan(s->lse_of(0, 0)));
    for (const double x : s->o_row(0, 4)) CHECK(std::isfinite(x));  // the other KV head
    for (const double x : s->o_row(1, 0)) CHECK(std::isfinite(x));  // the other sequence

    const auto v = scene_of(VScaleAxis::kTokens);
    v->scales(true, 0, 40, 0)[17] = 0xff;  // of dim 17
    run(*v, path);
    const std::vector<double> row = v->o_row(0, 0);
    for (std::size_t d = 0; d < 128; ++d) CHECK(std::isnan(row[d]) == (d == 17));
    for (const double x : v->o_row(1, 0)) CHECK(std::isfinite(x));

    const auto along = scene_of(VScaleAxis::kHeadDim);
    along->scales(true, 0, 40, 0)[1] = 0xff;
    run(*along, path);
    const std::vector<double> dims = along->o_row(0, 0);
    for (std::size_t d = 0; d < 128; ++d) CHECK(std::isnan(dims[d]) == (d / 32 == 1));
    for (const double x : along->o_row(0, 4)) CHECK(std::isfinite(x));
    for (const double x : along->o_row(1, 0)) CHECK(std::isfinite(x));

    const auto q = scene_of(VScaleAxis::kTokens);
    query(*q)[5] = std::nanf("");
    run(*q, path);
    for (const double x : q->o_row(0, 0)) CHECK(std::isnan(x));
    for (const double x : q->o_row(0, 1)) CHECK(std::isfinite(x));
  }
}
