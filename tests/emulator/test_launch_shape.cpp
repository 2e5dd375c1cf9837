// How many warps CUDA's workers have, how many workers its blocks, and whether blocks share units: cuda/launch_shape.hpp, for an H200.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "core/simt/describe.hpp"
#include "cuda/launch_shape.hpp"
#include "fp4pa/cache.hpp"
#include "tests/cache/random.hpp"

namespace {

using namespace fp4pa;

constexpr api::PlannedDevice kH200{90, 132, 227 * 1024};

AttentionConfig config_of(KvFormat format, std::int32_t batch, std::int32_t heads, std::int32_t kv_heads, std::int32_t keys,
                          std::int32_t head_dim = 128) {
  AttentionConfig c;
  c.cache.k.format = c.cache.v.format = format;
  c.cache.num_kv_heads = kv_heads;
  c.cache.head_dim = head_dim;
  c.cache.page_size = 64;
  c.cache.num_pages = 1;
  set_dense_strides(c.cache, PageOrder::kHnd);
  c.num_q_heads = heads;
  c.q_dtype = c.o_dtype = DType::kBF16;
  c.max_batch = c.max_q_tokens = batch;
  c.max_q_len = 1;
  c.max_kv_len = keys;
  return c;
}

cuda::LaunchShape shape_of(const AttentionConfig& c) {
  const int variant = cuda::select_variant(c, kH200.architecture);
  REQUIRE(variant >= 0);
  return cuda::launch_shape(variant, c, kH200);
}

}  // namespace

TEST_CASE("the log says which kernel serves a plan") {
  const auto words = [](const AttentionConfig& c) {
    char text[128];
    core::describe(cuda::shape_of(cuda::select_variant(c, kH200.architecture)), text, sizeof text);
    return std::string(text);
  };
  AttentionConfig c = config_of(KvFormat::kMxfp4, 4, 32, 8, 4096);
  CHECK(words(c) == "K mxfp4, V mxfp4, head_dim 128, plain");
  c.softcap = 30.0f;
  CHECK(words(c) == "K mxfp4, V mxfp4, head_dim 128");
  c.cache.v.format = KvFormat::kF16;
  CHECK(words(c) == "K any, V any, head_dim up to 256");
}

TEST_CASE("workers are as large as makes units come out even, and fill a multiprocessor") {
  constexpr std::int32_t K = 1024;
  struct Row {
    KvFormat format;
    std::int32_t batch, heads, kv_heads, keys;
    int warps, workers;
    bool even;
  };
  for (const Row& r : {
           Row{KvFormat::kMxfp4, 64, 64, 8, 8 * K, 4, 4, true},    // 512 units on 528 workers
           Row{KvFormat::kMxfp4, 32, 32, 8, 8 * K, 8, 2, true},    // 256 on 264
           Row{KvFormat::kMxfp4, 128, 32, 8, 2 * K + 1, 2, 8, true},  // 1024 on 1056
           Row{KvFormat::kMxfp4, 8, 64, 8, 32 * K, 8, 2, true},    // 64 units in four parts on 264
           Row{KvFormat::kMxfp4, 1, 32, 8, 128 * K, 16, 1, true},  // 8 in 16 parts, which merge sooner than 33
           Row{KvFormat::kNvfp4, 16, 32, 32, 8 * K, 4, 4, true},
           Row{KvFormat::kMxfp4, 40, 32, 8, 8 * K, 3, 5, true},    // 320 in two parts on 660
           Row{KvFormat::kMxfp4, 37, 32, 8, 8 * K, 4, 4, true},   // 296: nothing comes out even enough
           Row{KvFormat::kFp8E4m3, 64, 64, 8, 8 * K, 2, 4, true},  // eight warps a multiprocessor
           Row{KvFormat::kFp8E4m3, 32, 32, 8, 8 * K, 4, 2, true},
           Row{KvFormat::kBf16, 64, 64, 8, 8 * K, 6, 1, false},    // six
       }) {
    CAPTURE(r.batch);
    CAPTURE(static_cast<int>(r.format));
    const cuda::LaunchShape shape = shape_of(config_of(r.format, r.batch, r.heads, r.kv_heads, r.keys));
    CHECK(shape.launch.warps == r.warps);
    CHECK(shape.launch.workers == r.workers);
    CHECK(shape.may_be_even == r.even);
    CHECK(shape.finds);
    CHECK(shape.sharers == 0);
    CHECK(shape.overhead_tiles == 10 * r.warps / 4);
  }
}

TEST_CASE("a second term beside the first takes no room: rotated calls of 4 rows are launched as others") {
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    CAPTURE(static_cast<int>(format));
    for (const auto& [batch, heads, keys] : {std::tuple{32, 32, 8192}, {128, 32, 2048}, {1, 32, 131072}, {16, 8, 8192}, {1, 32, 1024}}) {
      CAPTURE(batch);
      AttentionConfig c = config_of(format, batch, heads, 8, keys);
      const cuda::LaunchShape plain = shape_of(c);
      c.cache.rotation = Rotation::kHadamard128;
      CHECK(cuda::shape_of(cuda::select_variant(c, 90)).side_by_side == core::SideBySide::kTerms);
      const cuda::LaunchShape rotated = shape_of(c);
      CHECK(rotated.launch.warps == plain.launch.warps);
      CHECK(rotated.launch.workers == plain.launch.workers);
      CHECK(rotated.launch.layout.bytes <= plain.launch.layout.bytes);
      CHECK(rotated.sharers == plain.sharers);
      CHECK(rotated.may_be_even == plain.may_be_even);
    }
  }
}

TEST_CASE("few and short units are shared, and others have a schedule, by workers as they were made") {
  const cuda::LaunchShape few = shape_of(config_of(KvFormat::kMxfp4, 1, 32, 8, 1024));
  CHECK(few.sharers == 8);
  CHECK(!few.finds);
  CHECK(few.launch.warps == 4);
  CHECK(few.launch.workers == 1);
  CHECK(shape_of(config_of(KvFormat::kMxfp4, 1, 32, 8, 8 * 1024)).sharers == 8);
  CHECK(shape_of(config_of(KvFormat::kMxfp4, 1, 32, 8, 8 * 1024 + 1)).sharers == 0);
  CHECK(shape_of(config_of(KvFormat::kMxfp4, 16, 32, 8, 4 * 1024)).sharers == 2);
  CHECK(shape_of(config_of(KvFormat::kMxfp4, 16, 32, 8, 4 * 1024 + 1)).sharers == 0);
  const cuda::LaunchShape many = shape_of(config_of(KvFormat::kMxfp4, 1000, 32, 8, 1024));
  CHECK(many.sharers == 0);
  CHECK(!many.finds);
  CHECK(!many.may_be_even);
  CHECK(many.launch.warps == 4);
  CHECK(many.launch.workers == 4);
  AttentionConfig fixed = config_of(KvFormat::kMxfp4, 64, 64, 8, 8192);
  fixed.batch_invariant = true;
  CHECK(!shape_of(fixed).finds);
  CHECK(shape_of(fixed).launch.warps == 4);
}

TEST_CASE("splits that leave every unit whole want no schedule and no merge") {
  struct Row {
    std::int32_t batch, heads, kv_heads, keys, split;
    bool invariant;
    bool whole;
    int warps, workers;
  };
  for (const Row& r : {
           Row{64, 64, 8, 8192, 8192, false, true, 4, 4},
           Row{32, 32, 8, 8192, 1 << 20, false, true, 8, 2},
           Row{128, 32, 8, 2048, 2048, false, true, 2, 8},
           Row{1, 32, 8, 4096, 4096, false, true, 16, 1},    // 8 workers have something to do, and are as large as they can be
           Row{300, 32, 8, 1024, 1024, false, true, 4, 4},   // 2400 units in five rounds of 528
           Row{64, 64, 8, 8193, 8192, false, false, 4, 4},
           Row{64, 64, 8, 2048, 0, true, true, 4, 4},        // as many warps as in any other batch
           Row{128, 32, 8, 2048, 0, true, true, 4, 4},
           Row{600, 32, 8, 1024, 1024, false, false, 4, 4},  // too many sequences for workers that find their places
       }) {
    CAPTURE(r.batch);
    CAPTURE(r.split);
    AttentionConfig c = config_of(KvFormat::kMxfp4, r.batch, r.heads, r.kv_heads, r.keys);
    c.kv_split_tokens = r.split;
    c.batch_invariant = r.invariant;
    const cuda::LaunchShape shape = shape_of(c);
    CHECK(shape.whole == r.whole);
    CHECK(shape.finds == r.whole);
    CHECK(shape.sharers == 0);
    CHECK(shape.launch.warps == r.warps);
    CHECK(shape.launch.workers == r.workers);
  }
}

TEST_CASE("plain instances are for rows of K and V that lie alike") {
  const auto plain = [](const AttentionConfig& c) {
    const int variant = cuda::select_variant(c, kH200.architecture);
    REQUIRE(variant >= 0);
    return cuda::shape_of(variant).plain;
  };
  const AttentionConfig alike = config_of(KvFormat::kMxfp4, 4, 32, 8, 8192);
  CHECK(plain(alike));
  using Stride = std::int64_t KvTensorDesc::*;
  for (const Stride stride : {&KvTensorDesc::page_stride_bytes, &KvTensorDesc::token_stride_bytes, &KvTensorDesc::scale_page_stride_bytes,
                              &KvTensorDesc::scale_token_stride_bytes}) {
    AttentionConfig c = alike;
    c.cache.v.*stride += 64;
    CHECK(!plain(c));
    c.cache.k.*stride += 64;
    CHECK(plain(c));
  }
  AttentionConfig along_tokens = alike;  // where V has scale rows of another kind
  along_tokens.cache.v.scale_axis = VScaleAxis::kTokens;
  set_dense_strides(along_tokens.cache, PageOrder::kHnd);
  CHECK(along_tokens.cache.v.scale_token_stride_bytes != along_tokens.cache.k.scale_token_stride_bytes);
  CHECK(plain(along_tokens));
}

TEST_CASE("a launch fits its device, and the bounds its kernel is compiled with") {
  ::test::Random random(3);
  constexpr KvFormat kFormats[] = {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kFp8E4m3, KvFormat::kBf16, KvFormat::kF16};
  constexpr std::int32_t kDims[] = {64, 96, 128, 256};
  constexpr DType kQueries[] = {DType::kBF16, DType::kF16, DType::kF32};
  constexpr api::PlannedDevice kDevices[] = {kH200, {80, 108, 163 * 1024}, {89, 72, 99 * 1024}, {90, 78, 227 * 1024}, {120, 170, 99 * 1024}};
  int several = 0;
  int native = 0;
  int long_prompts = 0;
  for (int i = 0; i < 2000; ++i) {
    AttentionConfig c = config_of(kFormats[random.below(5)], 1 + random.below(200), 32, 1 << random.below(6), 1 + random.below(1 << 16),
                                  kDims[random.below(4)]);
    c.softcap = random.below(4) == 0 ? 30.0f : 0.0f;
    c.q_dtype = kQueries[random.below(3)];
    c.max_q_len = random.below(2) == 0 ? 1 : 1 + random.below(512);
    if (random.below(4) == 0) {
      c.two_tier = true;
      c.recent = c.cache;
      c.recent.k.format = c.recent.v.format = random.below(2) == 0 ? KvFormat::kBf16 : KvFormat::kF16;
    }
    if (is_fp4(c.cache.v.format) && random.below(3) == 0) c.cache.v.scale_axis = VScaleAxis::kTokens;
    const api::PlannedDevice& d = kDevices[random.below(5)];
    const int variant = cuda::select_variant(c, d.architecture, d.shared_bytes);
    REQUIRE(variant >= 0);
    const cuda::LaunchShape shape = cuda::launch_shape(variant, c, d);
    const core::SimtConfig& instance = cuda::shape_of(variant);
    CHECK(shape.launch.shared_bytes() <= d.shared_bytes);
    const core::SharedLayout& layout = shape.launch.layout;
    CHECK(layout.query - layout.aside >= (cuda::keeps_items_aside(variant) ? simt::kAsideBytes : 0));
    native += cuda::is_native(variant) && cuda::keeps_items_aside(variant) ? 1 : 0;
    if (core::divides_rows(instance)) {
      CHECK(shape.launch.warps == instance.warps);
      CHECK(shape.launch.workers == 1);
      ++long_prompts;
      continue;
    }
    const int most = simt::most_warps(instance, d.architecture);
    const int blocks = shape.sharers != 0 ? cuda::resident_blocks(variant, shape.launch, d) : 1;
    CHECK(shape.launch.warps >= 1);
    CHECK(shape.launch.workers >= 1);
    CHECK(shape.launch.workers <= 15);  // a barrier each, and one for all
    CHECK(shape.launch.warps * shape.launch.workers * blocks <= most);
    CHECK(blocks * (core::round_up_to(shape.launch.shared_bytes(), 1024) + 1024) <= d.shared_bytes + 1024);
    several += shape.launch.warps != instance.warps ? 1 : 0;
  }
  CHECK(several > 100);
  CHECK(native > 20);
  CHECK(long_prompts > 300);
}

TEST_CASE("prompts have tiles of many rows whatever the cache, where the device has room") {
  AttentionConfig c = config_of(KvFormat::kMxfp4, 1, 32, 8, 8192);
  c.max_q_len = 8192;
  const auto rows = [&](const api::PlannedDevice& d) {
    return simt::rows_of(cuda::shape_of(cuda::select_variant(c, d.architecture, d.shared_bytes)));
  };
  const auto terms = [](const AttentionConfig& of) {
    return core::query_terms(of.q_dtype, of.cache.rotation, sm80::decodes_to_bf16(simt::kind_of(of.cache.k)));
  };
  constexpr api::PlannedDevice kSm80{80, 108, 163 * 1024};
  constexpr api::PlannedDevice kSm89{89, 72, 99 * 1024};
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    c.cache.k.format = c.cache.v.format = format;
    for (const DType q_dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      c.q_dtype = q_dtype;
      CHECK(rows(kH200) == 128);
      // f16 queries are two terms beside MXFP4's keys decoded to bf16, which takes longer than passes beside keys decoded to f16.
      const bool passes = terms(c) == 2 && q_dtype == DType::kF16;
      CHECK(rows(kSm80) == (passes ? 32 : 128));
      // Queries of two terms leave too little room beside decoded tiles.
      CHECK(rows(kSm89) >= (terms(c) == 1 ? 128 : 16));
      c.cache.v.scale_axis = VScaleAxis::kTokens;
      CHECK(rows(kH200) == 128);
      CHECK(rows(kSm80) == 128);
      c.cache.v.scale_axis = VScaleAxis::kHeadDim;
      c.two_tier = true;
      c.recent = c.cache;
      c.recent.k.format = c.recent.v.format = KvFormat::kBf16;
      CHECK(rows(kH200) == 128);
      CHECK(cuda::is_sm90(cuda::select_variant(c, 90)));
      CHECK(rows(kSm80) == 128);
      c.recent.k.format = c.recent.v.format = KvFormat::kF16;
      CHECK(rows(kH200) == 64);
      CHECK(rows(kSm80) == 64);
      c.two_tier = false;
    }
  }
  // Formats that differ, and head_dims of no other kernel.
  c.q_dtype = DType::kBF16;
  c.cache.v.format = KvFormat::kFp8E4m3;
  CHECK(rows(kH200) == 64);
  CHECK(rows(kSm80) == 64);
  CHECK(rows(kSm89) == 64);
  c.cache.v.format = c.cache.k.format = KvFormat::kF16;
  c.cache.head_dim = 192;
  CHECK(rows(kH200) == 64);
  CHECK(rows(kSm80) == 64);
  // Two passes over BF16 take longer than the products of 128 rows.
  c.cache.v.format = c.cache.k.format = KvFormat::kBf16;
  c.cache.head_dim = 64;
  c.max_q_len = 16;
  CHECK(rows(kH200) == 128);
  for (const int q_len : {4, 8}) {
    c.max_q_len = q_len;
    CHECK(rows(kH200) == 32);
  }
  c.max_q_len = 8192;
  c.cache.v.format = c.cache.k.format = KvFormat::kF16;
  c.cache.head_dim = 128;
  CHECK(rows(kH200) == 128);
  CHECK(rows(kSm80) == 128);
  CHECK(rows(kSm89) == 128);
  // A scale per token; FP8 keys beside NVFP4 values; head_dim 96.
  for (const KvFormat format : {KvFormat::kE8m0PerToken, KvFormat::kNvfp4}) {
    c.cache.v.format = c.cache.k.format = format;
    if (format == KvFormat::kNvfp4) c.cache.k.format = KvFormat::kFp8E4m3;
    CHECK(cuda::is_sm90(cuda::select_variant(c, 90)));
    for (const api::PlannedDevice& d : {kH200, kSm80, kSm89}) CHECK(rows(d) == 128);
  }
  c.cache.head_dim = 96;
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kFp8E4m3, KvFormat::kBf16}) {
    c.cache.v.format = c.cache.k.format = format;
    for (const api::PlannedDevice& d : {kH200, kSm80, kSm89}) CHECK(rows(d) == 128);
  }
  // One format at any head_dim of kernels for few rows; off sm_90a these are as fast as any for many in some.
  const auto few_suffice = [](KvFormat format, int head_dim) {
    return head_dim == 256 || (head_dim == 64 && format != KvFormat::kBf16);
  };
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kFp8E4m3, KvFormat::kBf16}) {
    c.cache.v.format = c.cache.k.format = format;
    for (const int head_dim : {64, 128, 256}) {
      CAPTURE(std::string(name_of(format)));
      CAPTURE(head_dim);
      c.cache.head_dim = head_dim;
      for (const float softcap : {0.0f, 50.0f}) {
        c.softcap = softcap;
        CHECK(rows(kH200) == 128);
        CHECK(cuda::is_sm90(cuda::select_variant(c, 90)));
        CHECK((rows(kSm80) == 128) != few_suffice(format, head_dim));
        // In 99 KB tiles of FP8 at 128 find no room.
        const bool has_room = head_dim < 128 || format != KvFormat::kFp8E4m3;
        CHECK((rows(kSm89) == 128) == (has_room && !few_suffice(format, head_dim)));
      }
    }
  }
}
