// A weight's scales as the matrix product for many rows of X reads them: a row's words of four.
#pragma once

#include <cstdint>

#include "backends/sm80/gemm_params.hpp"
#include "core/formats/scale_layout.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::sm90 {

template <bool kNvfp4>
class ScaleRow {
 public:
  /// A row past the end takes the last's: what it gives is not written.
  __device__ __forceinline__ ScaleRow(const sm80::GemmParams& p, std::int64_t batch, int row)
      : begin_(p.scales + batch * p.scale_batch), groups_(p.groups) {
    if (row >= p.n) row = p.n - 1;
    const bool blocked = p.scale_layout == ScaleLayout::kBlocked;
    end_ = begin_ + std::int64_t{p.n} * p.groups;
    at_ = begin_ + (blocked ? static_cast<std::int64_t>(core::blocked_scale_offset(row, 0, p.groups)) : std::int64_t{row} * p.groups);
    step_ = blocked ? 512 : 4;
    whole_ = blocked || (p.groups % 4 == 0 && reinterpret_cast<std::uintptr_t>(p.scales) % 4 == 0);
  }
  /// The word of groups 4 * word to 4 * word + 3, and those behind it. Past the row's end scales are 1, or 0 in E4M3: codes are
  /// zeros there.
  template <int kCount>
  __device__ __forceinline__ void load_words(int word, std::uint32_t (&out)[kCount]) const {
    const std::uint8_t* const at = at_ + std::int64_t{word} * step_;
    if (whole_ && groups_ - 4 * word >= 4 * kCount) {
#pragma unroll
      for (int w = 0; w < kCount; ++w) out[w] = __ldg(reinterpret_cast<const std::uint32_t*>(at + w * step_));
      return;
    }
    const auto before = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(at) % 4);
    const std::uint8_t* const words = at - before;
    if (step_ == 4 && words >= begin_ && words + kCount * step_ + 4 <= end_) {
      // Rows need not begin at words: a scale word is made of two.
      std::uint32_t read[kCount + 1];
#pragma unroll
      for (int w = 0; w <= kCount; ++w) read[w] = __ldg(reinterpret_cast<const std::uint32_t*>(words + w * step_));
#pragma unroll
      for (int w = 0; w < kCount; ++w) out[w] = until(groups_ - 4 * (word + w), __funnelshift_r(read[w], read[w + 1], 8 * before));
      return;
    }
    // At the ends of what is there, byte by byte.
#pragma unroll
    for (int w = 0; w < kCount; ++w) {
      out[w] = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out[w] |= (i < groups_ - 4 * (word + w) ? std::uint32_t{__ldg(at + w * step_ + i)} : kNone & 0xff) << (8 * i);
      }
    }
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t load(int group) const {
    return group < groups_ ? std::uint32_t{__ldg(at_ + std::int64_t{group / 4} * step_ + group % 4)} : kNone & 0xff;
  }

 private:
  static constexpr std::uint32_t kNone = kNvfp4 ? 0 : 0x7f7f7f7f;

  /// The first `left` of four scales, and what stands for none.
  __device__ __forceinline__ static std::uint32_t until(int left, std::uint32_t four) {
    if (left >= 4) return four;
    const std::uint32_t kept = left > 0 ? (1u << (8 * left)) - 1 : 0;
    return (four & kept) | (kNone & ~kept);
  }

  const std::uint8_t* begin_;
  const std::uint8_t* end_;  // of linear scales
  const std::uint8_t* at_;
  int groups_, step_;
  bool whole_;  // every word is four scales of the row
};

}  // namespace fp4pa::sm90
