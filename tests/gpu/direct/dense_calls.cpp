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

class Dense final : public Call {
 public:
  static DenseAttentionPlan plan_of(KvFormat format, std::int32_t queries, bool smooth_k) {
    DenseAttentionConfig c;
    c.num_q_heads = kQHeads;
    c.num_kv_heads = kKvHeads;
    c.head_dim = kDim;
    c.causal = true;
    c.k_format = c.v_format = format;
    c.smooth_k = smooth_k;
    c.limits = limits_of(queries);
    c.backend = "cuda";
    DenseAttentionPlan plan;
    must_succeed(plan_dense_attention(c, &plan), "planning a dense attention");
    return plan;
  }
  explicit Dense(const DenseAttentionPlan& plan)
      : lengths_(plan.config().limits),
        out_(lengths_.rows),
        q_(out_.o.size()),
        k_(std::size_t{kKeys} * kKvHeads * kDim),
        v_(k_.size()),
        workspace_(plan.workspace_bytes()),
        plan_(plan) {}
  void fill(std::uint32_t seed) override {
    lengths_.fill(seed);
    q_.upload(bf16_values(q_.size(), seed));
    k_.upload(bf16_values(k_.size(), seed + 1));
    v_.upload(bf16_values(v_.size(), seed + 2));
  }
  Status enqueue(cudaStream_t stream) override {
    DenseAttentionArgs a;
    a.q = q_.data();
    a.k = {k_.data(), DType::kBF16, 0, 0};
    a.v = {v_.data(), DType::kBF16, 0, 0};
    a.o = out_.o.data();
    a.lse = out_.lse.data();
    a.rows = lengths_.batch();
    a.workspace = workspace_.data();
    a.workspace_bytes = workspace_.size();
    a.stream = stream;
    return run_dense_attention(plan_, a);
  }
  void clear() override {
    out_.clear();
    workspace_.fill(0xff);
  }
  [[nodiscard]] std::vector<std::uint8_t> results() const override { return out_.results(); }

 private:
  Lengths lengths_;
  Outputs out_;
  Buffer<std::uint16_t> q_, k_, v_;
  Buffer<std::uint8_t> workspace_;
  DenseAttentionPlan plan_;
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

class Mxfp8 final : public Call {
 public:
  static Mxfp8AttentionPlan plan_of(std::int32_t queries, Mxfp8Decode decode) {
    Mxfp8AttentionConfig c;
    c.num_q_heads = kQHeads;
    c.num_kv_heads = kKvHeads;
    c.head_dim = kDim;
    c.causal = true;
    c.decode = decode;
    c.limits = limits_of(queries);
    c.backend = "cuda";
    Mxfp8AttentionPlan plan;
    must_succeed(plan_mxfp8_attention(c, &plan), "planning an MXFP8 attention");
    return plan;
  }
  explicit Mxfp8(const Mxfp8AttentionPlan& plan)
      : lengths_(plan.config().limits),
        out_(lengths_.rows),
        q_(lengths_.rows, kQHeads),
        k_(kKeys, kKvHeads),
        v_(kKeys, kKvHeads),
        workspace_(plan.workspace_bytes()),
        plan_(plan) {}
  void fill(std::uint32_t seed) override {
    lengths_.fill(seed);
    q_.fill(seed);
    k_.fill(seed + 2);
    v_.fill(seed + 4);
  }
  Status enqueue(cudaStream_t stream) override {
    Mxfp8AttentionArgs a;
    a.q = q_.tensor();
    a.k = k_.tensor();
    a.v = v_.tensor();
    a.o = out_.o.data();
    a.lse = out_.lse.data();
    a.rows = lengths_.batch();
    a.workspace = workspace_.data();
    a.workspace_bytes = workspace_.size();
    a.stream = stream;
    return run_mxfp8_attention(plan_, a);
  }
  void clear() override {
    out_.clear();
    workspace_.fill(0xff);
  }
  [[nodiscard]] std::vector<std::uint8_t> results() const override { return out_.results(); }

 private:
  Lengths lengths_;
  Outputs out_;
  Mxfp8Values q_, k_, v_;
  Buffer<std::uint8_t> workspace_;
  Mxfp8AttentionPlan plan_;
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
