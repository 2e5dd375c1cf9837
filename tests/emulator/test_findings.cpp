// Each kind of finding from a program of a few lines that deserves it, and silence about the same program done right.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "backends/emulator/gfx950_exec.hpp"
#include "backends/emulator/sm80_exec.hpp"

namespace {

using namespace fp4pa;
using emulator::FindingKind;
using emulator::Order;
using Exec = emulator::Sm80Exec;
using Lane = Exec::Lane;

constexpr int kWarps = 3;

template <class E = Exec, class F>
const emulator::Finding* first_finding(emulator::Findings& findings, F&& kernel, int warps = kWarps) {
  emulator::run_block<E>({Order::forwards(), &findings, nullptr}, 0, warps, 2048, kernel);
  return findings.empty() ? nullptr : &findings.list().front();
}

/// Every thread's own word.
std::uint32_t own(const Exec& exec, Lane lane) { return static_cast<std::uint32_t>(4 * (exec.warp() * 32 + lane.id)); }

void store_own(Exec& exec) {
  exec.each_lane([&](Lane lane) { exec.store_shared<float>(lane, own(exec, lane), 1.0f); });
}

}  // namespace

TEST_CASE("registers and shared memory begin as NaN") {
  emulator::Findings findings;
  first_finding(findings, [](Exec& exec) {
    Exec::PerLane<float[3]> x;
    exec.each_lane([&](Lane lane) {
      CHECK(std::isnan(x[lane][2]));
      CHECK(std::isnan(exec.load_shared<float>(lane, 64)));
    });
  });
  REQUIRE(findings.list().size() == 1);
  CHECK(findings.list()[0].kind == FindingKind::kPoisonRead);
  CHECK(findings.list()[0].offset == 64);
  CHECK(findings.list()[0].count == 32 * kWarps);
  CHECK(findings.text().find("test_findings.cpp") != std::string::npos);
}

TEST_CASE("lanes of a warp need a barrier between a write and another lane's read") {
  for (const int barrier : {0, 1, 2}) {
    emulator::Findings findings;
    first_finding(findings, [&](Exec& exec) {
      store_own(exec);
      if (barrier == 1) exec.warp_barrier();
      if (barrier == 2) exec.block_barrier();
      exec.each_lane([&](Lane lane) { (void)exec.load_shared<float>(lane, own(exec, {lane.id ^ 1})); });
    });
    CAPTURE(barrier);
    CHECK(findings.empty() == (barrier != 0));
    CHECK(findings.has(FindingKind::kReadRace) == (barrier == 0));
  }
}

TEST_CASE("a lane needs no barrier to read what it wrote, a shuffle is none") {
  emulator::Findings findings;
  first_finding(findings, [](Exec& exec) {
    store_own(exec);
    exec.each_lane([&](Lane lane) { CHECK(exec.load_shared<float>(lane, own(exec, lane)) == 1.0f); });
  });
  CHECK(findings.text() == "");
  first_finding(findings, [](Exec& exec) {
    store_own(exec);
    Exec::PerLane<float> x;
    exec.each_lane([&](Lane lane) { x[lane] = 0.0f; });
    x = exec.shuffle_xor(x, 1);
    exec.each_lane([&](Lane lane) { (void)exec.load_shared<float>(lane, own(exec, {lane.id ^ 1})); });
  });
  CHECK(findings.has(FindingKind::kReadRace));
}

TEST_CASE("warps need a barrier of the block") {
  for (const bool block : {false, true}) {
    emulator::Findings findings;
    first_finding(findings, [&](Exec& exec) {
      store_own(exec);
      if (block) exec.block_barrier();
      exec.warp_barrier();
      exec.each_lane([&](Lane lane) { (void)exec.load_shared<float>(lane, static_cast<std::uint32_t>(4 * lane.id)); });
    });
    CAPTURE(block);
    CHECK(findings.empty() == block);
  }
}

TEST_CASE("a write after another's read or write needs a barrier") {
  for (const bool barrier : {false, true}) {
    for (const bool read_first : {false, true}) {
      emulator::Findings findings;
      first_finding(findings, [&](Exec& exec) {
        if (exec.warp() == 0) {
          exec.each_lane([&](Lane lane) {
            if (lane.id == 0) exec.store_shared<std::uint32_t>(lane, 0, 1u);
          });
        }
        exec.block_barrier();
        if (read_first) {
          exec.each_lane([&](Lane lane) { (void)exec.load_shared<std::uint32_t>(lane, 0); });
        } else if (exec.warp() == 0) {
          exec.each_lane([&](Lane lane) {
            if (lane.id == 0) exec.store_shared<std::uint32_t>(lane, 0, 2u);
          });
        }
        if (barrier) exec.block_barrier();
        if (exec.warp() == 1) {
          exec.each_lane([&](Lane lane) {
            if (lane.id == 5) exec.store_shared<std::uint32_t>(lane, 0, 3u);
          });
        }
      });
      CAPTURE(barrier);
      CAPTURE(read_first);
      CHECK(findings.empty() == barrier);
      CHECK(findings.has(FindingKind::kWriteRace) == !barrier);
    }
  }
}

TEST_CASE("neighbouring bytes are told apart") {
  emulator::Findings findings;
  first_finding(findings, [](Exec& exec) {
    if (exec.warp() != 0) return;
    exec.each_lane([&](Lane lane) { exec.store_shared<std::uint8_t>(lane, static_cast<std::uint32_t>(lane.id), std::uint8_t{7}); });
    exec.warp_barrier();
    exec.each_lane([&](Lane lane) { CHECK(exec.load_shared<std::uint32_t>(lane, lane.id / 4 * 4u) == 0x07070707u); });
    exec.warp_barrier();
    exec.each_lane([&](Lane lane) {
      if (lane.id < 8) exec.store_shared<std::uint32_t>(lane, 4u * lane.id, 0u);
    });
  });
  CHECK(findings.text() == "");
  first_finding(findings, [](Exec& exec) {
    if (exec.warp() != 0) return;
    // Three bytes of a word: the fourth was never written.
    exec.each_lane([&](Lane lane) {
      if (lane.id < 3) exec.store_shared<std::uint8_t>(lane, static_cast<std::uint32_t>(lane.id), std::uint8_t{7});
    });
    exec.warp_barrier();
    exec.each_lane([&](Lane lane) {
      if (lane.id == 0) (void)exec.load_shared<std::uint32_t>(lane, 0);
    });
  });
  REQUIRE(findings.list().size() == 1);
  CHECK(findings.list()[0].kind == FindingKind::kPoisonRead);
  CHECK(findings.list()[0].offset == 3);
}

TEST_CASE("a matrix load is a read by all lanes") {
  for (const bool barrier : {false, true}) {
    emulator::Findings findings;
    first_finding(findings, [&](Exec& exec) {
      const auto row = [&](Lane lane) { return static_cast<std::uint32_t>((exec.warp() * 32 + lane.id) * 16); };
      exec.each_lane([&](Lane lane) {
        for (std::uint32_t w = 0; w < 4; ++w) exec.store_shared<std::uint32_t>(lane, row(lane) + 4 * w, 0u);
      });
      if (barrier) exec.warp_barrier();
      // Every lane points at the row that it wrote itself, but its bytes go to others.
      Exec::PerLane<std::uint32_t[4]> words;
      exec.load_matrix<false>(row, [&](Lane lane) -> auto& { return words[lane]; });
    });
    CAPTURE(barrier);
    CHECK(findings.empty() == barrier);
  }
}

TEST_CASE("a copy lands at its wait, and is seen by others after a barrier") {
  alignas(16) const float source[4] = {1, 2, 3, 4};
  for (const bool wait : {false, true}) {
    for (const bool barrier : {false, true}) {
      emulator::Findings findings;
      first_finding(
          findings,
          [&](Exec& exec) {
            exec.each_lane([&](Lane lane) {
              if (lane.id == 0) exec.copy_async_16(lane, 32, source, true);
              if (lane.id == 1) exec.copy_async_16(lane, 48, source, false);
            });
            exec.copy_commit();
            if (wait) exec.copy_wait<0>();
            if (barrier) exec.warp_barrier();
            exec.each_lane([&](Lane lane) {
              const float x = exec.load_shared<float>(lane, 36);
              if (wait) CHECK(x == 2.0f);
              if (!wait) CHECK(std::isnan(x));
              if (wait && barrier) CHECK(exec.load_shared<float>(lane, 52) == 0.0f);
            });
          },
          1);
      CAPTURE(wait);
      CAPTURE(barrier);
      CHECK(findings.empty() == (wait && barrier));
      CHECK(findings.has(FindingKind::kCopyInFlight) == !wait);
      CHECK(findings.has(FindingKind::kReadRace) == (wait && !barrier));
      CHECK(findings.has(FindingKind::kCopyNeverLanded) == !wait);
    }
  }
}

TEST_CASE("the newest groups of copies may stay under way") {
  alignas(16) const std::uint32_t source[8] = {1, 1, 1, 1, 2, 2, 2, 2};
  emulator::Findings findings;
  first_finding(
      findings,
      [&](Exec& exec) {
        for (std::uint32_t group = 0; group < 2; ++group) {
          exec.each_lane([&](Lane lane) {
            if (lane.id == 0) exec.copy_async_16(lane, 16 * group, source + 4 * group, true);
          });
          exec.copy_commit();
        }
        exec.copy_wait<1>();
        exec.warp_barrier();
        exec.each_lane([&](Lane lane) { CHECK(exec.load_shared<std::uint32_t>(lane, 4) == 1u); });
        exec.copy_wait<0>();
        exec.warp_barrier();
        exec.each_lane([&](Lane lane) { CHECK(exec.load_shared<std::uint32_t>(lane, 20) == 2u); });
      },
      1);
  CHECK(findings.text() == "");
}

TEST_CASE("nobody may still read what a copy will overwrite") {
  alignas(16) const float source[4] = {};
  for (const bool barrier : {false, true}) {
    emulator::Findings findings;
    first_finding(
        findings,
        [&](Exec& exec) {
          store_own(exec);
          exec.warp_barrier();
          exec.each_lane([&](Lane lane) { (void)exec.load_shared<float>(lane, 0); });
          if (barrier) exec.warp_barrier();
          exec.each_lane([&](Lane lane) {
            if (lane.id == 0) exec.copy_async_16(lane, 0, source, true);
          });
          exec.copy_commit();
          exec.copy_wait<0>();
        },
        1);
    CAPTURE(barrier);
    CHECK(findings.empty() == barrier);
  }
}

TEST_CASE("addresses are checked") {
  emulator::Findings findings;
  first_finding(
      findings,
      [](Exec& exec) {
        exec.each_lane([&](Lane lane) {
          if (lane.id != 0) return;
          exec.store_shared<std::uint32_t>(lane, 2046, 1u);
          exec.store_shared<std::uint32_t>(lane, 2048, 1u);
          exec.copy_async_16(lane, 8, nullptr, false);
        });
        exec.copy_commit();
        exec.copy_wait<0>();
      },
      1);
  CHECK(findings.list().size() == 3);
  CHECK(findings.has(FindingKind::kMisaligned));
  CHECK(findings.has(FindingKind::kOutOfBounds));
}

TEST_CASE("a barrier that not all warps reach is a finding and not a hang") {
  emulator::Findings findings;
  first_finding(findings, [](Exec& exec) {
    if (exec.warp() != 1) exec.block_barrier();
  });
  REQUIRE(findings.list().size() == 1);
  CHECK(findings.list()[0].kind == FindingKind::kBarrierDivergence);
  CHECK(findings.list()[0].other_warp == 1);
  // Nor do two barriers of different places meet.
  findings.clear();
  first_finding(findings, [](Exec& exec) {
    if (exec.warp() == 0) {
      exec.block_barrier();
    } else {
      exec.block_barrier();
    }
  });
  CHECK(findings.has(FindingKind::kBarrierDivergence));
}

TEST_CASE("gfx950: the targets of a wave's copy are base + 16 lane") {
  alignas(16) static const std::uint8_t source[1024] = {};
  using Wave = emulator::Gfx950Exec;
  const auto copy = [](auto target) {
    emulator::Findings findings;
    first_finding<Wave>(
        findings,
        [&](Wave& wave) {
          wave.each_lane([&](Wave::Lane lane) {
            for (int turn = 0; turn < 2; ++turn) {
              const int to = target(lane.id, turn);
              if (to >= 0) wave.copy_async_16(lane, static_cast<std::uint32_t>(to), source, true);
            }
          });
          wave.copy_commit();
          wave.copy_wait<0>();
        },
        1);
    return findings.has(FindingKind::kCopyTarget);
  };
  CHECK_FALSE(copy([](int lane, int turn) { return 16 * lane + 1024 * turn; }));
  CHECK_FALSE(copy([](int lane, int turn) { return lane < 7 && turn == 1 ? -1 : 16 * lane + 1024 * turn; }));  // inactive
  CHECK_FALSE(copy([](int lane, int turn) { return turn == 1 || lane % 3 == 0 ? -1 : 16 * lane; }));
  CHECK(copy([](int lane, int turn) { return 16 * (lane ^ 1) + 1024 * turn; }));
  CHECK(copy([](int lane, int turn) { return turn == 1 ? -1 : 16 * lane + 16 * (lane / 32); }));
}

TEST_CASE("an order that matters shows in the result") {
  // Lanes add to one word, each what it has read: with the barriers left out, the order is in the result.
  const auto run = [](Order order) {
    emulator::Findings findings;
    std::uint32_t result = 0;
    emulator::run_block<Exec>({order, &findings, nullptr}, 0, 1, 64, [&](Exec& exec) {
      exec.each_lane([&](Lane lane) {
        const std::uint32_t before = exec.load_shared<std::uint32_t>(lane, 0);
        exec.store_shared<std::uint32_t>(lane, 0, before * 3 + static_cast<std::uint32_t>(lane.id));
      });
      exec.warp_barrier();
      exec.each_lane([&](Lane lane) { result = exec.load_shared<std::uint32_t>(lane, 0); });
    });
    CHECK(findings.has(FindingKind::kWriteRace));
    return result;
  };
  CHECK(run(Order::forwards()) == run(Order::forwards()));
  CHECK(run(Order::random(5)) == run(Order::random(5)));
  CHECK(run(Order::forwards()) != run(Order::backwards()));
  CHECK(run(Order::random(5)) != run(Order::random(6)));
}
