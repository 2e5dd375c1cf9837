#include <algorithm>

#include "fp4pa/fp4pa.hpp"
#include "tests/gpu/direct/calls.hpp"

namespace fp4pa::direct_test {
namespace {

constexpr std::int32_t kQHeads = 4, kKvHeads = 2, kDim = 128;
constexpr std::int32_t kBatch = 2, kMostKeys = 700, kKeys = 1100;

/// Query tokens of the longest sequence that a call of 2 * queries may have.
[[nodiscard]] std::int32_t most_queries(std::int32_t queries) { return queries < 8 ? queries : queries + 4; }
[[nodiscard]] DenseLimits limits_of(std::int32_t queries) { return {kBatch, 2 * queries, most_queries(queries), kKeys, kMostKeys}; }

/// Where sequences begin. The same rows are shared out in another way for every seed.
struct Lengths {
  explicit Lengths(const DenseLimits& limits) : rows(limits.max_q_tokens), slack(limits.max_q_len - rows / 2) {}
  void fill(std::uint32_t seed) {
    const auto shift = static_cast<std::int32_t>(seed % 5);
    q.upload({0, rows / 2 + std::min(shift, slack), rows});
    kv.upload({0, 500 + 10 * shift, kKeys});
  }
  [[nodiscard]] DenseBatch batch() const { return {kBatch, rows, kKeys, q.data(), kv.data()}; }

  std::int32_t rows, slack;
  Buffer<std::int32_t> q{kBatch + 1}, kv{kBatch + 1};
};

struct Outputs {
  explicit Outputs(std::int32_t rows)
      : o(static_cast<std::size_t>(rows) * kQHeads * kDim), lse(static_cast<std::size_t>(rows) * kQHeads) {}
  void clear() {
    o.fill(0xff);
    lse.fill(0xff);
  }
  [[nodiscard]] std::vector<std::uint8_t> results() const {
    std::vector<std::uint8_t> all;
    o.append_to(all);
    lse.append_to(all);
    return all;
  }
  Buffer<std::uint16_t> o;
  Buffer<float> lse;
};

/// What the configurations of both calls have in common.
template <class Config>
[[nodiscard]] Config config_of(std::int32_t queries) {
  Config c;
  c.num_q_heads = kQHeads;
  c.num_kv_heads = kKvHeads;
  c.head_dim = kDim;
  c.causal = true;
  c.limits = limits_of(queries);
  c.backend = "cuda";
  return c;
}

/// A call of a plan: its lengths, outputs and workspace, and what of the arguments is about these.
template <class Plan, class Args>
class PlannedCall : public Call {
 public:
  explicit PlannedCall(const Plan& plan)
      : plan_(plan), lengths_(plan.config().limits), out_(lengths_.rows), workspace_(plan.workspace_bytes()) {}
  void clear() final {
    out_.clear();
    workspace_.fill(0xff);
  }
  [[nodiscard]] std::vector<std::uint8_t> results() const final { return out_.results(); }

 protected:
  [[nodiscard]] Args common_args(cudaStream_t stream) const {
    Args a;
    a.o = out_.o.data();
    a.lse = out_.lse.data();
    a.rows = lengths_.batch();
    a.workspace = workspace_.data();
    a.workspace_bytes = workspace_.size();
    a.stream = stream;
    return a;
  }
  Plan plan_;
  Lengths lengths_;

 private:
  Outputs out_;
  Buffer<std::uint8_t> workspace_;
};

class Dense final : public PlannedCall<DenseAttentionPlan, DenseAttentionArgs> {
 public:
  static DenseAttentionPlan plan_of(KvFormat format, std::int32_t queries, bool smooth_k) {
    auto c = config_of<DenseAttentionConfig>(queries);
    c.k_format = c.v_format = format;
    c.smooth_k = smooth_k;
    DenseAttentionPlan plan;
    must_succeed(plan_dense_attention(c, &plan), "planning a dense attention");
    return plan;
  }
  explicit Dense(const DenseAttentionPlan& plan)
      : PlannedCall(plan),
        q_(static_cast<std::size_t>(lengths_.rows) * kQHeads * kDim),
        k_(std::size_t{kKeys} * kKvHeads * kDim),
        v_(k_.size()) {}
  void fill(std::uint32_t seed) override {
    lengths_.fill(seed);
    q_.upload(bf16_values(q_.size(), seed));
    k_.upload(bf16_values(k_.size(), seed + 1));
    v_.upload(bf16_values(v_.size(), seed + 2));
  }
  Status enqueue(cudaStream_t stream) override {
    DenseAttentionArgs a = common_args(stream);
    a.q = q_.data();
    a.k = {k_.data(), DType::kBF16, 0, 0};
    a.v = {v_.data(), DType::kBF16, 0, 0};
    return run_dense_attention(plan_, a);
  }

 private:
  Buffer<std::uint16_t> q_, k_, v_;
};

/// Of up to 4 in magnitude.
std::vector<std::uint8_t> e4m3_codes(std::size_t count, std::uint32_t seed) {
  std::vector<std::uint8_t> codes = bytes_between(count, 0x00, 0x91, seed);
  for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(code > 0x48 ? 0x80 + (code - 0x49) : code);
  return codes;
}

struct Mxfp8Values {
  Mxfp8Values(std::int32_t tokens, std::int32_t heads)
      : codes(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(heads) * kDim), scales(codes.size() / 32) {}
  void fill(std::uint32_t seed) {
    codes.upload(e4m3_codes(codes.size(), seed));
    scales.upload(bytes_between(scales.size(), 125, 128, seed + 1));
  }
  [[nodiscard]] Mxfp8Tensor tensor() const { return {codes.data(), 0, 0, scales.data(), 0, 0}; }
  Buffer<std::uint8_t> codes, scales;
};

class Mxfp8 final : public PlannedCall<Mxfp8AttentionPlan, Mxfp8AttentionArgs> {
 public:
  static Mxfp8AttentionPlan plan_of(std::int32_t queries, Mxfp8Decode decode) {
    auto c = config_of<Mxfp8AttentionConfig>(queries);
    c.decode = decode;
    Mxfp8AttentionPlan plan;
    must_succeed(plan_mxfp8_attention(c, &plan), "planning an MXFP8 attention");
    return plan;
  }
  explicit Mxfp8(const Mxfp8AttentionPlan& plan)
      : PlannedCall(plan), q_(lengths_.rows, kQHeads), k_(kKeys, kKvHeads), v_(kKeys, kKvHeads) {}
  void fill(std::uint32_t seed) override {
    lengths_.fill(seed);
    q_.fill(seed);
    k_.fill(seed + 2);
    v_.fill(seed + 4);
  }
  Status enqueue(cudaStream_t stream) override {
    Mxfp8AttentionArgs a = common_args(stream);
    a.q = q_.tensor();
    a.k = k_.tensor();
    a.v = v_.tensor();
    return run_mxfp8_attention(plan_, a);
  }

 private:
  Mxfp8Values q_, k_, v_;
};

}  // namespace

std::vector<NamedCall> dense_calls() {
  std::vector<NamedCall> calls;
  for (const std::int32_t queries : {1, 8, 32, 300}) {
    const std::string rows = ", " + std::to_string(queries) + " query tokens";
    for (const bool smooth_k : {false, true}) {
      const KvFormat format = smooth_k ? KvFormat::kMxfp4 : KvFormat::kNvfp4;
      const DenseAttentionPlan plan = Dense::plan_of(format, queries, smooth_k);
      calls.push_back({std::string("dense ") + name_of(format) + (smooth_k ? " less K's mean" : "") + rows,
                       [plan] { return std::make_unique<Dense>(plan); }});
    }
    for (const Mxfp8Decode decode : {Mxfp8Decode::kPerTile, Mxfp8Decode::kOnce}) {
      const Mxfp8AttentionPlan plan = Mxfp8::plan_of(queries, decode);
      calls.push_back({std::string("mxfp8 decoded ") + name_of(decode) + rows, [plan] { return std::make_unique<Mxfp8>(plan); }});
    }
  }
  return calls;
}

}  // namespace fp4pa::direct_test
