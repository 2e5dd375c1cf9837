// Drawing configurations. The lists are the issue's; lengths lean towards page boundaries and stay short, because what
// differs between 100 and 100000 keys is the partition, which has tests of its own.
#include "tests/attention/grid_case.hpp"

#include <algorithm>
#include <cstdio>
#include <initializer_list>

#include "tests/cache/random.hpp"

namespace grid {
namespace {

using fp4pa::KvFormat;

template <class T>
T pick(test::Random& random, std::initializer_list<T> choices) {
  return choices.begin()[random.below(static_cast<int>(choices.size()))];
}

bool one_in(test::Random& random, int n) { return random.below(n) == 0; }

constexpr auto kFormats = {KvFormat::kMxfp4,   KvFormat::kNvfp4, KvFormat::kE8m0PerToken,
                           KvFormat::kFp8E4m3, KvFormat::kBf16,  KvFormat::kF16, KvFormat::kMxfp8};

void draw_formats(test::Random& random, Case& c) {
  c.k = pick(random, kFormats);
  c.v = one_in(random, 3) ? pick(random, kFormats) : c.k;
  const bool may_scale_tokens = c.v == KvFormat::kMxfp4 || c.v == KvFormat::kNvfp4;
  if (may_scale_tokens && one_in(random, 3)) c.v_axis = fp4pa::VScaleAxis::kTokens;
  c.global_scale = pick(random, {GlobalScale::kOne, GlobalScale::kValue, GlobalScale::kPointer, GlobalScale::kPerHead});
  c.head_dim = pick(random, {32, 64, 96, 128, 160, 192, 224, 256});
  c.layout =
      pick(random, {Layout::kHnd, Layout::kNhd, Layout::kInterleavedHnd, Layout::kInterleavedNhd, Layout::kPadded});
  const int block = pick(random, {0, 0, 16, 32, 64, 128});
  if (block != 0 && c.head_dim % block == 0) c.rotation = static_cast<fp4pa::Rotation>(block);
}

void draw_pages(test::Random& random, Case& c) {
  c.page_size = pick(random, {1, 3, 16, 32, 64, 100, 128, 1024});
  // Groups along tokens do not straddle pages: validate() refuses the page sizes that would make them.
  if (c.v_axis == fp4pa::VScaleAxis::kTokens && c.page_size % 32 != 0) c.page_size = pick(random, {32, 64, 128, 1024});
  c.table = one_in(random, 2) ? fp4pa::TableKind::kBlockTable : fp4pa::TableKind::kCsr;
  if (!one_in(random, 3)) return;
  c.window = pick(random, {16, 17, 31, 64, 100, 256});
  c.recent_page_size = pick(random, {1, 3, 16, 32, 100});
  c.recent_k = pick(random, {KvFormat::kBf16, KvFormat::kBf16, KvFormat::kF16, KvFormat::kFp8E4m3});
  c.recent_v = pick(random, {KvFormat::kBf16, KvFormat::kBf16, KvFormat::kF16, KvFormat::kFp8E4m3});
  // Allowed: divisors and multiples of the page, and whole groups of V's scales.
  const int v_group = c.v_axis == fp4pa::VScaleAxis::kTokens ? (c.v == KvFormat::kMxfp4 ? 32 : 16) : 1;
  std::vector<std::int32_t> groups;
  for (const int g : {1, 3, 16, 32, 48, 64, 96, 100, 128}) {
    if (g % v_group == 0 && (g % c.page_size == 0 || c.page_size % g == 0)) groups.push_back(g);
  }
  c.group_tokens = groups[static_cast<std::size_t>(random.below(static_cast<int>(groups.size())))];
}

void draw_masks(test::Random& random, Case& c) {
  c.causal = !one_in(random, 5);
  if (c.causal && one_in(random, 4)) c.sliding_window = pick(random, {1, 2, 17, 64, 100, 200});
  if (one_in(random, 5)) c.softcap = pick(random, {2.0f, 30.0f});
  c.sinks = one_in(random, 5);
  if (one_in(random, 6) && (c.sliding_window == 0 || c.sliding_window >= 64)) c.tree = true;  // no window ends within a tree
  if (one_in(random, 5) && !c.tree) c.alibi = true;
  if (one_in(random, 3)) c.sm_scale = pick(random, {0.02f, 0.11f, 0.3f});
}

std::int32_t draw_length(test::Random& random, std::int32_t page_size) {
  switch (random.below(10)) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return page_size - 1;
    case 3:
      return page_size;
    case 4:
      return page_size + 1;
    case 5:
      return 2 * page_size + random.below(3) - 1;
    case 6:
      return 400 + random.below(1200);
    default:
      return 1 + random.below(300);
  }
}

/// Multiplications that the double-precision reference needs.
double cost(const Case& c) {
  double sum = 0.0;
  for (std::size_t b = 0; b < c.q_lens.size(); ++b) sum += 2.0 * c.q_lens[b] * c.kv_lens[b];
  return sum * c.kv_heads * c.group_heads * c.head_dim;
}

void draw_lengths(test::Random& random, Case& c) {
  constexpr double kMostWork = 1.2e7;
  c.q_lens.clear();
  c.kv_lens.clear();
  const int batch = 1 + random.below(3);
  for (int b = 0; b < batch; ++b) {
    c.q_lens.push_back(one_in(random, 16) ? 0 : pick(random, {1, 1, 2, 4, 7, 33}));
    c.kv_lens.push_back(draw_length(random, c.page_size));
  }
  // What is too long for a grid loses queries first, then keys.
  for (std::int32_t& q : c.q_lens) {
    if (cost(c) > kMostWork) q = std::min(q, 2);
  }
  for (std::int32_t& length : c.kv_lens) {
    if (cost(c) > kMostWork) length = std::min(length, 70 + length % 61);
  }
}

}  // namespace

Case draw(std::uint64_t seed) {
  // Through one output of the generator: its state only counts, so that near seeds would give shifted copies of one
  // stream.
  test::Random random(test::Random(seed).bits());
  Case c;
  c.seed = seed;
  c.backend = one_in(random, 8) ? "cpu-scalar" : "cpu";
  draw_formats(random, c);
  c.group_heads = pick(random, {1, 2, 3, 4, 5, 8, 16});
  c.kv_heads = 1 + random.below(3);
  draw_pages(random, c);
  draw_masks(random, c);
  draw_lengths(random, c);
  c.q_dtype = pick(random, {fp4pa::DType::kF32, fp4pa::DType::kF16, fp4pa::DType::kBF16});
  c.o_dtype = pick(random, {fp4pa::DType::kF32, fp4pa::DType::kF16, fp4pa::DType::kBF16});
  c.strided = one_in(random, 3);
  c.batch_invariant = one_in(random, 4);
  c.split_tokens = pick(random, {0, 0, 64, 128, 192});
  c.threads = 1 + random.below(3);
  return c;
}

std::string describe(const Case& c) {
  static constexpr const char* kLayouts[] = {"hnd", "nhd", "interleaved-hnd", "interleaved-nhd", "padded"};
  static constexpr const char* kScales[] = {"1", "value", "pointer", "per-head"};
  char text[1024];
  std::snprintf(
      text, sizeof text,
      "seed %llu %s K %s V %s axis %s H%d global %s layout %s D %d kv_heads %d group %d page %d table %s "
      "window %d group_tokens %d recent page %d %s/%s q %s o %s%s causal %d sliding %d softcap %g sinks %d alibi %d "
      "tree %d scale %g invariant %d split %d threads %d max batch %d q/kv",
      static_cast<unsigned long long>(c.seed), c.backend, name_of(c.k), name_of(c.v), name_of(c.v_axis),
      static_cast<int>(c.rotation), kScales[static_cast<int>(c.global_scale)], kLayouts[static_cast<int>(c.layout)],
      c.head_dim, c.kv_heads, c.group_heads, c.page_size, c.table == fp4pa::TableKind::kCsr ? "csr" : "block", c.window,
      c.group_tokens, c.recent_page_size, name_of(c.recent_k), name_of(c.recent_v), name_of(c.q_dtype),
      name_of(c.o_dtype), c.strided ? " strided" : "", c.causal, c.sliding_window, static_cast<double>(c.softcap),
      c.sinks, c.alibi, c.tree, static_cast<double>(c.sm_scale), c.batch_invariant, c.split_tokens, c.threads, c.max_batch);
  std::string line = text;
  for (std::size_t b = 0; b < c.q_lens.size(); ++b) {
    line.append(" ").append(std::to_string(c.q_lens[b])).append("/").append(std::to_string(c.kv_lens[b]));
  }
  return line;
}

}  // namespace grid
