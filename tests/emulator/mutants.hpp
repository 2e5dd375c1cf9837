// Running a configuration of the grid on instances whose Exec is a MutantExec, and whether the fault was found.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/emulator/emulated_backend.hpp"
#include "tests/emulator/mutant_exec.hpp"
#include "tests/emulator/sweep.hpp"

namespace fp4pa::emulator_test {

struct Verdict {
  bool by_emulator, by_error;
  double error;
  std::string text;  // the emulator's
  [[nodiscard]] bool found() const { return by_emulator || by_error; }
};

/// Rotated, and long enough that every stage of the pipeline is used again; two items, one after the other in one block.
inline grid::Case mutant_case(const Emulation& emulation, int instance) {
  grid::Case c;
  c.seed = 7;
  c.rotation = Rotation::kHadamard32;
  c.group_heads = 4;
  c.q_lens = {1, 1};
  c.kv_lens = {900, 700};
  c = grid::at_instance(c, emulation.config(instance), emulation.tile_rows(instance));
  if (core::divides_rows(emulation.config(instance))) c.kv_lens = {300, 200};
  c.backend = "cuda";
  return c;
}

/// @tparam Mutant  the Exec of the emulation
template <class Mutant>
Verdict run_mutant(const Emulation& emulation, int instance, Fault fault, Bounds bounds) {
  Mutant::fault = fault;
  Mutant::places.clear();
  emulator::Findings findings;
  const ScopedSetup setup({&emulation, {emulator::Order::forwards(), &findings, nullptr}, 1, instance, -1});
  const grid::Outcome outcome = grid::run_case(mutant_case(emulation, instance));
  CHECK(current.planned == instance);
  Mutant::fault = {};
  CHECK(outcome.failure == "");
  const bool within = outcome.error <= bounds.o && std::min(outcome.lse_error, outcome.lse_excess) <= bounds.lse;
  return {!findings.empty(), !within, outcome.error, findings.text()};
}

struct Tally {
  int planted = 0, found = 0;
};

/// Leaves out the first, the second, ... of a kind of barrier or wait, or every step-th, each in a run of its own; prints.
/// @param run  from a Fault to its Verdict
/// @return by place in the source
template <class Mutant, class Run>
std::map<std::string, Tally> leave_out_each(const std::string& what, Fault::Kind kind, int step, Run&& run) {
  std::map<std::string, Tally> tally;
  std::map<std::string, std::string> example;
  for (int n = 0;; n += step) {
    const Verdict v = run(Fault{kind, n});
    if (Mutant::places.empty()) break;  // no n-th one
    const std::string place = *Mutant::places.begin();
    ++tally[place].planted;
    tally[place].found += v.found() ? 1 : 0;
    if (v.found() && example[place].empty()) {
      example[place] = v.by_emulator ? v.text.substr(0, v.text.find('\n')) : "an error over the bound";
    }
  }
  for (const auto& [place, t] : tally) {
    std::printf("  %s at %s: %d of %d found%s%s\n", what.c_str(), place.c_str(), t.found, t.planted,
                t.found != 0 ? ", e.g. " : "", example[place].c_str());
  }
  return tally;
}

/// Places where leaving it out was never found.
inline int never_found(const std::map<std::string, Tally>& tally) {
  return static_cast<int>(std::count_if(tally.begin(), tally.end(), [](const auto& t) { return t.second.found == 0; }));
}

}  // namespace fp4pa::emulator_test
