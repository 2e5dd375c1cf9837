// See scene.hpp.
#include "tests/attention/scene.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "reference/call.hpp"
#include "reference/metrics.hpp"
#include "tests/cache/random.hpp"

namespace scene {
namespace {

using namespace fp4pa;

constexpr std::int64_t kSparePages = 3;  // named by no table
constexpr std::int32_t kNoPage = -0x7FFFFFFF - 1;

std::int32_t pages_for(std::int32_t tokens, std::int32_t page_size) { return (tokens + page_size - 1) / page_size; }

std::int32_t old_length(const Spec& spec, const Sequence& s) {
  return spec.window == 0 ? s.kv_len : reference::old_tokens(s.kv_len, spec.window, spec.group_tokens);
}

std::vector<std::int32_t> shuffled(std::int64_t count, test::Random& random) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  for (int i = static_cast<int>(count); i > 1; --i) {
    std::swap(ids[static_cast<std::size_t>(i - 1)], ids[static_cast<std::size_t>(random.below(i))]);
  }
  return ids;
}

}  // namespace

Scene::Scene(const Spec& s) : spec(s) {
  build_pools();
  build_tables();
  write_tokens();
  build_queries();
}

void Scene::build_pools() {
  test::Random random(spec.seed);
  std::int64_t pages = kSparePages;
  for (const Sequence& s : spec.sequences) pages += pages_for(old_length(spec, s), spec.page_size);
  KvCacheDesc desc;
  desc.k.format = spec.k;
  desc.v.format = spec.v;
  desc.v.scale_axis = spec.v_axis;
  desc.num_kv_heads = spec.kv_heads;
  desc.head_dim = spec.head_dim;
  desc.page_size = spec.page_size;
  desc.num_pages = pages;
  old_pool = grid::Pool(desc, grid::Layout::kHnd, grid::GlobalScale::kOne, spec.poison, random);
  config.cache = old_pool.desc();
  if (spec.window == 0) return;
  config.two_tier = true;
  config.window_tokens = spec.window;
  config.group_tokens = spec.group_tokens;
  config.ring_pages = min_ring_pages(spec.window, spec.group_tokens, spec.recent_page_size);
  desc.k.format = desc.v.format = spec.recent;
  desc.v.scale_axis = VScaleAxis::kHeadDim;
  desc.page_size = spec.recent_page_size;
  desc.num_pages = static_cast<std::int64_t>(spec.sequences.size()) * config.ring_pages + kSparePages;
  recent_pool = grid::Pool(desc, grid::Layout::kNhd, grid::GlobalScale::kOne, spec.poison, random);
  config.recent = recent_pool.desc();
}

void Scene::build_tables() {
  test::Random random(spec.seed + 1);
  std::int32_t stride = 1;
  for (const Sequence& s : spec.sequences) stride = std::max(stride, pages_for(old_length(spec, s), spec.page_size));
  const std::vector<std::int32_t> ids = shuffled(config.cache.num_pages, random);
  std::size_t next = 0;
  for (const Sequence& s : spec.sequences) {
    seq_lens.push_back(s.kv_len);
    const std::int32_t pages = pages_for(old_length(spec, s), spec.page_size);
    for (std::int32_t p = 0; p < stride; ++p)
      block_table.push_back(p < pages ? ids[next + static_cast<std::size_t>(p)] : kNoPage);
    for (std::int32_t p = 0; p < pages; ++p) kv_indices.push_back(ids[next++]);
    kv_indptr.push_back(static_cast<std::int32_t>(kv_indices.size()));
  }
  kv_indices.push_back(kNoPage);
  if (spec.window != 0) {
    recent_table = shuffled(config.recent.num_pages, random);
    recent_table.resize(spec.sequences.size() * static_cast<std::size_t>(config.ring_pages));
    args.recent_table = recent_table.data();
  }
  config.table_kind = spec.table;
  if (spec.table == TableKind::kCsr) {
    args.kv_indptr = kv_indptr.data();
    args.kv_indices = kv_indices.data();
  } else {
    args.block_table = block_table.data();
    args.table_stride = stride;
  }
  args.batch = static_cast<std::int32_t>(spec.sequences.size());
  args.seq_lens = seq_lens.data();
}

void Scene::write_tokens() {
  for (std::int32_t b = 0; b < args.batch; ++b) {
    test::Random random(1000 + spec.sequences[static_cast<std::size_t>(b)].number);
    for (std::int32_t t = 0; t < seq_lens[static_cast<std::size_t>(b)]; ++t) {
      const reference::Place place = reference::place_of(config, args, b, t);
      (place.cache == &config.cache ? old_pool : recent_pool).write_token(place.page, place.row, random);
    }
  }
}

void Scene::build_queries() {
  const std::int32_t heads = spec.kv_heads * spec.group_heads;
  for (const Sequence& s : spec.sequences) {
    indptr.push_back(indptr.back() + s.q_len);
    config.max_q_len = std::max({config.max_q_len, s.q_len, 1});
    config.max_kv_len = std::max(config.max_kv_len, s.kv_len);
  }
  const std::int64_t rows = std::int64_t{std::max(1, q_tokens())} * heads;
  q = grid::Memory(static_cast<std::size_t>(rows * spec.head_dim * size_of(spec.q_dtype)), 0xFF);
  o_bytes = rows * spec.head_dim * size_of(spec.o_dtype);
  o = grid::Memory(static_cast<std::size_t>(o_bytes), kUnwritten);
  lse.resize(static_cast<std::size_t>(rows));
  reset_outputs();
  std::uint8_t* next = q.data();
  for (const Sequence& s : spec.sequences) {
    test::Random random(2000 + s.number);
    for (std::int64_t i = 0; i < std::int64_t{s.q_len} * heads * spec.head_dim; ++i, next += size_of(spec.q_dtype)) {
      grid::write_plain(next, spec.q_dtype, random);
    }
  }
  test::Random random(3000);
  for (std::int32_t h = 0; h < heads; ++h) {
    sinks.push_back(static_cast<float>(3.0 * random.uniform() - 1.0));
    slopes.push_back(0.03f * static_cast<float>(h + 1));
  }
  for (std::int32_t t = 0; t < std::max(1, q_tokens()); ++t)
    tree.push_back(random.bits() | std::uint64_t{1} << (t % 64));

  config.num_q_heads = heads;
  config.q_dtype = spec.q_dtype;
  config.o_dtype = spec.o_dtype;
  config.max_batch = std::max(1, args.batch);
  config.max_q_tokens = std::max(1, q_tokens());
  config.backend = "cpu";
  args.q = q.data();
  args.o = o.data();
  args.lse = lse.data();
  args.qo_indptr = indptr.data();
  args.sinks = sinks.data();
  args.alibi_slopes = slopes.data();
  args.tree_mask = tree.data();
}

Status Scene::run() {
  AttentionPlan made;
  if (const Status s = plan(config, &made); s != Status::kOk) return s;
  if (args.workspace == nullptr || args.workspace_bytes < made.workspace_bytes()) {
    workspace = grid::Memory(made.workspace_bytes(), 0xFF);  // NaN: nothing in it may be taken for a value
    args.workspace = workspace.data();
    args.workspace_bytes = made.workspace_bytes();
  }
  return fp4pa::run(made, args);
}

void Scene::reset_outputs() {
  std::memset(o.data(), kUnwritten, static_cast<std::size_t>(o_bytes));
  std::memset(lse.data(), kUnwritten, lse.size() * sizeof(float));
}

bool Scene::outputs_untouched() {
  const auto all = [](const std::uint8_t* bytes, std::size_t n) {
    return std::all_of(bytes, bytes + n, [](std::uint8_t b) { return b == kUnwritten; });
  };
  return all(o.data(), static_cast<std::size_t>(o_bytes)) &&
         all(reinterpret_cast<const std::uint8_t*>(lse.data()), lse.size() * sizeof(float));
}

std::vector<double> Scene::o_row(std::int32_t token, std::int32_t head) {
  const std::int64_t head_stride = args.o_head_stride != 0 ? args.o_head_stride : spec.head_dim;
  const std::int64_t token_stride = args.o_token_stride != 0 ? args.o_token_stride : q_heads() * head_stride;
  std::vector<double> row;
  for (std::int64_t d = 0; d < spec.head_dim; ++d) {
    row.push_back(reference::decode_plain(args.o, config.o_dtype, token * token_stride + head * head_stride + d));
  }
  return row;
}

float Scene::lse_of(std::int32_t token, std::int32_t head) const {
  return lse[static_cast<std::size_t>(token * q_heads() + head)];
}

std::vector<std::uint8_t> Scene::bits_of(std::int32_t sequence) {
  const auto first = static_cast<std::ptrdiff_t>(indptr[static_cast<std::size_t>(sequence)]) * q_heads();
  const auto last = static_cast<std::ptrdiff_t>(indptr[static_cast<std::size_t>(sequence) + 1]) * q_heads();
  const std::ptrdiff_t row_bytes = spec.head_dim * size_of(spec.o_dtype);
  std::vector<std::uint8_t> bits(o.data() + first * row_bytes, o.data() + last * row_bytes);
  const auto* l = reinterpret_cast<const std::uint8_t*>(lse.data());
  bits.insert(bits.end(), l + 4 * first, l + 4 * last);
  return bits;
}

Scene::Error Scene::error() {
  Error worst{0.0, 0.0};
  std::vector<double> expected(static_cast<std::size_t>(spec.head_dim));
  for (std::int32_t b = 0; b < args.batch; ++b) {
    reference::Difference difference;
    for (std::int32_t kv_head = 0; kv_head < spec.kv_heads; ++kv_head) {
      const reference::Keys keys = reference::dequantize(config, args, b, kv_head);
      for (std::int32_t query = 0; query < spec.sequences[static_cast<std::size_t>(b)].q_len; ++query) {
        for (std::int32_t h = kv_head * spec.group_heads; h < (kv_head + 1) * spec.group_heads; ++h) {
          const double lse_expected = reference::attend_one(config, args, b, query, h, keys, expected);
          const std::int32_t token = indptr[static_cast<std::size_t>(b)] + query;
          const std::vector<double> got = o_row(token, h);
          for (std::size_t d = 0; d < got.size(); ++d) difference.add(got[d], expected[d]);
          worst.lse = std::max(worst.lse, reference::lse_difference(lse_of(token, h), lse_expected));
        }
      }
    }
    worst.o = std::max(worst.o, difference.relative());
  }
  return worst;
}

std::uint8_t* Scene::codes(bool value, std::int32_t sequence, std::int32_t token, std::int32_t head) {
  const reference::Place place = reference::place_of(config, args, sequence, token);
  const KvTensorDesc& t = value ? place.cache->v : place.cache->k;
  return static_cast<std::uint8_t*>(t.data) + place.page * t.page_stride_bytes + place.row * t.token_stride_bytes +
         head * t.head_stride_bytes;
}

std::uint8_t* Scene::scales(bool value, std::int32_t sequence, std::int32_t token, std::int32_t head) {
  const reference::Place place = reference::place_of(config, args, sequence, token);
  const KvTensorDesc& t = value ? place.cache->v : place.cache->k;
  return static_cast<std::uint8_t*>(t.scales) + place.page * t.scale_page_stride_bytes +
         place.row / kv_token_group(t.format, t.scale_axis) * t.scale_token_stride_bytes +
         head * t.scale_head_stride_bytes;
}

void Scene::fill_scales(bool value, int low, int high, std::uint64_t seed) {
  test::Random random(seed);
  const KvTensorDesc& t = value ? config.cache.v : config.cache.k;
  const auto bytes = kv_scale_bytes(t.format, t.scale_axis, config.cache.head_dim);
  const auto group = kv_token_group(t.format, t.scale_axis);
  for (std::int32_t b = 0; b < args.batch; ++b) {
    for (std::int32_t token = 0; token < seq_lens[static_cast<std::size_t>(b)]; token += group) {
      for (std::int32_t head = 0; head < spec.kv_heads; ++head) {
        for (std::int64_t i = 0; i < bytes; ++i) {
          scales(value, b, token, head)[i] = static_cast<std::uint8_t>(low + random.below(high - low + 1));
        }
      }
    }
  }
}

bool detail_has(std::initializer_list<const char*> pieces) {
  const std::string detail = last_error_detail();
  return std::all_of(pieces.begin(), pieces.end(), [&](const char* p) { return detail.find(p) != std::string::npos; });
}

}  // namespace scene
