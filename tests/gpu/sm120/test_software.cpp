// SM120's native kernels on real warps: the instances of the body as cuda/ compiles them, staging, barriers and all, on any device
// of sm_80 or later with SM120's instructions in software (software_exec.hpp). Results are those of the emulator, bit for bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cuda/instances_sm120.hpp"
#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/gpu/sm120/backend.hpp"
#include "tests/gpu/sm120/kernels.hpp"

namespace {

using namespace fp4pa;
using gpu_test::sm120_setup;
using Where = gpu_test::Sm120Setup::Where;

/// A configuration of the grid for an instance, short: a product in software takes tens of thousands of cycles.
grid::Case short_case(int instance, int seed) {
  constexpr std::int32_t kMostKeys = 200;
  constexpr std::int32_t kMostBlocks = 2;  // of query rows
  const core::SimtConfig& shape = sm120::kInstances[instance];
  grid::Case c = grid::at_instance(grid::draw(static_cast<std::uint64_t>(700000 + 1000 * instance + seed)), shape,
                                   simt::rows_of(shape));
  c.backend = "cuda";
  for (std::int32_t& q : c.q_lens) q = std::min(q, std::max(1, kMostBlocks * simt::rows_of(shape) / c.group_heads));
  for (std::int32_t& length : c.kv_lens) length = std::min(length, kMostKeys);
  // Of the keys, some for every query token.
  for (std::size_t b = 0; b < c.kv_lens.size(); ++b) c.kv_lens[b] = std::max(c.kv_lens[b], c.q_lens[b] + 1);
  return c;
}

grid::Results run(Where where, int instance, const grid::Case& c, grid::Damage damage = grid::Damage::kNone) {
  sm120_setup.where = where;
  sm120_setup.instance = instance;
  grid::Results results;
  const grid::Outcome outcome = grid::run_case(c, damage, &results);
  CHECK(outcome.failure == "");
  if (damage == grid::Damage::kNone) {
    CHECK(outcome.rows > 0);
    CHECK(outcome.error <= (grid::has_bf16_operands(c) ? 8e-3 : 2e-3));
    CHECK(std::min(outcome.lse_error, outcome.lse_excess) <= 1e-3);
  }
  return results;
}

bool same_bits(const grid::Results& a, const grid::Results& b) {
  return a.bytes == b.bytes && a.lse.size() == b.lse.size() && !a.lse.empty() &&
         std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0;
}

int cases() {
  const char* text = std::getenv("FP4PA_SM120_CASES");
  return text != nullptr ? std::max(1, std::atoi(text)) : 12;
}

}  // namespace

TEST_CASE("SM120 in software: every atom conforms") { CHECK(gpu_test::conforms()); }

TEST_CASE("SM120 in software: every instance gives the emulator's bits") {
  int runs = 0;
  for (int instance = 0; instance < sm120::kNumInstances; ++instance) {
    for (int seed = 0; seed < cases(); ++seed, ++runs) {
      const grid::Case c = short_case(instance, seed);
      INFO(grid::describe(c));
      INFO("instance " << instance);
      const grid::Results emulated = run(Where::kEmulator, instance, c);
      CHECK(sm120_setup.findings.text() == "");
      CHECK(same_bits(emulated, run(Where::kDevice, instance, c)));
    }
  }
  std::printf("%d instances, %d configurations\n", sm120::kNumInstances, runs);
}

TEST_CASE("SM120 in software: another page makes other bits") {
  for (int instance = 0; instance < sm120::kNumInstances; ++instance) {
    grid::Case c = short_case(instance, 0);
    // Of two tiers the recent one has a table of its own: more tokens than it can hold, and a query that sees them.
    c.kv_lens.assign(c.kv_lens.size(), 40 + (c.window != 0 ? c.window + c.group_tokens : 0));
    c.sliding_window = 0;
    c.q_lens.assign(c.q_lens.size(), 1);
    c.tree = false;
    c.table = TableKind::kBlockTable;
    INFO(grid::describe(c));
    INFO("instance " << instance);
    const grid::Results emulated = run(Where::kEmulator, instance, c);
    CHECK_FALSE(same_bits(emulated, run(Where::kDevice, instance, c, grid::Damage::kTableEntry)));
  }
}
