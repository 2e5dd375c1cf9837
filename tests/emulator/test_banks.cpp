// Bank conflicts: known patterns, and the table of the places of the body.
#include <doctest/doctest.h>

#include <array>
#include <cstdio>

#include "backends/emulator/sm80_exec.hpp"
#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/emulator/sm80_instances.hpp"

namespace {

using namespace fp4pa;
using emulator::BankCount;
using emulator::BankRule;

template <int kLanes, class F>
BankCount count(BankRule rule, int bytes, F&& offset) {
  std::array<std::uint32_t, kLanes> offsets;
  for (int lane = 0; lane < kLanes; ++lane) offsets[static_cast<std::size_t>(lane)] = static_cast<std::uint32_t>(offset(lane));
  return emulator::count_banks<kLanes>(rule, bytes, offsets.data());
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
    grid::Case c;
    c.backend = "cuda";
    c.group_heads = 8;
    c.q_lens = {1};
    c.kv_lens = {2048};
    c = grid::at_instance(c, config, Sm80Instances::tile_rows(i));
    emulator::Findings findings;
    emulator::BankTable banks;
    const emulator_test::Setup before = emulator_test::current;
    emulator_test::current = {&emulator_test::kSm80, {emulator::Order::forwards(), &findings, &banks}, 1, i, -1};
    CHECK(grid::run_case(c).failure == "");
    emulator_test::current = before;
    CHECK(findings.text() == "");
    std::printf("shared memory, MXFP4, head_dim 128, %s, %d keys\n%-32s %12s %12s %12s\n",
                core::divides_rows(config) ? "prefill" : "decode", c.kv_lens[0], "place", "instructions", "cycles", "extra");
    for (const auto& [site, n] : banks.rows()) {
      std::printf("%-32s %12lld %12lld %12lld\n", site.c_str(), static_cast<long long>(n.instructions),
                  static_cast<long long>(n.cycles), static_cast<long long>(n.extra));
    }
    const BankCount total = banks.total();
    std::printf("%-32s %12lld %12lld %12lld\n", "all", static_cast<long long>(total.instructions),
                static_cast<long long>(total.cycles), static_cast<long long>(total.extra));
    // What the inner loop reads, matrices, is free of conflicts, and the rest is little.
    for (const auto& [site, n] : banks.rows()) {
      if (site.find("product.hpp") != std::string::npos) CHECK(n.extra <= n.cycles / 50);
    }
  }
}
