// The two-tier cache: however the tokens are cut into calls, the same bytes, and the bytes are the oracle's.
//
// Sequences are fed token by token, in random chunks and all at once. Each time the whole old pool must equal the
// oracle's image - groups complete, written once, nothing else touched - and the recent pool must hold the last tokens that
// the ring has room for at their places, live or not, with every byte outside the ring's rows still poison.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "fp4pa/status.hpp"
#include "tests/cache/expect.hpp"
#include "tests/cache/target.hpp"
#include "tests/cache/two_tier_fixture.hpp"

using namespace fp4pa;
using test::Config;
using test::Fixture;

namespace {

// What a token is once it has been through the recent tier.
std::vector<float> through_recent(const test::Pool& recent, const KvTensorDesc& t, int head, std::vector<float> x) {
  for (float& value : x) {
    if (t.format == KvFormat::kFp8E4m3) {
      const float global = recent.global(t, head);
      value = static_cast<float>(oracle::kE4m3.value(oracle::kE4m3.nearest(value / global))) * global;
    } else {
      const oracle::Float& half = t.format == KvFormat::kF16 ? oracle::kF16 : oracle::kBf16;
      value = static_cast<float>(half.value(half.nearest(value)));
    }
  }
  return x;
}

struct Images {
  test::Image old_tier, recent;
  std::vector<std::uint8_t> recent_held;  // 1 where a byte of the recent image is of a token that the ring holds
  std::vector<std::uint8_t> recent_ring;  // 1 where it belongs to a row of some ring
};

void mark_row(std::vector<std::uint8_t>& mask, const test::Pool& pool, std::int64_t page, int row, int head) {
  for (const KvTensorDesc* t : {&pool.cache.k, &pool.cache.v}) {
    const auto bytes = static_cast<std::ptrdiff_t>(test::code_bytes(t->format, pool.shape.head_dim));
    const auto first = mask.begin() + static_cast<std::ptrdiff_t>(pool.code_offset(*t, page, row, head));
    std::fill(first, first + bytes, std::uint8_t{1});
  }
}

Images expected(const Fixture& f) {
  const Config& c = f.config;
  Images images{f.old_pool.snapshot(), f.recent_pool.snapshot(), {}, {}};
  images.recent_held.assign(images.recent.size(), 0);
  images.recent_ring.assign(images.recent.size(), 0);
  const int ring = Fixture::ring(c);
  const int v_group = test::token_group(c.old_shape.v_format, c.old_shape.axis);
  for (int b = 0; b < Fixture::batch(c); ++b) {
    const test::Rows& k = f.k[static_cast<std::size_t>(b)];
    const test::Rows& v = f.v[static_cast<std::size_t>(b)];
    const int length = c.lengths[static_cast<std::size_t>(b)];
    const int quantised = Fixture::tokens_quantised(c, length);
    for (int head = 0; head < c.old_shape.heads; ++head) {
      std::vector<std::vector<float>> rows;  // of V's current group
      for (int t = 0; t < quantised; ++t) {
        const int page_size = c.old_shape.page_size;
        const int row = t % page_size;
        const std::int64_t page = f.old_table[static_cast<std::size_t>(b * f.old_stride + t / page_size)];
        test::expect_row(images.old_tier, f.old_pool, f.old_pool.cache.k, page, row, head,
                         through_recent(f.recent_pool, f.recent_pool.cache.k, head,
                                        test::rotated(k.row(t, head), c.old_shape.rotation)));
        const std::vector<float> x = through_recent(f.recent_pool, f.recent_pool.cache.v, head, v.row(t, head));
        if (c.old_shape.axis == VScaleAxis::kHeadDim) {
          test::expect_row(images.old_tier, f.old_pool, f.old_pool.cache.v, page, row, head, x);
          continue;
        }
        rows.push_back(x);
        if ((row + 1) % v_group == 0 || row + 1 == page_size) {
          test::expect_group(images.old_tier, f.old_pool, page, row / v_group * v_group, head, rows);
          rows.clear();
        }
      }
      CHECK(rows.empty());
      const int recent_size = c.recent_shape.page_size;
      for (int p = 0; p < ring; ++p) {
        for (int row = 0; row < recent_size; ++row) {
          mark_row(images.recent_ring, f.recent_pool, f.recent_table[static_cast<std::size_t>(b * ring + p)], row,
                   head);
        }
      }
      for (int t = std::max(0, length - ring * recent_size); t < length; ++t) {
        const std::int64_t page = f.recent_table[static_cast<std::size_t>(b * ring + t / recent_size % ring)];
        const int row = t % recent_size;
        test::expect_row(images.recent, f.recent_pool, f.recent_pool.cache.k, page, row, head,
                         test::rotated(k.row(t, head), c.old_shape.rotation));
        test::expect_row(images.recent, f.recent_pool, f.recent_pool.cache.v, page, row, head, v.row(t, head));
        mark_row(images.recent_held, f.recent_pool, page, row, head);
      }
    }
  }
  return images;
}

enum class Feed { kTokenByToken, kChunks, kAtOnce };

// Appends everything, `next(b, left)` tokens of sequence b in each call.
template <class Next>
void feed(const test::Target& target, Fixture& f, int threads, const Next& next) {
  const Config& c = f.config;
  const int batch = Fixture::batch(c);
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(batch), 0);
  const int heads = c.old_shape.heads;
  const int head_dim = c.old_shape.head_dim;
  const auto row = static_cast<std::size_t>(heads * head_dim);
  while (true) {
    std::vector<std::int32_t> indptr = {0};
    std::vector<float> k;
    std::vector<float> v;
    for (int b = 0; b < batch; ++b) {
      const auto at = static_cast<std::size_t>(b);
      const int left = c.lengths[at] - lengths[at];
      const int n = left == 0 ? 0 : next(b, left);
      for (int t = lengths[at]; t < lengths[at] + n; ++t) {
        for (int head = 0; head < heads; ++head) {
          const std::vector<float> k_row = f.k[at].row(t, head);
          const std::vector<float> v_row = f.v[at].row(t, head);
          k.insert(k.end(), k_row.begin(), k_row.end());
          v.insert(v.end(), v_row.begin(), v_row.end());
        }
      }
      indptr.push_back(indptr.back() + n);
    }
    if (indptr.back() == 0 && lengths == std::vector<std::int32_t>(c.lengths.begin(), c.lengths.end())) return;
    const KvInput k_input{k.data(), DType::kF32, static_cast<std::int64_t>(row), head_dim};
    const KvInput v_input{v.data(), DType::kF32, static_cast<std::int64_t>(row), head_dim};
    ExecDesc exec;
    exec.num_threads = threads;
    REQUIRE(target.append_two_tier({f.desc, k_input, v_input, indptr.data(), lengths.data(), batch, indptr.back(),
                                    f.old_table.data(), f.old_stride, f.recent_table.data()},
                                   exec) == Status::kOk);
    for (int b = 0; b < batch; ++b) {
      const auto at = static_cast<std::size_t>(b);
      lengths[at] += indptr[at + 1] - indptr[at];
    }
  }
}

void run_config(const Config& c, std::uint64_t seed) {
  if (!test::is_run(seed)) return;
  CAPTURE(seed);
  CAPTURE(c.window);
  CAPTURE(c.group);
  CAPTURE(c.old_shape.page_size);
  CAPTURE(c.recent_shape.page_size);
  CAPTURE(std::string(name_of(c.old_shape.k_format)));
  CAPTURE(std::string(name_of(c.old_shape.v_format)));
  CAPTURE(std::string(name_of(c.old_shape.axis)));
  CAPTURE(std::string(name_of(c.recent_shape.k_format)));
  Images want;
  for (const Feed how : {Feed::kTokenByToken, Feed::kChunks, Feed::kAtOnce}) {
    for (const test::Target& target : test::kTargets) {
      CAPTURE(static_cast<int>(how));
      CAPTURE(std::string(target.name));
      Fixture f(c, seed);
      if (want.old_tier.empty()) want = expected(f);
      test::Random cuts(seed ^ 0x5eed);
      feed(target, f, 1 + static_cast<int>(seed % 2), [&](int, int left) {
        switch (how) {
          case Feed::kTokenByToken: return 1;
          case Feed::kChunks:
            return std::min(left, cuts.below(cuts.below(4) == 0 ? 2 * (c.window + c.group) : c.group + 2));
          case Feed::kAtOnce: return left;
        }
        return 0;
      });
      CHECK(f.old_pool.snapshot() == want.old_tier);
      const test::Image recent = f.recent_pool.snapshot();
      long long wrong_held = 0;
      long long wrong_outside = 0;
      for (std::size_t i = 0; i < recent.size(); ++i) {
        if (want.recent_held[i] != 0) wrong_held += recent[i] != want.recent[i];
        if (want.recent_ring[i] == 0) wrong_outside += recent[i] != test::kPoison;
      }
      CHECK(wrong_held == 0);
      CHECK(wrong_outside == 0);
    }
  }
}

// Around every boundary that a window and a group have.
std::vector<int> boundary_lengths(int window, int group) {
  return {0,
          1,
          window - 1,
          window,
          window + 1,
          window + group - 1,
          window + group,
          window + group + 1,
          window + 2 * group,
          window + 3 * group - 1,
          3 * window + 5 * group + 7};
}

}  // namespace

TEST_CASE("two tiers: token by token, in chunks and at once, for every window, group and page size") {
  std::uint64_t seed = 1;
  struct Pages {
    int group, old_page, recent_page;
  };
  // Groups of 16, 32, a page, several pages and part of a page; recent pages that divide the window, that do not, of
  // one token.
  const Pages pages[] = {{16, 16, 16}, {32, 16, 16}, {32, 64, 16}, {64, 64, 64}, {32, 32, 1},
                         {16, 32, 7},  {96, 3, 5},   {32, 1, 64},  {48, 24, 33}};
  for (const int window : {16, 17, 64, 100, 256}) {
    for (const Pages& p : pages) {
      Config c = test::two_tier_config(seed % 2 == 0 ? KvFormat::kMxfp4 : KvFormat::kNvfp4,
                                       seed % 3 == 0 ? KvFormat::kE8m0PerToken : KvFormat::kMxfp4, VScaleAxis::kHeadDim,
                                       p.old_page, KvFormat::kBf16, p.recent_page);
      c.window = window;
      c.group = p.group;
      c.old_shape.heads = c.recent_shape.heads = 1 + static_cast<int>(seed % 2);
      c.old_shape.layout = seed % 2 == 0 ? test::Layout::kInterleaved : test::Layout::kHnd;
      c.recent_shape.layout = seed % 2 == 0 ? test::Layout::kNhd : test::Layout::kInterleaved;
      c.spare_ring_pages = static_cast<int>(seed % 3);
      c.lengths = boundary_lengths(window, p.group);
      if (window > 64) c.lengths = {window, window + p.group, window + 3 * p.group - 1};
      run_config(c, seed);
      ++seed;
    }
  }
}

TEST_CASE("two tiers: V scaled along tokens") {
  std::uint64_t seed = 1001;
  struct Case {
    KvFormat format;
    int group, old_page;
  };
  // Pages that hold several groups, one, and (16 under MXFP4's 32, 24 under NVFP4's 16) cut groups short.
  const Case cases[] = {{KvFormat::kMxfp4, 32, 32}, {KvFormat::kMxfp4, 64, 64}, {KvFormat::kMxfp4, 32, 128},
                        {KvFormat::kMxfp4, 32, 16}, {KvFormat::kNvfp4, 16, 16}, {KvFormat::kNvfp4, 16, 64},
                        {KvFormat::kNvfp4, 48, 24}, {KvFormat::kNvfp4, 32, 1}};
  for (const int window : {16, 40, 64}) {
    for (const Case& x : cases) {
      Config c =
          test::two_tier_config(KvFormat::kMxfp4, x.format, VScaleAxis::kTokens, x.old_page, KvFormat::kBf16, 16);
      c.window = window;
      c.group = x.group;
      c.old_shape.nvfp4 = seed % 2 == 0 ? Nvfp4Scale::kFourOverSix : Nvfp4Scale::kAmaxOver6;
      c.lengths = boundary_lengths(window, x.group);
      run_config(c, seed);
      ++seed;
    }
  }
}

TEST_CASE("two tiers: recent formats, rotation, per-head scales, K and V apart") {
  std::uint64_t seed = 2001;
  for (const KvFormat recent : {KvFormat::kBf16, KvFormat::kF16, KvFormat::kFp8E4m3}) {
    for (const KvFormat old_format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kFp8E4m3, KvFormat::kBf16}) {
      Config c = test::two_tier_config(old_format, KvFormat::kNvfp4, VScaleAxis::kHeadDim, 16, recent, 16);
      c.recent_shape.v_format = seed % 2 == 0 ? KvFormat::kFp8E4m3 : recent;
      c.old_shape.rotation = c.recent_shape.rotation = seed % 2 == 0 ? Rotation::kHadamard32 : Rotation::kHadamard16;
      c.old_shape.per_head_globals = c.recent_shape.per_head_globals = true;
      c.old_shape.heads = c.recent_shape.heads = 3;
      c.window = 20;
      c.lengths = {0, 19, 52, 53, 131};
      run_config(c, seed);
      ++seed;
    }
  }
}
