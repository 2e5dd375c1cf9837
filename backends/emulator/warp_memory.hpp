// Memory as one warp of the emulator reaches it: every access to shared memory is watched, and an asynchronous copy lands when it
// is waited for and not before.
//
// What of WarpExec does not depend on the number of lanes or on types, so that it is compiled once, with optimisation, and not
// anew in every kernel.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "backends/emulator/block.hpp"

namespace fp4pa::emulator {

class WarpMemory {
 public:
  /// @param lanes  of the warp
  WarpMemory(Block& block, int warp, int lanes, BankRule banks) : block_(block), warp_(warp), lanes_(lanes), rule_(banks), log_(lanes) {}
  WarpMemory(const WarpMemory&) = delete;
  WarpMemory& operator=(const WarpMemory&) = delete;

  [[nodiscard]] Block& block() const { return block_; }
  [[nodiscard]] int warp() const { return warp_; }

  /// The access that `lane` makes now.
  [[nodiscard]] Access access(int lane, const Site& at);
  void warp_barrier() { ++warp_epoch_; }
  void block_barrier(const Site& at);

  void store(int lane, std::uint32_t offset, std::uint32_t bytes, const void* value, const Site& at);
  /// Poison where the access is not made.
  void load(int lane, std::uint32_t offset, std::uint32_t bytes, void* value, const Site& at);
  /// On behalf of several lanes: a row of a collective load, at an address that must be a multiple of `alignment`.
  void load_row(std::uint32_t offset, std::uint32_t bytes, std::uint32_t alignment, void* value, const Access& now);
  void check_global(const void* from, std::uint32_t bytes, const Site& at);

  /// @param valid  otherwise zeros are written, and `from` is not looked at
  void copy(int lane, std::uint32_t to, std::uint32_t bytes, const void* from, bool valid, const Site& at);
  void commit_copies();
  /// Until no more than the newest `newest` groups of copies are under way.
  void wait_for_copies(int newest, const Site& at);

  /// Where banks are counted, the accesses since the last region are put together into instructions.
  void end_region();
  /// Banks of a collective: each lane points at `bytes` bytes at offset[lane].
  void count_collective(const Site& at, int bytes, const std::uint32_t* offset);
  /// To be called when the warp's program has ended.
  void end();

 private:
  struct Copy {
    std::uint32_t to;
    std::uint32_t bytes;
    const void* from;  // null: zeros
    Access issued;
  };
  /// Block's numbers, remembered by the place in memory where the compiler keeps the site's text and line.
  struct Known {
    const char* file = nullptr;
    std::uint32_t line = 0;
    std::uint32_t column = 0;
    std::uint16_t number = 0;
  };

  [[nodiscard]] std::uint16_t site_number(const Site& at);
  [[nodiscard]] bool aligned(std::uint64_t address, std::uint32_t bytes, const Access& now) const;
  [[nodiscard]] bool counts_banks() const { return block_.watch().banks != nullptr; }
  void count(std::uint16_t site, int bytes, const std::uint32_t* offsets);

  Block& block_;
  int warp_;
  int lanes_;
  BankRule rule_;
  std::uint32_t warp_epoch_ = 0;
  std::vector<Copy> open_;
  std::deque<std::vector<Copy>> groups_;
  RegionLog log_;
  std::vector<BankCount> banks_;
  Known known_[128];
};

}  // namespace fp4pa::emulator
