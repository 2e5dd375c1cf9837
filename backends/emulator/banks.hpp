// Bank conflicts of shared memory, counted where they are made.
//
// The rule: a phase is a set of lanes that a load serves together; in it every bank delivers one word of 4 bytes, to any
// number of lanes. A phase takes as many cycles as the bank with the most different words has. What exceeds one is
// extra. docs/emulator.md says which devices' phases are known, and from where.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backends/emulator/findings.hpp"

namespace fp4pa::emulator {

/// A device's banks, 4 bytes each. An access of 4 bytes a lane or fewer is served `count` lanes at a time, one of 8 or 16
/// bytes in correspondingly smaller groups of neighbouring lanes.
struct BankRule {
  int count;
  [[nodiscard]] constexpr int phase_lanes(int bytes, int lanes) const {
    const int per_phase = bytes <= 4 ? count : count * 4 / bytes;
    return per_phase < lanes ? per_phase : lanes;
  }
};

struct BankCount {
  std::int64_t instructions = 0;
  std::int64_t cycles = 0;  // without conflicts
  std::int64_t extra = 0;

  BankCount& operator+=(const BankCount& x) {
    instructions += x.instructions;
    cycles += x.cycles;
    extra += x.extra;
    return *this;
  }
};

inline constexpr std::uint32_t kInactive = 0xffffffffu;

inline constexpr int kMostLanes = 64;  // of a warp

/// One instruction of a warp.
/// @param offset  of every lane, or kInactive
inline BankCount count_banks(BankRule rule, int lanes, int bytes, const std::uint32_t* offset) {
  BankCount count{1, 0, 0};
  const int step = rule.phase_lanes(bytes, lanes);
  const int words = bytes < 4 ? 1 : bytes / 4;
  for (int first = 0; first < lanes; first += step) {
    std::array<std::uint32_t, 4 * kMostLanes> seen{};
    int n = 0;
    for (int lane = first; lane < first + step; ++lane) {
      if (offset[lane] == kInactive) continue;
      for (int w = 0; w < words; ++w) seen[static_cast<std::size_t>(n++)] = offset[lane] / 4 + static_cast<std::uint32_t>(w);
    }
    if (n == 0) continue;
    std::sort(seen.begin(), seen.begin() + n);
    n = static_cast<int>(std::unique(seen.begin(), seen.begin() + n) - seen.begin());
    std::array<int, 64> load{};
    int most = 0;
    for (int i = 0; i < n; ++i) {
      most = std::max(most, ++load[seen[static_cast<std::size_t>(i)] % static_cast<std::uint32_t>(rule.count)]);
    }
    ++count.cycles;
    count.extra += most - 1;
  }
  return count;
}

/// Counts per place in the source. May be added to from several threads.
class BankTable {
 public:
  void add(const Site& site, const BankCount& count) {
    const std::lock_guard lock(mutex_);
    rows_[describe(site)] += count;
  }
  [[nodiscard]] const std::map<std::string, BankCount>& rows() const { return rows_; }
  [[nodiscard]] BankCount total() const {
    BankCount sum;
    for (const auto& [site, count] : rows_) sum += count;
    return sum;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, BankCount> rows_;
};

/// The accesses of a lane region, put together again into instructions: lanes run one after the other, so the k-th access of
/// each lane at one place of the source is taken to be one instruction. Where lanes skip turns of a loop differently, that
/// is only nearly so.
class RegionLog {
 public:
  /// @param lanes  of the warp
  explicit RegionLog(int lanes) : lanes_(static_cast<std::size_t>(lanes)) {}

  void add(std::uint16_t site, int lane, std::uint32_t offset, int bytes) {
    if (site >= sites_.size()) sites_.resize(site + std::size_t{1});
    Entry& e = sites_[site];
    if (e.offsets.empty()) active_.push_back(site);
    e.bytes = bytes;
    const auto row = static_cast<std::size_t>(e.turns[static_cast<std::size_t>(lane)]++) * lanes_;
    if (row + lanes_ > e.offsets.size()) e.offsets.resize(row + lanes_, kInactive);
    e.offsets[row + static_cast<std::size_t>(lane)] = offset;
  }
  /// Calls f(site, bytes, offsets of all lanes) for every instruction, and forgets them.
  template <class F>
  void each_instruction(F&& f) {
    for (const std::uint16_t site : active_) {
      Entry& e = sites_[site];
      for (std::size_t row = 0; row < e.offsets.size(); row += lanes_) f(site, e.bytes, &e.offsets[row]);
      e.offsets.clear();
      e.turns.fill(0);
    }
    active_.clear();
  }

 private:
  struct Entry {
    std::vector<std::uint32_t> offsets;  // [turn][lane]
    std::array<int, kMostLanes> turns{};
    int bytes = 0;
  };
  std::size_t lanes_;
  std::vector<Entry> sites_;
  std::vector<std::uint16_t> active_;
};

}  // namespace fp4pa::emulator
