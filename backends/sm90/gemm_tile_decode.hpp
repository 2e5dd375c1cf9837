// The decoding warps of the matrix product with decoded tiles: codes and scales to f16 in the ring of slots.
//
// A team decodes a stage: a warp 64 rows and 32 columns of each of its two slots, a lane eight rows, every eighth, and eight
// columns: a word of codes of each. The words of two rows are brought together, so that the decoder pairs the rows of a column,
// and eight rows of a column are 16 bytes of the slot, whose panels of 64 rows have columns below each other (MN-major). So columns
// keep their order, and X comes as it lies in memory.
//
// Scales go into the f16, exactly: E4M3 has four significant bits and makes multiples of f16's smallest number; E8M0 goes in at
// 2^-3 while it lies in 2^-20 to 2^4. Where it does not, a row's 32 columns become zeros, and the block is told
// (gemm_tile_results.hpp).
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/gemm_scale.hpp"
#include "backends/sm90/exec.hpp"
#include "backends/sm90/gemm_tile_ring.hpp"
#include "backends/sm90/gemm_tile_scales.hpp"
#include "cuda/dependency.cuh"

namespace fp4pa::sm90 {

template <bool kNvfp4>
class TileDecoder {
 public:
  __device__ __forceinline__ TileDecoder(const TileParams& params, std::uint8_t* shared, const TilePart& part)
      : ring_(params, shared, part),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) % 32),
        team_((static_cast<int>(threadIdx.x) / 32 - TileLayout::kMultipliers) / TileLayout::kTeam),
        panel_(static_cast<int>(threadIdx.x) / 64 % 2),
        half_(static_cast<int>(threadIdx.x) / 32 % 2),
        first_stage_(part.first_stage),
        stages_(part.stages),
        rows_{{params.gemm, part.batch, part.first_row + 64 * panel_ + lane_},
              {params.gemm, part.batch, part.first_row + 64 * panel_ + 32 + lane_}} {}

  __device__ __forceinline__ void run(bool prepared) {
    const bool leads = lane_ == 0 && panel_ == 0 && half_ == 0;
    // What prepared X did nothing else, and W need not wait for it.
    if (!prepared) cuda::wait_for_previous();
    if (leads) {
#pragma unroll 1
      for (int i = 0; i < TileLayout::kDepth && stage_of(i) < stages_; ++i) ring_.fetch_codes(stage_of(i), place_of(i));
    }
    cuda::wait_for_previous();
    load_scales(stage_of(0));
    int at = 0;                       // of the team's places for codes
    std::uint32_t code_parity = 0;
    std::uint32_t parity = 1;         // of what has not been used there is nothing to wait for
#pragma unroll 1
    for (int i = 0; stage_of(i) < stages_; ++i) {
      const int place = place_of(at);
      make_room(leads, i, 0, parity);
      barrier_wait(ring_.codes_full(place), code_parity);
      std::uint32_t words[2][8];
      load_codes(place, words);
      const bool outside = put_scales();
      load_scales(stage_of(i + 1));
      __syncwarp();
      if (lane_ == 0) barrier_arrive(ring_.codes_empty(place));
      if (!kNvfp4 && outside) find_outside(words);
      decode(words[0], 0);
      have_decoded(0);
      make_room(leads, i, 1, parity);
      decode(words[1], 1);
      have_decoded(1);
      if (leads && stage_of(i + TileLayout::kDepth) < stages_) {
        barrier_wait(ring_.codes_empty(place), code_parity);
        ring_.fetch_codes(stage_of(i + TileLayout::kDepth), place);
      }
      parity ^= 1;
      if (++at == TileLayout::kDepth) {
        at = 0;
        code_parity ^= 1;
      }
    }
  }

 private:
  static constexpr int kGroups = kNvfp4 ? 2 : 1;  // in 32 columns
  static constexpr int kWords = kNvfp4 ? 2 : 1;   // of a row's scales of a stage
  static constexpr std::uint32_t kZero = 101;     // the E8M0 scale that is made 0

  /// Of the team's i-th stage, and its i-th place for codes.
  __device__ __forceinline__ int stage_of(int i) const { return i * TileLayout::kTeams + team_; }
  __device__ __forceinline__ int place_of(int i) const { return i * TileLayout::kTeams + team_; }
  __device__ __forceinline__ int slot_of(int s) const { return 2 * team_ + s; }

  __device__ __forceinline__ void make_room(bool leads, int i, int s, std::uint32_t parity) const {
    barrier_wait(ring_.empty(slot_of(s)), parity);
    if (leads) ring_.fetch_x(2 * stage_of(i) + s, slot_of(s));
  }
  __device__ __forceinline__ void have_decoded(int s) const {
    __syncwarp();
    if (lane_ == 0) barrier_arrive(ring_.full(slot_of(s)));
  }

  __device__ __forceinline__ void load_codes(int place, std::uint32_t (&words)[2][8]) const {
    const int row = lane_ % 8;
    const std::uint8_t* const at = shared_ + TileRing::codes(place) + (64 * panel_ + row) * sm80::kCodeBytes + lane_ / 8 * 4;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const int chunk = (2 * s + half_) ^ (row >> 1);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        words[s][n] = *reinterpret_cast<const std::uint32_t*>(at + n * 8 * sm80::kCodeBytes + (chunk & 3) * 16);
      }
    }
  }

  /// On their way to registers: of a stage, of two rows of the warp.
  __device__ __forceinline__ void load_scales(int stage) {
    if (stage >= stages_) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) rows_[r].load_words((first_stage_ + stage) * kWords, next_[r]);
  }
  /// As f16 by position of the row (eight side by side are every eighth row), for all groups of the warp's columns.
  /// @return  whether there is one, in the warp's rows, that f16 does not hold
  __device__ __forceinline__ bool put_scales() {
    bool outside = false;
    if constexpr (!kNvfp4) outside = __any_sync(0xffffffffu, sm80::outside_f16(next_[0][0]) || sm80::outside_f16(next_[1][0]));
    __syncwarp();  // all have read those of the stage before
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const int index = (2 * s + half_) * kGroups + g;  // in the stage
        const int shift = 8 * (index % 4);
        std::uint32_t byte[2] = {next_[0][index / 4] >> shift & 0xffu, next_[1][index / 4] >> shift & 0xffu};
        std::uint32_t pair;
        if constexpr (kNvfp4) {
          pair = sm80::e4m3_to_f16((byte[0] | byte[1] << 8) & 0x7f7fu);
        } else {
          if (outside) {
            if (byte[0] == 0xff || byte[1] == 0xff) tell_block();  // NaN, of codes of zero too
            for (std::uint32_t& b : byte) b = sm80::in_f16(b) ? b : kZero;
          }
          // 2^(e - 127 + 11), on codes at 2^-14.
          pair = ((byte[0] | byte[1] << 16) << 10) - (kZero << 10) * 0x10001u;
        }
        auto* const to = reinterpret_cast<std::uint16_t*>(scales_of(s, g)) + lane_ % 8 * 8 + lane_ / 8;
        to[0] = static_cast<std::uint16_t>(pair);
        to[4] = static_cast<std::uint16_t>(pair >> 16);
      }
    }
    return outside;
  }
  __device__ __forceinline__ std::uint8_t* scales_of(int s, int g) const {
    const int warp = static_cast<int>(threadIdx.x) / 32 - TileLayout::kMultipliers;
    return shared_ + TileLayout::kScales + warp * TileLayout::kScaleBytes + (s * kGroups + g) * (64 * 2);
  }

  /// Tells the block of scales that were made zeros, unless their codes are zeros as well, as those of an empty group are.
  __device__ __forceinline__ void find_outside(const std::uint32_t (&words)[2][8]) const {
    bool lost = false;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const auto* const factors = reinterpret_cast<const std::uint16_t*>(scales_of(s, 0)) + lane_ % 8 * 8;
#pragma unroll
      for (int n = 0; n < 8; ++n) lost |= factors[n] == 0 && (words[s][n] & 0x77777777u) != 0;
    }
    if (lost) tell_block();
  }
  __device__ __forceinline__ void tell_block() const {
    *reinterpret_cast<volatile std::uint32_t*>(shared_ + TileLayout::kOutside) = 1;
  }

  __device__ __forceinline__ void decode(const std::uint32_t (&words)[8], int s) const {
    const int eight = lane_ % 8;  // of rows
    const int octet = lane_ / 8;  // of columns
    const uint4 scales = *reinterpret_cast<const uint4*>(scales_of(s, octet * kGroups / 4) + eight * 16);
    const std::uint32_t factor[4] = {scales.x, scales.y, scales.z, scales.w};
    std::uint8_t* const to = shared_ + TileRing::offset(slot_of(s)) + TileLayout::kXBytes +
                             panel_ * (kPanelDims * kPanelRowBytes) + (32 * half_ + 8 * octet) * kPanelRowBytes;
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      std::uint32_t out[4][4];  // pairs of rows, columns
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        sm80::e2m1_to_f16(__byte_perm(words[2 * pair], words[2 * pair + 1], four == 0 ? 0x5410 : 0x7632), out[pair]);
#pragma unroll
        for (int c = 0; c < 4; ++c) out[pair][c] = sm80::multiply_f16(out[pair][c], factor[pair]);
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int column = 4 * four + c;
        *reinterpret_cast<uint4*>(to + column * kPanelRowBytes + ((eight ^ column) * 16)) =
            make_uint4(out[0][c], out[1][c], out[2][c], out[3][c]);
      }
    }
  }

  TileRing ring_;
  std::uint8_t* shared_;
  int lane_, team_;
  int panel_, half_;  // of a slot: 64 rows, 32 columns
  int first_stage_, stages_;
  ScaleRow<kNvfp4> rows_[2];
  std::uint32_t next_[2][kWords];
};

}  // namespace fp4pa::sm90
