// K smoothing by the GPU back ends' kernels: the bits of core's functions, by words where addresses allow it and without.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/dense/key_mean.hpp"
#include "tests/cache/random.hpp"
#include "tests/kernels/on_host.hpp"

namespace {

using namespace fp4pa;

/// Rows of a tensor [tokens, heads, head_dim] with room between them, and what K smoothing makes of them.
struct Smoothing {
  static constexpr float kUntouched = 1e30f;
  std::vector<float> storage;  // as wide as any dtype, and aligned as the library's memory is
  std::vector<float> sums, mean, centred;
  core::KeyMean m{};

  Smoothing(const core::DenseLengths& lengths, std::int32_t tokens, std::int32_t heads, std::int32_t head_dim, DType dtype, std::int64_t gap,
            unsigned seed) {
    const std::int64_t head_stride = head_dim + gap;
    const std::int64_t token_stride = heads * head_stride + gap;
    storage.resize(static_cast<std::size_t>(tokens * token_stride + 16));
    test::Random random(seed);
    std::vector<float> row(static_cast<std::size_t>(token_stride));
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (float& x : row) x = static_cast<float>(random.below(2001) - 1000.0) / 64.0f;
      core::store_plain_row(row.data(), static_cast<int>(token_stride), dtype, core::element_address(storage.data(), dtype, t * token_stride));
    }
    const auto of = [&](std::int64_t rows) { return std::vector<float>(static_cast<std::size_t>(rows * heads * head_dim), kUntouched); };
    sums = of(core::mean_chunks(lengths.kv_tokens, lengths.batch));
    mean = of(lengths.batch);
    centred = of(lengths.kv_tokens);
    m = {lengths, {storage.data(), token_stride, head_stride, dtype}, heads, head_dim, sums.data(), mean.data(), centred.data()};
  }

  void by_core() {
    const auto each = [&](std::int64_t rows, auto&& f) {
      for (std::int32_t i = 0; i < rows; ++i) {
        for (std::int32_t h = 0; h < m.heads; ++h) {
          for (std::int32_t d = 0; d < m.head_dim; ++d) f(m, i, h, d);
        }
      }
    };
    each(core::mean_chunks(m.lengths.kv_tokens, m.lengths.batch), core::sum_chunk);
    each(m.lengths.batch, core::finish_mean);
    each(m.lengths.kv_tokens, core::centre_key);
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("K smoothing: kernels give core's bits") {
  const std::int32_t ragged[] = {0, 5, 5, 300, 563, 571};
  const std::int32_t backwards[] = {0, 200, 100, 400, 571, 571};  // no batch: whose a token is, is then anybody's guess, but every one is centred
  constexpr std::int32_t kTokens = 571;
  for (const kernels_test::OnHost* host : {&kernels_test::kLanes32, &kernels_test::kLanes64}) {
    for (const std::int32_t* indptr : {static_cast<const std::int32_t*>(nullptr), ragged, backwards}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const std::int32_t head_dim : {32, 96, 128}) {
          for (const std::int64_t gap : {0, 8, 3}) {  // pieces of 16 bytes in the first two
            const std::int32_t batch = indptr == nullptr ? 1 : 5;
            const core::DenseLengths lengths{nullptr, indptr, batch, 9 * batch, kTokens, kTokens};
            Smoothing got(lengths, kTokens, 2, head_dim, dtype, gap, 7);
            Smoothing want(lengths, kTokens, 2, head_dim, dtype, gap, 7);
            want.by_core();
            REQUIRE(host->backend.dense->centre_keys(got.m, {}) == Status::kOk);
            INFO(host->backend.name, " head_dim ", head_dim, " gap ", gap, " dtype ", static_cast<int>(dtype), " batch ", batch);
            CHECK(same_bits(got.mean, want.mean));
            if (indptr != backwards) CHECK(same_bits(got.centred, want.centred));
            CHECK(std::count(got.centred.begin(), got.centred.end(), Smoothing::kUntouched) == 0);

            constexpr std::int32_t kHeads = 6;
            Smoothing q(lengths, lengths.q_tokens, kHeads, head_dim, dtype, gap, 8);
            std::vector<float> lse(static_cast<std::size_t>(lengths.q_tokens * kHeads), 0.25f);
            std::vector<float> want_lse = lse;
            REQUIRE(host->backend.dense->restore_lse(got.m, q.m.k, kHeads, 0.125f, lse.data(), {}) == Status::kOk);
            for (std::int32_t t = 0; t < lengths.q_tokens; ++t) {
              for (std::int32_t h = 0; h < kHeads; ++h) core::restore_lse(want.m, q.m.k, kHeads, 0.125f, want_lse.data(), t, h);
            }
            CHECK(same_bits(lse, want_lse));
          }
        }
      }
    }
  }
}
