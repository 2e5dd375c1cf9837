// What is known of every byte of a block's shared memory: who wrote and who read it last, and whether a barrier stands
// between that and the next access.
//
// Two accesses are ordered if one lane makes both, if they are of one warp and a barrier of the warp or of the block stands
// between, or if they are of two warps and a barrier of the block stands between. Nothing else orders: not the order in
// which the emulator happens to run lanes, and no collective. A collective load (ldmatrix) is a read by all lanes, since
// the address of one lane brings data to others.
//
// An asynchronous copy may write its bytes at any time from its issue to its wait. Until then they belong to nobody; at the
// wait they are written by the lane that waits.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/emulator/findings.hpp"

namespace fp4pa::emulator {

/// One access, in terms of barriers passed before it.
struct Access {
  std::uint32_t block_epoch = 0;
  std::uint32_t warp_epoch = 0;
  std::uint16_t site = 0;
  std::uint8_t warp = 0;
  std::uint8_t lane = 0;
};

class Shadow {
 public:
  explicit Shadow(std::size_t bytes) : words_((bytes + 3) / 4) {}

  /// Each calls report(kind, offset, other access) for every word or byte that it objects to.
  template <class Report>
  void read(std::uint32_t offset, std::uint32_t bytes, const Access& now, Report&& report) {
    each_cell(offset, bytes, false, [&](Cell& c, std::uint32_t at) {
      if (c.in_flight) {
        report(FindingKind::kCopyInFlight, at, c.write);
      } else if (!c.written) {
        report(FindingKind::kPoisonRead, at, now);
      } else if (unordered(c.write, now)) {
        report(FindingKind::kReadRace, at, c.write);
      }
      note_reader(c, now);
    });
  }
  template <class Report>
  void write(std::uint32_t offset, std::uint32_t bytes, const Access& now, Report&& report) {
    each_cell(offset, bytes, true, [&](Cell& c, std::uint32_t at) {
      check_write(c, at, now, report);
      c.write = now;
      c.written = true;
      c.was_read = false;
    });
  }
  /// A copy may begin to write, hence everybody must be done with the bytes.
  template <class Report>
  void issue_copy(std::uint32_t offset, std::uint32_t bytes, const Access& now, Report&& report) {
    each_cell(offset, bytes, true, [&](Cell& c, std::uint32_t at) {
      check_write(c, at, now, report);
      c.write = now;
      c.in_flight = true;
      c.was_read = false;
    });
  }
  void land_copy(std::uint32_t offset, std::uint32_t bytes, const Access& now) {
    each_cell(offset, bytes, true, [&](Cell& c, std::uint32_t) {
      c.write = now;
      c.written = true;
      c.in_flight = false;
    });
  }

 private:
  struct Cell {
    Access write;
    Access reader;  // since the write: the last one, or what several have in common
    bool written = false;
    bool was_read = false;
    bool in_flight = false;
    bool split = false;  // of a word: its bytes differ and are in bytes_
  };

  static bool unordered(const Access& before, const Access& now) {
    if (before.warp != now.warp) return before.block_epoch == now.block_epoch;
    const bool same_lane = before.lane == now.lane && now.lane != kAllLanes;
    return !same_lane && before.warp_epoch == now.warp_epoch;
  }

  template <class Report>
  static void check_write(const Cell& c, std::uint32_t at, const Access& now, Report& report) {
    if (c.in_flight) {
      report(FindingKind::kCopyInFlight, at, c.write);
      return;
    }
    if (c.written && unordered(c.write, now)) report(FindingKind::kWriteRace, at, c.write);
    if (c.was_read && unordered(c.reader, now)) report(FindingKind::kWriteRace, at, c.reader);
  }

  /// Of several readers only what a later write needs is kept: whether more than one warp is among those since the last
  /// block barrier, and more than one lane among those since the last barrier of the warp.
  static void note_reader(Cell& c, const Access& now) {
    const Access before = c.reader;
    const bool same_block_epoch = c.was_read && before.block_epoch == now.block_epoch;
    c.reader = now;
    c.was_read = true;
    if (!same_block_epoch) return;
    if (before.warp != now.warp) {
      c.reader.warp = kManyWarps;
      c.reader.lane = kAllLanes;
    } else if (before.warp_epoch == now.warp_epoch && before.lane != now.lane) {
      c.reader.lane = kAllLanes;
    }
  }

  /// Calls f for the words of a range, or for single bytes where words are cut.
  template <class F>
  void each_cell(std::uint32_t offset, std::uint32_t bytes, bool writes, F&& f) {
    const std::uint32_t end = offset + bytes;
    for (std::uint32_t at = offset; at < end;) {
      Cell& word = words_[at / 4];
      if (at % 4 == 0 && end - at >= 4) {
        if (!word.split) {
          f(word, at);
        } else {
          Cell* cells = &bytes_[at];
          for (std::uint32_t i = 0; i < 4; ++i) f(cells[i], at + i);
          // The four now have the same last write and no reader.
          if (writes) word = cells[0];
          word.split = !writes;
        }
        at += 4;
      } else {
        if (!word.split) {
          if (bytes_.empty()) bytes_.resize(4 * words_.size());
          for (std::uint32_t i = 0; i < 4; ++i) bytes_[at / 4 * 4 + i] = word;
          word.split = true;
        }
        f(bytes_[at], at);
        ++at;
      }
    }
  }

  std::vector<Cell> words_;
  std::vector<Cell> bytes_;  // made when the first word is split
};

}  // namespace fp4pa::emulator
