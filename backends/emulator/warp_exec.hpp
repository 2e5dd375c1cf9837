// A warp of the emulator as an Exec (core/simt/exec.hpp): lane regions are loops over lanes, and memory is WarpMemory.
//
// What all architectures have in common. Their instructions are layers on top: sm80_exec.hpp, sm120_exec.hpp,
// gfx950_exec.hpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "backends/emulator/warp_memory.hpp"
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

  WarpExec(Block& block, int warp) : memory_(block, warp, kLanes, kBanks) {
    constexpr int kSequences = 8;  // random orders take turns
    const int n = block.watch().order.kind == Order::Kind::kRandom ? kSequences : 1;
    for (int i = 0; i < n; ++i) {
      const auto salt = static_cast<std::uint64_t>((block.number() * 64 + warp) * kSequences + i);
      sequences_.push_back(sequence(block.watch().order, kLanes, salt));
    }
  }
  WarpExec(const WarpExec&) = delete;
  WarpExec& operator=(const WarpExec&) = delete;

  [[nodiscard]] int warp() const { return memory_.warp(); }
  [[nodiscard]] int num_warps() const { return block().num_warps(); }

  template <class F>
  void each_lane(F&& f) {
    const int* lanes = next_sequence();
    for (int i = 0; i < kLanes; ++i) f(Lane{lanes[i]});
    memory_.end_region();
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

  void warp_barrier() { memory_.warp_barrier(); }
  void block_barrier(Site at = Site::current()) { memory_.block_barrier(at); }

  template <class T>
  void store_shared(Lane lane, std::uint32_t offset, T value, Site at = Site::current()) {
    static_assert(std::is_trivially_copyable_v<T>);
    memory_.store(lane.id, offset, sizeof(T), &value, at);
  }
  template <class T>
  [[nodiscard]] T load_shared(Lane lane, std::uint32_t offset, Site at = Site::current()) {
    T value;
    memory_.load(lane.id, offset, sizeof(T), &value, at);
    return value;
  }
  /// 16 bytes as four words.
  void load_shared_16(Lane lane, std::uint32_t offset, std::uint32_t (&words)[4], Site at = Site::current()) {
    memory_.load(lane.id, offset, 16, words, at);
  }

  template <class T>
  [[nodiscard]] T load_global(const void* from, Site at = Site::current()) {
    static_assert(std::is_trivially_copyable_v<T>);
    memory_.check_global(from, sizeof(T), at);
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }

  void copy_async_16(Lane lane, std::uint32_t to, const void* from, bool valid, Site at = Site::current()) {
    memory_.copy(lane.id, to, 16, from, valid, at);
  }
  void copy_async_8(Lane lane, std::uint32_t to, const void* from, bool valid, Site at = Site::current()) {
    memory_.copy(lane.id, to, 8, from, valid, at);
  }
  void copy_async_4(Lane lane, std::uint32_t to, const void* from, bool valid, Site at = Site::current()) {
    memory_.copy(lane.id, to, 4, from, valid, at);
  }
  void copy_commit() { memory_.commit_copies(); }
  template <int kNewest>
  void copy_wait(Site at = Site::current()) {
    memory_.wait_for_copies(kNewest, at);
  }

  /// To be called when the warp's program has ended.
  void end() { memory_.end(); }

 protected:
  [[nodiscard]] Access access(int lane, const Site& at) { return memory_.access(lane, at); }
  /// For a collective that reads on behalf of all lanes: rows of `bytes` bytes at addresses aligned to `alignment`. Becomes
  /// the read callback of the models in isa/.
  [[nodiscard]] auto collective_read(const Site& at, std::uint32_t alignment) {
    const Access now = access(kAllLanes, at);
    return [this, now, alignment](int, std::uint32_t offset, int bytes, std::uint8_t* out) {
      memory_.load_row(offset, static_cast<std::uint32_t>(bytes), alignment, out, now);
    };
  }
  /// Banks of a collective: each lane points at `bytes` bytes at offset[lane].
  void count_collective(const Site& at, int bytes, const std::uint32_t* offset) { memory_.count_collective(at, bytes, offset); }
  [[nodiscard]] Block& block() const { return memory_.block(); }

 private:
  [[nodiscard]] const int* next_sequence() { return sequences_[regions_++ % sequences_.size()].data(); }

  WarpMemory memory_;
  std::size_t regions_ = 0;
  std::vector<std::vector<int>> sequences_;
};

/// What a matrix instruction's model indexes, [lane][register], over a function from a lane to its registers.
template <class Lane, class F>
struct ByLane {
  F& f;
  decltype(auto) operator[](int lane) const { return f(Lane{lane}); }
};

}  // namespace fp4pa::emulator
