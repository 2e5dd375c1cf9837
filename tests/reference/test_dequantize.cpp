// The reference's decoding against values written down from the specifications, and its addresses against caches laid
// out by hand.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/call.hpp"
#include "reference/metrics.hpp"

namespace ref = fp4pa::reference;
using fp4pa::KvFormat;

TEST_CASE("elements: known codes") {
  CHECK(ref::decode_e2m1(0x1) == 0.5);
  CHECK(ref::decode_e2m1(0x7) == 6.0);
  CHECK(ref::decode_e2m1(0xD) == -3.0);
  CHECK(std::signbit(ref::decode_e2m1(0x8)));
  CHECK(ref::decode_e8m0(127) == 1.0);
  CHECK(ref::decode_e8m0(0) == std::ldexp(1.0, -127));
  CHECK(ref::decode_e8m0(254) == std::ldexp(1.0, 127));
  CHECK(std::isnan(ref::decode_e8m0(255)));
  CHECK(ref::decode_e4m3(0x38) == 1.0);
  CHECK(ref::decode_e4m3(0x7E) == 448.0);
  CHECK(ref::decode_e4m3(0x01) == std::ldexp(1.0, -9));
  CHECK(ref::decode_e4m3(0x08) == std::ldexp(1.0, -6));
  CHECK(ref::decode_e4m3(0xC4) == -3.0);
  CHECK(std::isnan(ref::decode_e4m3(0x7F)));
  CHECK(std::isnan(ref::decode_e4m3(0xFF)));
  CHECK(ref::decode_f16(0x3C00) == 1.0);
  CHECK(ref::decode_f16(0xFBFF) == -65504.0);
  CHECK(ref::decode_f16(0x0001) == std::ldexp(1.0, -24));
  CHECK(ref::decode_f16(0x7C00) == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(ref::decode_f16(0x7E00)));
  CHECK(ref::decode_bf16(0x3F80) == 1.0);
  CHECK(ref::decode_bf16(0xC049) == -3.140625);
}

namespace {

/// Two pages of four tokens, two heads of 32: every byte named by its own number, so that an address is a value.
struct Numbered {
  std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(4096), scales = std::vector<std::uint8_t>(4096);
  fp4pa::KvCacheDesc cache;

  explicit Numbered(KvFormat format) {
    cache.num_kv_heads = 2;
    cache.head_dim = 32;
    cache.page_size = 64;
    cache.num_pages = 2;
    cache.k.format = format;
    cache.k.data = codes.data();
    cache.k.page_stride_bytes = 1024;
    cache.k.token_stride_bytes = 16;
    cache.k.head_stride_bytes = 512;
    cache.k.scales = scales.data();
    cache.k.scale_page_stride_bytes = 1000;
    cache.k.scale_token_stride_bytes = 7;
    cache.k.scale_head_stride_bytes = 300;
  }
  [[nodiscard]] double at(std::int64_t page, std::int32_t row, std::int32_t head, std::int32_t column) const {
    return ref::element(cache.k, cache.head_dim, {&cache, page, row}, head, column);
  }
};

}  // namespace

TEST_CASE("dequantize: MXFP4 finds its nibble and its scale") {
  Numbered n(KvFormat::kMxfp4);
  n.codes[1024 + 3 * 16 + 512 + 5] = 0x2D;  // page 1, row 3, head 1, elements 10 and 11: -3 and 1
  n.scales[1000 + 3 * 7 + 300] = 129;
  CHECK(n.at(1, 3, 1, 10) == -12.0);
  CHECK(n.at(1, 3, 1, 11) == 4.0);
}

TEST_CASE("dequantize: NVFP4 scales by sixteen and by the tensor") {
  Numbered n(KvFormat::kNvfp4);
  n.cache.k.global_scale = 0.25f;
  n.codes[2 * 16] = 0x07;
  n.codes[2 * 16 + 8] = 0x07;  // element 16: the second group
  n.scales[2 * 7] = 0x38;
  n.scales[2 * 7 + 1] = 0x40;
  CHECK(n.at(0, 2, 0, 0) == 1.5);
  CHECK(n.at(0, 2, 0, 16) == 3.0);
  n.scales[2 * 7] = 0xB8;  // UE4M3: the bit of a sign is none
  CHECK(n.at(0, 2, 0, 0) == 1.5);
  const float per_head[] = {2.0f, 8.0f};
  n.cache.k.global_scale_ptr = per_head;
  CHECK(n.at(0, 2, 0, 0) == 12.0);  // one value for all heads, and it replaces the description's
  n.cache.k.global_scale_per_head = true;
  n.codes[512 + 2 * 16] = 0x07;
  n.scales[300 + 2 * 7] = 0x38;
  CHECK(n.at(0, 2, 1, 0) == 48.0);
}

TEST_CASE("dequantize: one scale per token, FP8 and the 16-bit formats") {
  Numbered token(KvFormat::kE8m0PerToken);
  token.codes[16] = 0x71;
  token.codes[16 + 15] = 0x90;
  token.scales[7] = 126;
  CHECK(token.at(0, 1, 0, 0) == 0.25);
  CHECK(token.at(0, 1, 0, 1) == 3.0);
  CHECK(token.at(0, 1, 0, 31) == -0.25);
  Numbered fp8(KvFormat::kFp8E4m3);
  fp8.cache.k.global_scale = 2.0f;
  fp8.codes[16 + 3] = 0x38;
  CHECK(fp8.at(0, 1, 0, 3) == 2.0);
  Numbered bf16(KvFormat::kBf16);
  bf16.codes[16 + 5] = 0x3F;  // low byte 0x80 of element 2 at byte 4
  bf16.codes[16 + 4] = 0x80;
  CHECK(bf16.at(0, 1, 0, 2) == 1.0);
}

TEST_CASE("dequantize: along tokens a group shares a scale for each column") {
  Numbered mx(KvFormat::kMxfp4);
  mx.cache.k.scale_axis = fp4pa::VScaleAxis::kTokens;
  for (const int row : {31, 32}) mx.codes[static_cast<std::size_t>(row * 16 + 4)] = 0x20;  // element 9 is 1
  mx.scales[9] = 128;                                                                      // rows 0 to 31
  mx.scales[7 + 9] = 130;                                                                  // rows 32 to 63
  CHECK(mx.at(0, 31, 0, 9) == 2.0);
  CHECK(mx.at(0, 32, 0, 9) == 8.0);
  Numbered nv(KvFormat::kNvfp4);
  nv.cache.k.scale_axis = fp4pa::VScaleAxis::kTokens;
  for (const int row : {15, 16}) nv.codes[static_cast<std::size_t>(row * 16 + 4)] = 0x20;
  nv.scales[9] = 0x38;
  nv.scales[7 + 9] = 0x40;
  CHECK(nv.at(0, 15, 0, 9) == 1.0);
  CHECK(nv.at(0, 16, 0, 9) == 2.0);
}

TEST_CASE("places: block table, CSR and the ring of two tiers") {
  fp4pa::AttentionConfig config;
  config.cache.page_size = 4;
  fp4pa::AttentionArgs args;
  const std::int32_t lens[] = {9, 30}, table[] = {5, 6, 7, -1, 11, 12, 13, 14}, indptr[] = {0, 3, 7},
                     indices[] = {1, 2, 3, 21, 22, 23, 24}, ring[] = {40, 41, 42, 50, 51, 52};
  args.seq_lens = lens;
  args.block_table = table;
  args.table_stride = 4;
  args.kv_indptr = indptr;
  args.kv_indices = indices;
  args.recent_table = ring;
  CHECK(ref::place_of(config, args, 0, 8).page == 7);
  CHECK(ref::place_of(config, args, 1, 5).page == 12);
  CHECK(ref::place_of(config, args, 1, 5).row == 1);
  config.table_kind = fp4pa::TableKind::kCsr;
  CHECK(ref::place_of(config, args, 1, 5).page == 22);

  config.two_tier = true;
  config.window_tokens = 16;
  config.group_tokens = 4;
  config.recent.page_size = 8;
  config.ring_pages = 3;
  // 30 tokens, window 16, groups of 4: three whole groups have left, tokens 12 to 29 are recent.
  CHECK(ref::old_tokens(30, 16, 4) == 12);
  CHECK(ref::place_of(config, args, 1, 11).cache == &config.cache);
  CHECK(ref::place_of(config, args, 1, 11).page == 23);
  const ref::Place first = ref::place_of(config, args, 1, 12), last = ref::place_of(config, args, 1, 29);
  CHECK(first.cache == &config.recent);
  CHECK(first.page == 51);  // 12 / 8 = 1
  CHECK(first.row == 4);
  CHECK(last.page == 50);  // 29 / 8 = 3, around the ring
  CHECK(last.row == 5);
  CHECK(ref::place_of(config, args, 0, 0).page == 40);  // shorter than the window: everything is recent
}

TEST_CASE("old_tokens: at least the window stays, and less than a group more") {
  for (const int window : {16, 17, 64}) {
    for (const int group : {1, 3, 16, 32}) {
      for (int length = 0; length < 300; ++length) {
        const int old = ref::old_tokens(length, window, group);
        CHECK(old % group == 0);
        CHECK((old == 0 || length - old >= window));
        CHECK((length <= window ? old == 0 : length - old < window + group));
        CHECK(old == fp4pa::quantised_tokens(length, window, group));
      }
    }
  }
}

TEST_CASE("rotation: the matrix by hand, orthonormal, block by block") {
  std::vector<double> row(32, 0.0);
  row[1] = 4.0;   // column 1 of H16: signs alternate, over sqrt(16)
  row[16] = 8.0;  // column 0 in the second block
  ref::rotate(row, fp4pa::Rotation::kHadamard16);
  for (int i = 0; i < 16; ++i) CHECK(row[static_cast<std::size_t>(i)] == (i % 2 == 0 ? 1.0 : -1.0));
  for (int i = 16; i < 32; ++i) CHECK(row[static_cast<std::size_t>(i)] == 2.0);
  for (const auto rotation : {fp4pa::Rotation::kHadamard16, fp4pa::Rotation::kHadamard32, fp4pa::Rotation::kHadamard64,
                              fp4pa::Rotation::kHadamard128}) {
    std::vector<double> x(128);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i));
    std::vector<double> y = x;
    ref::rotate(y, rotation);
    CHECK(ref::dot(x.data(), x.data(), 128) == doctest::Approx(ref::dot(y.data(), y.data(), 128)).epsilon(1e-14));
    CHECK(std::abs(y[5] - x[5]) > 1e-3);
    ref::rotate(y, rotation);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(y[i] == doctest::Approx(x[i]).epsilon(1e-12));
  }
}

TEST_CASE("metrics: figures by hand, and nothing that garbage could satisfy") {
  ref::Difference d;
  d.add(3.0, 4.0);
  d.add(0.0, 3.0);
  CHECK(d.relative() == doctest::Approx(std::sqrt(10.0) / 5.0));
  CHECK(d.cosine() == doctest::Approx(12.0 / (3.0 * 5.0)));
  CHECK(d.max_abs() == 3.0);
  ref::Difference other;
  other.add(1.0, 1.0);
  d.merge(other);
  CHECK(d.relative() == doctest::Approx(std::sqrt(10.0 / 26.0)));

  const double inf = std::numeric_limits<double>::infinity();
  ref::Difference zero;
  zero.add(0.0, 0.0);
  CHECK(zero.relative() == 0.0);
  CHECK(zero.cosine() == 1.0);
  zero.add(1e-30, 0.0);
  CHECK(zero.relative() == inf);
  for (const double bad : {std::nan(""), inf}) {
    ref::Difference broken;
    broken.add(bad, 1.0);
    CHECK(broken.relative() == inf);
    CHECK(broken.max_abs() == inf);
    CHECK(broken.cosine() == -inf);
  }
  CHECK(ref::lse_difference(-inf, -inf) == 0.0);
  CHECK(ref::lse_difference(-inf, 0.0) == inf);
  CHECK(ref::lse_difference(std::nan(""), 0.0) == inf);
  CHECK(ref::lse_difference(std::nan(""), std::nan("")) == inf);
  CHECK(ref::lse_difference(1.5, 1.0) == 0.5);
}
