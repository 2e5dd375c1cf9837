#include <algorithm>
#include <memory>
#include <random>
#include <string>

#include "fp4pa/fp4pa.hpp"
#include "tests/gpu/direct/cache.hpp"
#include "tests/gpu/direct/calls.hpp"

namespace fp4pa::direct_test {
namespace {

ExecDesc on(cudaStream_t stream) { return {"cuda", stream, 0}; }

/// Sequences that begin empty, and get as many tokens as the seed says.
class TwoTierAppend final : public Call {
 public:
  explicit TwoTierAppend(KvFormat format) : old_(format), recent_(KvFormat::kBf16) {
    desc_.old_tier = old_.desc;
    desc_.recent = recent_.desc;
    desc_.ring_pages = min_ring_pages(desc_.window_tokens, desc_.group_tokens, kPageSize);
    old_table_ = Buffer<std::int32_t>(old_.pages);
    recent_table_ = Buffer<std::int32_t>(std::vector<std::int32_t>(
        recent_.pages.begin(), recent_.pages.begin() + std::ptrdiff_t{kBatch} * desc_.ring_pages));
  }
  void fill(std::uint32_t seed) override {
    old_.fill(seed);
    const auto tokens = static_cast<std::int32_t>(seed % 300);
    indptr_.upload({0, 1 + tokens, 200 + tokens, 233 + 2 * tokens});
  }
  Status enqueue(cudaStream_t stream) override {
    return append_two_tier(desc_, {old_.k.data(), DType::kBF16, kRow, kDim}, {old_.v.data(), DType::kBF16, kRow, kDim}, indptr_.data(),
                           lengths_.data(), kBatch, kTokens, old_table_.data(), kPagesEach, recent_table_.data(), on(stream));
  }
  void clear() override {
    old_.clear();
    recent_.clear();
  }
  [[nodiscard]] std::vector<std::uint8_t> results() const override {
    std::vector<std::uint8_t> all;
    old_.append_to(all);
    recent_.append_to(all);
    return all;
  }

 private:
  Cache old_, recent_;
  TwoTierDesc desc_;
  Buffer<std::int32_t> indptr_{kBatch + 1}, lengths_{kBatch, 0}, old_table_, recent_table_;
};

/// Half of the pages copied to the other half, the seed says which to which.
class CopyPages final : public Call {
 public:
  CopyPages() : cache_(KvFormat::kNvfp4) {}
  void fill(std::uint32_t seed) override {
    seed_ = seed;
    std::vector<std::int32_t> pages = cache_.pages;
    std::shuffle(pages.begin(), pages.end(), std::mt19937(seed));
    const auto half = pages.begin() + kCopies;
    from_.upload({pages.begin(), half});
    to_.upload({half, half + kCopies});
    clear();
  }
  Status enqueue(cudaStream_t stream) override { return copy_pages(cache_.desc, from_.data(), to_.data(), kCopies, on(stream)); }
  void clear() override {
    std::uint32_t seed = seed_;
    for (Buffer<std::uint8_t>& array : cache_.arrays) array.upload(bytes_between(array.size(), 0, 255, ++seed));
  }
  [[nodiscard]] std::vector<std::uint8_t> results() const override {
    std::vector<std::uint8_t> all;
    cache_.append_to(all);
    return all;
  }

 private:
  static constexpr std::int32_t kCopies = kBatch * kPagesEach / 2;
  Cache cache_;
  std::uint32_t seed_ = 0;
  Buffer<std::int32_t> from_{kCopies}, to_{kCopies};
};

class MergeStates final : public Call {
 public:
  void fill(std::uint32_t seed) override {
    for (int side = 0; side < 2; ++side) {
      o_[side].upload(bf16_values(o_[side].size(), seed + static_cast<std::uint32_t>(side)));
      std::vector<float> lse(kRows);
      std::mt19937 random(seed + 7 + static_cast<std::uint32_t>(side));
      for (float& x : lse) x = static_cast<float>(random() % 4000) / 500.0f - 4.0f;
      lse_[side].upload(lse);
    }
  }
  Status enqueue(cudaStream_t stream) override {
    return merge_states(o_[0].data(), lse_[0].data(), o_[1].data(), lse_[1].data(), merged_.data(), merged_lse_.data(), DType::kBF16,
                        kRows, kDim, on(stream));
  }
  void clear() override {
    merged_.fill(0xff);
    merged_lse_.fill(0xff);
  }
  [[nodiscard]] std::vector<std::uint8_t> results() const override {
    std::vector<std::uint8_t> all;
    merged_.append_to(all);
    merged_lse_.append_to(all);
    return all;
  }

 private:
  static constexpr std::int64_t kRows = 777;
  Buffer<std::uint16_t> o_[2] = {Buffer<std::uint16_t>(kRows * kDim), Buffer<std::uint16_t>(kRows * kDim)};
  Buffer<float> lse_[2] = {Buffer<float>(kRows), Buffer<float>(kRows)};
  Buffer<std::uint16_t> merged_{kRows * kDim};
  Buffer<float> merged_lse_{kRows};
};

/// A tensor quantised, and back. Blocked scales of such a shape have padding, which is cleared.
class QuantizeAndBack final : public Call {
 public:
  QuantizeAndBack(BlockFormat format, ScaleLayout layout)
      : config_{format, layout, ScaleMode::kEven, Nvfp4Scale::kAmaxOver6, 1.0f},
        codes_(quantized_code_bytes(format, kRows, kCols)),
        scales_(quantized_scale_bytes(format, layout, kRows, kCols)) {}
  void fill(std::uint32_t seed) override { x_.upload(bf16_values(x_.size(), seed)); }
  Status enqueue(cudaStream_t stream) override {
    const Status s = quantize(config_, x_.data(), DType::kBF16, kRows, kCols, codes_.data(), scales_.data(), on(stream));
    if (s != Status::kOk) return s;
    return dequantize(config_, codes_.data(), scales_.data(), kRows, kCols, y_.data(), DType::kF32, on(stream));
  }
  void clear() override {
    codes_.fill(0xff);
    scales_.fill(0xff);
    y_.fill(0xff);
  }
  [[nodiscard]] std::vector<std::uint8_t> results() const override {
    std::vector<std::uint8_t> all;
    codes_.append_to(all);
    scales_.append_to(all);
    y_.append_to(all);
    return all;
  }

 private:
  static constexpr std::int64_t kRows = 201, kCols = 288;
  QuantizeConfig config_;
  Buffer<std::uint16_t> x_{kRows * kCols};
  Buffer<std::uint8_t> codes_, scales_;
  Buffer<float> y_{kRows * kCols};
};

}  // namespace

std::vector<NamedCall> memory_calls() {
  std::vector<NamedCall> calls;
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    calls.push_back({std::string("append_two_tier ") + name_of(format), [=] { return std::make_unique<TwoTierAppend>(format); }});
  }
  calls.push_back({"copy_pages", [] { return std::make_unique<CopyPages>(); }});
  calls.push_back({"merge_states", [] { return std::make_unique<MergeStates>(); }});
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4, BlockFormat::kMxfp8}) {
    for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
      calls.push_back({std::string("quantize and dequantize ") + name_of(format) + " " + name_of(layout),
                       [=] { return std::make_unique<QuantizeAndBack>(format, layout); }});
    }
  }
  return calls;
}

}  // namespace fp4pa::direct_test
