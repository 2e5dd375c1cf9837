// The attention grid of tests/attention on a GPU back end, against the double-precision reference.
//
// Bounds are DESIGN section 4's: 2e-3 where operands are f16, 8e-3 where one of them is bf16 (keys or values in bf16, and
// values with E8M0 scales along head_dim, whose probabilities are bf16). The LSE owes nothing to the values.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "tests/attention/grid_case.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/gpu/backend_name.hpp"
#if defined(FP4PA_TEST_HIP)
#include "hip/instances.hpp"
namespace instances = fp4pa::hip;
#else
#include "cuda/instances.hpp"
namespace instances = fp4pa::simt;
#endif

namespace {

using fp4pa::KvFormat;

bool has_bf16_operands(const grid::Case& c) {
  const auto scaled_probability = [](KvFormat v, fp4pa::VScaleAxis axis) {
    return v == KvFormat::kE8m0PerToken || (v == KvFormat::kMxfp4 && axis == fp4pa::VScaleAxis::kHeadDim);
  };
  const bool recent = c.window != 0 && (c.recent_k == KvFormat::kBf16 || c.recent_v == KvFormat::kBf16);
  return recent || c.k == KvFormat::kBf16 || c.v == KvFormat::kBf16 || scaled_probability(c.v, c.v_axis);
}

struct Worst {
  double o = 0.0, lse = 0.0;
  int cases = 0;
};

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

/// Configurations that the drawn grid meets too rarely: every specialised instance, at its own shapes.
grid::Case at_instance(grid::Case c, const fp4pa::core::SimtConfig& i) {
  using fp4pa::core::KvKind;
  const auto format = [](KvKind k) {
    switch (k) {
      case KvKind::kMxfp4:
      case KvKind::kMxfp4Tokens: return KvFormat::kMxfp4;
      case KvKind::kNvfp4:
      case KvKind::kNvfp4Tokens: return KvFormat::kNvfp4;
      case KvKind::kPerToken: return KvFormat::kE8m0PerToken;
      case KvKind::kFp8: return KvFormat::kFp8E4m3;
      case KvKind::kBf16: return KvFormat::kBf16;
      default: return KvFormat::kF16;
    }
  };
  if (i.k[0] == KvKind::kAny) return c;
  c.k = format(i.k[0]);
  c.v = format(i.v[0]);
  c.v_axis = fp4pa::core::along_tokens(i.v[0]) ? fp4pa::VScaleAxis::kTokens : fp4pa::VScaleAxis::kHeadDim;
  c.head_dim = i.head_dim;
  if (c.v_axis == fp4pa::VScaleAxis::kTokens) c.page_size = std::max(32, c.page_size / 32 * 32);
  c.window = 0;
  if (i.segments == 2) {
    c.window = 64;
    c.group_tokens = c.page_size;
    c.recent_page_size = 16;
    c.recent_k = format(i.k[1]);
    c.recent_v = format(i.v[1]);
  }
  if (static_cast<int>(c.rotation) != 0 && c.head_dim % static_cast<int>(c.rotation) != 0) {
    c.rotation = fp4pa::Rotation::kNone;
  }
  // Enough rows that the wide instances are the ones chosen.
  for (std::int32_t& q : c.q_lens) {
    q = instances::rows_of(i) <= 8 ? 1 : std::max(q, instances::rows_of(i) / c.group_heads);
    if (q > 64) c.tree = false;  // a tree mask has a word for each of at most 64 tokens
  }
  return c;
}

void run(const grid::Case& c, std::map<std::string, Worst>& worst) {
  const grid::Outcome outcome = grid::run_case(c);
  INFO(grid::describe(c));
  CHECK(outcome.failure == "");
  if (!outcome.failure.empty()) return;
  CHECK(outcome.backend == fp4pa::gpu_test::kBackendName);
  CHECK(outcome.error <= (has_bf16_operands(c) ? 8e-3 : 2e-3));
  CHECK(std::min(outcome.lse_error, outcome.lse_excess) <= 1e-3);
  Worst& w = worst[std::string(name_of(c.k)) + " / " + name_of(c.v) + " / " + name_of(c.v_axis) +
                   (c.window != 0 ? " + recent" : "")];
  w.o = std::max(w.o, outcome.error);
  w.lse = std::max(w.lse, outcome.lse_excess);
  ++w.cases;
}

void print(const std::map<std::string, Worst>& worst) {
  std::printf("%-48s %6s %10s %10s\n", "worst errors", "cases", "O", "LSE");
  for (const auto& [name, w] : worst) std::printf("%-48s %6d %10.2e %10.2e\n", name.c_str(), w.cases, w.o, w.lse);
}

}  // namespace

TEST_CASE("the drawn grid agrees with the double-precision reference") {
  std::map<std::string, Worst> worst;
  const int cases = number("FP4PA_GRID_CASES", 1500);
  for (int seed = 0; seed < cases; ++seed) {
    grid::Case c = grid::draw(static_cast<std::uint64_t>(seed));
    c.backend = fp4pa::gpu_test::kBackendName;
    run(c, worst);
  }
  print(worst);
}

TEST_CASE("every compiled instance agrees with the double-precision reference") {
  std::map<std::string, Worst> worst;
  const int cases = number("FP4PA_INSTANCE_CASES", 25);
  for (int i = 0; i < instances::kNumInstances; ++i) {
    for (int seed = 0; seed < cases; ++seed) {
      grid::Case c = at_instance(grid::draw(static_cast<std::uint64_t>(100000 + 1000 * i + seed)), instances::kInstances[i]);
      c.backend = fp4pa::gpu_test::kBackendName;
      run(c, worst);
    }
  }
  print(worst);
}
