// gfx942's 64 KiB of LDS: every configuration has an instance whose block fits, and the one that is there for it alone, with a
// single tile of keys, computes what the others do.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/emulator/gfx950_instances.hpp"

namespace {

using namespace fp4pa;

constexpr int kLds = 64 << 10;
constexpr int kLast = hip::kNumInstances - 1;
constexpr KvFormat kFormats[] = {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kE8m0PerToken, KvFormat::kFp8E4m3,
                                 KvFormat::kBf16,  KvFormat::kF16,   KvFormat::kMxfp8};

bool in_16_bits(KvFormat format) { return format == KvFormat::kBf16 || format == KvFormat::kF16; }

/// Whether the instance that a plan for gfx942 gets fits, and which it is.
int chosen(const AttentionConfig& c) {
  const int i = hip::select_fitting(c, false, kLds);
  REQUIRE(i >= 0);
  CHECK(hip::launch_of(hip::kInstances[i], c, kLds).layout.bytes <= kLds);
  return i;
}

/// A drawn configuration with other formats, on the last instance.
void run(std::uint64_t seed, KvFormat k, KvFormat v, VScaleAxis axis, std::int32_t head_dim) {
  grid::Case c = grid::draw(seed);
  c.backend = "cuda";  // which the emulator is
  c.k = k;
  c.v = v;
  c.v_axis = axis;
  c.head_dim = head_dim;
  if (axis == VScaleAxis::kTokens) {
    c.page_size = 32;
    c.window = 0;
  }
  if (static_cast<int>(c.rotation) != 0 && head_dim % static_cast<int>(c.rotation) != 0) c.rotation = Rotation::kNone;
  for (std::int32_t& length : c.kv_lens) length = std::min(length, 300);
  INFO(grid::describe(c));

  grid::Results first;
  for (const emulator::Order order : {emulator::Order::forwards(), emulator::Order::random(seed)}) {
    emulator::Findings findings;
    emulator_test::Setup setup;
    setup.emulation = &emulator_test::kGfx942;
    setup.watch = {order, &findings, nullptr};
    setup.instance = kLast;
    const emulator_test::ScopedSetup scoped(setup);
    grid::Results results;
    const grid::Outcome outcome = grid::run_case(c, grid::Damage::kNone, &results);
    CHECK(emulator_test::current.planned == kLast);
    CHECK(findings.text() == "");
    CHECK(outcome.failure == "");
    if (!outcome.failure.empty()) return;
    CHECK(outcome.error <= (grid::has_bf16_operands(c) ? 8e-3 : 2e-3));
    CHECK(std::min(outcome.lse_error, outcome.lse_excess) <= grid::kContractLseError);
    if (first.bytes.empty()) first = results;
    CHECK(results.bytes == first.bytes);
    CHECK(std::memcmp(results.lse.data(), first.lse.data(), first.lse.size() * sizeof(float)) == 0);
  }
}

}  // namespace

TEST_CASE("gfx942: every format with every head_dim has an instance that fits 64 KiB of LDS") {
  AttentionConfig c;
  c.cache.page_size = 64;
  c.cache.num_pages = c.cache.num_kv_heads = c.num_q_heads = 1;
  int last = 0;
  for (const KvFormat k : kFormats) {
    for (const KvFormat v : kFormats) {
      for (const VScaleAxis axis : {VScaleAxis::kHeadDim, VScaleAxis::kTokens}) {
        if (axis == VScaleAxis::kTokens && v != KvFormat::kMxfp4 && v != KvFormat::kNvfp4) continue;
        for (std::int32_t head_dim = 32; head_dim <= 256; head_dim += 32) {
          for (const std::int32_t q_len : {1, 64}) {
            CAPTURE(std::string(name_of(k)));
            CAPTURE(std::string(name_of(v)));
            CAPTURE(head_dim);
            c.max_q_len = q_len;
            c.cache.k.format = k;
            c.cache.v.format = v;
            c.cache.v.scale_axis = axis;
            c.cache.head_dim = head_dim;
            c.two_tier = false;
            last += chosen(c) == kLast ? 1 : 0;
            if (in_16_bits(k) && in_16_bits(v)) CHECK((chosen(c) == kLast) == (head_dim > 128));
            // Behind it a recent tier in any format that one may have.
            c.two_tier = true;
            c.recent = c.cache;
            c.recent.v.scale_axis = VScaleAxis::kHeadDim;
            for (const KvFormat recent_k : kFormats) {
              for (const KvFormat recent_v : kFormats) {
                if (has_scales(recent_k) || has_scales(recent_v)) continue;
                c.recent.k.format = recent_k;
                c.recent.v.format = recent_v;
                chosen(c);
              }
            }
          }
        }
      }
    }
  }
  CHECK(last > 0);
}

TEST_CASE("gfx942: an instance for a recent tier takes no format with scales") {
  AttentionConfig c;
  c.cache.page_size = 64;
  c.cache.head_dim = 128;
  c.cache.num_pages = c.cache.num_kv_heads = c.num_q_heads = c.max_q_len = 1;
  c.two_tier = true;
  c.recent = c.cache;
  c.recent.k.format = c.recent.v.format = KvFormat::kBf16;
  CHECK(hip::serves(hip::kInstances[kLast], c));
  for (const KvFormat format : kFormats) {
    c.recent.v.format = format;
    CHECK(hip::serves(hip::kInstances[kLast], c) == !has_scales(format));
  }
}

TEST_CASE("gfx942: the instance with a single tile, on the emulator") {
  std::uint64_t seed = 942000;
  for (const std::int32_t head_dim : {160, 192, 224, 256}) {
    constexpr auto kBf16 = KvFormat::kBf16, kF16 = KvFormat::kF16;
    for (const auto& [k, v] : {std::pair{kBf16, kBf16}, {kF16, kF16}, {kF16, kBf16}}) {
      for (int n = 0; n < 2; ++n) run(seed++, k, v, VScaleAxis::kHeadDim, head_dim);
    }
  }
  // With scales, which arrive in the tile when it is waited for.
  for (const std::int32_t head_dim : {96, 256}) {
    for (const KvFormat format : kFormats) {
      run(seed++, format, format, VScaleAxis::kHeadDim, head_dim);
      run(seed++, KvFormat::kBf16, format, VScaleAxis::kHeadDim, head_dim);
    }
    run(seed++, KvFormat::kBf16, KvFormat::kMxfp4, VScaleAxis::kTokens, head_dim);
    run(seed++, KvFormat::kNvfp4, KvFormat::kNvfp4, VScaleAxis::kTokens, head_dim);
  }
}
