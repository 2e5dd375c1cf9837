// Bank conflicts: known patterns, and the table of the places of the body.
#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "backends/emulator/sm80_exec.hpp"
#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/emulator/gfx950_instances.hpp"
#include "tests/emulator/sm120_instances.hpp"
#include "tests/emulator/sm80_instances.hpp"

namespace {

using namespace fp4pa;
using emulator::BankCount;
using emulator::BankRule;

template <int kLanes, class F>
BankCount count(BankRule rule, int bytes, F&& offset) {
  std::array<std::uint32_t, kLanes> offsets;
  for (int lane = 0; lane < kLanes; ++lane) offsets[static_cast<std::size_t>(lane)] = static_cast<std::uint32_t>(offset(lane));
  return emulator::count_banks(rule, kLanes, bytes, offsets.data());
}

const char* name_of(core::KvKind kind) {
  switch (kind) {
    case core::KvKind::kMxfp4: return "MXFP4";
    case core::KvKind::kMxfp4Tokens: return "MXFP4 along tokens";
    case core::KvKind::kPerToken: return "a scale per token";
    case core::KvKind::kMxfp8: return "MXFP8";
    default: return "another format";
  }
}

/// Runs an instance over 2048 keys, prints the places of its accesses to shared memory, and returns their counts.
std::vector<std::pair<std::string, BankCount>> count_places(const emulator_test::Emulation& emulation, int instance) {
  const core::SimtConfig& config = emulation.config(instance);
  grid::Case c;
  c.backend = "cuda";
  c.group_heads = 8;
  c.q_lens = {1};
  c.kv_lens = {2048};
  c = grid::at_instance(c, config, emulation.tile_rows(instance));
  emulator::Findings findings;
  emulator::BankTable banks;
  const emulator_test::ScopedSetup setup({&emulation, {emulator::Order::forwards(), &findings, &banks}, 1, instance, -1});
  CHECK(grid::run_case(c).failure == "");
  CHECK(findings.text() == "");
  std::printf("shared memory, %s: V in %s, head_dim %d, %s, %d keys\n%-32s %12s %12s %12s\n", emulation.name,
              name_of(config.v[0]), config.head_dim, core::divides_rows(config) ? "prefill" : "decode", c.kv_lens[0], "place",
              "instructions", "cycles", "extra");
  const auto print = [](const std::string& place, const BankCount& n) {
    std::printf("%-32s %12lld %12lld %12lld\n", place.c_str(), static_cast<long long>(n.instructions),
                static_cast<long long>(n.cycles), static_cast<long long>(n.extra));
  };
  std::vector<std::pair<std::string, BankCount>> places;
  for (const auto& [site, n] : banks.rows()) {
    print(site, n);
    places.emplace_back(site, n);
  }
  print("all", banks.total());
  CHECK(places.size() > 4);
  return places;
}

/// Where an item ends outputs go to shared memory and back, four dims an access, which alone take more than a cycle there: a store and a
/// load, without a conflict.
void check_end_of_item(const std::vector<std::pair<std::string, BankCount>>& places) {
  int wide = 0;
  for (const auto& [site, n] : places) {
    CAPTURE(site);
    if (site.find("epilogue.hpp") == std::string::npos || n.cycles < 2 * n.instructions) continue;
    CHECK(n.extra == 0);
    ++wide;
  }
  CHECK(wide == 2);
}

}  // namespace

TEST_CASE("bank conflicts of known patterns") {
  constexpr BankRule k32{32}, k64{64};
  CHECK(count<32>(k32, 4, [](int l) { return 4 * l; }).extra == 0);
  CHECK(count<32>(k32, 4, [](int) { return 12; }).extra == 0);          // broadcast
  CHECK(count<32>(k32, 4, [](int l) { return 4 * (l / 2); }).extra == 0);
  CHECK(count<32>(k32, 4, [](int l) { return 8 * l; }).extra == 1);     // two words a bank
  CHECK(count<32>(k32, 4, [](int l) { return 128 * l; }).extra == 31);
  CHECK(count<32>(k32, 4, [](int l) { return 132 * l; }).extra == 0);   // padded
  CHECK(count<32>(k32, 1, [](int l) { return l; }).extra == 0);         // four lanes a word
  // 16 bytes a lane: four phases of eight lanes.
  CHECK(count<32>(k32, 16, [](int l) { return 16 * l; }).cycles == 4);
  CHECK(count<32>(k32, 16, [](int l) { return 16 * l; }).extra == 0);
  CHECK(count<32>(k32, 16, [](int l) { return 128 * l; }).extra == 4 * 7);
  CHECK(count<32>(k32, 16, [](int l) { return 128 * l + 16 * (l % 8); }).extra == 0);  // swizzled
  CHECK(count<32>(k32, 8, [](int l) { return 8 * l; }).cycles == 2);
  CHECK(count<64>(k64, 16, [](int l) { return 16 * l; }).cycles == 4);
  CHECK(count<64>(k32, 16, [](int l) { return 16 * l; }).cycles == 8);
  CHECK(count<64>(k64, 16, [](int l) { return 128 * l; }).extra == 4 * 7);
  const BankCount idle = count<32>(k32, 16, [](int l) { return l < 8 ? 16 * l : static_cast<int>(emulator::kInactive); });
  CHECK(idle.cycles == 1);
}

TEST_CASE("sm_80: bank conflicts by place") {
  using emulator_test::Sm80Instances;
  for (int i = 0; i < Sm80Instances::kCount; ++i) {
    const core::SimtConfig& config = Sm80Instances::config(i);
    const bool shown = config.k[0] == core::KvKind::kMxfp4 && config.v[0] == core::KvKind::kMxfp4 && config.head_dim == 128 &&
                       config.segments == 1 && (core::divides_rows(config) || config.row_tiles == 1);
    if (!shown) continue;
    // What the inner loop reads, matrices, is free of conflicts, and the rest is little.
    const auto places = count_places(emulator_test::kSm80, i);
    for (const auto& [site, n] : places) {
      if (site.find("product.hpp") != std::string::npos) CHECK(n.extra <= n.cycles / 50);
    }
    if (!core::divides_rows(config)) check_end_of_item(places);
  }
}

TEST_CASE("SM120: bank conflicts by place, a V that is decoded") {
  using emulator_test::Sm120Instances;
  for (int i = 0; i < Sm120Instances::kCount; ++i) {
    if (!Sm120Instances::config(i).decode_tiles) continue;
    int busy = 0;
    for (const auto& [site, n] : count_places(emulator_test::kSm120, i)) {
      CAPTURE(site);
      // What every warp does for every tile has none; queries are stored with some, 256 times at most.
      if (n.instructions <= 256) continue;
      CHECK(n.extra == 0);
      ++busy;
    }
    CHECK(busy > 4);  // K, V, their scales, the copies
  }
}

TEST_CASE("gfx950: bank conflicts by place, native instances") {
  // By the rule of neighbouring lanes, of which nobody has said that it is this chip's: docs/gfx950.md.
  using Instances = emulator_test::HipInstances;
  for (int i = 0; i < Instances::kCount; ++i) {
    const core::SimtConfig& config = Instances::config(i);
    if (!hip::is_native(config) || config.segments != 1) continue;
    const bool short_rows = core::code_bytes(config.k[0], config.head_dim) == 64;
    const auto places = count_places(emulator_test::kGfx950, i);
    if (!core::divides_rows(config) && config.head_dim == 128) check_end_of_item(places);
    for (const auto& [site, n] : places) {
      CAPTURE(i);
      CAPTURE(site);
      if (site.find("product.hpp") == std::string::npos) continue;
      const bool of_keys = site.find("key_product.hpp") != std::string::npos;
      CHECK(n.extra <= (of_keys && short_rows ? 0 : 3 * n.cycles));
    }
  }
}
