// An Exec with one fault planted in it: a barrier or a wait that is left out, or an instruction that does not do what its atom
// says.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "backends/emulator/warp_exec.hpp"

namespace fp4pa::emulator_test {

struct Fault {
  enum class Kind {
    kNone,
    kBlockBarrier,      // the nth block barrier of every warp is missing
    kBlockBarrierOne,   // of warp 0 alone
    kWarpBarrier,       // the nth barrier of every warp is missing
    kCopyWait,          // the nth wait for copies
    kTransposedC,       // accumulators come with rows and columns exchanged
    kSwappedC,          // accumulators of rows g and g + 8 exchanged
  };
  Kind kind = Kind::kNone;
  int nth = 0;  // from the beginning of each block
};

template <class Base>
class MutantExec : public Base {
 public:
  using Base::Base;
  using typename Base::Lane;
  using Site = emulator::Site;

  /// Of all mutants from now on.
  static inline Fault fault;
  /// Places in the source where the fault was.
  static inline std::set<std::string> places;

  void block_barrier(Site at = Site::current()) {
    if (hit(Fault::Kind::kBlockBarrier, at)) return;
    if (this->warp() == 0 && hit(Fault::Kind::kBlockBarrierOne, at)) return;
    Base::block_barrier(at);
  }
  void warp_barrier(Site at = Site::current()) {
    if (!hit(Fault::Kind::kWarpBarrier, at)) Base::warp_barrier();
  }
  template <int kNewest>
  void copy_wait(Site at = Site::current()) {
    if (!hit(Fault::Kind::kCopyWait, at)) Base::template copy_wait<kNewest>(at);
  }

  template <class Element, class D, class A, class B>
  void multiply(D&& d, A&& a, B&& b) {
    using Kind = Fault::Kind;
    if (fault.kind != Kind::kTransposedC && fault.kind != Kind::kSwappedC) {
      Base::template multiply<Element>(d, a, b);
      return;
    }
    typename Base::template PerLane<float[4]> product;
    for (int i = 0; i < Base::kLanes; ++i) {
      for (float& x : product[Lane{i}]) x = 0.0f;
    }
    Base::template multiply<Element>([&](Lane lane) -> auto& { return product[lane]; }, a, b);
    for (int i = 0; i < Base::kLanes; ++i) {
      for (int v = 0; v < 4; ++v) {
        // Row g and column 2t + h of an 8x8 half: lane 4g + t, value h.
        const int row = i / 4, col = 2 * (i % 4) + v % 2;
        const int from = fault.kind == Kind::kTransposedC ? 4 * col + row / 2 : i;
        const int value = fault.kind == Kind::kTransposedC ? v / 2 * 2 + row % 2 : v ^ 2;
        d(Lane{i})[v] += product[Lane{from}][value];
      }
    }
  }

 private:
  bool hit(Fault::Kind kind, const Site& at) {
    if (fault.kind != kind || count_++ != fault.nth) return false;
    const std::lock_guard lock(mutex_);
    places.insert(emulator::describe(at));
    return true;
  }
  int count_ = 0;
  static inline std::mutex mutex_;
};

}  // namespace fp4pa::emulator_test
