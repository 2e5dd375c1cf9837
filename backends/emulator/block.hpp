// A block: its shared memory with the shadow of it, and its warps' turns.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "backends/emulator/banks.hpp"
#include "backends/emulator/findings.hpp"
#include "backends/emulator/order.hpp"
#include "backends/emulator/shadow.hpp"
#include "backends/emulator/turns.hpp"

namespace fp4pa::emulator {

/// All bits one: NaN as f32, f16, bf16, E4M3 and E8M0.
inline constexpr std::uint8_t kPoison = 0xff;

/// What is asked of a run, and where its results go.
struct Watch {
  Order order{};
  Findings* findings = nullptr;    // required
  BankTable* banks = nullptr;      // null: not counted
};

class Block {
 public:
  Block(const Watch& watch, int block, int warps, std::size_t shared_bytes)
      : watch_(watch),
        block_(block),
        num_warps_(warps),
        shared_(shared_bytes, kPoison),
        shadow_(shared_bytes),
        turns_(warps, watch.order, static_cast<std::uint64_t>(block), *watch.findings, block) {}

  [[nodiscard]] const Watch& watch() const { return watch_; }
  [[nodiscard]] int number() const { return block_; }
  [[nodiscard]] int num_warps() const { return num_warps_; }
  [[nodiscard]] Turns& turns() { return turns_; }
  /// What the warps have said so far at barrier number `round`: the one ahead, or the last.
  [[nodiscard]] bool& vote(std::uint32_t round) {
    Vote& v = votes_[round % 2];
    if (v.round != round) v = {round, false};
    return v.any;
  }

  void read(std::uint32_t offset, std::uint32_t bytes, void* out, const Access& now) {
    std::memset(out, kPoison, bytes);
    if (!in_bounds(offset, bytes, now)) return;
    shadow_.read(offset, bytes, now, Reporter{*this, now});
    std::memcpy(out, &shared_[offset], bytes);
  }
  void write(std::uint32_t offset, std::uint32_t bytes, const void* in, const Access& now) {
    if (!in_bounds(offset, bytes, now)) return;
    shadow_.write(offset, bytes, now, Reporter{*this, now});
    std::memcpy(&shared_[offset], in, bytes);
  }
  /// False if the copy must not be made.
  [[nodiscard]] bool issue_copy(std::uint32_t offset, std::uint32_t bytes, const Access& now) {
    if (!in_bounds(offset, bytes, now)) return false;
    shadow_.issue_copy(offset, bytes, now, Reporter{*this, now});
    return true;
  }
  /// @param from  null for zeros
  void land_copy(std::uint32_t offset, std::uint32_t bytes, const void* from, const Access& now) {
    shadow_.land_copy(offset, bytes, now);
    if (from != nullptr) {
      std::memcpy(&shared_[offset], from, bytes);
    } else {
      std::memset(&shared_[offset], 0, bytes);
    }
  }

  void report(FindingKind kind, const Access& now, std::int64_t offset) const {
    watch_.findings->report({kind, site(now.site), block_, now.warp, now.lane, offset});
  }

  /// A small number for a place in the source. Warps take turns, so that no lock is needed.
  [[nodiscard]] std::uint16_t site_number(const Site& s) {
    for (std::size_t i = 0; i < sites_.size(); ++i) {
      if (sites_[i].line() == s.line() && sites_[i].column() == s.column() &&
          std::string_view(sites_[i].file_name()) == s.file_name()) {
        return static_cast<std::uint16_t>(i);
      }
    }
    sites_.push_back(s);
    return static_cast<std::uint16_t>(sites_.size() - 1);
  }
  [[nodiscard]] const Site& site(std::uint16_t number) const { return sites_[number]; }

 private:
  struct Vote {
    std::uint32_t round;
    bool any;
  };
  [[nodiscard]] bool in_bounds(std::uint32_t offset, std::uint32_t bytes, const Access& now) const {
    if (std::uint64_t{offset} + bytes > shared_.size()) {
      report(FindingKind::kOutOfBounds, now, offset);
      return false;
    }
    return true;
  }
  struct Reporter {
    const Block& block;
    Access now;
    void operator()(FindingKind kind, std::uint32_t offset, const Access& other) const {
      Finding f{kind, block.site(now.site), block.block_, now.warp, now.lane, offset};
      if (kind != FindingKind::kPoisonRead) {
        f.other = block.site(other.site);
        f.other_warp = other.warp;
        f.other_lane = other.lane;
      }
      block.watch_.findings->report(f);
    }
  };

  Watch watch_;
  int block_;
  int num_warps_;
  std::vector<std::uint8_t> shared_;
  Shadow shadow_;
  Turns turns_;
  Vote votes_[2] = {};
  std::vector<Site> sites_;
};

/// Runs kernel(exec) once for every warp of one block.
/// @tparam Exec  of the architecture: Sm80Exec, Sm120Exec, Gfx950Exec
template <class Exec, class Kernel>
void run_block(const Watch& watch, int block, int warps, std::size_t shared_bytes, Kernel&& kernel) {
  Block b(watch, block, warps, shared_bytes);
  b.turns().run([&](int warp) {
    Exec exec(b, warp);
    kernel(exec);
    exec.end();
  });
}

}  // namespace fp4pa::emulator
