// See grid_run.hpp.
#include "tests/attention/grid_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "fp4pa/fp4pa.hpp"
#include "reference/call.hpp"
#include "reference/metrics.hpp"
#include "tests/attention/grid_pool.hpp"

namespace grid {
namespace {

using fp4pa::DType;
using fp4pa::Status;

constexpr std::int32_t kNoPage = -0x7FFFFFFF - 1;  // table entries beyond a sequence's pages

std::vector<std::int32_t> shuffled(std::int64_t count, test::Random& random) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  for (int i = static_cast<int>(count); i > 1; --i) {
    std::swap(ids[static_cast<std::size_t>(i - 1)], ids[static_cast<std::size_t>(random.below(i))]);
  }
  return ids;
}

std::int32_t pages_for(std::int32_t tokens, std::int32_t page_size) { return (tokens + page_size - 1) / page_size; }

/// O and LSE of the whole call, rows [token, head], and what rounding the query may do to a row's logits.
struct Expected {
  std::vector<double> o, lse, noise;
};

/// Largest standard deviation of a logit's error when a query's elements are rounded to 16-bit levels of the largest of each
/// group of 32 (32512 of them to either side): each is off by up to half a level, uniformly, and a key weighs them by its
/// elements.
double query_noise(const std::vector<double>& q, const fp4pa::reference::Keys& keys, double sm_scale) {
  std::vector<double> step;
  for (std::size_t d = 0; d < q.size(); ++d) {
    if (d % 32 == 0) step.push_back(0.0);
    step.back() = std::max(step.back(), std::abs(q[d]) / 32512.0);
  }
  double largest = 0.0;
  for (std::size_t start = 0; start < keys.k.size(); start += keys.head_dim) {
    double variance = 0.0;
    for (std::size_t g = 0; g < step.size(); ++g) {
      const double* k = &keys.k[start + 32 * g];
      variance += step[g] * step[g] * fp4pa::reference::dot(k, k, 32) / 12.0;
    }
    largest = std::max(largest, variance);
  }
  return sm_scale * std::sqrt(largest);
}

/// Everything one call reads and writes, and the call itself.
class Call {
 public:
  explicit Call(const Case& c);
  Call(const Call&) = delete;  // the tensors point into the object
  Call& operator=(const Call&) = delete;

  [[nodiscard]] Expected reference() const;
  /// Plans and runs; returns what went wrong, if anything.
  [[nodiscard]] std::string run(std::string* backend);
  void compare(const Expected& expected, Outcome& outcome) const;
  [[nodiscard]] Results results() const;
  void damage(Damage kind);

  fp4pa::AttentionConfig config;
  fp4pa::AttentionArgs args;

 private:
  void build_pools();
  void build_tables();
  void write_tokens();
  void build_queries();
  [[nodiscard]] std::int64_t q_index(std::int64_t token, std::int64_t head) const;
  [[nodiscard]] bool gaps_untouched() const;

  const Case& case_;
  test::Random random_;
  std::uint8_t poison_;
  std::int32_t q_heads_, q_tokens_ = 0, max_pages_ = 0;
  std::vector<std::int32_t> old_lens_;  // tokens in the page table's tier
  Pool old_pool_, recent_pool_;
  std::vector<std::int32_t> indptr_{0}, block_table_, kv_indptr_{0}, kv_indices_, recent_table_;
  std::int64_t token_stride_ = 0, head_stride_ = 0;
  Memory q_, o_, workspace_;
  std::size_t o_elements_ = 0;
  std::vector<float> lse_, sinks_, slopes_;
  std::vector<std::uint64_t> tree_;
};

Call::Call(const Case& c)
    : case_(c), random_(c.seed), poison_((c.seed & 1) != 0 ? 0xFF : 0x7F), q_heads_(c.kv_heads * c.group_heads) {
  build_pools();
  build_tables();
  write_tokens();
  build_queries();
}

void Call::build_pools() {
  const Case& c = case_;
  std::int64_t pages = c.spare_pages;
  for (const std::int32_t length : c.kv_lens) {
    old_lens_.push_back(c.window == 0 ? length : fp4pa::reference::old_tokens(length, c.window, c.group_tokens));
    pages += pages_for(old_lens_.back(), c.page_size);
    max_pages_ = std::max(max_pages_, pages_for(old_lens_.back(), c.page_size));
  }
  fp4pa::KvCacheDesc desc;
  desc.k.format = c.k;
  desc.v.format = c.v;
  desc.v.scale_axis = c.v_axis;
  desc.num_kv_heads = c.kv_heads;
  desc.head_dim = c.head_dim;
  desc.page_size = c.page_size;
  desc.num_pages = pages;
  desc.rotation = c.rotation;
  old_pool_ = Pool(desc, c.layout, c.global_scale, poison_, random_);
  config.cache = old_pool_.desc();
  if (c.window == 0) return;

  config.two_tier = true;
  config.window_tokens = c.window;
  config.group_tokens = c.group_tokens;
  config.ring_pages = pages_for(c.window + c.group_tokens, c.recent_page_size) + random_.below(2);
  desc.k.format = c.recent_k;
  desc.v.format = c.recent_v;
  desc.v.scale_axis = fp4pa::VScaleAxis::kHeadDim;
  desc.page_size = c.recent_page_size;
  desc.num_pages = static_cast<std::int64_t>(c.kv_lens.size()) * config.ring_pages + c.spare_pages;
  recent_pool_ = Pool(desc, c.layout, c.global_scale, poison_, random_);
  config.recent = recent_pool_.desc();
}

void Call::build_tables() {
  const std::size_t batch = case_.kv_lens.size();
  const std::vector<std::int32_t> ids = shuffled(config.cache.num_pages, random_);
  std::size_t next = 0;
  const std::int32_t stride = std::max(1, max_pages_ + random_.below(3));
  block_table_.assign(batch * static_cast<std::size_t>(stride), kNoPage);
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::int32_t p = 0; p < pages_for(old_lens_[b], case_.page_size); ++p, ++next) {
      block_table_[b * static_cast<std::size_t>(stride) + static_cast<std::size_t>(p)] = ids[next];
      kv_indices_.push_back(ids[next]);
    }
    kv_indptr_.push_back(static_cast<std::int32_t>(kv_indices_.size()));
  }
  kv_indices_.push_back(kNoPage);  // never empty: a null pointer would be refused
  if (case_.table == fp4pa::TableKind::kCsr) {
    config.table_kind = fp4pa::TableKind::kCsr;
    args.kv_indptr = kv_indptr_.data();
    args.kv_indices = kv_indices_.data();
  } else {
    args.block_table = block_table_.data();
    args.table_stride = stride;
  }
  if (case_.window == 0) return;
  recent_table_ = shuffled(config.recent.num_pages, random_);
  recent_table_.resize(batch * static_cast<std::size_t>(config.ring_pages));
  args.recent_table = recent_table_.data();
}

void Call::write_tokens() {
  args.batch = static_cast<std::int32_t>(case_.kv_lens.size());
  args.seq_lens = case_.kv_lens.data();
  for (std::int32_t b = 0; b < args.batch; ++b) {
    for (std::int32_t t = 0; t < args.seq_lens[b]; ++t) {
      const fp4pa::reference::Place place = fp4pa::reference::place_of(config, args, b, t);
      (place.cache == &config.cache ? old_pool_ : recent_pool_).write_token(place.page, place.row, random_);
    }
  }
}

void Call::build_queries() {
  const Case& c = case_;
  for (const std::int32_t q : c.q_lens) indptr_.push_back(q_tokens_ += q);
  args.qo_indptr = indptr_.data();
  const std::int32_t tokens = std::max(1, q_tokens_);
  // Strided: heads outermost, with gaps that must stay as they are. Rows of two in three begin anywhere.
  const std::int64_t gap = c.seed / 3 % 3 == 0 ? 8 : c.seed / 3 % 3 == 1 ? 3 : 1;
  head_stride_ = c.strided ? std::int64_t{tokens} * (c.head_dim + gap) + 2 * gap : c.head_dim;
  token_stride_ = c.strided ? c.head_dim + gap : std::int64_t{q_heads_} * c.head_dim;
  o_elements_ = static_cast<std::size_t>(std::int64_t{tokens} * q_heads_ * (c.head_dim + 8) + 16 * q_heads_);
  if (c.strided) {
    args.q_token_stride = args.o_token_stride = token_stride_;
    args.q_head_stride = args.o_head_stride = head_stride_;
  }
  q_ = Memory(o_elements_ * static_cast<std::size_t>(size_of(c.q_dtype)), 0xFF);
  o_ = Memory(o_elements_ * static_cast<std::size_t>(size_of(c.o_dtype)), 0xFF);
  for (std::int64_t t = 0; t < q_tokens_; ++t) {
    for (std::int64_t h = 0; h < q_heads_; ++h) {
      for (std::int64_t d = 0; d < c.head_dim; ++d) {
        write_plain(q_.data() + (q_index(t, h) + d) * size_of(c.q_dtype), c.q_dtype, random_);
      }
    }
  }
  for (std::int32_t h = 0; h < q_heads_; ++h) {
    sinks_.push_back(static_cast<float>(4.0 * random_.uniform() - 1.0));
    slopes_.push_back(std::exp2(-0.5f * static_cast<float>(h + 1)));
  }
  for (std::int32_t t = 0; t < tokens; ++t) tree_.push_back(random_.bits());
  lse_.assign(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(q_heads_), std::nanf(""));
  args.q = q_.data();
  args.o = o_.data();
  args.lse = lse_.data();
  args.sinks = sinks_.data();
  args.alibi_slopes = slopes_.data();
  args.tree_mask = tree_.data();

  config.num_q_heads = q_heads_;
  config.q_dtype = c.q_dtype;
  config.o_dtype = c.o_dtype;
  config.sm_scale = c.sm_scale;
  config.causal = c.causal;
  config.sliding_window = c.sliding_window;
  config.softcap = c.softcap;
  config.sinks = c.sinks;
  config.alibi = c.alibi;
  config.tree_mask = c.tree;
  config.max_batch = std::max(c.max_batch, args.batch);
  config.max_q_tokens = tokens;
  config.max_q_len = std::max(1, *std::max_element(c.q_lens.begin(), c.q_lens.end()));
  config.max_kv_len = *std::max_element(c.kv_lens.begin(), c.kv_lens.end());
  config.batch_invariant = c.batch_invariant;
  config.kv_split_tokens = c.split_tokens;
  config.backend = c.backend;
  config.matrix_path = c.matrix_path;
  config.num_threads = c.threads;
}

std::int64_t Call::q_index(std::int64_t token, std::int64_t head) const {
  return token * token_stride_ + head * head_stride_;
}

/// Bytes of O that belong to no row still hold what they held before the call.
bool Call::gaps_untouched() const {
  const auto each = static_cast<std::size_t>(size_of(case_.o_dtype));
  std::vector<bool> owned(o_elements_, false);
  for (std::int64_t t = 0; t < q_tokens_; ++t) {
    for (std::int64_t h = 0; h < q_heads_; ++h) {
      const auto start = owned.begin() + q_index(t, h);
      std::fill(start, start + case_.head_dim, true);
    }
  }
  for (std::size_t i = 0; i < o_elements_ * each; ++i) {
    if (!owned[i / each] && o_.data()[i] != 0xFF) return false;
  }
  return true;
}

void Call::damage(Damage kind) {
  // The newest token of the first sequence is visible to its last query under every mask but a tree.
  const fp4pa::reference::Place place = fp4pa::reference::place_of(config, args, 0, args.seq_lens[0] - 1);
  if (kind == Damage::kTableEntry) {
    block_table_[0] = block_table_[0] == 0 ? 1 : 0;
    return;
  }
  const fp4pa::KvTensorDesc& tensor = kind == Damage::kKeyByte ? place.cache->k : place.cache->v;
  auto* byte = static_cast<std::uint8_t*>(tensor.data) + place.page * tensor.page_stride_bytes +
               place.row * tensor.token_stride_bytes;
  // The first code: small magnitudes become 6, large ones 0, so that it is a change whatever it was.
  *byte = static_cast<std::uint8_t>((*byte & 7) < 4 ? *byte | 7 : *byte & ~7);
}

/// By how much a result misses the reference beyond half a unit in the last place of its dtype, which is not the
/// attention's error but the format's.
double excess(double result, double reference, DType dtype) {
  const double error = std::abs(result - reference);
  if (dtype == DType::kF32) return error;
  const int mantissa = dtype == DType::kF16 ? 10 : 7;
  const int lowest = dtype == DType::kF16 ? -14 : -126;
  const int exponent = reference == 0.0 ? lowest : std::max(lowest, std::ilogb(reference));
  return std::max(0.0, error - std::ldexp(0.5, exponent - mantissa));
}

Expected Call::reference() const {
  const auto head_dim = static_cast<std::size_t>(case_.head_dim);
  const auto rows = static_cast<std::size_t>(q_tokens_) * static_cast<std::size_t>(q_heads_);
  Expected expected{std::vector<double>(rows * head_dim), std::vector<double>(rows), std::vector<double>(rows)};
  for (std::int32_t b = 0; b < args.batch; ++b) {
    for (std::int32_t kv_head = 0; kv_head < case_.kv_heads; ++kv_head) {
      const fp4pa::reference::Keys keys = fp4pa::reference::dequantize(config, args, b, kv_head);
      for (std::int32_t q = 0; q < case_.q_lens[static_cast<std::size_t>(b)]; ++q) {
        for (std::int32_t h = kv_head * case_.group_heads; h < (kv_head + 1) * case_.group_heads; ++h) {
          const auto row = static_cast<std::size_t>((args.qo_indptr[b] + q) * q_heads_ + h);
          expected.lse[row] =
              fp4pa::reference::attend_one(config, args, b, q, h, keys, {expected.o.data() + row * head_dim, head_dim});
          if (rounds_query(case_)) {
            expected.noise[row] = query_noise(fp4pa::reference::query_of(config, args, b, q, h), keys,
                                              fp4pa::reference::row_of(config, args, b, q, h).sm_scale);
          }
        }
      }
    }
  }
  return expected;
}

std::string Call::run(std::string* backend) {
  fp4pa::AttentionPlan plan;
  if (const Status s = fp4pa::plan(config, &plan); s != Status::kOk) {
    return std::string("plan: ") + status_name(s) + ": " + fp4pa::last_error_detail();
  }
  *backend = plan.backend();
  workspace_ = Memory(plan.workspace_bytes(), 0xFF);
  args.workspace = workspace_.data();
  args.workspace_bytes = plan.workspace_bytes();
  if (const Status s = fp4pa::run(plan, args); s != Status::kOk) {
    return std::string("run: ") + status_name(s) + ": " + fp4pa::last_error_detail();
  }
  return gaps_untouched() ? "" : "run wrote outside the rows of O";
}

void Call::compare(const Expected& expected, Outcome& outcome) const {
  const auto head_dim = static_cast<std::size_t>(case_.head_dim);
  fp4pa::reference::Difference plain;
  double squared_excess = 0.0, squared_reference = 0.0;
  for (std::size_t row = 0; row < expected.lse.size(); ++row, ++outcome.rows) {
    const auto heads = static_cast<std::size_t>(q_heads_);
    const std::int64_t start = q_index(static_cast<std::int64_t>(row / heads), static_cast<std::int64_t>(row % heads));
    for (std::size_t d = 0; d < head_dim; ++d) {
      const double reference = expected.o[row * head_dim + d];
      const double result =
          fp4pa::reference::decode_plain(o_.data(), case_.o_dtype, start + static_cast<std::int64_t>(d));
      plain.add(result, reference);
      const double miss = excess(result, reference, case_.o_dtype);
      squared_excess += miss * miss;
      squared_reference += reference * reference;
    }
    const double lse_error = fp4pa::reference::lse_difference(lse_[row], expected.lse[row]);
    const double size = std::isfinite(expected.lse[row]) ? std::max(1.0, std::abs(expected.lse[row])) : 1.0;
    outcome.lse_error = std::max(outcome.lse_error, lse_error);
    // Six standard deviations, or what the contract allows where that is less: there the query must not be rounded. ALiBi
    // makes LSEs of hundreds, whose f32 has a rounding of its own.
    const double allowed = std::min(6.0 * expected.noise[row], kContractLseError);
    outcome.lse_excess = std::max(outcome.lse_excess, (lse_error - allowed) / size);
  }
  outcome.plain_error = plain.relative();
  // plain_error is infinite where something is NaN or where zero was expected; the excess must not hide that.
  outcome.error = !std::isfinite(outcome.plain_error) ? outcome.plain_error
                  : squared_excess == 0.0             ? 0.0
                                                      : std::sqrt(squared_excess / squared_reference);
}

Results Call::results() const {
  Results r;
  r.bytes.assign(o_.data(), o_.data() + o_elements_ * static_cast<std::size_t>(size_of(case_.o_dtype)));
  r.lse.assign(lse_.begin(), lse_.begin() + std::int64_t{q_tokens_} * q_heads_);
  for (std::int64_t t = 0; t < q_tokens_; ++t) {
    for (std::int64_t h = 0; h < q_heads_; ++h) {
      for (std::int64_t d = 0; d < case_.head_dim; ++d) {
        r.o.push_back(fp4pa::reference::decode_plain(o_.data(), case_.o_dtype, q_index(t, h) + d));
      }
    }
  }
  return r;
}

}  // namespace

Outcome run_case(const Case& c, Damage damage, Results* results) {
  Outcome outcome;
  Call call(c);
  // The reference comes first, so that a call that damaged its inputs could not be compared with the damaged ones.
  const Expected expected = call.reference();
  if (damage != Damage::kNone) call.damage(damage);
  outcome.failure = call.run(&outcome.backend);
  outcome.config = call.config;
  if (outcome.failure.empty()) call.compare(expected, outcome);
  if (results != nullptr) *results = call.results();
  return outcome;
}

}  // namespace grid
