// The ways through a call that a grid of random configurations is unlikely to land on exactly: every boundary of the
// two tiers, rows that see nothing, sinks above every score, scales along tokens cut by a window, strides and element
// types. Run for every instruction set (tests.cmake).
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/formats/half.hpp"
#include "tests/attention/checks.hpp"

using namespace fp4pa;
using scene::check_close;
using scene::kFp4Bound;
using scene::kFp4LseBound;
using scene::row_is_nan;
using scene::row_is_zero;
using scene::Scene;
using scene::Spec;

namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();
}

TEST_SUITE_BEGIN("paths");

TEST_CASE("two tiers: every length around the window, the groups, the pages and the ring's wrap") {
  struct Tiers {
    std::int32_t window, group, page, recent_page;
    VScaleAxis axis;
  };
  // Groups smaller than a page, equal to it and of several pages; a ring page that divides nothing.
  for (const Tiers& t : {Tiers{16, 8, 16, 8, VScaleAxis::kHeadDim}, Tiers{64, 32, 32, 16, VScaleAxis::kTokens},
                         Tiers{17, 64, 32, 5, VScaleAxis::kHeadDim}, Tiers{33, 16, 16, 64, VScaleAxis::kHeadDim}}) {
    std::vector<std::int32_t> lengths;
    for (const std::int32_t at :
         {0, 1, t.window, t.window + t.group, t.window + 2 * t.group, t.page, 2 * t.page + t.window, t.window + t.page,
          3 * t.group + t.window, t.recent_page, 4 * (t.window + t.group)}) {
      for (std::int32_t d = -2; d <= 2; ++d) {
        if (at + d >= 0) lengths.push_back(at + d);
      }
    }
    std::sort(lengths.begin(), lengths.end());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    Spec spec;
    spec.window = t.window;
    spec.group_tokens = t.group;
    spec.page_size = t.page;
    spec.recent_page_size = t.recent_page;
    spec.v_axis = t.axis;
    spec.sequences.clear();
    for (const std::int32_t length : lengths) {
      spec.sequences.push_back({1 + length % 3, length, static_cast<std::uint64_t>(length)});
    }
    INFO("window ", t.window, " group ", t.group, " page ", t.page, " recent page ", t.recent_page);
    Scene s(spec);
    check_close(s);
    s.config.sliding_window = t.window + 3;  // ends inside the old tier
    check_close(s);
    s.config.sliding_window = t.window - 5;  // ends inside the recent tier
    check_close(s);
    s.config.sliding_window = 0;
    s.config.kv_split_tokens = 64;  // pieces that end on either side of the border
    check_close(s);
  }
}

TEST_CASE("two tiers: 8-bit and 16-bit recent tokens, and a query that spans the border") {
  for (const KvFormat recent : {KvFormat::kBf16, KvFormat::kF16, KvFormat::kFp8E4m3}) {
    Spec spec;
    spec.recent = recent;
    spec.window = 16;
    spec.group_tokens = 32;
    spec.v = KvFormat::kNvfp4;
    spec.sequences = {{60, 100, 0}, {90, 90, 1}};  // queries older than the border see both tiers, too
    Scene s(spec);
    check_close(s);
  }
}

TEST_CASE("rows that see nothing: O is 0, LSE is -inf or the sink's logit") {
  for (const bool sinks : {false, true}) {
    for (const std::int32_t split : {0, 64}) {
      Spec spec;
      spec.sequences = {{3, 0, 0}, {5, 2, 1}, {1, 0, 2}, {1, 130, 3}};
      Scene s(spec);
      s.config.sinks = sinks;
      s.config.kv_split_tokens = split;
      check_close(s);
      // Three queries without keys, three of five before the first key, one more without keys.
      for (const std::int32_t token : {0, 1, 2, 3, 4, 5, 8}) {
        for (std::int32_t h = 0; h < s.q_heads(); ++h) {
          CHECK(row_is_zero(s, token, h));
          if (sinks) {
            CHECK(std::abs(s.lse_of(token, h) - s.sinks[static_cast<std::size_t>(h)]) <= 1e-6f);
          } else {
            CHECK(s.lse_of(token, h) == -kInf);
          }
        }
      }
      CHECK(!row_is_zero(s, 6, 0));
      CHECK(!row_is_zero(s, 9, 0));
    }
  }
}

TEST_CASE("a tree mask may hide every key of a row") {
  Spec spec;
  spec.sequences = {{3, 3, 0}};  // no context: only the tree's own keys
  Scene s(spec);
  s.config.tree_mask = true;
  s.tree = {0b001, 0, 0b110};
  check_close(s);
  CHECK(row_is_zero(s, 1, 0));
  CHECK(s.lse_of(1, 0) == -kInf);
}

TEST_CASE("a tree under a sliding window: a query sees what it would see at the end of its own branch") {
  // Two branches behind query 0: 1, 3, 5 and 2, 4, 6.
  const std::vector<std::uint64_t> tree{0b0000001, 0b0000011, 0b0000101, 0b0001011, 0b0010101, 0b0101011, 0b1010101};
  constexpr std::int32_t kQueries = 7, kContext = 203;
  for (const std::int32_t tier : {0, 16}) {
    for (const std::int32_t window : {7, 8, 30, 64, 100, 203, 204, 209, 210}) {
      Spec spec;
      spec.window = tier;
      spec.sequences[0] = {kQueries, kContext + kQueries, 0};
      Scene s(spec);
      s.config.tree_mask = true;
      s.config.sliding_window = window;
      s.tree = tree;
      CAPTURE(tier);
      CAPTURE(window);
      check_close(s);
      // Pages wholly before the root's window may be gone.
      s.reset_outputs();
      REQUIRE(s.run() == Status::kOk);
      const std::vector<std::uint8_t> all_there = s.bits_of(0);
      for (std::int32_t page = 0; (page + 1) * spec.page_size <= kContext + 1 - window; ++page) {
        s.block_table[static_cast<std::size_t>(page)] = -1;
      }
      s.reset_outputs();
      REQUIRE(s.run() == Status::kOk);
      CHECK(s.bits_of(0) == all_there);
    }
  }
}

TEST_CASE("a tree of one branch under a sliding window is the causal rule, bit for bit") {
  Spec spec;
  spec.sequences = {{5, 170, 0}, {1, 90, 1}, {7, 64, 2}, {8, 140, 3}};  // of one block of rows each: others begin where their own windows do
  Scene chain(spec), line(spec);
  chain.config.sliding_window = line.config.sliding_window = 64;
  chain.config.tree_mask = true;
  chain.tree.clear();
  for (const scene::Sequence& q : spec.sequences) {
    for (std::int32_t i = 0; i < q.q_len; ++i) chain.tree.push_back(~std::uint64_t{0} >> (63 - i));
  }
  REQUIRE(chain.run() == Status::kOk);
  REQUIRE(line.run() == Status::kOk);
  for (std::int32_t b = 0; b < 4; ++b) CHECK(chain.bits_of(b) == line.bits_of(b));
}

TEST_CASE("V scaled along tokens: windows that begin anywhere in a group") {
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    Spec spec;
    spec.v = format;
    spec.v_axis = VScaleAxis::kTokens;
    spec.page_size = 64;
    spec.sequences = {{1, 200, 0}, {3, 333, 1}};
    Scene s(spec);
    for (std::int32_t window = 60; window < 60 + 33; ++window) {
      s.config.sliding_window = window;
      INFO(std::string(name_of(format)), " window ", window);
      check_close(s);
    }
  }
}

TEST_CASE("a sink above every score takes its share, whole or split") {
  for (const std::int32_t split : {0, 64}) {
    for (const float sink : {-200.0f, 5.0f, 14.0f, 60.0f}) {
      Spec spec;
      spec.sequences = {{1, 300, 0}, {3, 20, 1}};
      Scene s(spec);
      s.config.sinks = true;
      s.config.kv_split_tokens = split;
      s.config.num_threads = 2;
      std::fill(s.sinks.begin(), s.sinks.end(), sink);
      INFO("sink ", sink, " split ", split);
      check_close(s);
    }
  }
}

TEST_CASE("the largest sliding window is no window, also where queries stand before the first key") {
  Spec spec;
  spec.sequences = {{100, 3, 0}, {4, 90, 1}};
  Scene s(spec);
  REQUIRE(s.run() == Status::kOk);
  const std::vector<std::uint8_t> first = s.bits_of(0), second = s.bits_of(1);
  s.config.sliding_window = std::numeric_limits<std::int32_t>::max();
  s.reset_outputs();
  REQUIRE(s.run() == Status::kOk);
  CHECK(s.bits_of(0) == first);
  CHECK(s.bits_of(1) == second);
}

TEST_CASE("queries, outputs and their strides: f32, f16 and bf16, heads outside or inside, gaps that stay untouched") {
  for (const DType q : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType o : {DType::kF32, DType::kF16, DType::kBF16}) {
      Spec spec;
      spec.q_dtype = q;
      spec.k = spec.v = KvFormat::kF16;
      spec.sequences = {{3, 50, 0}, {1, 20, 1}};
      Scene dense(spec);
      REQUIRE(dense.run() == Status::kOk);
      spec.o_dtype = o;
      Scene s(spec);
      // Heads outermost, a gap of 8 elements after every row, a query tensor inside a wider one.
      const std::int64_t row = 72, head = row * 4 + 16;
      grid::Memory wide_q(static_cast<std::size_t>(head * 4 * size_of(q)), 0xFF);
      grid::Memory wide_o(static_cast<std::size_t>(head * 4 * size_of(o)), scene::kUnwritten);
      for (std::int64_t t = 0; t < 4; ++t) {
        for (std::int64_t h = 0; h < 4; ++h) {
          std::memcpy(wide_q.data() + (t * row + h * head) * size_of(q), s.q.data() + (t * 4 + h) * 64 * size_of(q),
                      static_cast<std::size_t>(64 * size_of(q)));
        }
      }
      s.args.q = wide_q.data();
      s.args.o = wide_o.data();
      s.args.q_token_stride = s.args.o_token_stride = row;
      s.args.q_head_stride = s.args.o_head_stride = head;
      REQUIRE(s.run() == Status::kOk);
      INFO("q ", std::string(name_of(q)), " o ", std::string(name_of(o)));
      for (std::int32_t t = 0; t < 4; ++t) {
        for (std::int32_t h = 0; h < 4; ++h) {
          // The same arithmetic, rounded once to the output's type.
          const std::vector<double> wanted = dense.o_row(t, h);
          const std::vector<double> got = s.o_row(t, h);
          std::int32_t wrong = 0;
          for (std::size_t d = 0; d < 64; ++d) {
            const auto x = static_cast<float>(wanted[d]);
            const float rounded = o == DType::kF16    ? core::f16_to_f32(core::f32_to_f16(x))
                                  : o == DType::kBF16 ? core::bf16_to_f32(core::f32_to_bf16(x))
                                                      : x;
            wrong += got[d] == rounded ? 0 : 1;
          }
          CHECK(wrong == 0);
          CHECK(s.lse_of(t, h) == dense.lse_of(t, h));
        }
      }
      std::int64_t written = 0;
      for (std::int64_t i = 0; i < head * 4; ++i) {
        const std::int64_t within = i % head;
        const bool element = within / row < 4 && within % row < 64;
        const auto* bytes = wide_o.data() + i * size_of(o);
        const bool touched =
            !std::all_of(bytes, bytes + size_of(o), [](std::uint8_t b) { return b == scene::kUnwritten; });
        if (!element) CHECK(!touched);
        written += touched ? 1 : 0;
      }
      CHECK(written >= 4 * 4 * 60);
    }
  }
}

TEST_CASE("adversarial scores: one that dominates, all equal, huge and tiny") {
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kBf16}) {
    for (const float scale : {0.0f, 100.0f, 1e-6f, -3.0f}) {
      Spec spec;
      spec.k = spec.v = format;
      spec.sequences = {{2, 200, 0}};
      Scene s(spec);
      s.config.sm_scale = scale;  // 100: the largest score takes all the weight; 1e-6: all keys weigh the same
      REQUIRE(s.run() == Status::kOk);
      const Scene::Error error = s.error();
      INFO(std::string(name_of(format)), " scale ", scale);
      // A rounding of the scores grows with the scale: at 100 a score is some hundreds and LSE follows it.
      const double growth = std::max(1.0, std::abs(double{scale}) / 0.125);
      CHECK(error.o <= kFp4Bound * growth);
      CHECK(error.lse <= kFp4LseBound * growth);
    }
  }
}

TEST_CASE("LSE keeps its bound whatever the softmax scale") {
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kE8m0PerToken}) {
    for (const bool largest_codes : {false, true}) {
      for (const float scale : {0.088f, 0.2f, 0.5f, 1.0f, 2.0f}) {
        Spec spec;
        spec.k = format;
        spec.v = KvFormat::kBf16;
        spec.head_dim = 128;
        spec.group_heads = 4;
        spec.sequences = {{4, 400, 0}};
        Scene s(spec);
        s.config.sm_scale = scale;
        for (std::int32_t t = 0; largest_codes && t < 400; ++t) {
          for (std::int32_t h = 0; h < 2; ++h) {
            for (std::int32_t i = 0; i < 64; ++i) s.codes(false, 0, t, h)[i] |= 0x77;  // 6 or -6
          }
        }
        REQUIRE(s.run() == Status::kOk);
        const Scene::Error error = s.error();
        INFO(std::string(name_of(format)), " scale ", scale, " largest codes ", largest_codes);
        CHECK(error.o <= 2e-4);
        CHECK(error.lse <= 1e-3);
      }
    }
  }
}

TEST_CASE("a query with outlier elements stays within the contract") {
  // A few channels of real queries are an order of magnitude larger than the rest. Here they meet only zeros, so that
  // whatever error appears is the rounding of the other elements against the largest one.
  Spec spec;
  spec.v = KvFormat::kBf16;
  spec.sequences = {{1, 200, 0}};
  Scene s(spec);
  for (std::int32_t t = 0; t < 200; ++t) {
    for (std::int32_t h = 0; h < 2; ++h) *s.codes(false, 0, t, h) = 0;  // columns 0 and 1
  }
  for (std::int32_t h = 0; h < s.q_heads(); ++h) {
    const float outlier = 10.0f;  // 15 times the others' root mean square
    std::memcpy(s.q.data() + 4 * (h * 64 + 1), &outlier, 4);
  }
  REQUIRE(s.run() == Status::kOk);
  const Scene::Error error = s.error();
  CHECK(error.o <= 2e-3);
  CHECK(error.lse <= 1e-3);
}

TEST_SUITE_END();
