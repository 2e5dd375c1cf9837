#include "fp4pa/fp4pa.hpp"
#include "tests/gpu/direct/cache.hpp"
#include "tests/gpu/direct/calls.hpp"

namespace fp4pa::direct_test {
namespace {

constexpr std::int32_t kGroup = 4;

class AppendAndGather final : public Call {
 public:
  explicit AppendAndGather(KvFormat format) : cache_(format) {}
  void fill(std::uint32_t seed) override { cache_.fill(seed); }
  Status enqueue(cudaStream_t stream) override {
    if (const Status s = cache_.append(stream); s != Status::kOk) return s;
    return gather(cache_.desc, cache_.slots.data(), IndexType::kInt64, kTokens, {k_.data(), DType::kF32, kRow, kDim},
                  {v_.data(), DType::kF32, kRow, kDim}, {"cuda", stream, 0});
  }
  void clear() override {
    for (Buffer<float>* out : {&k_, &v_}) out->fill(0xff);
    cache_.clear();
  }
  [[nodiscard]] std::vector<std::uint8_t> results() const override {
    std::vector<std::uint8_t> all;
    for (const Buffer<float>* out : {&k_, &v_}) out->append_to(all);
    cache_.append_to(all);
    return all;
  }

 private:
  Cache cache_;
  Buffer<float> k_{std::size_t{kTokens} * kRow}, v_{std::size_t{kTokens} * kRow};
};

class Attention final : public Call {
 public:
  Attention(KvFormat format, std::int32_t query_tokens) : cache_(format), tokens_(query_tokens) {
    AttentionConfig c;
    c.cache = cache_.desc;
    c.num_q_heads = kKvHeads * kGroup;
    c.max_batch = kBatch;
    c.max_q_len = tokens_;
    c.max_q_tokens = kBatch * tokens_;
    c.max_kv_len = kPagesEach * kPageSize;
    c.backend = "cuda";
    must_succeed(plan(c, &plan_), "planning an attention");
    const auto rows = static_cast<std::size_t>(kBatch * tokens_ * c.num_q_heads);
    q_ = Buffer<std::uint16_t>(rows * kDim);
    o_ = Buffer<std::uint16_t>(rows * kDim);
    lse_ = Buffer<float>(rows);
    workspace_ = Buffer<std::uint8_t>(plan_.workspace_bytes());
    indptr_ = Buffer<std::int32_t>({0, tokens_, 2 * tokens_, 3 * tokens_});
    table_ = Buffer<std::int32_t>(cache_.pages);
  }
  void fill(std::uint32_t seed) override {
    cache_.fill(seed);
    must_succeed(cache_.append(nullptr), "filling a cache");
    q_.upload(bf16_values(q_.size(), seed + 2));  // and waits
    const auto length = static_cast<std::int32_t>(seed % 700);
    lengths_.upload({kPagesEach * kPageSize - length, 500 + length, 65 + length / 2});
  }
  Status enqueue(cudaStream_t stream) override {
    AttentionArgs a;
    a.q = q_.data();
    a.o = o_.data();
    a.lse = lse_.data();
    a.batch = kBatch;
    a.qo_indptr = indptr_.data();
    a.seq_lens = lengths_.data();
    a.block_table = table_.data();
    a.table_stride = kPagesEach;
    a.workspace = workspace_.data();
    a.workspace_bytes = workspace_.size();
    a.stream = stream;
    return run(plan_, a);
  }
  void clear() override {
    o_.fill(0xff);
    lse_.fill(0xff);
    workspace_.fill(0xff);
  }
  [[nodiscard]] std::vector<std::uint8_t> results() const override {
    std::vector<std::uint8_t> all;
    o_.append_to(all);
    lse_.append_to(all);
    return all;
  }

 private:
  Cache cache_;
  std::int32_t tokens_;
  AttentionPlan plan_;
  Buffer<std::uint16_t> q_, o_;
  Buffer<float> lse_;
  Buffer<std::uint8_t> workspace_;
  Buffer<std::int32_t> indptr_, table_, lengths_{kBatch};
};

}  // namespace

std::vector<NamedCall> cache_calls() {
  std::vector<NamedCall> calls;
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kBf16}) {
    const std::string name = name_of(format);
    for (const std::int32_t tokens : {1, 4, 16, 64}) {  // 4, 16, 64 and 256 rows
      calls.push_back({"attention " + name + ", " + std::to_string(tokens) + " query tokens",
                       [=] { return std::make_unique<Attention>(format, tokens); }});
    }
    calls.push_back({"append and gather " + name, [=] { return std::make_unique<AppendAndGather>(format); }});
  }
  return calls;
}

}  // namespace fp4pa::direct_test
