// The attention grid of tests/attention on a GPU back end, against the double-precision reference and the CPU back end.
//
// Bounds are DESIGN section 4's: 2e-3 where operands are f16, 8e-3 where one of them is bf16 (keys or values in bf16, and
// values with E8M0 scales along head_dim, whose probabilities are bf16). The LSE owes nothing to the values. Native
// kernels have bounds of their own (bounds.hpp). From the CPU's results there may be the sum of both contracts (against_cpu.hpp).
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
#include "tests/gpu/against_cpu.hpp"
#include "tests/gpu/backend_name.hpp"
#include "tests/gpu/bounds.hpp"
#if defined(FP4PA_TEST_HIP)
#include "hip/device.hpp"
#include "hip/instances.hpp"
namespace instances = fp4pa::hip;
#else
#include "cuda/device.hpp"
#include "cuda/variants.hpp"
namespace instances = fp4pa::simt;
#endif

namespace {

struct Worst {
  double o = 0.0, lse = 0.0;                    // to the reference
  double cpu_o = 0.0, cpu_lse = 0.0;            // to the CPU
  double cpu_share = 0.0, cpu_share_of = 0.0;   // the largest share of a bound, and that bound
  int cases = 0;
};

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

/// Sequences that cases are planned for in turn: their own, often few enough for blocks to share units; so many that blocks find
/// their places themselves; or so many that there is a schedule (CUDA).
constexpr std::int32_t kPlannedFor[] = {0, 300, 1000};

/// Returns what was planned.
fp4pa::AttentionConfig run(grid::Case c, std::map<std::string, Worst>& worst) {
  c.max_batch = std::max(c.max_batch, kPlannedFor[c.seed % 3]);
  grid::Results results;
  const grid::Outcome outcome = grid::run_case(c, grid::Damage::kNone, &results);
  INFO(grid::describe(c));
  CHECK(outcome.failure == "");
  if (!outcome.failure.empty()) return outcome.config;
  CHECK(outcome.backend == fp4pa::gpu_test::kBackendName);
  const fp4pa::gpu_test::Bounds bounds = fp4pa::gpu_test::bounds_of(outcome.config, grid::has_bf16_operands(c) ? 8e-3 : 2e-3);
  CHECK(outcome.error <= bounds.o);
  CHECK(std::min(outcome.lse_error, outcome.lse_excess) <= bounds.lse);
  const fp4pa::gpu_test::CpuDistance cpu = fp4pa::gpu_test::against_cpu(c, results, bounds);
  CHECK(cpu.failure == "");
  CHECK(cpu.o <= cpu.o_bound);
  CHECK(cpu.lse <= cpu.lse_bound);
  Worst& w = worst[std::string(name_of(c.k)) + " / " + name_of(c.v) + " / " + name_of(c.v_axis) +
                   (c.window != 0 ? " + recent" : "")];
  w.o = std::max(w.o, outcome.error);
  w.lse = std::max(w.lse, outcome.lse_excess);
  w.cpu_o = std::max(w.cpu_o, cpu.o);
  w.cpu_lse = std::max(w.cpu_lse, cpu.lse);
  if (cpu.o > w.cpu_share * cpu.o_bound) {
    w.cpu_share = cpu.o / cpu.o_bound;
    w.cpu_share_of = cpu.o_bound;
  }
  ++w.cases;
  return outcome.config;
}

/// Drawn configurations bent to the shape of an instance, and more of them until one that is chosen was among them.
template <class IsChosen>
void run_at(const fp4pa::core::SimtConfig& instance, int rows, int first_seed, fp4pa::MatrixPath path,
            std::map<std::string, Worst>& worst, IsChosen&& is_chosen) {
  constexpr int kMostMore = 20;
  bool chosen = false;
  const int cases = number("FP4PA_INSTANCE_CASES", std::max(3, 25 / fp4pa::gpu_test::share()));
  for (int seed = first_seed; seed < first_seed + cases + (chosen ? 0 : kMostMore); ++seed) {
    grid::Case c = grid::at_instance(grid::draw(static_cast<std::uint64_t>(seed)), instance, rows);
    c.backend = fp4pa::gpu_test::kBackendName;
    c.matrix_path = path;
    chosen |= is_chosen(run(c, worst));
  }
  CHECK(chosen);
}

/// How an instance of the first list is asked for.
fp4pa::MatrixPath path_to([[maybe_unused]] const fp4pa::core::SimtConfig& instance) {
  using fp4pa::MatrixPath;
#if defined(FP4PA_TEST_HIP)
  return instances::is_native(instance) ? MatrixPath::kAuto : MatrixPath::kDecode;
#else
  return MatrixPath::kDecode;  // where SM120's native kernels would be chosen instead
#endif
}

#if defined(FP4PA_TEST_HIP)
/// Whether a plan of its formats and head_dim gets another instance on this device: one that stands before it, or, the last of the list, any.
bool is_second_choice(int index, bool gfx950) {
  using namespace fp4pa::hip;
  const auto& own = kInstances[index];
  for (int i = 0; i < index; ++i) {
    const auto& other = kInstances[i];
    if (needs_gfx950(other) && !gfx950) continue;
    if (other.k[0] == own.k[0] && other.v[0] == own.v[0] && other.head_dim == own.head_dim && other.segments == own.segments &&
        other.divide == own.divide && is_native(other) == is_native(own)) {
      return true;
    }
  }
  return false;
}
#endif

void print(const std::map<std::string, Worst>& worst) {
  std::printf("%-48s %6s %10s %10s %12s %8s %12s %12s\n", "worst errors", "cases", "O", "LSE", "O to CPU", "share", "of bound",
              "LSE to CPU");
  for (const auto& [name, w] : worst) {
    std::printf("%-48s %6d %10.2e %10.2e %12.2e %7.0f%% %12.2e %12.2e\n", name.c_str(), w.cases, w.o, w.lse, w.cpu_o,
                100 * w.cpu_share, w.cpu_share_of, w.cpu_lse);
  }
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

// For compute-sanitizer and tests/isa, with FP4PA_MIRROR=exact: no other array lies behind one.
TEST_CASE("a full cache is read to its last byte") {
  std::map<std::string, Worst> worst;
  for (int i = 0; i < instances::kNumInstances; ++i) {
    const fp4pa::core::SimtConfig& instance = instances::kInstances[i];
    for (const grid::Layout layout : {grid::Layout::kHnd, grid::Layout::kNhd}) {
      grid::Case c = grid::full_cache_at(static_cast<std::uint64_t>(i), layout, instance, instances::rows_of(instance));
      c.backend = fp4pa::gpu_test::kBackendName;
      c.matrix_path = path_to(instance);
      run(c, worst);
    }
  }
}

TEST_CASE("every compiled instance agrees with the double-precision reference") {
  using fp4pa::MatrixPath;
  std::map<std::string, Worst> worst;
  for (int i = 0; i < instances::kNumInstances; ++i) {
    const fp4pa::core::SimtConfig& instance = instances::kInstances[i];
    const MatrixPath path = path_to(instance);
    CAPTURE(i);
#if defined(FP4PA_TEST_HIP)
    fp4pa::hip::DeviceProperties device{};
    REQUIRE(fp4pa::hip::current_device(&device) == fp4pa::Status::kOk);
    const bool gfx950 = device.architecture == fp4pa::hip::kGfx950;
    const bool is_elsewhere = instances::needs_gfx950(instance) && !gfx950;
    const auto is_chosen = [&](const fp4pa::AttentionConfig& c) {
      return is_elsewhere || is_second_choice(i, gfx950) || instances::select_fitting(c, gfx950, device.shared_bytes) == i;
    };
#else
    const auto is_chosen = [](const fp4pa::AttentionConfig&) { return true; };  // several serve the same, by lengths and device
#endif
    run_at(instance, instances::rows_of(instance), 100000 + 1000 * i, path, worst, is_chosen);
  }
#if !defined(FP4PA_TEST_HIP)
  const auto any = [](const fp4pa::AttentionConfig&) { return true; };
  for (int i = 0; i < fp4pa::sm90::kNumInstances; ++i) {
    const fp4pa::core::SimtConfig& instance = fp4pa::sm90::kInstances[i];
    run_at(instance, instances::rows_of(instance), 200000 + 1000 * i, MatrixPath::kDecode, worst, any);
  }
  fp4pa::cuda::DeviceProperties device{};
  REQUIRE(fp4pa::cuda::current_device(&device) == fp4pa::Status::kOk);
  for (int i = 0; fp4pa::cuda::has_native_kernels(device.compute_capability) && i < fp4pa::sm120::kNumInstances; ++i) {
    const fp4pa::core::SimtConfig& instance = fp4pa::sm120::kInstances[i];
    run_at(instance, instances::rows_of(instance), 300000 + 1000 * i, MatrixPath::kNative, worst, any);
  }
#endif
  print(worst);
}
