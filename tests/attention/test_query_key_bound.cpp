// Scores of FP4 keys: whatever the query and the keys' scales, they are within the contract's LSE error, and where 16 bits hold
// the query they are as good as f32. Run for every instruction set, see test_tile_ops.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/tile_ops.hpp"
#include "tests/attention/tile.hpp"
#include "tests/cache/random.hpp"

using namespace fp4pa;
using cpu::kTileKeys;
using cpu::TileOps;
using tile::scores_of;
using tile::tables;
using tile::Tile;

namespace {

constexpr KvFormat kFormats[] = {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kE8m0PerToken};
constexpr double kLseBound = 1e-3 * 1.4426950408889634;  // of DESIGN, in the scores' log2 units

/// One query's score of key t, and the sum of its terms' magnitudes.
struct Exact {
  double sum = 0.0, size = 0.0;
};
Exact exact(const Tile& tile, std::int32_t t, const std::vector<float>& query, float scale = 1.0f) {
  Exact e;
  for (std::int32_t d = 0; d < tile.head_dim; ++d) {
    const double x = double{scale} * query[static_cast<std::size_t>(d)] * tile.value(t, d);
    e.sum += x;
    e.size += std::abs(x);
  }
  return e;
}

bool in_integers(const TileOps& ops) { return std::string(ops.name) == "AVX3_DL"; }

/// What f32 may lose in a sum of groups; in one of elements, without integers, as many additions in a row.
double lost_in_f32(const TileOps& ops, std::int32_t head_dim, double size) {
  return (in_integers(ops) ? head_dim / 64 + 4 : head_dim / 2) * 0x1p-24 * size;
}

/// Every code 6, the largest, and every scale this one.
void fill_with_largest(Tile& tile, std::uint8_t scale) {
  std::memset(tile.codes.data(), 0x77, tile.codes.size());
  std::memset(tile.scales.data(), scale, tile.scales.size());
}

}  // namespace

TEST_SUITE_BEGIN("tile_ops");

TEST_CASE("scores: FP4 keys within the contract, however the query's rounding errors add up") {
  // A score's error reaches LSE as it is. Queries with many equal elements have many equal rounding errors, which keys of one
  // sign add up; the worst keys have the signs of the errors themselves, which are known if the query is rounded to
  // multiples of amax / 32512.
  test::Random random(14);
  for (const TileOps* ops : tables()) {
    for (const KvFormat format : kFormats) {
      for (const std::int32_t head_dim : {64, 128, 256}) {
        double worst = 0.0;
        for (std::int32_t sample = 0; sample < 200; ++sample) {
          const auto large = static_cast<float>(0.05 + 0.3 * random.uniform());
          const auto small = static_cast<float>(large * (0.2 + 0.75 * random.uniform()));
          const bool alternating = sample % 2 == 1;
          std::vector<float> query;
          for (std::int32_t d = 0; d < head_dim; ++d) {
            query.push_back((d % 32 == 0 ? large : small) * (alternating && d % 2 == 1 ? -1.0f : 1.0f));
          }
          Tile tile(format, head_dim, kTileKeys);
          // Scales from 1 to 32: from where 16 bits are enough to where they are far from it.
          const std::int32_t power = sample / 2 % 6;
          std::memset(tile.scales.data(), format == KvFormat::kNvfp4 ? 0x38 + 8 * power : 127 + power, tile.scales.size());
          const float level = large / 32512.0f;
          for (std::int32_t t = 0; t < kTileKeys; ++t) {
            auto* const row = const_cast<std::uint8_t*>(tile.rows.row[t]);
            std::memset(row, 0, static_cast<std::size_t>(head_dim / 2));
            for (std::int32_t d = 0; d < head_dim; ++d) {
              const float x = query[static_cast<std::size_t>(d)] / level;
              const bool negative = t % 2 == 0 ? false : x < std::nearbyint(x);
              const std::uint32_t code = (t < kTileKeys / 2 ? 7u : 5u + random.below(3)) | (negative ? 8u : 0u);
              row[d / 2] = static_cast<std::uint8_t>(row[d / 2] | code << (4 * (d % 2)));
            }
          }
          const std::vector<float> got = scores_of(*ops, tile, query, 1);
          for (std::int32_t t = 0; t < kTileKeys; ++t) {
            const Exact e = exact(tile, t, query);
            const double allowed = kLseBound + lost_in_f32(*ops, head_dim, e.size);
            worst = std::max(worst, std::abs(got[static_cast<std::size_t>(t)] - e.sum) / allowed);
          }
        }
        INFO(std::string(ops->name), " ", std::string(name_of(format)), " head_dim ", head_dim);
        CHECK(worst <= 1.0);
      }
    }
  }
}

TEST_CASE("scores: FP4 keys, where the query's rounding takes nearly all of the contract, what f32 loses does not come on top") {
  // Elements that are all off by the same few 1024ths of a level, keys of one sign and scores of 3000 to 6000. Without integers
  // nothing is rounded but f32's sums, which alone lose more at such scores.
  const TileOps& ops = cpu::tile_ops();
  if (!in_integers(ops)) {
    MESSAGE("not run: ", std::string(ops.name), " takes no scores in integers");
    return;
  }
  constexpr std::int32_t kDim = 256;
  test::Random random(16);
  for (const KvFormat format : kFormats) {
    Tile tile(format, kDim, kTileKeys);
    fill_with_largest(tile, format == KvFormat::kNvfp4 ? 0x40 : 128);  // scales of 2
    double worst = 0.0;
    for (std::int32_t sample = 0; sample < 2000; ++sample) {
      const auto scale = static_cast<float>(1.0 + random.uniform());
      const float off = static_cast<float>(3 + random.below(6)) / 1024;
      std::vector<float> query;
      for (std::int32_t d = 0; d < kDim; ++d) {
        query.push_back(d % 32 == 0 ? 1.0f : (static_cast<float>(16000 + random.below(380)) + off) * 0x1p-14f);
      }
      worst = std::max(worst, std::abs(scores_of(ops, tile, query, 1, scale)[0] - exact(tile, 0, query, scale).sum));
    }
    INFO(std::string(name_of(format)), " of the bound: ", worst / kLseBound);
    CHECK(worst <= kLseBound);
  }
}

TEST_CASE("scores: FP4 keys, the ignored sign bit of one NVFP4 scale does not hide the larger scales of other keys") {
  constexpr std::int32_t kDim = 128;
  std::vector<float> query(kDim, 0.31003f);
  for (std::size_t d = 0; d < kDim; d += 32) query[d] = 0.4f;
  Tile tile(KvFormat::kNvfp4, kDim, kTileKeys);
  fill_with_largest(tile, 0x60);                                                      // 32
  std::memset(tile.scales.data(), 0x80, static_cast<std::size_t>(tile.scale_bytes));  // the first key's: -0
  for (const TileOps* ops : tables()) {
    const Exact e = exact(tile, 9, query);
    INFO(std::string(ops->name));
    CHECK(std::abs(scores_of(*ops, tile, query, 1)[9] - e.sum) <= kLseBound + lost_in_f32(*ops, kDim, e.size));
  }
}

TEST_CASE("scores: FP4 keys and a bf16 query, which 16 bits hold exactly for any softmax scale") {
  test::Random random(15);
  for (const TileOps* ops : tables()) {
    for (const KvFormat format : kFormats) {
      constexpr std::int32_t kDim = 128;
      constexpr float kScale = -0.1275f;
      Tile tile(format, kDim, kTileKeys);
      tile.fill(random);
      std::vector<float> query;
      for (std::int32_t d = 0; d < kDim; ++d) {
        // Eight significant bits in the seven binades that share 15 bits with the largest.
        query.push_back(static_cast<float>((128 + random.below(128)) << random.below(7)) * (random.below(2) == 0 ? 1.0f : -1.0f));
      }
      const std::vector<float> got = scores_of(*ops, tile, query, 1, kScale);
      double worst = 0.0;
      for (std::int32_t t = 0; t < kTileKeys; ++t) {
        const Exact e = exact(tile, t, query, kScale);
        worst = std::max(worst, std::abs(got[static_cast<std::size_t>(t)] - e.sum) / e.size);
      }
      INFO(std::string(ops->name), " ", std::string(name_of(format)));
      CHECK(worst <= 5e-7);
    }
  }
}

TEST_CASE("scores: FP4 keys and queries at the ends of what softmax scales and keys' scales make of them") {
  struct Case {
    float element;  // of the query, the first `nonzero`
    std::int32_t nonzero;
    float scale;
    std::uint8_t key_scale;
  };
  constexpr std::int32_t kDim = 128;
  for (const TileOps* ops : tables()) {
    for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kE8m0PerToken}) {
      for (const Case& c : {Case{1.0f, 0, 0x1p113f, 127}, Case{1.0f, 0, 0x1p120f, 127}, Case{1.0f, 64, 0x1p115f, 22},
                            Case{1.984375f * 0x1p-20f, 1, 0x1.04p-96f, 253}, Case{1.984375f * 0x1p-20f, 32, 0x1.04p-96f, 253},
                            Case{1.5f, 3, 0x1p-114f, 253}, Case{1.0f, 32, 0x1p-111f, 253}}) {
        Tile tile(format, kDim, kTileKeys);
        fill_with_largest(tile, c.key_scale);
        std::vector<float> query(kDim, 0.0f);
        std::fill_n(query.begin(), c.nonzero, c.element);
        const float got = scores_of(*ops, tile, query, 1, c.scale)[5];
        const double expected = exact(tile, 5, query, c.scale).sum;
        INFO(std::string(ops->name), " ", std::string(name_of(format)), " ", c.nonzero, " of ", c.element, " times ", c.scale);
        CHECK(std::abs(got - expected) <= 1e-6 * std::abs(expected));
      }
    }
  }
}

TEST_SUITE_END();
