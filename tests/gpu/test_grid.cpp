// The attention grid of tests/attention on a GPU back end, against the double-precision reference.
//
// Bounds are DESIGN section 4's: 2e-3 where operands are f16, 8e-3 where one of them is bf16 (keys or values in bf16, and
// values with E8M0 scales along head_dim, whose probabilities are bf16). The LSE owes nothing to the values. HIP's native
// kernels have bounds of their own (bounds.hpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "tests/attention/grid_case.hpp"
#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/gpu/backend_name.hpp"
#include "tests/gpu/bounds.hpp"
#if defined(FP4PA_TEST_HIP)
#include "hip/instances.hpp"
namespace instances = fp4pa::hip;
#else
#include "cuda/instances.hpp"
#include "cuda/instances_sm90.hpp"
namespace instances = fp4pa::simt;
#endif

namespace {

struct Worst {
  double o = 0.0, lse = 0.0;
  int cases = 0;
};

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

/// Sequences that cases are planned for in turn: their own, often few enough for blocks to share units; so many that blocks find
/// their places themselves; or so many that there is a schedule (CUDA).
constexpr std::int32_t kPlannedFor[] = {0, 300, 1000};

void run(grid::Case c, std::map<std::string, Worst>& worst) {
  c.max_batch = std::max(c.max_batch, kPlannedFor[c.seed % 3]);
  const grid::Outcome outcome = grid::run_case(c);
  INFO(grid::describe(c));
  CHECK(outcome.failure == "");
  if (!outcome.failure.empty()) return;
  CHECK(outcome.backend == fp4pa::gpu_test::kBackendName);
  const fp4pa::gpu_test::Bounds bounds = fp4pa::gpu_test::bounds_of(outcome.config, grid::has_bf16_operands(c) ? 8e-3 : 2e-3);
  CHECK(outcome.error <= bounds.o);
  CHECK(std::min(outcome.lse_error, outcome.lse_excess) <= bounds.lse);
  Worst& w = worst[std::string(name_of(c.k)) + " / " + name_of(c.v) + " / " + name_of(c.v_axis) +
                   (c.window != 0 ? " + recent" : "")];
  w.o = std::max(w.o, outcome.error);
  w.lse = std::max(w.lse, outcome.lse_excess);
  ++w.cases;
}

/// Drawn configurations bent to the shape of an instance.
void run_at(const fp4pa::core::SimtConfig& instance, int rows, int first_seed, std::map<std::string, Worst>& worst) {
  const int cases = number("FP4PA_INSTANCE_CASES", std::max(3, 25 / fp4pa::gpu_test::share()));
  for (int seed = first_seed; seed < first_seed + cases; ++seed) {
    grid::Case c = grid::at_instance(grid::draw(static_cast<std::uint64_t>(seed)), instance, rows);
    c.backend = fp4pa::gpu_test::kBackendName;
#if defined(FP4PA_TEST_HIP)
    // Where a native kernel would be chosen instead.
    if (!instances::is_native(instance)) c.matrix_path = fp4pa::MatrixPath::kDecode;
#endif
    run(c, worst);
  }
}

void print(const std::map<std::string, Worst>& worst) {
  std::printf("%-48s %6s %10s %10s\n", "worst errors", "cases", "O", "LSE");
  for (const auto& [name, w] : worst) std::printf("%-48s %6d %10.2e %10.2e\n", name.c_str(), w.cases, w.o, w.lse);
}

}  // namespace

TEST_CASE("the drawn grid agrees with the double-precision reference") {
  std::map<std::string, Worst> worst;
  const int cases = number("FP4PA_GRID_CASES", std::max(1, 1500 / fp4pa::gpu_test::share()));
  for (int seed = 0; seed < cases; ++seed) {
    grid::Case c = grid::draw(static_cast<std::uint64_t>(seed));
    c.backend = fp4pa::gpu_test::kBackendName;
    run(c, worst);
  }
  print(worst);
}

TEST_CASE("every compiled instance agrees with the double-precision reference") {
  std::map<std::string, Worst> worst;
  for (int i = 0; i < instances::kNumInstances; ++i) {
    const fp4pa::core::SimtConfig& instance = instances::kInstances[i];
    run_at(instance, instances::rows_of(instance), 100000 + 1000 * i, worst);
  }
#if !defined(FP4PA_TEST_HIP)
  for (int i = 0; i < fp4pa::sm90::kNumInstances; ++i) {
    const fp4pa::core::SimtConfig& instance = fp4pa::sm90::kInstances[i];
    run_at(instance, instances::rows_of(instance), 200000 + 1000 * i, worst);
  }
#endif
  print(worst);
}
