// Kernels of sm_80 to sm_100 for KV heads with at most 4 query rows, whose multiplications take something else in the columns that are
// left (core::SideBySide): the second term of queries, or the other half of NVFP4's groups.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/emulator/extreme_scales.hpp"
#include "tests/emulator/sm80_instances.hpp"

namespace {

using namespace fp4pa;
using core::SideBySide;

/// The instance that a call gets whose KV heads have q_len * group_heads rows.
const core::SimtConfig& chosen(AttentionConfig c, int q_len, int group_heads) {
  c.max_q_len = q_len;
  c.num_q_heads = group_heads * c.cache.num_kv_heads;
  return simt::kInstances[simt::select_instance(c)];
}

/// At most 4 rows get what stands side by side, 5 to 8 a plain tile of 8 without, and so does no call of those that follow:
/// @param others  what plain instances are not for
void check_selection(SideBySide what, const AttentionConfig& c, const std::vector<AttentionConfig>& others) {
  const auto is_chosen = [&](const AttentionConfig& call, int q_len, int heads) { return chosen(call, q_len, heads).side_by_side == what; };
  for (int rows = 1; rows <= 4; ++rows) {
    CHECK(is_chosen(c, 1, rows));
    CHECK(is_chosen(c, rows, 1));
  }
  CHECK(is_chosen(c, 2, 2));
  for (int rows = 5; rows <= 8; ++rows) {
    const core::SimtConfig& shape = chosen(c, 1, rows);
    CHECK(shape.side_by_side == SideBySide::kNothing);
    CHECK(shape.plain);
    CHECK(simt::rows_of(shape) == 8);
  }
  CHECK(!is_chosen(c, 3, 4));
  for (const AttentionConfig& other : others) CHECK(!is_chosen(other, 1, 4));
}

/// `c` after a change.
template <class Change>
AttentionConfig with(AttentionConfig c, Change&& change) {
  change(c);
  return c;
}

AttentionConfig decode_call(KvFormat format, DType q_dtype, Rotation rotation, int head_dim = 128) {
  AttentionConfig c;
  c.cache.num_kv_heads = 2;
  c.cache.head_dim = head_dim;
  c.cache.page_size = 64;
  c.cache.k.format = c.cache.v.format = format;
  c.cache.rotation = rotation;
  c.q_dtype = q_dtype;
  return c;
}

/// Two sequences of one query token and 4 rows a KV head, the first of kv_len keys.
scene::Spec four_rows(KvFormat format, DType q_dtype, std::int32_t kv_len) {
  scene::Spec spec;
  spec.k = spec.v = format;
  spec.head_dim = 128;
  spec.group_heads = 4;
  spec.page_size = 32;
  spec.q_dtype = q_dtype;
  spec.sequences = {{1, kv_len, 0}, {1, 77, 1}};
  return spec;
}
void decode_on_cuda(scene::Scene& s) {
  s.config.backend = "cuda";
  s.config.matrix_path = MatrixPath::kDecode;
}

/// How far calls of an instance with something side by side are from the reference, and from what an instance of 8 rows with the same
/// queries gives.
struct Apart {
  double o = 0, lse = 0, other_o = 0, other_lse = 0;
};

/// Calls of at most 4 rows: one tile's keys and many, several warps' and one's, whole rows of tiles and such as the last query tokens may
/// not see. No finding, and the same bits in any order of lanes and warps.
/// @param c  formats, types and rotation of the calls; its seed counts on
void check_side_by_side(SideBySide what, grid::Case& c, Apart& worst) {
  int other = -1;  // 8 rows
  for (int i = 0; i < simt::kNumInstances && other < 0; ++i) {
    const core::SimtConfig& shape = simt::kInstances[i];
    const bool same_formats = (shape.k[0] == core::KvKind::kNvfp4) == (c.k == KvFormat::kNvfp4) && shape.head_dim == 128;
    const bool terms = shape.terms == (what == SideBySide::kTerms ? 2 : 1);
    if (same_formats && shape.plain && terms && shape.side_by_side == SideBySide::kNothing) other = i;
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

TEST_CASE("sm_80: queries of two terms in at most 4 rows are multiplied once") {
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    CAPTURE(static_cast<int>(format));
    const AttentionConfig f32 = decode_call(format, DType::kF32, Rotation::kNone);
    check_selection(SideBySide::kTerms, f32,
                    {with(f32, [](auto& c) { c.softcap = 30.0f; }), with(f32, [](auto& c) { c.q_dtype = DType::kBF16; })});
    check_selection(SideBySide::kTerms, decode_call(format, DType::kBF16, Rotation::kHadamard128), {});
    check_selection(SideBySide::kTerms, decode_call(format, DType::kF16, Rotation::kHadamard16), {});
  }
}

TEST_CASE("sm_80: NVFP4's groups of 16 stand apart for queries of one term in at most 4 rows") {
  const AttentionConfig call = decode_call(KvFormat::kNvfp4, DType::kBF16, Rotation::kNone);
  check_selection(SideBySide::kGroups, call,
                  {with(call, [](auto& c) { c.softcap = 30.0f; }), with(call, [](auto& c) { c.q_dtype = DType::kF32; }),
                   with(call, [](auto& c) { c.cache.head_dim = 96; }),
                   with(call, [](auto& c) { c.cache.v.scale_axis = VScaleAxis::kTokens; }),
                   with(call, [](auto& c) { c.cache.k.format = c.cache.v.format = KvFormat::kMxfp4; })});
  for (const int head_dim : {64, 256}) {
    CAPTURE(head_dim);
    check_selection(SideBySide::kGroups, decode_call(KvFormat::kNvfp4, DType::kBF16, Rotation::kNone, head_dim), {});
  }
}

TEST_CASE("sm_80: terms side by side give what terms one after the other give") {
  const emulator_test::ScopedSetup restored;
  Apart worst;
  grid::Case c;
  c.seed = 0;
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    for (const auto& [q_dtype, rotation] : {std::pair{DType::kF32, Rotation::kNone}, {DType::kBF16, Rotation::kHadamard128},
                                            {DType::kF16, Rotation::kHadamard16}, {DType::kF32, Rotation::kHadamard64}}) {
      c.k = c.v = format;
      c.q_dtype = q_dtype;
      c.rotation = rotation;
      check_side_by_side(SideBySide::kTerms, c, worst);
    }
  }
  std::printf("terms side by side: O %.2e, LSE %.2e; from terms one after the other: O %.2e, LSE %.2e\n", worst.o, worst.lse,
              worst.other_o, worst.other_lse);
  CHECK(worst.o <= 4e-4);  // twice and three times the worst of these draws; the contract has 2e-3 and 1e-3
  CHECK(worst.lse <= 1e-5);
  CHECK(worst.other_o <= 3e-5);  // three times the worst: some probabilities round to a neighbour. Without the second term 9e-4
  CHECK(worst.other_lse <= 1e-5);  // likewise; without the second term 3e-3
}

TEST_CASE("sm_80: NVFP4's groups side by side give what scales multiplied into codes give") {
  const emulator_test::ScopedSetup restored;
  Apart worst;
  grid::Case c;
  c.seed = 0;
  c.k = c.v = KvFormat::kNvfp4;
  for (const DType q_dtype : {DType::kF16, DType::kBF16}) {
    c.q_dtype = q_dtype;
    check_side_by_side(SideBySide::kGroups, c, worst);
  }
  std::printf("groups side by side: O %.2e, LSE %.2e; from scales in codes: O %.2e, LSE %.2e\n", worst.o, worst.lse, worst.other_o,
              worst.other_lse);
  CHECK(worst.o <= 4e-4);  // half more than the worst of these draws, and three times it for LSE; the contract has 2e-3 and 1e-3
  CHECK(worst.lse <= 4e-6);
  CHECK(worst.other_o <= 3e-4);  // likewise: P is rounded before its scale there, and behind it here
  CHECK(worst.other_lse <= 6e-6);
}

/// E4M3 has 2^-9 to 448; byte 0 is 0.
TEST_CASE("sm_80: NVFP4's groups side by side, and scales at the ends of their range") {
  const emulator_test::ScopedSetup restored;
  scene::Scene s(four_rows(KvFormat::kNvfp4, DType::kBF16, 300));
  decode_on_cuda(s);
  const auto check = [&] {
    CHECK(simt::kInstances[extreme::run_without_findings(s, emulator_test::kSm80)].side_by_side == SideBySide::kGroups);
  };
  double o = 0.0, lse = 0.0;
  const auto sm_scale = s.config.sm_scale;
  s.config.sm_scale = 0x1p-13f;  // logits of some units for scales of 448, whose rounding to f32 would else be all that the LSE shows
  extreme::check_key_scales(s, {{0x7e, 0x7e}, {0, 0x7e}, {0, 0}}, check, &o, &lse);
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
}

TEST_CASE("sm_80: terms side by side, and scales at the ends of their range") {
  const emulator_test::ScopedSetup restored;
  scene::Scene s(four_rows(KvFormat::kMxfp4, DType::kF32, 300));
  decode_on_cuda(s);
  const auto check = [&] {
    CHECK(simt::kInstances[extreme::run_without_findings(s, emulator_test::kSm80)].side_by_side == SideBySide::kTerms);
  };
  double o = 0.0, lse = 0.0;
  extreme::check_key_scales(s, {{127, 127}, {1, 127}, {60, 126}, {0, 0}}, check, &o, &lse);
  std::printf("terms side by side, scales at their ends: O %.2e, LSE %.2e\n", o, lse);
  CHECK(o <= 5e-4);  // two and three times what these draws give
  CHECK(lse <= 5e-6);
  extreme::set_scales(s, false, extreme::within(120, 127));
  extreme::expect_nans_apart(s, check);
}

/// One token of each sequence has nearly all of the probability and a V of zeros, so that O is what the others' little is worth: P times
/// V's scales must keep it, however small the scales are and wherever larger ones come.
TEST_CASE("sm_80: NVFP4's groups side by side keep a long tail of small probabilities") {
  const emulator_test::ScopedSetup restored;
  scene::Scene s(four_rows(KvFormat::kNvfp4, DType::kBF16, 700));
  decode_on_cuda(s);
  const scene::Spec& spec = s.spec;
  for (int i = 0; i < 2 * s.q_heads() * spec.head_dim; ++i) {
    const std::uint16_t one = 0x3f80;
    std::memcpy(s.q.data() + 2 * i, &one, 2);
  }
  constexpr int kSink = 3;
  for (std::int32_t b = 0; b < 2; ++b) {
    for (std::int32_t h = 0; h < spec.kv_heads; ++h) {
      for (std::int32_t token = 0; token < s.seq_lens[static_cast<std::size_t>(b)]; ++token) {
        std::memset(s.codes(false, b, token, h), token == kSink ? 0x22 : 0, 64);  // 1 or 0 times the scale, which is 1
        if (token == kSink) std::memset(s.codes(true, b, token, h), 0, 64);
      }
    }
  }
  extreme::set_scales(s, false, extreme::within(0x38, 0x38));
  double worst = 0.0;
  for (const float log2 : {6.3f, 12.4f, 16.2f, 19.3f}) {  // how far the others' probabilities are below the largest
    CAPTURE(log2);
    s.config.sm_scale = log2 * 0.69314718f / 128.0f;
    const auto check = [&](const char* what) {
      CAPTURE(what);
      CHECK(simt::kInstances[extreme::run_without_findings(s, emulator_test::kSm80)].side_by_side == SideBySide::kGroups);
      const scene::Scene::Error error = s.error();
      CHECK(error.lse <= 1e-5);
      worst = std::max(worst, error.o);
    };
    for (const auto& [low, high] : {std::pair{1, 1}, {1, 8}, {0x10, 0x20}, {0x30, 0x40}, {0x60, 0x7e}}) {
      extreme::set_scales(s, true, extreme::within(low, high));
      check(std::to_string(low).c_str());
    }
    extreme::set_scales(s, true, [](int token, test::Random&) { return 1 + token * 0x7d / 700; });
    check("rising");
    extreme::set_scales(s, true, [](int token, test::Random&) { return 0x7e - token * 0x7d / 700; });
    check("falling");
  }
  std::printf("groups side by side, a long tail of small probabilities: O %.2e\n", worst);
  CHECK(worst <= 2e-3);  // these give 1.2e-3: f16 has seven bits left of 2^-17. By factors relative to 448 throughout it is 0.65
}
