#include "tests/emulator/sweep.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"

namespace fp4pa::emulator_test {
namespace {

struct Worst {
  double o = 0.0, o_bound = 0.0, lse = 0.0, lse_bound = 0.0, cpu = 0.0;
  int cases = 0;
};

int effort() {
  const char* text = std::getenv("FP4PA_EMULATOR_EFFORT");
  return text != nullptr ? std::max(1, std::atoi(text)) : 1;
}

std::string format_of(const grid::Case& c) {
  return std::string(name_of(c.k)) + " / " + name_of(c.v) + " / " + name_of(c.v_axis) + (c.window != 0 ? " + recent" : "");
}

double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squared = 0.0, size = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squared += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return squared == 0.0 ? 0.0 : std::sqrt(squared / size);
}

class Runner {
 public:
  explicit Runner(const Sweep& sweep) : sweep_(sweep) {}

  void run(grid::Case c, int instance) {
    c.backend = "cuda";
    INFO(grid::describe(c));
    INFO("instance " << instance);
    grid::Results results;
    const grid::Outcome outcome = run_in(emulator::Order::forwards(), c, instance, &results);
    if (outcome.failure.rfind("plan: kBackendUnavailable", 0) == 0) return;  // no instance serves it
    CHECK(outcome.failure == "");
    if (!outcome.failure.empty()) return;
    ++count_;
    const core::SimtConfig& used = sweep_.emulation->config(current.planned);
    ++uses_[current.planned];
    const Bounds bounds = sweep_.bounds(c, used);
    CHECK(outcome.error <= bounds.o);
    const double lse = std::min(outcome.lse_error, outcome.lse_excess);
    CHECK(lse <= bounds.lse);
    const double cpu = against_cpu(c, results, bounds.o);

    Worst& w = worst_[std::string(sweep_.emulation->native(current.planned) ? "native  " : "decode  ") + format_of(c)];
    w.o = std::max(w.o, outcome.error);
    w.o_bound = std::max(w.o_bound, bounds.o);
    w.lse = std::max(w.lse, lse);
    w.lse_bound = std::max(w.lse_bound, bounds.lse);
    w.cpu = std::max(w.cpu, cpu);
    ++w.cases;

    if (count_ % sweep_.orders_every != 0) return;
    for (const emulator::Order order : {emulator::Order::backwards(), emulator::Order::random(c.seed)}) {
      INFO("order " << static_cast<int>(order.kind));
      grid::Results again;
      CHECK(run_in(order, c, instance, &again).failure == "");
      CHECK(results.bytes == again.bytes);
      CHECK(same_bits(results.lse, again.lse));
      ++reordered_;
    }
  }

  int report() const {
    std::printf("%s: %d configurations, %d runs in other orders\n", sweep_.emulation->name, count_, reordered_);
    std::printf("%-56s %6s %10s %10s %10s %10s %10s\n", "path    K / V / axis of V's scales", "cases", "O", "bound", "LSE", "bound",
                "O to CPU");
    for (const auto& [name, w] : worst_) {
      std::printf("%-56s %6d %10.2e %10.2e %10.2e %10.2e %10.2e\n", name.c_str(), w.cases, w.o, w.o_bound, w.lse, w.lse_bound,
                  w.cpu);
    }
    for (int i = 0; i < sweep_.emulation->instances; ++i) {
      INFO("instance " << i);
      CHECK(uses_.count(i) == (sweep_.emulation->run_block[i] != nullptr ? 1u : 0u));
    }
    return count_;
  }

 private:
  grid::Outcome run_in(emulator::Order order, const grid::Case& c, int instance, grid::Results* results) {
    emulator::Findings findings;
    Setup setup;
    setup.emulation = sweep_.emulation;
    setup.watch = {order, &findings, nullptr};
    setup.instance = instance;
    setup.warps = sweep_.warps;
    current = setup;
    const grid::Outcome outcome = grid::run_case(c, grid::Damage::kNone, results);
    CHECK(findings.text() == "");
    return outcome;
  }

  /// The CPU back end on the same call. Its own error is within 3e-4 (tests/attention/grid.cpp), its output in the same dtype.
  static double against_cpu(grid::Case c, const grid::Results& emulated, double bound) {
    c.backend = "cpu";
    grid::Results cpu;
    CHECK(grid::run_case(c, grid::Damage::kNone, &cpu).failure == "");
    const double distance = relative_distance(emulated.o, cpu.o);
    // Both round to O's dtype, each to its own side at worst.
    const double rounding = c.o_dtype == DType::kF32 ? 0.0 : c.o_dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
    CHECK(distance <= bound + 3e-4 + 2 * rounding);
    return distance;
  }

  static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
  }

  const Sweep& sweep_;
  std::map<std::string, Worst> worst_;
  std::map<int, int> uses_;
  int count_ = 0;
  int reordered_ = 0;
};

}  // namespace

int run_sweep(const Sweep& sweep) {
  const ScopedSetup restored;
  Runner runner(sweep);
  for (int seed = 0; seed < sweep.drawn * effort(); ++seed) runner.run(grid::draw(static_cast<std::uint64_t>(seed)), -1);
  for (int i = 0; i < sweep.emulation->instances; ++i) {
    if (sweep.emulation->run_block[i] == nullptr) continue;
    for (int seed = 0; seed < sweep.per_instance * effort(); ++seed) {
      const grid::Case drawn = grid::draw(static_cast<std::uint64_t>(100000 + 1000 * i + seed));
      runner.run(grid::at_instance(drawn, sweep.emulation->config(i), sweep.emulation->tile_rows(i)), i);
    }
  }
  return runner.report();
}

}  // namespace fp4pa::emulator_test
