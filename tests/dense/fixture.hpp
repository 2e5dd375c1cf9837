// Dense and MXFP8 calls with memory of their own, valid as they stand, and the double-precision answer to each.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/formats/elements.hpp"
#include "core/formats/half.hpp"
#include "fp4pa/fp4pa.hpp"
#include "reference/attention.hpp"
#include "reference/element.hpp"
#include "reference/metrics.hpp"
#include "reference/rotation.hpp"
#include "tests/cache/random.hpp"
#include "tests/dense/target.hpp"

namespace dense_test {

using namespace fp4pa;

/// `call` fails with `status`, and its sentence holds every one of `parts`.
#define DENSE_CHECK_REFUSED(call, status, ...)                           \
  do {                                                                   \
    CHECK((call) == (status));                                           \
    for (const char* part : {__VA_ARGS__}) {                             \
      INFO(std::string(::fp4pa::last_error_detail()));                   \
      CHECK(std::strstr(::fp4pa::last_error_detail(), part) != nullptr); \
    }                                                                    \
  } while (false)

/// Bytes on a 256-byte boundary, filled with a pattern that is NaN in most formats.
class Memory {
 public:
  explicit Memory(std::size_t bytes = 0) : bytes_(bytes) {
    data_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256)));
    std::memset(data_.get(), 0xff, (bytes + 511) / 256 * 256);
  }
  [[nodiscard]] std::uint8_t* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<std::uint8_t, Free> data_;
  std::size_t bytes_;
};

struct Shape {
  std::vector<std::int32_t> q_lens, kv_lens;
  std::int32_t q_heads = 2, kv_heads = 1, head_dim = 64;
  bool causal = false;
  float sm_scale = 0.0f;

  [[nodiscard]] std::int32_t batch() const { return static_cast<std::int32_t>(q_lens.size()); }
  [[nodiscard]] std::int32_t q_tokens() const { return std::accumulate(q_lens.begin(), q_lens.end(), 0); }
  [[nodiscard]] std::int32_t kv_tokens() const { return std::accumulate(kv_lens.begin(), kv_lens.end(), 0); }
  [[nodiscard]] double scale() const { return sm_scale != 0.0f ? sm_scale : 1.0 / std::sqrt(double{1} * head_dim); }
  [[nodiscard]] DenseLimits limits() const {
    return {batch(), std::max(q_tokens(), 1), std::max(1, *std::max_element(q_lens.begin(), q_lens.end())), kv_tokens(),
            *std::max_element(kv_lens.begin(), kv_lens.end())};
  }
};

/// Several sequences, ragged, one without queries' worth of keys to spare.
inline Shape ragged(std::int32_t head_dim, bool causal) {
  return {{5, 1, 70, 33}, {37, 1, 70, 130}, 4, 2, head_dim, causal, 0.0f};
}

inline std::vector<std::int32_t> indptr_of(const std::vector<std::int32_t>& lens) {
  std::vector<std::int32_t> indptr{0};
  for (const std::int32_t n : lens) indptr.push_back(indptr.back() + n);
  return indptr;
}

/// Values [tokens, heads, head_dim] in double precision.
using Values = std::vector<double>;

struct Result {
  Values o;    ///< [q_tokens, q_heads, head_dim]
  Values lse;  ///< [q_tokens, q_heads]
};

inline Result answer(const Shape& s, const Values& q, const Values& k, const Values& v) {
  const auto dim = static_cast<std::size_t>(s.head_dim);
  const auto hq = static_cast<std::size_t>(s.q_heads);
  const auto hk = static_cast<std::size_t>(s.kv_heads);
  const std::vector<std::int32_t> q_at = indptr_of(s.q_lens), kv_at = indptr_of(s.kv_lens);
  Result r{Values(q.size()), Values(q.size() / dim)};
  for (std::size_t b = 0; b < s.q_lens.size(); ++b) {
    for (std::int32_t i = 0; i < s.q_lens[b]; ++i) {
      for (std::size_t h = 0; h < hq; ++h) {
        const std::size_t row = static_cast<std::size_t>(q_at[b] + i) * hq + h;
        reference::QueryRow query;
        query.q = {q.data() + row * dim, dim};
        query.sm_scale = s.scale();
        query.num_keys = s.kv_lens[b];
        query.num_queries = s.q_lens[b];
        query.query_index = i;
        query.causal = s.causal;
        const auto at = [&](const Values& x) {
          return [&, h](std::int64_t t) {
            return x.data() + (static_cast<std::size_t>(kv_at[b] + t) * hk + h / (hq / hk)) * dim;
          };
        };
        r.lse[row] = reference::attend_row(query, at(k), at(v), {r.o.data() + row * dim, dim});
      }
    }
  }
  return r;
}

struct Error {
  double o, lse, cosine;
};

/// E4M3 codes with E8M0 scales, dense.
struct Mxfp8Data {
  Mxfp8Data(std::int32_t tokens, std::int32_t heads, std::int32_t dim)
      : elements(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(heads * dim)),
        codes(elements),
        scales(elements / 32) {}
  /// Gaussian-like values: E4M3 codes of up to 4, scales from 2^low to 2^high.
  void fill(test::Random& random, int low, int high) {
    for (std::size_t i = 0; i < elements; ++i) {
      double x = -2.0;
      for (int n = 0; n < 4; ++n) x += random.uniform();
      codes.data()[i] = core::E4M3::encode(static_cast<float>(2.0 * x));
    }
    for (std::size_t i = 0; i < elements / 32; ++i) {
      scales.data()[i] = static_cast<std::uint8_t>(127 + low + random.below(high - low + 1));
    }
  }
  /// Values that E4M3 holds without a scale as well, multiples of 2^-4 up to 8: codes of eighths up to 1, scales from 2^-1 to 2^2.
  void fill_exact(test::Random& random) {
    for (std::size_t i = 0; i < elements; ++i) {
      codes.data()[i] = core::E4M3::encode(static_cast<float>((random.below(17) - 8) * 0.125));
    }
    for (std::size_t i = 0; i < elements / 32; ++i) scales.data()[i] = static_cast<std::uint8_t>(126 + random.below(4));
  }
  /// The same values under scales of 1; returns how many are not the same.
  [[nodiscard]] std::int64_t fold_scales() {
    std::int64_t inexact = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      const double before = value(i);
      codes.data()[i] = core::E4M3::encode(static_cast<float>(before));
      inexact += reference::decode_e4m3(codes.data()[i]) != before;
    }
    set_scales(0);
    return inexact;
  }
  void set_scales(int log2) { std::memset(scales.data(), 127 + log2, elements / 32); }
  [[nodiscard]] double value(std::size_t i) const {
    return reference::decode_e4m3(codes.data()[i]) * reference::decode_e8m0(scales.data()[i / 32]);
  }
  [[nodiscard]] Values values() const {
    Values x(elements);
    for (std::size_t i = 0; i < elements; ++i) x[i] = value(i);
    return x;
  }
  [[nodiscard]] Mxfp8Tensor tensor() const { return {codes.data(), 0, 0, scales.data(), 0, 0}; }

  std::size_t elements;
  Memory codes, scales;
};

/// What both calls give back: O in f32 and LSE, poisoned before.
struct Outputs {
  explicit Outputs(const Shape& s)
      : o(static_cast<std::size_t>(s.q_tokens() * s.q_heads * s.head_dim) * 4),
        lse(static_cast<std::size_t>(s.q_tokens() * s.q_heads)) {}
  void reset() {
    std::memset(o.data(), 0x5a, o.size());
    std::fill(lse.begin(), lse.end(), -7.5f);
  }
  [[nodiscard]] bool untouched() const {
    return std::all_of(o.data(), o.data() + o.size(), [](std::uint8_t b) { return b == 0x5a; }) &&
           std::all_of(lse.begin(), lse.end(), [](float x) { return x == -7.5f; });
  }
  [[nodiscard]] double value(std::size_t i) const {
    return reference::decode_plain(o.data(), DType::kF32, static_cast<std::int64_t>(i));
  }
  [[nodiscard]] std::vector<std::uint8_t> bits() const {
    std::vector<std::uint8_t> all(o.data(), o.data() + o.size());
    const auto* l = reinterpret_cast<const std::uint8_t*>(lse.data());
    all.insert(all.end(), l, l + lse.size() * 4);
    return all;
  }
  [[nodiscard]] Error error(const Result& want) const {
    reference::Difference d;
    double worst = 0.0;
    for (std::size_t i = 0; i < want.o.size(); ++i) d.add(value(i), want.o[i]);
    for (std::size_t i = 0; i < want.lse.size(); ++i) {
      worst = std::max(worst, reference::lse_difference(lse[i], want.lse[i]));
    }
    return {d.relative(), worst, d.cosine()};
  }

  Memory o;
  std::vector<float> lse;
};

/// The rows of a batch, by indptr or (equal lengths) without.
struct Rows {
  explicit Rows(const Shape& s) : q(indptr_of(s.q_lens)), kv(indptr_of(s.kv_lens)) {
    batch = {s.batch(), s.q_tokens(), s.kv_tokens(), q.data(), kv.data()};
  }
  std::vector<std::int32_t> q, kv;
  DenseBatch batch;
};

struct Mxfp8Call {
  explicit Mxfp8Call(const Shape& s, std::uint64_t seed = 1, int low = -3, int high = 3)
      : shape(s),
        q(s.q_tokens(), s.q_heads, s.head_dim),
        k(s.kv_tokens(), s.kv_heads, s.head_dim),
        v(s.kv_tokens(), s.kv_heads, s.head_dim),
        rows(s),
        out(s) {
    test::Random random(seed);
    q.fill(random, low, high);
    k.fill(random, low, high);
    v.fill(random, low, high);
    config.num_q_heads = s.q_heads;
    config.num_kv_heads = s.kv_heads;
    config.head_dim = s.head_dim;
    config.o_dtype = DType::kF32;
    config.sm_scale = s.sm_scale;
    config.causal = s.causal;
    config.limits = s.limits();
    config.num_threads = 2;
    args.rows = rows.batch;
  }
  Mxfp8Call(const Mxfp8Call&) = delete;

  Status run(const char* backend) {
    config.backend = backend;
    if (const Status s = plan_mxfp8_attention(config, &plan); s != Status::kOk) return s;
    workspace = Memory(plan.workspace_bytes());
    args.q = q.tensor();
    args.k = k.tensor();
    args.v = v.tensor();
    args.o = out.o.data();
    args.lse = out.lse.data();
    args.workspace = workspace.data();
    args.workspace_bytes = plan.workspace_bytes();
    out.reset();
    return run_mxfp8_attention(plan, args);
  }
  [[nodiscard]] Result want() const { return answer(shape, q.values(), k.values(), v.values()); }

  Shape shape;
  Mxfp8Data q, k, v;
  Rows rows;
  Outputs out;
  Mxfp8AttentionConfig config;
  Mxfp8AttentionArgs args;
  Mxfp8AttentionPlan plan;
  Memory workspace;
};

enum class Distribution { kUniform, kGaussian };

/// A plain tensor and the values that it holds after rounding to its dtype.
struct PlainData {
  PlainData(std::int32_t tokens, std::int32_t heads, std::int32_t dim, DType t)
      : dtype(t),
        values(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(heads * dim)),
        data(values.size() * 4) {}
  template <class F>
  void fill(F&& next) {
    for (std::size_t i = 0; i < values.size(); ++i) put(i, next(i));
  }
  void put(std::size_t i, double x) {
    const auto f = static_cast<float>(x);
    if (dtype == DType::kF32) {
      std::memcpy(data.data() + 4 * i, &f, 4);
    } else {
      const std::uint16_t half = dtype == DType::kF16 ? core::f32_to_f16(f) : core::f32_to_bf16(f);
      std::memcpy(data.data() + 2 * i, &half, 2);
    }
    values[i] = reference::decode_plain(data.data(), dtype, static_cast<std::int64_t>(i));
  }
  DType dtype;
  Values values;
  Memory data;
};

inline double draw(test::Random& random, Distribution distribution) {
  if (distribution == Distribution::kUniform) return 2.0 * random.uniform() - 1.0;
  return std::sqrt(-2.0 * std::log(1.0 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
}

struct DenseCall {
  explicit DenseCall(const Shape& s, DType dtype = DType::kF32)
      : shape(s),
        q(s.q_tokens(), s.q_heads, s.head_dim, dtype),
        k(s.kv_tokens(), s.kv_heads, s.head_dim, dtype),
        v(s.kv_tokens(), s.kv_heads, s.head_dim, dtype),
        rows(s),
        out(s) {
    config.num_q_heads = s.q_heads;
    config.num_kv_heads = s.kv_heads;
    config.head_dim = s.head_dim;
    config.q_dtype = config.kv_dtype = dtype;
    config.o_dtype = DType::kF32;
    config.sm_scale = s.sm_scale;
    config.causal = s.causal;
    config.limits = s.limits();
    config.num_threads = 2;
    args.rows = rows.batch;
  }
  DenseCall(const DenseCall&) = delete;
  void fill(std::uint64_t seed, Distribution distribution) {
    test::Random random(seed);
    for (PlainData* x : {&q, &k, &v}) x->fill([&](std::size_t) { return draw(random, distribution); });
  }

  Status run(const char* backend) {
    config.backend = backend;
    if (const Status s = plan_dense_attention(config, &plan); s != Status::kOk) return s;
    workspace = Memory(plan.workspace_bytes());
    args.q = q.data.data();
    args.k = {k.data.data(), k.dtype, 0, 0};
    args.v = {v.data.data(), v.dtype, 0, 0};
    args.o = out.o.data();
    args.lse = out.lse.data();
    args.workspace = workspace.data();
    args.workspace_bytes = plan.workspace_bytes();
    out.reset();
    return run_dense_attention(plan, args);
  }
  /// Against what was given, before it was quantised.
  [[nodiscard]] Result want() const { return answer(shape, q.values, k.values, v.values); }

  Shape shape;
  PlainData q, k, v;
  Rows rows;
  Outputs out;
  DenseAttentionConfig config;
  DenseAttentionArgs args;
  DenseAttentionPlan plan;
  Memory workspace;
};

}  // namespace dense_test
