// The CPU's tile operations, the vector table that this process dispatched to and the scalar one, against double
// precision.
//
// Which instruction set runs is decided once per process (FP4PA_CPU_TARGET); ctest runs this file's suite once for
// each, see tests.cmake. Every input lies against the end of a mapped page, so that a load past the last row or the
// last scale is a fault and not a matter of luck.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "backends/cpu/tile_ops.hpp"
#include "reference/element.hpp"
#include "tests/attention/tile.hpp"
#include "tests/cache/random.hpp"

using namespace fp4pa;
using cpu::kTileKeys;
using cpu::TileOps;
using tile::scores_of;
using tile::tables;
using tile::Tile;

namespace {

constexpr KvFormat kFormats[] = {KvFormat::kMxfp4,   KvFormat::kNvfp4, KvFormat::kE8m0PerToken,
                                 KvFormat::kFp8E4m3, KvFormat::kBf16,  KvFormat::kF16, KvFormat::kMxfp8};
constexpr float kInf = std::numeric_limits<float>::infinity();

bool is_e4m3(KvFormat format) { return format == KvFormat::kFp8E4m3 || format == KvFormat::kMxfp8; }

/// Whether this machine has one of Highway's instruction sets, asked of the compiler's runtime and not of Highway.
bool cpu_has(const std::string& set) {
#if defined(__x86_64__)
  if (set == "SSE4") return __builtin_cpu_supports("sse4.2");
  if (set == "AVX2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (set == "AVX3") return avx512;
  if (set == "AVX3_DL") {
    return avx512 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi2") &&
           __builtin_cpu_supports("avx512bitalg");
  }
#elif defined(__aarch64__)
  if (set == "NEON") return true;
#endif
  return true;  // a name this test does not know must be a set that runs, or it is a typing error
}

/// An operand form may round a query to 16 bits against its row's largest element (FP4 keys on integer units): half a
/// step of 2^-15 or less in each element, whatever the key.
double query_step(const TileOps& ops, KvFormat format, double amax) {
  return is_fp4(format) && &ops != &cpu::scalar_tile_ops() ? amax / 32512.0 : 0.0;
}

std::vector<float> random_floats(test::Random& random, std::int32_t n) {
  std::vector<float> x;
  for (std::int32_t i = 0; i < n; ++i) x.push_back(static_cast<float>(2.0 * random.uniform() - 1.0));
  return x;
}

}  // namespace

TEST_SUITE_BEGIN("tile_ops");

TEST_CASE("the instruction set that was asked for is the one that runs") {
  const std::string runs = cpu::tile_ops().name;
  MESSAGE("tile operations run on ", runs);
  CHECK(runs != "");
  const char* wanted = std::getenv("FP4PA_CPU_TARGET");
  if (wanted != nullptr && *wanted != '\0') {
    if (cpu_has(wanted)) {
      CHECK(runs == wanted);
    } else {
      MESSAGE("this CPU lacks instruction set ", std::string(wanted));  // tests.cmake reports it as skipped
    }
  }
  CHECK(std::string(cpu::scalar_tile_ops().name) == "SCALAR");
}

TEST_CASE("lane order: a permutation for every format, axis and head size") {
  for (const TileOps* ops : tables()) {
    for (const KvFormat format : kFormats) {
      for (const bool along_tokens : {false, true}) {
        if (along_tokens && format != KvFormat::kMxfp4 && format != KvFormat::kNvfp4) continue;
        for (std::int32_t head_dim = 32; head_dim <= 256; head_dim += 32) {
          std::vector<std::int32_t> order(static_cast<std::size_t>(head_dim), -1);
          ops->lane_order(format, along_tokens, head_dim, order.data());
          std::sort(order.begin(), order.end());
          for (std::int32_t d = 0; d < head_dim; ++d) CHECK(order[static_cast<std::size_t>(d)] == d);
        }
      }
    }
  }
}

TEST_CASE("scores: every format, head size, number of rows and ragged count") {
  test::Random random(11);
  for (const TileOps* ops : tables()) {
    for (const KvFormat format : kFormats) {
      for (std::int32_t head_dim = 32; head_dim <= 256; head_dim += 32) {
        for (std::int32_t rows = 1; rows <= cpu::kMaxRows; ++rows) {
          const std::int32_t counts[] = {1 + random.below(16), 16 * (1 + random.below(kTileKeys / 16)),
                                         1 + random.below(kTileKeys)};
          for (const std::int32_t count : counts) {
            Tile tile(format, head_dim, count);
            tile.fill(random);
            const std::vector<float> query = random_floats(random, rows * head_dim);
            const std::vector<float> got = scores_of(*ops, tile, query, rows);
            double worst = 0.0;
            for (std::int32_t r = 0; r < rows; ++r) {
              const float* q = query.data() + r * head_dim;
              double amax = 0.0;
              for (std::int32_t d = 0; d < head_dim; ++d) amax = std::max(amax, std::abs(double{q[d]}));
              for (std::int32_t t = 0; t < count; ++t) {
                double sum = 0.0, size = 0.0, key = 0.0;
                for (std::int32_t d = 0; d < head_dim; ++d) {
                  const double k = tile.value(t, d);
                  sum += q[d] * k;
                  size += std::abs(q[d] * k);
                  key += std::abs(k);
                }
                const double allowed = 1e-6 * size + query_step(*ops, format, amax) * key + 1e-30;
                const double error = std::abs(double{got[static_cast<std::size_t>(r * kTileKeys + t)]} - sum);
                worst = std::max(worst, std::isnan(error) ? kInf : error / allowed);
              }
            }
            INFO(std::string(ops->name), " ", std::string(name_of(format)), " head_dim ", head_dim, " rows ", rows,
                 " keys ", count);
            CHECK(worst <= 1.0);
          }
        }
      }
    }
  }
}

TEST_CASE("scores: every code of every format, one at a time") {
  for (const TileOps* ops : tables()) {
    for (const KvFormat format : kFormats) {
      const std::int32_t code_count = is_fp4(format) ? 16 : is_e4m3(format) ? 256 : 65536;
      constexpr std::int32_t kDim = 96;
      std::int32_t wrong = 0, nans = 0;
      for (std::int32_t first = 0; first < code_count; first += kTileKeys) {
        Tile tile(format, kDim, std::min(kTileKeys, code_count - first));
        std::memset(tile.codes.data(), 0, tile.codes.size());
        std::memset(tile.scales.data(), format == KvFormat::kNvfp4 ? 0x38 : 127, tile.scales.size());  // 1
        const std::int32_t d = (7 * first / kTileKeys + 5) % kDim;
        for (std::int32_t t = 0; t < tile.rows.count; ++t) {
          const std::int32_t code = first + t;
          auto* row = const_cast<std::uint8_t*>(tile.rows.row[t]);
          if (is_fp4(format)) {
            row[d / 2] = static_cast<std::uint8_t>(code << (4 * (d % 2)));
          } else if (is_e4m3(format)) {
            row[d] = static_cast<std::uint8_t>(code);
          } else {
            row[2 * d] = static_cast<std::uint8_t>(code & 255);
            row[2 * d + 1] = static_cast<std::uint8_t>(code >> 8);
          }
        }
        std::vector<float> query(kDim, 0.0f);
        query[static_cast<std::size_t>(d)] = 1.0f;
        const std::vector<float> got = scores_of(*ops, tile, query, 1);
        for (std::int32_t t = 0; t < tile.rows.count; ++t) {
          const double expected = tile.value(t, d);
          const float score = got[static_cast<std::size_t>(t)];
          if (std::isnan(expected) || std::isinf(expected)) {
            // 0 x inf in the other lanes does not happen: the other elements are zeros.
            nans += 1;
            wrong += std::isnan(expected) ? !std::isnan(score) : score != static_cast<float>(expected);
          } else {
            wrong += std::abs(score - expected) > 1e-6 * std::abs(expected);
          }
        }
      }
      INFO(std::string(ops->name), " ", std::string(name_of(format)));
      CHECK(wrong == 0);
      CHECK(nans == (is_e4m3(format)              ? 2
                     : format == KvFormat::kBf16  ? 256
                     : format == KvFormat::kF16   ? 2048
                                                  : 0));
    }
  }
}

TEST_CASE("scores and outputs: every scale code") {
  for (const TileOps* ops : tables()) {
    for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kE8m0PerToken, KvFormat::kMxfp8}) {
      for (const VScaleAxis axis : {VScaleAxis::kHeadDim, VScaleAxis::kTokens}) {
        if (axis == VScaleAxis::kTokens && format != KvFormat::kMxfp4 && format != KvFormat::kNvfp4) continue;
        constexpr std::int32_t kDim = 64;
        std::vector<std::int32_t> order(kDim);
        ops->lane_order(format, axis == VScaleAxis::kTokens, kDim, order.data());
        for (std::int32_t code = 0; code < 256; ++code) {
          Tile tile(format, kDim, 16, axis);
          std::memset(tile.codes.data(), is_e4m3(format) ? 0x38 : 0x22, tile.codes.size());  // every element 1
          std::memset(tile.scales.data(), code, tile.scales.size());
          const double scale = tile.value(0, 0);
          INFO(std::string(ops->name), " ", std::string(name_of(format)), " along ", std::string(name_of(axis)),
               " scale code ", code);
          // Scaled so that neither the product nor the sum leaves f32.
          const bool large = scale > 1.0;
          const auto close = [&](float got, double expected) {
            return std::isnan(expected) ? std::isnan(got)
                                        : std::abs(got - expected) <= 1e-6 * std::abs(expected) + 0x1p-145;
          };
          if (axis == VScaleAxis::kHeadDim) {
            std::vector<float> query(kDim, 0.0f);
            query[37] = large ? 0x1p-10f : 1.0f;
            CHECK(close(scores_of(*ops, tile, query, 1)[3], scale * query[37]));
          }
          std::vector<float> p(kTileKeys, 0.0f), o(kDim, 0.0f);
          p[5] = large ? 0x1p-10f : 1.0f;
          ops->multiply_probability_value(format, tile.input(), 1.0f, p.data(), 1, o.data());
          for (const std::int32_t d : {0, 17, 63}) {
            CHECK(close(o[static_cast<std::size_t>(order[static_cast<std::size_t>(d)])], scale * p[5]));
          }
        }
      }
    }
  }
}

TEST_CASE("outputs: every format and axis, head size, number of rows, ragged count and multiplier") {
  test::Random random(12);
  for (const TileOps* ops : tables()) {
    for (const KvFormat format : kFormats) {
      for (const VScaleAxis axis : {VScaleAxis::kHeadDim, VScaleAxis::kTokens}) {
        const bool fp4_blocks = format == KvFormat::kMxfp4 || format == KvFormat::kNvfp4;
        if (axis == VScaleAxis::kTokens && !fp4_blocks) continue;
        for (std::int32_t head_dim = 32; head_dim <= 256; head_dim += 32) {
          std::vector<std::int32_t> order(static_cast<std::size_t>(head_dim));
          ops->lane_order(format, axis == VScaleAxis::kTokens, head_dim, order.data());
          for (std::int32_t rows = 1; rows <= cpu::kMaxRows; ++rows) {
            for (const std::int32_t count : {1 + random.below(kTileKeys), kTileKeys}) {
              // Along tokens a tile may begin anywhere in a group, and then touches one group more.
              const std::int32_t first =
                  axis == VScaleAxis::kTokens ? random.below(format == KvFormat::kMxfp4 ? 32 : 16) : 0;
              Tile tile(format, head_dim, count, axis, first);
              tile.fill(random);
              std::vector<float> p = random_floats(random, rows * kTileKeys);
              for (std::int32_t r = 0; r < rows; ++r) {
                // Columns past the end belong to keys that are not there.
                for (std::int32_t t = count; t < kTileKeys; ++t)
                  p[static_cast<std::size_t>(r * kTileKeys + t)] = std::nanf("");
              }
              const float multiplier = random.below(2) == 0 ? 1.0f : 0.37f;
              const std::vector<float> before = random_floats(random, rows * head_dim);
              std::vector<float> o = before;
              ops->multiply_probability_value(format, tile.input(), multiplier, p.data(), rows, o.data());
              double worst = 0.0;
              for (std::int32_t r = 0; r < rows; ++r) {
                for (std::int32_t d = 0; d < head_dim; ++d) {
                  const auto at = static_cast<std::size_t>(r * head_dim + order[static_cast<std::size_t>(d)]);
                  double sum = before[at], size = std::abs(double{before[at]});
                  for (std::int32_t t = 0; t < count; ++t) {
                    const double x =
                        double{multiplier} * p[static_cast<std::size_t>(r * kTileKeys + t)] * tile.value(t, d);
                    sum += x;
                    size += std::abs(x);
                  }
                  const double error = std::abs(o[at] - sum);
                  worst = std::max(worst, std::isnan(error) ? kInf : error / size);
                }
              }
              INFO(std::string(ops->name), " ", std::string(name_of(format)), " along ", std::string(name_of(axis)),
                   " head_dim ", head_dim, " rows ", rows, " keys ", count, " first in group ", first);
              CHECK(worst <= 2e-6);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("outputs: equal values of half a million keys") {
  // Every addition to a sum rounds it to its own steps, and equal terms are all rounded the same way: as many additions as
  // there are keys would be off by 8e-3 here.
  for (const TileOps* ops : tables()) {
    for (const KvFormat format : kFormats) {
      for (const VScaleAxis axis : {VScaleAxis::kHeadDim, VScaleAxis::kTokens}) {
        if (axis == VScaleAxis::kTokens && format != KvFormat::kMxfp4 && format != KvFormat::kNvfp4) continue;
        constexpr std::int32_t kDim = 32, kTiles = 8192;
        Tile tile(format, kDim, kTileKeys, axis);
        // Every element 1: codes of 1 and scales of 1, or two bytes of 1.
        std::memset(tile.codes.data(), is_e4m3(format) ? 0x38 : 0x22, tile.codes.size());
        std::memset(tile.scales.data(), format == KvFormat::kNvfp4 ? 0x38 : 127, tile.scales.size());
        if (format == KvFormat::kBf16 || format == KvFormat::kF16) {
          for (std::size_t i = 0; i < tile.codes.size(); i += 2) {
            tile.codes.data()[i] = format == KvFormat::kBf16 ? 0x80 : 0x00;
            tile.codes.data()[i + 1] = format == KvFormat::kBf16 ? 0x3F : 0x3C;
          }
        }
        REQUIRE(tile.value(7, 7) == 1.0);
        double worst = 0.0;
        for (const float p : {0.6f, 0.601563f, 0.7f}) {
          const std::vector<float> probability(kTileKeys, p);
          std::vector<float> o(kDim, 0.0f);
          for (std::int32_t i = 0; i < kTiles; ++i) {
            ops->multiply_probability_value(format, tile.input(), 1.0f, probability.data(), 1, o.data());
          }
          const double expected = double{p} * kTiles * kTileKeys;
          for (const float x : o) worst = std::max(worst, std::abs(x - expected) / expected);
        }
        INFO(std::string(ops->name), " ", std::string(name_of(format)), " along ", std::string(name_of(axis)));
        CHECK(worst <= 3e-4);
      }
    }
  }
}

TEST_CASE("row operations: maxima, exponentials, sums and scaling") {
  test::Random random(13);
  for (const TileOps* ops : tables()) {
    for (std::int32_t rows = 1; rows <= cpu::kMaxRows; ++rows) {
      std::vector<float> scores;
      for (std::int32_t i = 0; i < rows * kTileKeys; ++i) {
        scores.push_back(random.below(8) == 0 ? -kInf : 60.0f * static_cast<float>(random.uniform()) - 30.0f);
      }
      // A row that sees nothing, and a row that sees one key in the last place.
      const std::int32_t empty = random.below(rows);
      for (std::int32_t t = 0; t < kTileKeys; ++t) scores[static_cast<std::size_t>(empty * kTileKeys + t)] = -kInf;
      std::vector<float> before(static_cast<std::size_t>(rows), -kInf);
      for (float& b : before) b = random.below(2) == 0 ? -kInf : 20.0f;
      before[static_cast<std::size_t>(empty)] = -kInf;
      std::vector<float> max(static_cast<std::size_t>(rows), std::nanf(""));
      ops->row_max(scores.data(), rows, before.data(), max.data());
      INFO(std::string(ops->name), " rows ", rows);
      for (std::int32_t r = 0; r < rows; ++r) {
        float expected = before[static_cast<std::size_t>(r)];
        for (std::int32_t t = 0; t < kTileKeys; ++t)
          expected = std::max(expected, scores[static_cast<std::size_t>(r * kTileKeys + t)]);
        CHECK(max[static_cast<std::size_t>(r)] == expected);
      }

      std::vector<float> p = scores;
      ops->exp2_minus(p.data(), rows, max.data());
      std::vector<float> sum(static_cast<std::size_t>(rows), 0.25f);
      ops->add_row_sums(p.data(), rows, sum.data());
      for (std::int32_t r = 0; r < rows; ++r) {
        double total = 0.25;
        double worst = 0.0;
        for (std::int32_t t = 0; t < kTileKeys; ++t) {
          const auto at = static_cast<std::size_t>(r * kTileKeys + t);
          const double expected =
              r == empty ? 0.0 : std::exp2(double{scores[at]} - double{max[static_cast<std::size_t>(r)]});
          worst = std::max(worst, std::abs(p[at] - expected) / std::max(expected, 1e-30));
          if (expected == 0.0) CHECK(p[at] == 0.0f);
          total += p[at];
        }
        // Arguments to -60: half an ulp of the argument is 2e-6 of the result.
        CHECK(worst <= 4e-6);
        CHECK(std::abs(sum[static_cast<std::size_t>(r)] - total) <= 1e-6 * total);
      }
    }
    for (std::int32_t head_dim = 32; head_dim <= 256; head_dim += 32) {
      const std::vector<float> before = random_floats(random, 3 * head_dim);
      std::vector<float> o = before;
      const float factor[3] = {0.5f, 1.0f, 0.0f};
      ops->scale_rows(o.data(), 3, head_dim, factor);
      for (std::int32_t i = 0; i < 3 * head_dim; ++i) {
        CHECK(o[static_cast<std::size_t>(i)] == before[static_cast<std::size_t>(i)] * factor[i / head_dim]);
      }
    }
  }
}

TEST_CASE("row operations: a NaN score does not vanish, wherever it stands") {
  for (const TileOps* ops : tables()) {
    for (const float before : {-kInf, 0.0f, 9.0f}) {
      std::int32_t lost = 0;
      for (std::int32_t at = 0; at < kTileKeys; ++at) {
        std::vector<float> scores(kTileKeys, 1.0f);
        scores[static_cast<std::size_t>(at)] = std::nanf("");
        float max = 0.0f, sum = 0.0f;
        ops->row_max(scores.data(), 1, &before, &max);
        ops->exp2_minus(scores.data(), 1, &max);
        ops->add_row_sums(scores.data(), 1, &sum);
        lost += std::isnan(sum) ? 0 : 1;
      }
      INFO(std::string(ops->name), " maximum before ", before);
      CHECK(lost == 0);
    }
  }
}

TEST_SUITE_END();
