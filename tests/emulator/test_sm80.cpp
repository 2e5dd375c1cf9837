// The kernels of sm_80 to sm_100, as cuda/ compiles them, on the emulator.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <utility>

#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/emulator/extreme_scales.hpp"
#include "tests/emulator/sm80_instances.hpp"
#include "tests/emulator/sweep.hpp"

namespace {

using namespace fp4pa;

/// The contract of the decode path: an operand is f16, or bf16 where it must be. The LSE owes nothing to the values.
emulator_test::Bounds bounds(const grid::Case& c, const core::SimtConfig&) {
  return {grid::has_bf16_operands(c) ? 8e-3 : 2e-3, 1e-3};
}

/// Number of the instance that a call gets whose KV heads have so many rows.
int instance_for(AttentionConfig c, int q_len, int group_heads) {
  c.max_q_len = q_len;
  c.num_q_heads = group_heads * c.cache.num_kv_heads;
  return simt::select_instance(c);
}

/// Calls with key scales from each of these ranges of E8M0 codes, on O and LSE.
/// @param check  makes the call, and looks at who served it
template <class Check>
void check_key_scales(scene::Scene& s, std::initializer_list<std::pair<int, int>> ranges, Check&& check, double* worst_o, double* worst_lse) {
  for (const auto& [low, high] : ranges) {
    CAPTURE(low);
    extreme::set_scales(s, false, extreme::within(low, high));
    check();
    const scene::Scene::Error error = s.error();
    *worst_o = std::max(*worst_o, error.o);
    *worst_lse = std::max(*worst_lse, error.lse);
  }
}

}  // namespace

TEST_CASE("sm_80: the grid on the emulator") {
  CHECK(emulator_test::run_sweep({&emulator_test::kSm80, bounds, 400, 6, 4}) > 400);
}

TEST_CASE("sm_80: workers of as many warps as a launch may give them") {
  // cuda/launch_shape.hpp takes up to half of a multiprocessor's warps or all of them, and as few as shared memory leaves room for.
  for (const int warps : {1, 2, 3, 5, 8, 16}) {
    CAPTURE(warps);
    CHECK(emulator_test::run_sweep({&emulator_test::kSm80, bounds, 10, 2, 3, warps}) >= fp4pa::simt::kNumInstances);
  }
}

TEST_CASE("sm_80: 9 to 32 query rows are one pass with queries in A") {
  AttentionConfig c;
  c.cache.num_kv_heads = 8;
  c.cache.head_dim = 128;
  c.cache.page_size = 64;
  c.num_q_heads = 64;
  c.q_dtype = DType::kBF16;
  const auto rows = [&](int q_len) {
    c.max_q_len = q_len;
    const core::SimtConfig& chosen = simt::kInstances[simt::select_instance(c)];
    return chosen.query_is_a ? simt::rows_of(chosen) : 0;
  };
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kFp8E4m3, KvFormat::kBf16}) {
    CAPTURE(static_cast<int>(format));
    c.cache.k.format = c.cache.v.format = format;
    c.cache.head_dim = 128;
    CHECK(rows(1) == 0);
    CHECK(rows(2) == 16);
    CHECK(rows(3) == 32);
    CHECK(rows(4) == 32);
    c.cache.head_dim = 64;  // 16 rows of what is hardly decoded wait for memory in the kernel of 32, too
    CHECK(rows(1) == 0);
    CHECK(rows(2) == (format == KvFormat::kMxfp4 || format == KvFormat::kNvfp4 ? 16 : 32));
    CHECK(rows(4) == 32);
    c.cache.head_dim = 256;
    CHECK(rows(4) == 0);
  }
  c.cache.head_dim = 128;
  // What the other kernels are for.
  c.softcap = 30.0f;
  CHECK(rows(4) == 0);
  c.softcap = 0.0f;
  c.q_dtype = DType::kF32;
  CHECK(rows(4) == 0);
}

TEST_CASE("sm_80: queries of two terms in at most 4 rows are multiplied once") {
  AttentionConfig c;
  c.cache.num_kv_heads = 2;
  c.cache.head_dim = 128;
  c.cache.page_size = 64;
  const auto side_by_side = [&](int q_len, int group_heads) {
    return simt::kInstances[instance_for(c, q_len, group_heads)].side_by_side == core::SideBySide::kTerms;
  };
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    CAPTURE(static_cast<int>(format));
    c.cache.k.format = c.cache.v.format = format;
    for (const auto& [q_dtype, rotation] : {std::pair{DType::kF32, Rotation::kNone}, {DType::kBF16, Rotation::kHadamard128},
                                            {DType::kF16, Rotation::kHadamard16}}) {
      c.q_dtype = q_dtype;
      c.cache.rotation = rotation;
      for (int rows = 1; rows <= 4; ++rows) {
        CHECK(side_by_side(1, rows));
        CHECK(side_by_side(rows, 1));
      }
      CHECK(side_by_side(2, 2));
      for (int rows = 5; rows <= 8; ++rows) {
        const core::SimtConfig& chosen = simt::kInstances[instance_for(c, 1, rows)];
        CHECK(chosen.side_by_side == core::SideBySide::kNothing);
        CHECK(chosen.plain);
        CHECK(simt::rows_of(chosen) == 8);
      }
      CHECK(!side_by_side(3, 4));
    }
    // What the other kernels are for.
    c.cache.rotation = Rotation::kNone;
    CHECK(!side_by_side(1, 4));
    c.q_dtype = DType::kF32;
    c.softcap = 30.0f;
    CHECK(!side_by_side(1, 4));
    c.softcap = 0.0f;
  }
}

TEST_CASE("sm_80: NVFP4's groups of 16 stand apart for queries of one term in at most 4 rows") {
  AttentionConfig c;
  c.cache.num_kv_heads = 2;
  c.cache.head_dim = 128;
  c.cache.page_size = 64;
  c.q_dtype = DType::kBF16;
  c.cache.k.format = c.cache.v.format = KvFormat::kNvfp4;
  const auto apart = [&](int q_len, int group_heads) {
    return simt::kInstances[instance_for(c, q_len, group_heads)].side_by_side == core::SideBySide::kGroups;
  };
  for (int rows = 1; rows <= 4; ++rows) {
    CHECK(apart(1, rows));
    CHECK(apart(rows, 1));
  }
  CHECK(apart(2, 2));
  for (int rows = 5; rows <= 8; ++rows) {
    const core::SimtConfig& chosen = simt::kInstances[instance_for(c, 1, rows)];
    CHECK(chosen.side_by_side == core::SideBySide::kNothing);
    CHECK(chosen.plain);
    CHECK(simt::rows_of(chosen) == 8);
  }
  // What the other kernels are for.
  c.softcap = 30.0f;
  CHECK(!apart(1, 4));
  c.softcap = 0.0f;
  for (const int head_dim : {64, 256}) {
    c.cache.head_dim = head_dim;
    CHECK(apart(1, 4));
  }
  c.cache.head_dim = 96;
  CHECK(!apart(1, 4));
  c.cache.head_dim = 128;
  c.q_dtype = DType::kF32;
  CHECK(!apart(1, 4));
  c.q_dtype = DType::kBF16;
  c.cache.v.scale_axis = VScaleAxis::kTokens;
  CHECK(!apart(1, 4));
  c.cache.v.scale_axis = VScaleAxis::kHeadDim;
  c.cache.k.format = c.cache.v.format = KvFormat::kMxfp4;
  CHECK(!apart(1, 4));
}

namespace {

/// How far calls of an instance with something side by side are from the reference, and from what an instance of 8 rows with the same
/// queries gives.
struct Apart {
  double o = 0, lse = 0, other_o = 0, other_lse = 0;
};

/// Calls of at most 4 rows: one tile's keys and many, several warps' and one's, whole rows of tiles and such as the last query tokens may
/// not see. No finding, and the same bits in any order of lanes and warps.
/// @param c  formats, types and rotation of the calls; its seed counts on
void check_side_by_side(core::SideBySide what, grid::Case& c, Apart& worst) {
  int other = -1;  // 8 rows
  for (int i = 0; i < simt::kNumInstances && other < 0; ++i) {
    const core::SimtConfig& shape = simt::kInstances[i];
    const bool same_formats = (shape.k[0] == core::KvKind::kNvfp4) == (c.k == KvFormat::kNvfp4) && shape.head_dim == 128;
    const bool terms = shape.terms == (what == core::SideBySide::kTerms ? 2 : 1);
    if (same_formats && shape.plain && terms && shape.side_by_side == core::SideBySide::kNothing) other = i;
  }
  REQUIRE(other >= 0);
  c.backend = "cuda";
  c.kv_heads = 2;
  c.page_size = 32;
  c.kv_lens = {900, 31, 257};
  for (const auto& [q_len, heads] : {std::pair{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 1}, {2, 2}, {3, 1}, {4, 1}}) {
    ++c.seed;
    c.group_heads = heads;
    c.q_lens = {q_len, 1, q_len};
    c.sinks = c.seed % 2 == 0;
    INFO(grid::describe(c));
    const auto run = [&](int instance, emulator::Order order, grid::Results& results) {
      emulator::Findings findings;
      emulator_test::current = {&emulator_test::kSm80, {order, &findings, nullptr}, 5, instance};
      const grid::Outcome outcome = grid::run_case(c, grid::Damage::kNone, &results);
      CHECK(outcome.failure == "");
      CHECK(findings.text() == "");
      return outcome;
    };
    grid::Results results, again, after;
    const grid::Outcome outcome = run(-1, emulator::Order::forwards(), results);
    CHECK(simt::kInstances[emulator_test::current.planned].side_by_side == what);
    run(-1, emulator::Order::random(c.seed), again);
    CHECK(results.bytes == again.bytes);
    CHECK(results.lse == again.lse);
    run(other, emulator::Order::forwards(), after);
    CHECK(emulator_test::current.planned == other);
    REQUIRE(results.o.size() == after.o.size());
    double squared = 0.0, size = 0.0;
    for (std::size_t i = 0; i < after.o.size(); ++i) {
      squared += std::pow(results.o[i] - after.o[i], 2);
      size += std::pow(after.o[i], 2);
    }
    for (std::size_t i = 0; i < after.lse.size(); ++i) {
      worst.other_lse = std::max(worst.other_lse, static_cast<double>(std::abs(results.lse[i] - after.lse[i])));
    }
    worst.o = std::max(worst.o, outcome.error);
    worst.lse = std::max(worst.lse, outcome.lse_error);
    worst.other_o = std::max(worst.other_o, std::sqrt(squared / size));
  }
}

}  // namespace

TEST_CASE("sm_80: terms side by side give what terms one after the other give") {
  const emulator_test::Setup before = emulator_test::current;
  Apart worst;
  grid::Case c;
  c.seed = 0;
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    for (const auto& [q_dtype, rotation] : {std::pair{DType::kF32, Rotation::kNone}, {DType::kBF16, Rotation::kHadamard128},
                                            {DType::kF16, Rotation::kHadamard16}, {DType::kF32, Rotation::kHadamard64}}) {
      c.k = c.v = format;
      c.q_dtype = q_dtype;
      c.rotation = rotation;
      check_side_by_side(core::SideBySide::kTerms, c, worst);
    }
  }
  std::printf("terms side by side: O %.2e, LSE %.2e; from terms one after the other: O %.2e, LSE %.2e\n", worst.o, worst.lse,
              worst.other_o, worst.other_lse);
  CHECK(worst.o <= 4e-4);  // twice and three times the worst of these draws; the contract has 2e-3 and 1e-3
  CHECK(worst.lse <= 1e-5);
  CHECK(worst.other_o <= 3e-5);  // three times the worst: some probabilities round to a neighbour. Without the second term 9e-4
  CHECK(worst.other_lse <= 1e-5);  // likewise; without the second term 3e-3
  emulator_test::current = before;
}

TEST_CASE("sm_80: NVFP4's groups side by side give what scales multiplied into codes give") {
  const emulator_test::Setup before = emulator_test::current;
  Apart worst;
  grid::Case c;
  c.seed = 0;
  c.k = c.v = KvFormat::kNvfp4;
  for (const DType q_dtype : {DType::kF16, DType::kBF16}) {
    c.q_dtype = q_dtype;
    check_side_by_side(core::SideBySide::kGroups, c, worst);
  }
  std::printf("groups side by side: O %.2e, LSE %.2e; from scales in codes: O %.2e, LSE %.2e\n", worst.o, worst.lse, worst.other_o,
              worst.other_lse);
  CHECK(worst.o <= 4e-4);  // half more than the worst of these draws, and three times it for LSE; the contract has 2e-3 and 1e-3
  CHECK(worst.lse <= 4e-6);
  CHECK(worst.other_o <= 3e-4);  // likewise: P is rounded before its scale there, and behind it here
  CHECK(worst.other_lse <= 6e-6);
  emulator_test::current = before;
}

/// E4M3 has 2^-9 to 448; byte 0 is 0.
TEST_CASE("sm_80: NVFP4's groups side by side, and scales at the ends of their range") {
  const emulator_test::Setup before = emulator_test::current;
  scene::Spec spec;
  spec.k = spec.v = KvFormat::kNvfp4;
  spec.head_dim = 128;
  spec.group_heads = 4;
  spec.page_size = 32;
  spec.q_dtype = DType::kBF16;
  spec.sequences = {{1, 300, 0}, {1, 77, 1}};
  scene::Scene s(spec);
  s.config.backend = "cuda";
  s.config.matrix_path = MatrixPath::kDecode;
  const auto check = [&] {
    CHECK(simt::kInstances[extreme::run_without_findings(s, emulator_test::kSm80)].side_by_side == core::SideBySide::kGroups);
  };
  double o = 0.0, lse = 0.0;
  const auto sm_scale = s.config.sm_scale;
  s.config.sm_scale = 0x1p-13f;  // logits of some units for scales of 448, whose rounding to f32 would else be all that the LSE shows
  check_key_scales(s, {{0x7e, 0x7e}, {0, 0x7e}, {0, 0}}, check, &o, &lse);
  s.config.sm_scale = sm_scale;
  extreme::set_scales(s, false, extreme::within(0x28, 0x40));
  for (const auto& [low, high] : {std::pair{0x7e, 0x7e}, {0, 0x7e}, {1, 1}, {1, 8}}) {
    CAPTURE(low);
    extreme::set_scales(s, true, extreme::within(low, high));
    check();
    const scene::Scene::Error error = s.error();
    o = std::max(o, error.o);
    lse = std::max(lse, error.lse);
  }
  std::printf("groups side by side, scales at their ends: O %.2e, LSE %.2e\n", o, lse);
  CHECK(o <= 5e-4);  // twice and three times what these draws give
  CHECK(lse <= 3e-6);
  extreme::expect_nans_apart(s, check);
  emulator_test::current = before;
}

TEST_CASE("sm_80: terms side by side, and scales at the ends of their range") {
  const emulator_test::Setup before = emulator_test::current;
  scene::Spec spec;
  spec.head_dim = 128;
  spec.group_heads = 4;
  spec.page_size = 32;
  spec.sequences = {{1, 300, 0}, {1, 77, 1}};
  scene::Scene s(spec);
  s.config.backend = "cuda";
  s.config.matrix_path = MatrixPath::kDecode;
  const auto check = [&] {
    CHECK(simt::kInstances[extreme::run_without_findings(s, emulator_test::kSm80)].side_by_side == core::SideBySide::kTerms);
  };
  double o = 0.0, lse = 0.0;
  check_key_scales(s, {{127, 127}, {1, 127}, {60, 126}, {0, 0}}, check, &o, &lse);
  std::printf("terms side by side, scales at their ends: O %.2e, LSE %.2e\n", o, lse);
  CHECK(o <= 5e-4);  // two and three times what these draws give
  CHECK(lse <= 5e-6);
  extreme::set_scales(s, false, extreme::within(120, 127));
  extreme::expect_nans_apart(s, check);
  emulator_test::current = before;
}

/// Sequences with no tile of the recent tier for a warp, one, and more than there are warps; none and few of the old tier's; items that are
/// a sequence's beginning or end alone; queries that do not see all of it.
TEST_CASE("sm_80: warps see every key of both tiers once") {
  const emulator_test::Setup before = emulator_test::current;
  double worst_o = 0.0, worst_lse = 0.0;
  std::uint64_t seed = 0;
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    for (const std::int32_t window : {16, 64, 256}) {
      for (const int warps : {1, 2, 3, 6, 8, 12}) {
        grid::Case c;
        c.seed = ++seed;
        c.backend = "cuda";
        c.k = c.v = format;
        c.q_dtype = DType::kBF16;
        c.o_dtype = DType::kF32;
        c.kv_heads = 2;
        c.group_heads = 1 + static_cast<std::int32_t>(seed % 8);
        c.page_size = 64;
        c.window = window;
        c.group_tokens = 32;
        c.recent_page_size = 16;
        c.sliding_window = seed % 4 == 3 ? 200 : 0;
        c.sinks = seed % 2 == 0;
        c.q_lens = {1, 1, 1, 1, 1, 1};
        c.kv_lens = {1 + static_cast<std::int32_t>(seed), window + 1, window + 33, window + 40 * 32 + static_cast<std::int32_t>(seed), 777, 3000};
        INFO(grid::describe(c));
        CAPTURE(warps);
        grid::Results first;
        for (const int workers : {1, 7}) {
          for (const emulator::Order order : {emulator::Order::forwards(), emulator::Order::random(seed)}) {
            emulator::Findings findings;
            emulator_test::current = {&emulator_test::kSm80, {order, &findings, nullptr}, workers, -1, -1, warps};
            grid::Results results;
            const grid::Outcome outcome = grid::run_case(c, grid::Damage::kNone, &results);
            CHECK(outcome.failure == "");
            CHECK(findings.text() == "");
            CHECK(simt::kInstances[emulator_test::current.planned].segments == 2);
            CHECK(simt::kInstances[emulator_test::current.planned].plain);
            CHECK(outcome.error <= 3e-3);  // P in bf16 beside the recent tier's values; two and three times the worst of these draws
            CHECK(outcome.lse_error <= 2e-5);
            worst_o = std::max(worst_o, outcome.error);
            worst_lse = std::max(worst_lse, outcome.lse_error);
            if (order.kind == emulator::Order::Kind::kForwards) {
              first = results;
            } else {
              CHECK(results.bytes == first.bytes);
              CHECK(results.lse == first.lse);
            }
          }
        }
      }
    }
  }
  std::printf("two tiers: O %.2e, LSE %.2e\n", worst_o, worst_lse);
  emulator_test::current = before;
}

/// Scales that a window does not hold, within a tile and from tile to tile, and NaN.
TEST_CASE("sm_80: queries in A and scales at the ends of their range") {
  const emulator_test::Setup before = emulator_test::current;
  for (const auto& [tokens, head_dim] : {std::pair{4, 128}, {8, 128}, {4, 64}, {8, 64}}) {
    CAPTURE(tokens);
    CAPTURE(head_dim);
    scene::Spec spec;
    spec.head_dim = head_dim;
    spec.group_heads = 4;
    spec.page_size = 32;
    spec.q_dtype = DType::kBF16;
    spec.sequences = {{tokens, 300, 0}, {tokens - 1, 77, 1}};
    scene::Scene s(spec);
    s.config.backend = "cuda";
    s.config.matrix_path = MatrixPath::kDecode;
    const auto check = [&] {
      const core::SimtConfig& chosen = simt::kInstances[extreme::run_without_findings(s, emulator_test::kSm80)];
      CHECK(chosen.query_is_a);
      CHECK(simt::rows_of(chosen) == 4 * tokens);
    };
    for (const auto& [low, high] : {std::pair{127, 127}, {2, 6}, {240, 246}, {100, 180}, {1, 240}}) {
      CAPTURE(low);
      extreme::set_scales(s, true, extreme::within(low, high));
      check();
      CHECK(s.error().o <= 2e-3);
    }
    extreme::set_scales(s, true, [](int token, test::Random&) { return 10 + token * 230 / 300; });
    check();
    CHECK(s.error().o <= 2e-3);
    extreme::set_scales(s, true, [](int token, test::Random&) { return 240 - token * 230 / 300; });
    check();
    CHECK(s.error().o <= 2e-3);
    extreme::set_scales(s, true, extreme::within(126, 128));
    double o = 0.0, lse = 0.0;
    check_key_scales(s, {{1, 127}, {60, 126}, {1, 20}, {108, 114}, {0, 0}}, check, &o, &lse);
    CHECK(o <= 2e-3);
    CHECK(lse <= 1e-3);
    // Above the first window: scores as they are elsewhere, by a small scale of the softmax.
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    for (const int log2 : {3, 10, 40, 80}) {
      CAPTURE(log2);
      s.config.sm_scale = std::ldexp(scale, -log2);
      extreme::set_scales(s, false, extreme::within(124 + log2, 127 + log2));
      check();
      const scene::Scene::Error error = s.error();
      CHECK(error.o <= 2e-3);
      CHECK(error.lse <= 1e-3);
    }
    s.config.sm_scale = scale;
    extreme::set_scales(s, false, extreme::within(120, 127));
    extreme::expect_nans_apart(s, check);
  }
  emulator_test::current = before;
}
