#include "tests/kernels/fibers.hpp"

#include <cstdlib>
#include <vector>

#include "backends/emulator/fiber.hpp"

namespace fp4pa::kernels_test {
namespace {

/// Those who have come wait until all who are left have.
struct Barrier {
  int left = 0;
  int come = 0;
  int round = 0;

  void next_if_complete() {
    if (come != left) return;
    come = 0;
    ++round;
  }
};

struct Thread {
  const Barrier* waits_for = nullptr;
  int round = 0;  // of that barrier, which it waits for the end of

  [[nodiscard]] bool may_run() const { return waits_for == nullptr || waits_for->round != round; }
};

std::vector<Thread> all;
std::vector<Barrier> warps;
Barrier block;
int lanes = 0;
int running = 0;

emulator::Fiber& fiber() { return emulator::fiber(static_cast<std::size_t>(running)); }
Thread& self() { return all[static_cast<std::size_t>(running)]; }
Barrier& warp() { return warps[static_cast<std::size_t>(running / lanes)]; }

void wait(Barrier& barrier) {
  self() = {&barrier, barrier.round};
  ++barrier.come;
  barrier.next_if_complete();
  fiber().yield();
}

}  // namespace

void run_block(int threads, int warp_size, Turn turn, const std::function<void()>& f) {
  const auto count = static_cast<std::size_t>(threads);
  lanes = warp_size;
  block = {threads, 0, 0};
  warps.assign((count + static_cast<std::size_t>(warp_size) - 1) / static_cast<std::size_t>(warp_size), {warp_size, 0, 0});
  if (threads % warp_size != 0) warps.back().left = threads % warp_size;
  all.assign(count, {});
  for (std::size_t t = 0; t < count; ++t) {
    emulator::fiber(t).start([&f] {
      f();
      for (Barrier* b : {&warp(), &block}) {
        --b->left;
        b->next_if_complete();
      }
    });
  }
  for (int left = threads; left > 0;) {
    bool moved = false;
    for (int i = 0; i < threads; ++i) {
      running = turn == Turn::kForwards ? i : threads - 1 - i;
      emulator::Fiber& next = fiber();
      if (next.ended() || !self().may_run()) continue;
      next.resume();
      moved = true;
      if (next.ended()) --left;
    }
    if (!moved) std::abort();  // a barrier that not all threads reach
  }
}

int thread_id() { return running; }
void sync_warp() { wait(warp()); }
void sync_block() { wait(block); }

}  // namespace fp4pa::kernels_test
