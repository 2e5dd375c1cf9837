// A warp of the emulator as an Exec (core/simt/exec.hpp): lane regions are loops over lanes, every access to shared memory
// is watched, and an asynchronous copy lands when it is waited for and not before.
//
// What all architectures have in common. Their instructions are layers on top: sm80_exec.hpp, sm120_exec.hpp,
// gfx950_exec.hpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <type_traits>
#include <vector>

#include "backends/emulator/block.hpp"
#include "core/simt/exec.hpp"

namespace fp4pa::emulator {

template <int kWarpLanes, BankRule kBanks>
class WarpExec {
 public:
  static constexpr int kLanes = kWarpLanes;

  struct Lane {
    int id;
  };
  /// Holds poison until it is written.
  template <class T>
  struct PerLane {
    static_assert(std::is_trivially_copyable_v<T>);
    PerLane() { std::memset(static_cast<void*>(value), kPoison, sizeof(value)); }
    T& operator[](Lane lane) { return value[lane.id]; }
    const T& operator[](Lane lane) const { return value[lane.id]; }

   private:
    T value[kLanes];
  };

  WarpExec(Block& block, int warp) : block_(block), warp_(warp) {
    constexpr int kSequences = 8;  // random orders take turns
    const int n = block.watch().order.kind == Order::Kind::kRandom ? kSequences : 1;
    for (int i = 0; i < n; ++i) {
      const auto salt = static_cast<std::uint64_t>((block.number() * 64 + warp) * kSequences + i);
      sequences_.push_back(sequence(block.watch().order, kLanes, salt));
    }
  }
  WarpExec(const WarpExec&) = delete;
  WarpExec& operator=(const WarpExec&) = delete;

  [[nodiscard]] int warp() const { return warp_; }
  [[nodiscard]] int num_warps() const { return block_.num_warps(); }

  template <class F>
  void each_lane(F&& f) {
    const std::vector<int>& lanes = sequences_[regions_++ % sequences_.size()];
    for (const int lane : lanes) f(Lane{lane});
    end_region();
  }

  template <class T>
  [[nodiscard]] PerLane<T> shuffle_xor(const PerLane<T>& x, int mask) const {
    PerLane<T> out;
    for (int i = 0; i < kLanes; ++i) out[Lane{i}] = x[Lane{i ^ mask}];
    return out;
  }
  [[nodiscard]] std::uint32_t reduce_max(const PerLane<std::uint32_t>& x) const {
    std::uint32_t m = 0;
    for (int i = 0; i < kLanes; ++i) m = x[Lane{i}] > m ? x[Lane{i}] : m;
    return m;
  }
  template <class F>
  [[nodiscard]] bool any(F&& f) {
    bool result = false;
    each_lane([&](Lane lane) { result = f(lane) || result; });
    return result;
  }

  void warp_barrier() { ++warp_epoch_; }
  void block_barrier(Site at = Site::current()) {
    block_.turns().barrier(warp_, at);
    ++warp_epoch_;
  }

  template <class T>
  void store_shared(Lane lane, std::uint32_t offset, T value, Site at = Site::current()) {
    static_assert(std::is_trivially_copyable_v<T>);
    const Access now = access(lane.id, at);
    if (aligned(offset, sizeof(T), now)) block_.write(offset, sizeof(T), &value, now);
    log_.add(now.site, lane.id, offset, sizeof(T));
  }
  template <class T>
  [[nodiscard]] T load_shared(Lane lane, std::uint32_t offset, Site at = Site::current()) {
    T value;
    load(lane.id, offset, sizeof(T), &value, access(lane.id, at));
    log_.add(site_number(at), lane.id, offset, sizeof(T));
    return value;
  }
  /// 16 bytes as four words.
  void load_shared_16(Lane lane, std::uint32_t offset, std::uint32_t (&words)[4], Site at = Site::current()) {
    load(lane.id, offset, 16, words, access(lane.id, at));
    log_.add(site_number(at), lane.id, offset, 16);
  }

  template <class T>
  [[nodiscard]] T load_global(const void* from, Site at = Site::current()) {
    static_assert(std::is_trivially_copyable_v<T>);
    (void)aligned(reinterpret_cast<std::uintptr_t>(from), sizeof(T), access(kAllLanes, at));
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }

  void copy_async_16(Lane lane, std::uint32_t to, const void* from, bool valid, Site at = Site::current()) {
    copy_async<16>(lane, to, from, valid, at);
  }
  void copy_async_8(Lane lane, std::uint32_t to, const void* from, bool valid, Site at = Site::current()) {
    copy_async<8>(lane, to, from, valid, at);
  }
  void copy_async_4(Lane lane, std::uint32_t to, const void* from, bool valid, Site at = Site::current()) {
    copy_async<4>(lane, to, from, valid, at);
  }
  void copy_commit() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  template <int kNewest>
  void copy_wait(Site at = Site::current()) {
    while (groups_.size() > static_cast<std::size_t>(kNewest)) {
      for (const Copy& c : groups_.front()) {
        Access now = access(c.issued.lane, at);
        block_.land_copy(c.to, c.bytes, c.from, now);
      }
      groups_.pop_front();
    }
  }

  /// To be called when the warp's program has ended.
  void end() {
    groups_.push_back(std::move(open_));
    for (const auto& group : groups_) {
      for (const Copy& c : group) block_.report(FindingKind::kCopyNeverLanded, c.issued, c.to);
    }
    groups_.clear();
    for (std::size_t site = 0; site < banks_.size(); ++site) {
      if (banks_[site].instructions != 0) block_.watch().banks->add(block_.site(static_cast<std::uint16_t>(site)), banks_[site]);
    }
    banks_.clear();
  }

 protected:
  [[nodiscard]] Access access(int lane, const Site& at) {
    return {block_.turns().barriers(), warp_epoch_, site_number(at), static_cast<std::uint8_t>(warp_),
            static_cast<std::uint8_t>(lane)};
  }
  [[nodiscard]] bool aligned(std::uint64_t address, std::size_t bytes, const Access& now) const {
    if (address % bytes == 0) return true;
    block_.report(FindingKind::kMisaligned, now, static_cast<std::int64_t>(address));
    return false;
  }
  void load(int lane, std::uint32_t offset, std::uint32_t bytes, void* out, const Access& now) {
    (void)lane;
    std::memset(out, kPoison, bytes);
    if (aligned(offset, bytes, now)) block_.read(offset, bytes, out, now);
  }
  /// For a collective that reads on behalf of all lanes: rows of `bytes` bytes at addresses aligned to `alignment`. Becomes
  /// the read callback of the models in isa/.
  [[nodiscard]] auto collective_read(const Site& at, std::uint32_t alignment) {
    const Access now = access(kAllLanes, at);
    return [this, now, alignment](int, std::uint32_t offset, int bytes, std::uint8_t* out) {
      std::memset(out, kPoison, static_cast<std::size_t>(bytes));
      if (aligned(offset, alignment, now)) block_.read(offset, static_cast<std::uint32_t>(bytes), out, now);
    };
  }
  /// Banks of a collective: lane l of `lanes` points at `bytes` bytes at offset[l].
  void count_collective(const Site& at, int bytes, const std::uint32_t* offset) {
    if (block_.watch().banks != nullptr) count(site_number(at), count_banks<kLanes>(kBanks, bytes, offset));
  }
  [[nodiscard]] Block& block() { return block_; }

 private:
  struct Copy {
    std::uint32_t to;
    std::uint32_t bytes;
    const void* from;  // null: zeros
    Access issued;
  };

  template <std::uint32_t kBytes>
  void copy_async(Lane lane, std::uint32_t to, const void* from, bool valid, const Site& at) {
    const Access now = access(lane.id, at);
    const auto source = reinterpret_cast<std::uintptr_t>(from);
    if (!aligned(to, kBytes, now) || (valid && !aligned(source, kBytes, now))) return;
    if (block_.issue_copy(to, kBytes, now)) open_.push_back({to, kBytes, valid ? from : nullptr, now});
  }
  void end_region() {
    log_.each_instruction([&](std::uint16_t site, int bytes, const std::uint32_t* offsets) {
      if (block_.watch().banks != nullptr) count(site, count_banks<kLanes>(kBanks, bytes, offsets));
    });
  }
  void count(std::uint16_t site, const BankCount& n) {
    if (site >= banks_.size()) banks_.resize(site + std::size_t{1});
    banks_[site] += n;
  }

  /// Block's numbers, remembered by the place in memory where the compiler keeps the site's text and line.
  [[nodiscard]] std::uint16_t site_number(const Site& at) {
    const auto hash = (reinterpret_cast<std::uintptr_t>(at.file_name()) >> 3) * 31 + at.line() * 7 + at.column();
    Known& known = known_[hash % std::size(known_)];
    if (known.file != at.file_name() || known.line != at.line() || known.column != at.column()) {
      known = {at.file_name(), at.line(), at.column(), block_.site_number(at)};
    }
    return known.number;
  }
  struct Known {
    const char* file = nullptr;
    std::uint32_t line = 0;
    std::uint32_t column = 0;
    std::uint16_t number = 0;
  };

  Block& block_;
  int warp_;
  std::uint32_t warp_epoch_ = 0;
  std::size_t regions_ = 0;
  std::vector<std::vector<int>> sequences_;
  std::vector<Copy> open_;
  std::deque<std::vector<Copy>> groups_;
  RegionLog<kLanes> log_;
  std::vector<BankCount> banks_;
  Known known_[128];
};

/// What a matrix instruction's model indexes, [lane][register], over a function from a lane to its registers.
template <class Lane, class F>
struct ByLane {
  F& f;
  decltype(auto) operator[](int lane) const { return f(Lane{lane}); }
};

}  // namespace fp4pa::emulator
