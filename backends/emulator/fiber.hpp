// A function on a stack of its own, which stops in the middle and goes on later, on one thread of the system. What runs on the
// emulator changes its turn at every barrier; between threads, such a change takes system calls and a scheduler.
//
// setcontext begins a fiber once, and later turns are handed over by _longjmp: swapcontext would set the signal mask, by two system calls,
// which where they are slow took nine tenths of the time of tests/kernels. The address sanitizer is not told of these stacks.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <csetjmp>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <functional>
#include <new>
#include <utility>

namespace fp4pa::emulator {

/// _longjmp by its name in the C library: where _FORTIFY_SOURCE is set, the header's takes a jump to another stack for a mistake.
[[noreturn]] void jump(std::jmp_buf place, int value) __asm__("_longjmp");

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() {
    if (stack_ != nullptr) ::munmap(stack_, kStackBytes);
  }

  /// What the next turn begins. The fiber has ended or has never had one. @param body  throws nothing
  void start(std::function<void()> body) {
    if (!ended_) std::abort();  // it would be lost in the middle
    body_ = std::move(body);
    ended_ = false;
  }
  [[nodiscard]] bool ended() const { return ended_; }

  /// From outside: a turn. Returns when the fiber has yielded or ended.
  void resume() {
    if (_setjmp(outside_) != 0) return;
    if (stack_ != nullptr) jump(inside_, 1);
    begin();
  }
  /// From inside: ends the turn. Returns in the next.
  void yield() {
    if (_setjmp(inside_) == 0) jump(outside_, 1);
  }

 private:
  static constexpr std::size_t kStackBytes = 8 << 20;  // as threads have; what is not touched takes no memory

  /// Allocates the stack and goes there.
  void begin() {
    void* const memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    ::mprotect(memory, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), PROT_NONE);  // a stack that is too small shows
    stack_ = memory;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack_;
    // Not all at the same place of a page, or they would have the same few lines of a cache.
    static thread_local std::size_t count = 0;
    context.uc_stack.ss_size = kStackBytes - 64 * (++count % 512);
    context.uc_link = nullptr;
    beginning() = this;
    makecontext(&context, live, 0);
    setcontext(&context);
  }
  static Fiber*& beginning() {
    static thread_local Fiber* fiber = nullptr;
    return fiber;
  }
  /// All that happens on the stack.
  static void live() {
    Fiber& self = *beginning();
    for (;;) {
      self.body_();
      self.ended_ = true;
      self.yield();
    }
  }

  std::jmp_buf outside_, inside_;
  std::function<void()> body_;
  void* stack_ = nullptr;
  bool ended_ = true;
};

/// Fiber i of this thread, whose stack serves one block after the other.
[[nodiscard]] inline Fiber& fiber(std::size_t i) {
  static thread_local std::deque<Fiber> fibers;
  while (fibers.size() <= i) fibers.emplace_back();
  return fibers[i];
}

}  // namespace fp4pa::emulator
