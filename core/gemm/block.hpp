// A block of a matrix product: rows of W by rows of X, all of K. What is multiplied how is the shim's; this is what all
// architectures have in common: the rows' way to shared memory, the walk along K, and the results' way out.
//
// W's rows are the rows of the matrix instruction (its A operand), X's the columns, so that the sixteen rows are full however
// few rows X has. Rows of both come through a ring of stages, as they lie in memory; a warp owns kWTiles tiles of W's rows and
// meets all of the block's X. Scales are needed by one lane each, and go from memory to its registers a stage ahead.
//
// The shim:
//   Exec, Atom
//   kWarps, kWTiles, kXTiles    atoms' tiles of W's rows of a warp, and of X's rows of a block
//   kWBytes, kXBytes            of a row and a stage, multiples of 16
//   kRing                       stages, at least 2
//   kUnit                       what the sums are still to be multiplied by
//   swizzle(row, chunk, chunks)             where a row's 16-byte chunk stands; its own inverse
//   Scales; load_scales(exec, w, x, stage, scales)   a lane's scales of a stage, from two GemmScales
//   multiply(exec, w, x, scales, sums)      a stage, from the offsets of the warp's rows of W and of the block's of X;
//                                           sums are PerLane<float[kWTiles][kXTiles][Atom::kValuesC]>
//   multiply_rest(exec, w, w_scales, x_scales, rest, stage, scales, sums)   if it has one: what X's terms leave, with kUsesRest
#pragma once

#include <cstdint>

#include "core/atom/atom.hpp"
#include "core/formats/scale_layout.hpp"
#include "core/gemm/params.hpp"
#include "core/paging/plain_row.hpp"
#include "core/simt/exec.hpp"

namespace fp4pa::core {

/// Scales of an operand's rows from a block's first one on.
class GemmScales {
 public:
  FP4PA_FN GemmScales(const GemmOperand& of, std::int64_t batch, std::int32_t first)
      : of_(of),
        scales_(of.scales + batch * of.scale_batch_bytes),
        first_(first),
        blocked_(of.scale_layout == ScaleLayout::kBlocked),
        words_(blocked_ || (of.groups % 4 == 0 && reinterpret_cast<std::uintptr_t>(scales_) % 4 == 0)) {}

  /// Scale `group` of row `row`, with the same rules as word().
  template <class E>
  [[nodiscard]] FP4PA_FN std::uint32_t one(E& exec, std::int32_t row, std::int32_t group) const {
    if (group >= of_.groups) return 0;
    const std::int32_t r = first_ + row < of_.count ? first_ + row : of_.count - 1;
    const std::int64_t at = blocked_ ? static_cast<std::int64_t>(blocked_scale_offset(r, group, of_.groups))
                                     : std::int64_t{r} * of_.groups + group;
    return exec.template load_global<std::uint8_t>(scales_ + at);
  }

  /// Scales 4 `word` and the next three of row `row`, zeros past the last: there the codes are zeros, too, and NaN they must
  /// not be. Rows that do not exist have the last one's: nobody looks at their sums, and lanes stay together.
  /// @tparam kWhole  scales are known to be whole words
  template <bool kWhole = false, class E>
  [[nodiscard]] FP4PA_FN std::uint32_t word(E& exec, std::int32_t row, std::int32_t word) const {
    const std::int32_t left = of_.groups - 4 * word;
    if (left <= 0) return 0;
    const std::int32_t r = first_ + row < of_.count ? first_ + row : of_.count - 1;
    const std::int64_t at = blocked_ ? static_cast<std::int64_t>(blocked_scale_offset(r, 4 * word, of_.groups))
                                     : std::int64_t{r} * of_.groups + 4 * word;
    const std::uint8_t* const from = scales_ + at;
    if (kWhole || (words_ && left >= 4)) return exec.template load_global<std::uint32_t>(from);
    std::uint32_t four = 0;
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (i < left) four |= std::uint32_t{exec.template load_global<std::uint8_t>(from + i)} << (8 * i);
    }
    return four;
  }

 private:
  const GemmOperand& of_;
  const std::uint8_t* scales_;
  std::int32_t first_;
  bool blocked_, words_;
};

/// What the terms of X leave, of a block's rows of X. Rows that do not exist have the last one's.
struct GemmRest {
  const std::uint16_t* first;
  std::int64_t cols;
  std::int32_t last;
  [[nodiscard]] FP4PA_FN const std::uint16_t* at(std::int32_t row, std::int64_t col) const {
    return first + (row < last ? row : last) * cols + col;
  }
};

template <class Shim>
class GemmBlock {
  using E = typename Shim::Exec;
  using Atom = typename Shim::Atom;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Sums = float[Shim::kWTiles][Shim::kXTiles][Atom::kValuesC];

  static constexpr int kThreads = Shim::kWarps * E::kLanes;
  static constexpr int kWarpRows = Shim::kWTiles * Atom::kM;
  static constexpr int kRing = Shim::kRing;
  static constexpr std::uint32_t kChunk = 16;

 public:
  static constexpr int kRows = Shim::kWarps * kWarpRows;    // of W
  static constexpr int kXRows = Shim::kXTiles * Atom::kN;

 private:
  static constexpr int kWStage = kRows * Shim::kWBytes;
  static constexpr int kStage = kWStage + kXRows * Shim::kXBytes;
  static constexpr int kSumPitch = kRows + 4;  // floats; puts the rows of X that a warp stores side by side into different banks

 public:
  static constexpr int kSharedBytes = kRing * kStage > 4 * kXRows * kSumPitch ? kRing * kStage : 4 * kXRows * kSumPitch;

  /// @param tile   of the grid: row tiles of W, then tiles of X
  FP4PA_FN GemmBlock(E& exec, const GemmParams& params, std::int32_t tile, std::int32_t batch)
      : exec_(exec),
        p_(params),
        batch_(batch),
        first_row_(tile % params.row_tiles * kRows),
        first_x_(tile / params.row_tiles * kXRows) {}

  FP4PA_FN void run() {
    const GemmScales w_scales(p_.w, batch_, first_row_ + exec_.warp() * kWarpRows);
    const GemmScales x_scales(p_.x, batch_, first_x_);
    PerLane<Sums> sums;
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kSums; ++i) value_of(sums[lane], i) = 0.0f;
    });
    FP4PA_UNROLL
    for (int s = 0; s < kRing - 1; ++s) {
      if (s < p_.stages) copy_stage(s, s * kStage);
      exec_.copy_commit();
    }
    PerLane<typename Shim::Scales> scales, next;
    Shim::load_scales(exec_, w_scales, x_scales, 0, scales);

    std::uint32_t slot = 0;
    std::uint32_t refill = (kRing - 1) * kStage;
    FP4PA_NO_UNROLL
    for (std::int32_t s = 0; s < p_.stages; ++s) {
      exec_.template copy_wait<kRing - 2>();
      exec_.block_barrier();
      if (s + kRing - 1 < p_.stages) copy_stage(s + kRing - 1, refill);
      exec_.copy_commit();
      Shim::load_scales(exec_, w_scales, x_scales, s + 1, next);  // zeros past the last
      Shim::multiply(exec_, slot + exec_.warp() * kWarpRows * Shim::kWBytes, slot + kWStage, scales, sums);
      if constexpr (requires { Shim::kUsesRest; }) {
        Shim::multiply_rest(exec_, slot + exec_.warp() * kWarpRows * Shim::kWBytes, w_scales, x_scales, rest(), s, scales, sums);
      }
      scales = next;
      refill = slot;
      slot = slot == (kRing - 1) * kStage ? 0 : slot + kStage;
    }
    write_out(sums);
  }

 private:
  static constexpr int kSums = Shim::kWTiles * Shim::kXTiles * Atom::kValuesC;
  FP4PA_FN static float& value_of(Sums& sums, int i) {
    return sums[i / (Shim::kXTiles * Atom::kValuesC)][i / Atom::kValuesC % Shim::kXTiles][i % Atom::kValuesC];
  }

  [[nodiscard]] FP4PA_FN GemmRest rest() const {
    const std::int64_t cols = std::int64_t{p_.stages} * 128;
    return {p_.x_rest + (std::int64_t{batch_} * p_.x.count + first_x_) * cols, cols, p_.x.count - 1 - first_x_};
  }

  FP4PA_FN void copy_stage(std::int32_t stage, std::uint32_t to) {
    copy_rows<kRows, Shim::kWBytes>(p_.w, first_row_, stage, to);
    copy_rows<kXRows, Shim::kXBytes>(p_.x, first_x_, stage, to + kWStage);
  }

  /// A stage of `kCount` rows, zeros where there are none. Lanes write side by side and read what the swizzle puts there, so
  /// that a load which goes straight to shared memory can do it.
  template <int kCount, int kBytes>
  FP4PA_FN void copy_rows(const GemmOperand& o, std::int32_t first, std::int32_t stage, std::uint32_t to) {
    constexpr int kChunks = kBytes / kChunk;
    constexpr int kCopies = kCount * kChunks;
    const std::uint8_t* const rows = o.rows + batch_ * o.batch_bytes;
    const bool whole = o.row_bytes % kChunk == 0;
    FP4PA_UNROLL
    for (int i = 0; i < (kCopies + kThreads - 1) / kThreads; ++i) {
      exec_.each_lane([&](Lane lane) {
        const int slot = i * kThreads + exec_.warp() * E::kLanes + lane.id;
        if (kCopies % kThreads != 0 && slot >= kCopies) return;
        const int row = slot / kChunks;
        const std::int64_t byte = std::int64_t{stage} * kBytes + Shim::swizzle(row, slot % kChunks, kChunks) * kChunk;
        const std::uint8_t* const from = rows + std::int64_t{first + row} * o.row_bytes + byte;
        const std::uint32_t at = to + slot * kChunk;
        const bool there = first + row < o.count && byte < o.row_bytes;
        if (whole) {
          if constexpr (requires { exec_.copy_lanes_16(lane, at, from, there); }) {
            exec_.copy_lanes_16(lane, to + (slot - lane.id) * kChunk, from, there);
          } else {
            exec_.copy_async_16(lane, at, there ? from : rows, there);
          }
          return;
        }
        const std::int64_t left = there ? o.row_bytes - byte : 0;
        // NVFP4 rows that end in half a chunk, so that every second one starts with one.
        FP4PA_UNROLL
        for (int half = 0; half < 2; ++half) {
          const std::uint64_t x = left > 8 * half ? exec_.template load_global<std::uint64_t>(from + 8 * half) : 0;
          exec_.store_shared(lane, at + 8 * half, x);
        }
      });
    }
  }

  /// Through shared memory, so that neighbouring threads write neighbouring elements.
  FP4PA_FN void write_out(const PerLane<Sums>& sums) {
    exec_.template copy_wait<0>();
    exec_.block_barrier();
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int m = 0; m < Shim::kWTiles; ++m) {
        FP4PA_UNROLL
        for (int n = 0; n < Shim::kXTiles; ++n) {
          FP4PA_UNROLL
          for (int v = 0; v < Atom::kValuesC; ++v) {
            const RowCol at = Atom::c_coord(lane.id, v);
            const int row = exec_.warp() * kWarpRows + m * Atom::kM + at.row;
            exec_.store_shared(lane, sum_offset(n * Atom::kN + at.col, row), sums[lane][m][n][v]);
          }
        }
      }
    });
    exec_.block_barrier();
    const float w_global = p_.w_globals != nullptr ? p_.w_globals[p_.w.batch_bytes == 0 ? 0 : batch_] : p_.w_global;
    const float x_global = p_.x_globals != nullptr ? p_.x_globals[batch_] : p_.x_global;
    exec_.each_lane([&](Lane lane) {
      const int thread = exec_.warp() * E::kLanes + lane.id;
      const int row = thread % kRows;
      const std::int64_t n = first_row_ + row;
      if (n >= p_.w.count) return;
      float bias = 0.0f;
      if (p_.bias != nullptr) load_plain_row(element_address(p_.bias, p_.bias_dtype, n), p_.bias_dtype, 1, &bias);
      static_assert(kThreads % kRows == 0);
      for (int i = thread / kRows; i < kXRows && first_x_ + i < p_.x.count; i += kThreads / kRows) {
        const std::int64_t x_row = batch_ * p_.x.count + first_x_ + i;
        const float inverse = p_.x_inverse != nullptr ? p_.x_inverse[x_row] : 1.0f;
        // One multiplier after the other: their product may leave the float range where the result does not.
        const float sum = exec_.template load_shared<float>(lane, sum_offset(i, row));
        const float value = sum * Shim::kUnit * inverse * w_global * x_global + bias;
        store_plain_row(&value, 1, p_.out_dtype, element_address(p_.out, p_.out_dtype, x_row * p_.w.count + n));
      }
    });
  }
  FP4PA_FN static std::uint32_t sum_offset(int x_row, int row) {
    return static_cast<std::uint32_t>(4 * (x_row * kSumPitch + row));
  }

  E& exec_;
  const GemmParams& p_;
  std::int64_t batch_;
  std::int32_t first_row_, first_x_;
};

}  // namespace fp4pa::core
