// gfx950 and gfx942 where numbers are extreme: scales at the ends of their range, queries far from 1, one key that outweighs all
// others, keys that all weigh the same, rows that see nothing, NaN.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
const Path kPaths[] = {
    {"gfx950, native", &emulator_test::kGfx950, true, 4e-3, 1.5e-2},  // O: with P of two terms
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
/// @return the instance that ran
const core::SimtConfig& run(scene::Scene& s, const Path& path) {
  emulator::Findings findings;
  emulator_test::Setup setup;
  setup.emulation = path.emulation;
  setup.watch = {emulator::Order::forwards(), &findings, nullptr};
  if (!path.native) setup.instance = hip::select_instance(s.config, false);
  const emulator_test::Setup before = std::exchange(emulator_test::current, setup);
  s.reset_outputs();
  CHECK(s.run() == Status::kOk);
  CHECK(findings.text() == "");
  const core::SimtConfig& ran = hip::kInstances[emulator_test::current.planned];
  CHECK(hip::is_native(ran) == path.native);
  emulator_test::current = before;
  return ran;
}

struct Worst {
  double o = 0.0, lse = 0.0;
};
void check(scene::Scene& s, const Path& path, Worst& worst) {
  const core::SimtConfig& ran = run(s, path);
  const scene::Scene::Error error = s.error();
  CHECK(error.o <= (path.native && core::divides_rows(ran) ? 4e-2 : path.o));
  CHECK(error.lse <= path.lse);
  worst.o = std::max(worst.o, error.o);
  worst.lse = std::max(worst.lse, error.lse);
}

float* query(scene::Scene& s) { return reinterpret_cast<float*>(s.q.data()); }

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

    const auto q = scene_of(VScaleAxis::kTokens);
    query(*q)[5] = std::nanf("");
    run(*q, path);
    for (const double x : q->o_row(0, 0)) CHECK(std::isnan(x));
    for (const double x : q->o_row(0, 1)) CHECK(std::isfinite(x));
  }
}
