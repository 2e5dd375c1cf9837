// What the emulator objects to: places in the program, not values. docs/emulator.md says what each kind means.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <source_location>
#include <string>
#include <tuple>
#include <vector>

namespace fp4pa::emulator {

/// Where in the source an access stands.
using Site = std::source_location;

/// "key_rows.hpp:85"
inline std::string describe(const Site& site) {
  const char* slash = std::strrchr(site.file_name(), '/');
  return std::string(slash != nullptr ? slash + 1 : site.file_name()) + ":" + std::to_string(site.line());
}

enum class FindingKind {
  kReadRace,         // no barrier between this read and the write before it
  kWriteRace,        // no barrier between this write and the read or write before it
  kCopyInFlight,     // an access to bytes that an asynchronous copy may still be writing
  kPoisonRead,       // a read of shared memory that nobody has written
  kOutOfBounds,      // beyond the block's shared memory
  kMisaligned,       // an address that the instruction does not take
  kCopyNeverLanded,  // the block ended without waiting for a copy
  kCopyTarget,       // targets of one copy that the instruction cannot address together
  kBarrierDivergence,
};

inline const char* name_of(FindingKind kind) {
  switch (kind) {
    case FindingKind::kReadRace: return "read without a barrier after the write";
    case FindingKind::kWriteRace: return "write without a barrier after the last access";
    case FindingKind::kCopyInFlight: return "access to bytes of a copy in flight";
    case FindingKind::kPoisonRead: return "read of bytes never written";
    case FindingKind::kOutOfBounds: return "access beyond shared memory";
    case FindingKind::kMisaligned: return "misaligned access";
    case FindingKind::kCopyNeverLanded: return "copy never waited for";
    case FindingKind::kCopyTarget: return "targets of a copy are not base + 16 lane";
    case FindingKind::kBarrierDivergence: return "warps do not meet at one barrier";
  }
  return "?";
}

inline constexpr int kAllLanes = 0xff;  // a collective, or several lanes
inline constexpr int kManyWarps = 0xff;

struct Finding {
  FindingKind kind;
  Site site;         // of the access that was objected to
  int block = 0;
  int warp = 0;
  int lane = 0;      // or kAllLanes
  std::int64_t offset = -1;  // in shared memory
  Site other{};      // of the access it conflicts with, where there is one
  int other_warp = -1;  // or kManyWarps
  int other_lane = -1;  // or kAllLanes
  std::int64_t count = 1;  // occurrences of this kind at these two sites; the rest is the first one's
};

inline std::string describe(const Finding& f) {
  const auto who = [](int warp, int lane) {
    return (warp == kManyWarps ? std::string("several warps") : "warp " + std::to_string(warp)) +
           (lane == kAllLanes ? ", all lanes" : ", lane " + std::to_string(lane));
  };
  std::string s = std::string(name_of(f.kind)) + ": " + describe(f.site) + ", block " + std::to_string(f.block) + ", " +
                  who(f.warp, f.lane);
  if (f.offset >= 0) s += ", offset " + std::to_string(f.offset);
  if (f.other_warp >= 0) s += "; against " + describe(f.other) + ", " + who(f.other_warp, f.other_lane);
  if (f.count > 1) s += " (" + std::to_string(f.count) + " times)";
  return s;
}

/// The findings of a launch, one entry for a kind and a pair of sites. May be reported to from several threads.
class Findings {
 public:
  void report(const Finding& f) {
    const std::lock_guard lock(mutex_);
    const auto key = std::tuple(f.kind, describe(f.site), f.other_warp >= 0 ? describe(f.other) : std::string());
    const auto [at, is_new] = index_.try_emplace(key, list_.size());
    if (is_new) {
      list_.push_back(f);
    } else {
      list_[at->second].count += f.count;
    }
  }
  /// To be read when no launch is running.
  [[nodiscard]] const std::vector<Finding>& list() const { return list_; }
  [[nodiscard]] bool empty() const { return list_.empty(); }
  [[nodiscard]] bool has(FindingKind kind) const {
    for (const Finding& f : list_) {
      if (f.kind == kind) return true;
    }
    return false;
  }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const Finding& f : list_) all += describe(f) + "\n";
    return all;
  }
  void clear() {
    list_.clear();
    index_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<Finding> list_;
  std::map<std::tuple<FindingKind, std::string, std::string>, std::size_t> index_;
};

}  // namespace fp4pa::emulator
