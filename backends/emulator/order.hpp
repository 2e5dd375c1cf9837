// In which order lanes, warps and blocks are run. A result that depends on it is a fault of the program under test.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace fp4pa::emulator {

struct Order {
  enum class Kind { kForwards, kBackwards, kRandom };
  Kind kind = Kind::kForwards;
  std::uint64_t seed = 0;  // of kRandom

  static Order forwards() { return {}; }
  static Order backwards() { return {Kind::kBackwards, 0}; }
  static Order random(std::uint64_t seed) { return {Kind::kRandom, seed}; }
};

/// SplitMix64: small, and the same numbers on every platform.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }

 private:
  std::uint64_t state_;
};

/// 0 .. count - 1 in this order. `salt` tells apart the things that are ordered under one seed.
inline std::vector<int> sequence(Order order, int count, std::uint64_t salt) {
  std::vector<int> s(static_cast<std::size_t>(count));
  std::iota(s.begin(), s.end(), 0);
  if (order.kind == Order::Kind::kBackwards) std::reverse(s.begin(), s.end());
  if (order.kind == Order::Kind::kRandom) {
    Dice dice(order.seed * 0x100000001b3u + salt);
    for (int i = count; i > 1; --i) std::swap(s[static_cast<std::size_t>(i - 1)], s[static_cast<std::size_t>(dice.below(i))]);
  }
  return s;
}

}  // namespace fp4pa::emulator
