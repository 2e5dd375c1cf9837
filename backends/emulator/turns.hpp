// Warps of a block, one at a time: a warp runs until it comes to a block barrier or to its end, then the order decides who
// is next. So every run with the same order is the same run, and a barrier that not all warps reach is noticed at once.
#pragma once

#include <exception>
#include <vector>

#include "backends/emulator/fiber.hpp"
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
    for (int w = 0; w < size(); ++w) {
      fiber(idx(w)).start([this, w, &f] {
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
      });
    }
    for (int w = next(); w >= 0; w = next()) fiber(idx(w)).resume();
    if (thrown_) std::rethrow_exception(thrown_);
  }

  /// Returns when all warps have come here. Ends the calling warp, by an exception, when they cannot.
  void barrier(int warp, const Site& site) {
    warps_[idx(warp)].state = State::kWaits;
    warps_[idx(warp)].site = site;
    fiber(idx(warp)).yield();
    if (given_up_) throw GivenUp();
  }

  /// Barriers that all warps have passed.
  [[nodiscard]] std::uint32_t barriers() const { return barriers_; }

 private:
  struct GivenUp {};
  enum class State { kReady, kWaits, kEnded };
  struct Warp {
    State state = State::kReady;
    Site site{};
  };

  [[nodiscard]] int size() const { return static_cast<int>(warps_.size()); }
  static std::size_t idx(int i) { return static_cast<std::size_t>(i); }

  [[nodiscard]] std::vector<int> in_state(State state) const {
    std::vector<int> found;
    for (int w = 0; w < size(); ++w) {
      if (warps_[idx(w)].state == state) found.push_back(w);
    }
    return found;
  }

  /// The warp whose turn it is, -1 when all have ended.
  int next() {
    std::vector<int> ready = in_state(State::kReady);
    if (ready.empty()) {
      const std::vector<int> waiting = in_state(State::kWaits);
      if (waiting.empty()) return -1;
      check_meeting(waiting);
      ++barriers_;
      for (const int w : waiting) warps_[idx(w)].state = State::kReady;
      ready = waiting;
    }
    if (order_.kind == Order::Kind::kBackwards) return ready.back();
    if (order_.kind == Order::Kind::kRandom) return ready[idx(dice_.below(static_cast<int>(ready.size())))];
    return ready.front();
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
