// A turn is handed over by _longjmp, which leaves the signal mask alone: swapcontext sets it by two system calls, and where those are
// slow they were nine tenths of these tests' time (325 s for 29). CMakeLists.txt takes _FORTIFY_SOURCE away here, for which a jump to
// another stack is a mistake.
#include "tests/kernels/fibers.hpp"

#include <ucontext.h>

#include <csetjmp>
#include <cstdlib>
#include <memory>
#include <vector>

namespace fp4pa::kernels_test {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;

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

struct Fiber {
  std::jmp_buf place;             // where it goes on
  std::unique_ptr<char[]> stack;  // none before its first turn
  bool ended = true;
  const Barrier* waits_for = nullptr;
  int round = 0;  // of that barrier, which it waits for the end of

  [[nodiscard]] bool may_run() const { return !ended && (waits_for == nullptr || waits_for->round != round); }
};

std::vector<Fiber> fibers;
std::vector<Barrier> warps;
Barrier block;
std::jmp_buf scheduler;
const std::function<void()>* body = nullptr;
int lanes = 0;
int running = 0;

Fiber& self() { return fibers[static_cast<std::size_t>(running)]; }
Barrier& warp() { return warps[static_cast<std::size_t>(running / lanes)]; }

/// Ends the turn of the running fiber; returns when it has the next.
void yield() {
  if (_setjmp(self().place) == 0) _longjmp(scheduler, 1);
}

/// All that a fiber does, block after block.
void live() {
  for (;;) {
    (*body)();
    self().ended = true;
    for (Barrier* b : {&warp(), &block}) {
      --b->left;
      b->next_if_complete();
    }
    yield();
  }
}

/// Gives the running fiber its turn; returns when it waits or has ended.
void resume() {
  if (_setjmp(scheduler) != 0) return;
  if (self().stack != nullptr) _longjmp(self().place, 1);
  self().stack = std::make_unique<char[]>(kStackBytes);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = self().stack.get();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, live, 0);
  setcontext(&context);
}

void wait(Barrier& barrier) {
  self().waits_for = &barrier;
  self().round = barrier.round;
  ++barrier.come;
  barrier.next_if_complete();
  yield();
}

}  // namespace

void run_block(int threads, int warp_size, Turn turn, const std::function<void()>& f) {
  const auto count = static_cast<std::size_t>(threads);
  body = &f;
  lanes = warp_size;
  block = {threads, 0, 0};
  warps.assign((count + static_cast<std::size_t>(warp_size) - 1) / static_cast<std::size_t>(warp_size), {warp_size, 0, 0});
  if (threads % warp_size != 0) warps.back().left = threads % warp_size;
  if (fibers.size() < count) fibers.resize(count);
  for (std::size_t t = 0; t < count; ++t) {
    fibers[t].ended = false;
    fibers[t].waits_for = nullptr;
  }
  for (int left = threads; left > 0;) {
    bool moved = false;
    for (int i = 0; i < threads; ++i) {
      running = turn == Turn::kForwards ? i : threads - 1 - i;
      if (!self().may_run()) continue;
      resume();
      moved = true;
      if (self().ended) --left;
    }
    if (!moved) std::abort();  // a barrier that not all threads reach
  }
}

int thread_id() { return running; }
void sync_warp() { wait(warp()); }
void sync_block() { wait(block); }

}  // namespace fp4pa::kernels_test
