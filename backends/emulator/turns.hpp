// Warps of a block, one at a time: a warp runs until it comes to a block barrier or to its end, then the order decides who
// is next. So every run with the same order is the same run, and a barrier that not all warps reach is noticed at once.
//
// Warps are threads that hand on a single turn. They could be fibres, but threads are understood by every sanitizer
// and debugger, and turns change only at block barriers.
#pragma once

#include <exception>
#include <semaphore>
#include <thread>
#include <vector>

#include "backends/emulator/findings.hpp"
#include "backends/emulator/order.hpp"

namespace fp4pa::emulator {

class Turns {
 public:
  Turns(int warps, Order order, std::uint64_t salt, Findings& findings, int block)
      : warps_(static_cast<std::size_t>(warps)), order_(order), dice_(order.seed + salt), findings_(findings), block_(block) {}

  /// Calls f(warp) for every warp, and returns when all have ended. What f throws is thrown again.
  template <class F>
  void run(F&& f) {
    std::vector<std::thread> threads;
    for (int w = 0; w < size(); ++w) {
      threads.emplace_back([this, w, &f] {
        warps_[idx(w)].turn.acquire();
        if (!given_up_) {
          try {
            f(w);
          } catch (const GivenUp&) {
          } catch (...) {
            if (!thrown_) thrown_ = std::current_exception();
            given_up_ = true;
          }
        }
        warps_[idx(w)].state = State::kEnded;
        pass_on();
      });
    }
    pass_on();
    for (std::thread& t : threads) t.join();
    if (thrown_) std::rethrow_exception(thrown_);
  }

  /// Returns when all warps have come here. Ends the calling warp, by an exception, when they cannot.
  void barrier(int warp, const Site& site) {
    warps_[idx(warp)].state = State::kWaits;
    warps_[idx(warp)].site = site;
    pass_on();
    warps_[idx(warp)].turn.acquire();
    if (given_up_) throw GivenUp();
  }

  /// Barriers that all warps have passed.
  [[nodiscard]] std::uint32_t barriers() const { return barriers_; }

 private:
  struct GivenUp {};
  enum class State { kReady, kWaits, kEnded };
  struct Warp {
    std::binary_semaphore turn{0};
    State state = State::kReady;
    Site site{};
  };

  [[nodiscard]] int size() const { return static_cast<int>(warps_.size()); }
  static std::size_t idx(int i) { return static_cast<std::size_t>(i); }

  // All of the following is done by whoever has the turn; the semaphores order it.

  [[nodiscard]] std::vector<int> in_state(State state) const {
    std::vector<int> found;
    for (int w = 0; w < size(); ++w) {
      if (warps_[idx(w)].state == state) found.push_back(w);
    }
    return found;
  }

  void pass_on() {
    std::vector<int> ready = in_state(State::kReady);
    if (ready.empty()) {
      const std::vector<int> waiting = in_state(State::kWaits);
      if (waiting.empty()) return;  // all have ended
      check_meeting(waiting);
      ++barriers_;
      for (const int w : waiting) warps_[idx(w)].state = State::kReady;
      ready = waiting;
    }
    std::size_t next = 0;
    if (order_.kind == Order::Kind::kBackwards) next = ready.size() - 1;
    if (order_.kind == Order::Kind::kRandom) next = idx(dice_.below(static_cast<int>(ready.size())));
    warps_[idx(ready[next])].turn.release();
  }

  /// Everybody who has not ended waits. That is a meeting if nobody has ended and all came to the same barrier.
  void check_meeting(const std::vector<int>& waiting) {
    if (given_up_) return;
    const Warp& first = warps_[idx(waiting.front())];
    Finding f{FindingKind::kBarrierDivergence, first.site, block_, waiting.front(), kAllLanes};
    for (int w = 0; w < size(); ++w) {
      const Warp& warp = warps_[idx(w)];
      const bool ended = warp.state == State::kEnded;
      if (!ended && warp.site.line() == first.site.line() &&
          std::strcmp(warp.site.file_name(), first.site.file_name()) == 0) {
        continue;
      }
      f.other = warp.site;  // where an ended warp was last
      f.other_warp = w;
      f.other_lane = kAllLanes;
      findings_.report(f);
      given_up_ = true;
      return;
    }
  }

  std::vector<Warp> warps_;
  Order order_;
  Dice dice_;
  Findings& findings_;
  int block_;
  std::uint32_t barriers_ = 0;
  bool given_up_ = false;
  std::exception_ptr thrown_;
};

}  // namespace fp4pa::emulator
