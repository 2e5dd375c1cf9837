// validate(KvCacheDesc): every documented failure, its code, and a sentence with the value and what is allowed.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tests/api/small_cache.hpp"

using namespace fp4pa;
using test::Bytes;
using test::SmallCache;

TEST_CASE("every format, and every pair of formats, is accepted as laid out by the helpers") {
  const KvFormat formats[] = {KvFormat::kMxfp4,  KvFormat::kNvfp4, KvFormat::kE8m0PerToken,
                              KvFormat::kFp8E4m3, KvFormat::kBf16,  KvFormat::kF16, KvFormat::kMxfp8};
  for (const KvFormat k : formats) {
    for (const KvFormat v : formats) {
      SmallCache cache(k, v);
      INFO(name_of(k), " ", name_of(v), ": ", last_error_detail());
      CHECK(validate(cache.desc) == Status::kOk);
    }
  }
  CHECK(validate(SmallCache(KvFormat::kBf16, KvFormat::kMxfp4, VScaleAxis::kTokens).desc) == Status::kOk);
  CHECK(validate(SmallCache(KvFormat::kBf16, KvFormat::kNvfp4, VScaleAxis::kTokens).desc) == Status::kOk);
}

TEST_CASE("head_dim") {
  SmallCache cache;
  for (const std::int32_t bad : {48, 0, -32, 16, 288}) {
    cache.desc.head_dim = bad;
    FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedHeadDim, "head_dim is ", std::to_string(bad).c_str(),
                        "multiples of 32 from 32 to 256");
  }
}

TEST_CASE("num_kv_heads") {
  SmallCache cache;
  for (const std::int32_t bad : {0, -1}) {
    cache.desc.num_kv_heads = bad;
    FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidSize, "num_kv_heads is ", std::to_string(bad).c_str(),
                        "at least 1");
  }
}

TEST_CASE("page_size") {
  SmallCache cache;
  for (const std::int32_t bad : {0, -16, 1025}) {
    cache.desc.page_size = bad;
    FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidSize, "page_size is ", std::to_string(bad).c_str(),
                        "1 to 1024");
  }
}

TEST_CASE("num_pages") {
  SmallCache cache;
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 31}) {
    cache.desc.num_pages = bad;
    FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidSize, "num_pages is ", std::to_string(bad).c_str(),
                        "1 to 2147483647");
  }
}

TEST_CASE("rotation outside the enum") {
  SmallCache cache;
  cache.desc.rotation = static_cast<Rotation>(24);
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "rotation is 24", "16, 32, 64, 128");
}

TEST_CASE("rotation that does not divide head_dim") {
  SmallCache cache;
  cache.desc.rotation = Rotation::kHadamard128;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "rotation is 128", "head_dim 64", "allowed");
  cache.desc.rotation = Rotation::kHadamard64;
  CHECK(validate(cache.desc) == Status::kOk);
}

TEST_CASE("scale_mode outside the enum") {
  SmallCache cache;
  cache.desc.scale_mode = static_cast<ScaleMode>(4);
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "scale_mode is 4", "floor", "even");
}

TEST_CASE("nvfp4_scale outside the enum") {
  SmallCache cache;
  cache.desc.nvfp4_scale = static_cast<Nvfp4Scale>(-1);
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "nvfp4_scale is -1", "four_over_six");
}

TEST_CASE("format outside the enum, of K and of V") {
  SmallCache cache;
  cache.desc.k.format = static_cast<KvFormat>(7);
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "k.format is 7", "mxfp4", "mxfp8");
  cache.desc.k.format = KvFormat::kMxfp4;
  cache.desc.v.format = static_cast<KvFormat>(-7);
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "v.format is -7", "mxfp4", "f16");
}

TEST_CASE("nibble order that nobody reads") {
  SmallCache cache;
  cache.desc.v.nibble_order = NibbleOrder::kSplitHalf;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "v.nibble_order is 1 (split_half)", "even_low");
  cache.desc.v.nibble_order = static_cast<NibbleOrder>(9);
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "v.nibble_order is 9;", "even_low");
}

TEST_CASE("scale swizzle that nobody reads") {
  SmallCache cache;
  cache.desc.k.scale_swizzle = ScaleSwizzle::kFourTokens;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "k.scale_swizzle is 1 (four_tokens)", "linear");
}

TEST_CASE("scale axis: tokens for K, a value outside the enum, a format without groups of tokens") {
  SmallCache cache;
  cache.desc.k.scale_axis = VScaleAxis::kTokens;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "k.scale_axis is 1 (tokens)",
                      "allowed for K: 0 (head_dim)");
  cache.desc.k.scale_axis = VScaleAxis::kHeadDim;
  cache.desc.v.scale_axis = static_cast<VScaleAxis>(2);
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "v.scale_axis is 2", "0 (head_dim), 1 (tokens)");

  for (const KvFormat format : {KvFormat::kE8m0PerToken, KvFormat::kFp8E4m3, KvFormat::kBf16, KvFormat::kF16, KvFormat::kMxfp8}) {
    SmallCache other(KvFormat::kMxfp4, format);
    other.desc.v.scale_axis = VScaleAxis::kTokens;
    FP4PA_CHECK_REFUSED(validate(other.desc), Status::kUnsupportedFormat, name_of(format), "mxfp4, nvfp4");
  }
}

TEST_CASE("page_size that V's token groups do not divide") {
  SmallCache mxfp4(KvFormat::kMxfp4, KvFormat::kMxfp4, VScaleAxis::kTokens);
  mxfp4.desc.page_size = 16;
  FP4PA_CHECK_REFUSED(validate(mxfp4.desc), Status::kInvalidSize, "page_size is 16", "multiples of 32");
  SmallCache nvfp4(KvFormat::kMxfp4, KvFormat::kNvfp4, VScaleAxis::kTokens);
  nvfp4.desc.page_size = 16;
  CHECK(validate(nvfp4.desc) == Status::kOk);
  nvfp4.desc.page_size = 24;
  FP4PA_CHECK_REFUSED(validate(nvfp4.desc), Status::kInvalidSize, "page_size is 24", "multiples of 16");
}

TEST_CASE("null data and null scales") {
  SmallCache cache;
  void* const data = std::exchange(cache.desc.k.data, nullptr);
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kNullPointer, "k.data is null");
  cache.desc.k.data = data;
  cache.desc.v.scales = nullptr;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kNullPointer, "v.scales is null", "mxfp4 has scales");
}

TEST_CASE("scales for a format that has none") {
  SmallCache cache(KvFormat::kBf16, KvFormat::kMxfp4);
  cache.desc.k.scales = cache.k_data.data();
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kUnsupportedFormat, "k.scales is ", "bf16", "allowed: null");
}

TEST_CASE("misaligned data and strides; scales need no alignment") {
  SmallCache cache;
  cache.desc.v.data = cache.v_data.data() + 8;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kMisalignedPointer, "v.data is 0x", "multiples of 16");
  cache.desc.v.data = cache.v_data.data();
  cache.desc.v.scales = cache.v_scales.data() + 1;
  CHECK(validate(cache.desc) == Status::kOk);

  cache.desc.k.head_stride_bytes += 8;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kMisalignedPointer, "k.head_stride_bytes is ", "multiples of 16");
}

TEST_CASE("negative strides") {
  SmallCache cache;
  cache.desc.k.token_stride_bytes = -32;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "k.token_stride_bytes is -32", "not negative");
  SmallCache scales;
  scales.desc.v.scale_page_stride_bytes = -1;
  FP4PA_CHECK_REFUSED(validate(scales.desc), Status::kInvalidStrides, "v.scale_page_stride_bytes is -1", "not negative");
}

TEST_CASE("overlapping strides of codes, each dimension") {
  SmallCache cache;  // rows of 32 bytes; token 32, head 1024, page 2048
  cache.desc.k.token_stride_bytes = 16;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "k.token_stride_bytes is 16", "at least 32");
  cache.desc.k.token_stride_bytes = 0;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "k.token_stride_bytes is 0", "at least 32");
  cache.desc.k.token_stride_bytes = 32;
  cache.desc.k.head_stride_bytes = 1008;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "k.head_stride_bytes is 1008", "at least 1024");
  cache.desc.k.head_stride_bytes = 1024;
  cache.desc.k.page_stride_bytes = 2032;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "k.page_stride_bytes is 2032", "at least 2048");
  cache.desc.k.page_stride_bytes = 2048;
  CHECK(validate(cache.desc) == Status::kOk);
}

TEST_CASE("overlapping strides of scales, along head_dim and along tokens") {
  SmallCache cache;  // scale rows of 2 bytes
  cache.desc.v.scale_token_stride_bytes = 1;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "v.scale_token_stride_bytes is 1", "at least 2");

  SmallCache tokens(KvFormat::kMxfp4, KvFormat::kNvfp4, VScaleAxis::kTokens);  // 2 groups of 64 bytes
  CHECK(tokens.desc.v.scale_token_stride_bytes == 64);
  tokens.desc.v.scale_token_stride_bytes = 63;
  FP4PA_CHECK_REFUSED(validate(tokens.desc), Status::kInvalidStrides, "v.scale_token_stride_bytes is 63", "at least 64");
  tokens.desc.v.scale_token_stride_bytes = 64;
  tokens.desc.v.scale_head_stride_bytes = 127;
  FP4PA_CHECK_REFUSED(validate(tokens.desc), Status::kInvalidStrides, "v.scale_head_stride_bytes is 127", "at least 128");
}

TEST_CASE("arrays that lie in each other's rows") {
  SmallCache cache(KvFormat::kMxfp4, KvFormat::kMxfp4);  // rows of 32 bytes and of 2
  cache.desc.v.data = cache.k_data.data();
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "v.data is 0x", "k.data at 0x", "allowed", "do not overlap");
  cache.desc.v.data = cache.k_data.data() + 16;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "v.data is 0x", "k.data at 0x");
  cache.desc.v.data = cache.k_data.data() + 3 * 2048 - 32;  // K's last row
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "v.data is 0x", "k.data at 0x");
  cache.desc.v.data = cache.k_data.data() + 3 * 2048;
  CHECK(validate(cache.desc) == Status::kOk);
  cache.desc.v.data = cache.v_data.data();
  cache.desc.k.scales = cache.k_data.data();
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "k.scales is 0x", "k.data at 0x");
  cache.desc.k.scales = cache.v_scales.data();
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "v.scales is 0x", "k.scales at 0x");
  cache.desc.k.scales = cache.v_data.data() + 100;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "v.data is 0x", "k.scales at 0x");
}

TEST_CASE("arrays that lie in each other's gaps: a token's K, K's scales, V and V's scales one behind the other") {
  SmallCache cache;
  Bytes pool(3 * 2 * 32 * 80);
  KvCacheDesc& d = cache.desc;
  for (KvTensorDesc* t : {&d.k, &d.v}) {
    t->token_stride_bytes = t->scale_token_stride_bytes = 80;
    t->head_stride_bytes = t->scale_head_stride_bytes = 32 * 80;
    t->page_stride_bytes = t->scale_page_stride_bytes = 2 * 32 * 80;
  }
  d.k.data = pool.data();
  d.v.data = pool.data() + 32;
  d.k.scales = pool.data() + 64;
  d.v.scales = pool.data() + 66;
  CHECK(validate(d) == Status::kOk);
  d.v.scales = pool.data() + 65;
  FP4PA_CHECK_REFUSED(validate(d), Status::kInvalidStrides, "v.scales is 0x", "k.scales at 0x");
  d.v.scales = pool.data() + 79;  // its second byte is the next token's K
  FP4PA_CHECK_REFUSED(validate(d), Status::kInvalidStrides, "v.scales is 0x", "k.data at 0x");
}

TEST_CASE("a stride of 0 is fine for a dimension of size 1") {
  SmallCache cache;
  cache.desc.num_pages = 1;
  cache.desc.k.page_stride_bytes = 0;
  cache.desc.k.scale_page_stride_bytes = 0;
  CHECK(validate(cache.desc) == Status::kOk);
}

TEST_CASE("strides that leave the address space are refused without overflow") {
  SmallCache cache;
  cache.desc.v.page_stride_bytes = std::numeric_limits<std::int64_t>::max() / 16 * 16;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidStrides, "v.page_stride_bytes is 9223372036854775792",
                      "address space");
  SmallCache far;  // no sum of these wraps, and no memory has them either
  far.desc.k.head_stride_bytes = std::int64_t{1} << 61;
  far.desc.num_pages = 1;
  FP4PA_CHECK_REFUSED(validate(far.desc), Status::kInvalidStrides, "k.head_stride_bytes is 2305843009213693952", "over 1 steps",
                      "address space");
  SmallCache many;
  many.desc.num_kv_heads = std::numeric_limits<std::int32_t>::max();
  many.desc.num_pages = std::numeric_limits<std::int32_t>::max();
  set_dense_strides(many.desc, PageOrder::kHnd);
  CHECK(validate(many.desc) == Status::kInvalidStrides);
}

TEST_CASE("global scale by value: NaN, infinite, zero, negative") {
  for (const float bad : {std::nanf(""), INFINITY, 0.0f, -0.5f}) {
    SmallCache cache(KvFormat::kNvfp4, KvFormat::kFp8E4m3);
    cache.desc.v.global_scale = bad;
    FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidGlobalScale, "v.global_scale is ",
                        "finite and greater than 0");
  }
}

TEST_CASE("global scale for a format without one") {
  SmallCache cache;
  cache.desc.k.global_scale = 0.5f;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidGlobalScale, "k.global_scale is 0.5", "mxfp4: 1");
  cache.desc.k.global_scale = 1.0f;
  const float value = 1.0f;
  cache.desc.k.global_scale_ptr = &value;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kInvalidGlobalScale, "k.global_scale_ptr is 0x", "mxfp4",
                      "allowed: null");
}

TEST_CASE("global scale by pointer: misaligned, or missing for one per head") {
  SmallCache cache(KvFormat::kNvfp4, KvFormat::kBf16);
  alignas(8) unsigned char raw[16] = {};
  cache.desc.k.global_scale_ptr = reinterpret_cast<const float*>(raw + 2);
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kMisalignedPointer, "k.global_scale_ptr is 0x", "multiples of 4");
  cache.desc.k.global_scale_ptr = nullptr;
  cache.desc.k.global_scale_per_head = true;
  FP4PA_CHECK_REFUSED(validate(cache.desc), Status::kNullPointer, "k.global_scale_ptr is null", "num_kv_heads");
}

TEST_CASE("the CPU back ends look at the global scales behind a pointer") {
  SmallCache cache(KvFormat::kNvfp4, KvFormat::kBf16);
  const float scales[2] = {0.25f, std::nanf("")};
  cache.desc.k.global_scale_ptr = scales;
  cache.desc.k.global_scale_per_head = true;
  float k[2 * 64] = {};
  const KvInput input{k, DType::kF32, 0, 0};
  const std::int32_t slot = 0;
  ExecDesc exec;
  exec.backend = "cpu";
  FP4PA_CHECK_REFUSED(append(cache.desc, input, input, &slot, IndexType::kInt32, 1, exec), Status::kInvalidGlobalScale,
                      "k.global_scale_ptr[1] is nan", "greater than 0");
  CHECK(cache.untouched());
}
