// Small q, k and v for the tool to chew on: smooth, different in every element, of unit size.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "weights/safetensors.hpp"

namespace test {

struct Sample {
  std::int64_t q_heads = 4, kv_heads = 2, queries = 3, tokens = 75, head_dim = 64;
  std::vector<float> q, k, v;
};

[[nodiscard]] inline std::vector<float> waves(std::int64_t count, double frequency) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(i);
    values.push_back(static_cast<float>(std::sin(frequency * x) + 0.5 * std::cos(0.7 + 3.1 * frequency * x)));
  }
  return values;
}

[[nodiscard]] inline Sample make_sample(std::int64_t head_dim = 64) {
  Sample s;
  s.head_dim = head_dim;
  s.q = waves(s.q_heads * s.queries * head_dim, 1.13);
  s.k = waves(s.kv_heads * s.tokens * head_dim, 0.37);
  s.v = waves(s.kv_heads * s.tokens * head_dim, 0.59);
  return s;
}

inline void write_sample(const std::string& path, const Sample& s,
                         const std::map<std::string, std::string>& metadata = {}) {
  using fp4pa::safetensors::write;
  write(path,
        {{"q", "F32", {s.q_heads, s.queries, s.head_dim}, std::as_bytes(std::span(s.q))},
         {"k", "F32", {s.kv_heads, s.tokens, s.head_dim}, std::as_bytes(std::span(s.k))},
         {"v", "F32", {s.kv_heads, s.tokens, s.head_dim}, std::as_bytes(std::span(s.v))}},
        metadata);
}

}  // namespace test
