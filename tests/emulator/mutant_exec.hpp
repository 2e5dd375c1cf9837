// An Exec of any architecture with one fault planted in it: a barrier or a wait that is left out, or an instruction that does
// not do what its atom says.
#pragma once

#include <bit>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "backends/emulator/warp_exec.hpp"
#include "core/atom/atom.hpp"

namespace fp4pa::emulator_test {

struct Fault {
  enum class Kind {
    kNone,
    kBlockBarrier,      // the nth block barrier of every warp is missing
    kBlockBarrierOne,   // of warp 0 alone
    kWarpBarrier,       // the nth barrier of every warp is missing
    kCopyWait,          // the nth wait for copies
    kTransposedC,       // accumulators come with rows and columns exchanged
    kSwappedC,          // accumulators come in pairs exchanged
    kSwappedScaleA,     // each lane supplies its neighbour's word of scales
    kSwappedScaleB,
    kWrongByteA,        // the next byte of the word is taken for a scale
    kWrongByteB,
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

  /// @tparam Of  what the architecture's Exec calls its products by: an element or an atom
  template <class Of, class D, class A, class B>
  void multiply(D&& d, A&& a, B&& b) {
    if (!misplaces()) {
      Base::template multiply<Of>(d, a, b);
      return;
    }
    auto result = zeros<kValuesOf<D>>();
    Base::template multiply<Of>([&](Lane lane) -> auto& { return result[lane]; }, a, b);
    add_misplaced(result, d);
  }
  template <class Atom, core::ScaleSelect kSelectA, core::ScaleSelect kSelectB, class D, class A, class B, class SfA,
            class SfB>
  void multiply_scaled(D&& d, A&& a, B&& b, SfA&& sfa, SfB&& sfb) {
    const auto scale_a = [&](Lane lane) { return wrong_scale(sfa, lane, Fault::Kind::kSwappedScaleA, Fault::Kind::kWrongByteA); };
    const auto scale_b = [&](Lane lane) { return wrong_scale(sfb, lane, Fault::Kind::kSwappedScaleB, Fault::Kind::kWrongByteB); };
    if (!misplaces()) {
      Base::template multiply_scaled<Atom, kSelectA, kSelectB>(d, a, b, scale_a, scale_b);
      return;
    }
    auto result = zeros<kValuesOf<D>>();
    Base::template multiply_scaled<Atom, kSelectA, kSelectB>([&](Lane lane) -> auto& { return result[lane]; }, a, b, scale_a,
                                                             scale_b);
    add_misplaced(result, d);
  }

 private:
  template <class D>
  static constexpr int kValuesOf = std::extent_v<std::remove_reference_t<decltype(std::declval<D>()(Lane{}))>>;

  static bool misplaces() { return fault.kind == Fault::Kind::kTransposedC || fault.kind == Fault::Kind::kSwappedC; }
  template <int kValues>
  static auto zeros() {
    typename Base::template PerLane<float[kValues]> result;
    for (int i = 0; i < Base::kLanes; ++i) {
      for (float& x : result[Lane{i}]) x = 0.0f;
    }
    return result;
  }
  /// Adds a product's accumulators to each other's places.
  template <class Result, class D>
  static void add_misplaced(const Result& result, D&& d) {
    constexpr int kValues = kValuesOf<D>;
    for (int i = 0; i < Base::kLanes; ++i) {
      for (int v = 0; v < kValues; ++v) {
        int from = i, value = v ^ 2;
        if (fault.kind == Fault::Kind::kTransposedC) {
          static_assert(kValues == 4, "16x8 in 32 lanes, or 16x16 in 64");
          if constexpr (Base::kLanes == 32) {
            // Row g and column 2t + h of an 8x8 half: lane 4g + t, value h.
            const int row = i / 4, col = 2 * (i % 4) + v % 2;
            from = 4 * col + row / 2;
            value = v / 2 * 2 + row % 2;
          } else {
            // Row 4 (lane / 16) + v, column lane % 16.
            const int row = 4 * (i / 16) + v, col = i % 16;
            from = col / 4 * 16 + row;
            value = col % 4;
          }
        }
        d(Lane{i})[v] += result[Lane{from}][value];
      }
    }
  }

  template <class Scales>
  static std::uint32_t wrong_scale(Scales& scales, Lane lane, Fault::Kind swapped, Fault::Kind wrong_byte) {
    const std::uint32_t word = scales(Lane{fault.kind == swapped ? lane.id ^ 1 : lane.id});
    return fault.kind == wrong_byte ? std::rotr(word, 8) : word;
  }

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
