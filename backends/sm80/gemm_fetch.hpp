// The matrix product of gemm.hpp: W, its scales and X from memory into the ring.
#pragma once

#include "backends/sm80/gemm.hpp"
#include "core/formats/scale_layout.hpp"

namespace fp4pa::sm80 {

template <bool kNvfp4, int kXTiles, bool kPaired>
__device__ __forceinline__ auto GemmBlock<kNvfp4, kXTiles, kPaired>::walk_from(int stage) const -> Walk {
  Walk w;
  w.code_bytes = static_cast<Bytes>(p_.row_bytes) - Bytes{stage} * kCodeBytes - thread_ % 4 * 16;
  w.codes = codes_ + std::int64_t{first_row_ + thread_ / 4 + 1} * p_.row_bytes - w.code_bytes;
  w.rows_left = p_.n - first_row_ - thread_ / 4;
  const int row = first_row_ + thread_;
  const bool blocked = p_.scale_layout == ScaleLayout::kBlocked;
  w.before = blocked ? 0 : misalignment(row);
  const int first = stage * kScaleBytes - w.before;
  w.scales_left = row < p_.n ? p_.groups - first : 0;
  w.scales = scales_ + (blocked ? static_cast<std::int64_t>(core::blocked_scale_offset(row, first, p_.groups))
                                : std::int64_t{row} * p_.groups + first);
  const int column = stage * kGemmStage + thread_ % 16 * 8;
  w.columns_left = p_.x_cols - column;
  w.x = p_.x + (batch_ * p_.m + first_x_ + thread_ / 16) * p_.x_row + column;
  return w;
}

/// `bytes` of kBytes, and zeros. Nothing is read when there are none.
template <bool kNvfp4, int kXTiles, bool kPaired>
template <int kBytes>
__device__ __forceinline__ void GemmBlock<kNvfp4, kXTiles, kPaired>::copy(std::uint32_t to, const void* from, int bytes) const {
  if constexpr (kBytes == 16) {
    // What follows in a row is the next stage's.
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(base_ + to), "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(base_ + to), "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
  }
}

/// A thread's chunks of W: one of four in a row, of every kRowsApart-th row; then the scales of a row. Codes past K multiply
/// zeros of X, so that it does not matter what they are.
template <bool kNvfp4, int kXTiles, bool kPaired>
__device__ __forceinline__ void GemmBlock<kNvfp4, kXTiles, kPaired>::fetch_weight(Walk& w, int stage, std::uint32_t ring) const {
  constexpr int kRowsApart = kThreads / 4;
  const auto thread = own_thread();
  const int row = static_cast<int>(thread / 4);
  const int chunk = static_cast<int>(thread % 4);
  const int scale_row = static_cast<int>(thread);
  const std::uint32_t to = ring + code_offset(row, chunk);
  if constexpr (kTight) {
    w.code_bytes = static_cast<Bytes>(p_.row_bytes) - stage * kCodeBytes - chunk * 16;
    w.rows_left = p_.n - first_row_ - row;
    w.scales_left = first_row_ + scale_row < p_.n ? p_.groups + w.before - stage * kScaleBytes : 0;
  }
  if (!kNvfp4 || p_.row_bytes % 16 == 0) {
    const int bytes = w.code_bytes > 0 ? 16 : 0;
#pragma unroll
    for (int i = 0; i < kRows / kRowsApart; ++i) {
      const int below = i * kRowsApart;
      copy<16>(to + below * kCodeBytes, w.codes + below * p_.row_bytes, below < w.rows_left ? bytes : 0);
    }
  } else {
    // NVFP4 rows that end in half a chunk, so that every second one starts with one.
#pragma unroll 1
    for (int i = 0; i < 2 * kRows / kRowsApart; ++i) {
      const int below = i / 2 * kRowsApart;
      const int half = 8 * (i % 2);
      const bool there = below < w.rows_left && w.code_bytes > half;
      copy<8>(to + below * kCodeBytes + half, w.codes + below * p_.row_bytes + half, there ? 8 : 0);
    }
  }
  w.codes += kCodeBytes;
  w.code_bytes -= kCodeBytes;

  // Zeros past the last scale. A linear row that starts between words brings its neighbours' bytes along, to be shifted out
  // by scale_word.
  const int step = p_.scale_layout == ScaleLayout::kBlocked ? 512 : 4;
  const std::uint32_t scales = ring + scale_offset(scale_row);
#pragma unroll
  for (int word = 0; word < kScaleBytes / 4; ++word) {
    copy_scales(scales + 4 * word, w.scales + word * step, w.scales_left - 4 * word);
  }
  if (w.before != 0) copy_scales(scales + kScaleBytes, w.scales + kScaleBytes, w.scales_left - kScaleBytes);
  w.scales += kScaleBytes / 4 * step;
  w.scales_left -= kScaleBytes;
}

/// Up to four scales. A row's last one to three are read one by one: they may end the memory, within a word.
template <bool kNvfp4, int kXTiles, bool kPaired>
__device__ __forceinline__ void GemmBlock<kNvfp4, kXTiles, kPaired>::copy_scales(std::uint32_t to, const std::uint8_t* from,
                                                                                 int left) const {
  if (left <= 0 || left >= 4) return copy<4>(to, from, left > 0 ? 4 : 0);
  std::uint32_t word = 0;
  for (int i = 0; i < left; ++i) word |= scale_byte(from + i) << (8 * i);
  exec_.store_shared(lane_, to, word);
}

template <bool kNvfp4, int kXTiles, bool kPaired>
__device__ __forceinline__ std::uint32_t GemmBlock<kNvfp4, kXTiles, kPaired>::scale_byte(const std::uint8_t* from) {
  if constexpr (!kTight) return *from;
  // From the address that cp.async takes: for a load of its own the compiler walks along K with a second pointer.
  std::uint32_t byte;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(byte) : "l"(from));
  return byte;
}

template <bool kNvfp4, int kXTiles, bool kPaired>
__device__ __forceinline__ void GemmBlock<kNvfp4, kXTiles, kPaired>::fetch_x(Walk& w, int stage, std::uint32_t ring) const {
  constexpr int kRowsApart = kThreads / 16;
  const auto thread = own_thread();
  const int row = static_cast<int>(thread / 16);
  const int chunk = static_cast<int>(thread % 16);
  const std::uint32_t to = ring + x_offset(row, chunk);
  if constexpr (kTight) w.columns_left = p_.x_cols - stage * kGemmStage - chunk * 8;
  const int left = w.columns_left > 0 ? p_.m - first_x_ - row : 0;
#pragma unroll
  for (int i = 0; i < kXTiles * 8 / kRowsApart; ++i) {
    copy<16>(to + i * kRowsApart * kGemmStage * 2, w.x + i * kRowsApart * p_.x_row, i * kRowsApart < left ? 16 : 0);
  }
  w.x += kGemmStage;
  w.columns_left -= kGemmStage;
}

}  // namespace fp4pa::sm80
