// The matrix product of gemm.hpp: a stage of the ring multiplied.
#pragma once

#include "backends/sm80/gemm.hpp"

namespace fp4pa::sm80 {

template <bool kNvfp4, int kXTiles, bool kPaired>
__device__ __forceinline__ void GemmBlock<kNvfp4, kXTiles, kPaired>::multiply_stage(std::uint32_t ring) {
  if constexpr (kNvfp4) {
    multiply<false>(ring);
  } else if constexpr (kAlwaysSums) {
    multiply<true>(ring);
  } else {
    // Every row of the warp is some lane's: one look at all scales of the stage.
    const int row = exec_.warp() * 32 + lane_.id;
    const bool outside = outside_f16(scale_word(ring, row, 0, row_shift(row)));
    if (__any_sync(0xffffffffu, outside)) {
      multiply<true>(ring);
    } else {
      multiply<false>(ring);
    }
  }
}

/// @tparam kScaleSums  E8M0 scales multiply sums instead of codes
template <bool kNvfp4, int kXTiles, bool kPaired>
template <bool kScaleSums>
__device__ __forceinline__ void GemmBlock<kNvfp4, kXTiles, kPaired>::multiply(std::uint32_t ring) {
  const int g = lane_.id / 4;
  const int t = lane_.id % 4;
  const int warp_row = exec_.warp() * 32;
  // Chunks of a row differ in the bits that the swizzle turns over, and only there: one exclusive or per chunk.
  const std::uint32_t codes = ring + code_offset(warp_row + lane_.id, 0);
  const std::uint32_t columns = ring + x_offset(g, t);
  const int shift = row_shift(warp_row + g);  // of its rows 8, 16 and 24 further too
  // MXFP4's scales one by one where they are needed, if registers are few; else those of the stage at once.
  constexpr bool kOneByOne = !kNvfp4 && !kAlwaysSums && (kTight || kScaleSums);
  const std::uint32_t first_scale = ring + scale_offset(warp_row + g) + shift / 8;
  const auto one_scale = [&](int o, int chunk) -> std::uint32_t {
    return exec_.template load_shared<std::uint8_t>(lane_, first_scale + 8 * o * gemm_scale_pitch(kNvfp4) + chunk);
  };
  std::uint32_t scale[4][2];  // of rows g + 8 o: for sums as they are, else f16 of chunks 0 2 and 1 3
  if constexpr (!kOneByOne) {
#pragma unroll
    for (int o = 0; o < 4; ++o) load_scales<kScaleSums>(ring, warp_row + 8 * o + g, shift, t, scale[o]);
  }
  // Registers: unrolled only where the sums leave some.
#pragma unroll(kTight || (kScaleSums && !kAlwaysSums) ? 1 : 4)
  for (int chunk = 0; chunk < 4; ++chunk) {
    WarpExec::PerLane<std::uint32_t[4]> words;
    exec_.template load_matrix<false>(
        [&](WarpExec::Lane) { return codes ^ static_cast<std::uint32_t>(16 * chunk); },
        [&](WarpExec::Lane lane) -> auto& { return words[lane]; });
    std::uint32_t pair[4][4];
#pragma unroll
    for (int o = 0; o < 4; ++o) {
      e2m1_to_f16(words.value[o], pair[o]);
      if constexpr (!kScaleSums) {
        const std::uint32_t factor =
            kOneByOne ? one_scale(o, chunk) * (0x10001u << 10) - kE8m0Zero
                      : __byte_perm(chunk % 2 == 0 ? scale[o][0] : scale[o][1], 0, chunk < 2 ? 0x1010 : 0x3232);
#pragma unroll
        for (int i = 0; i < 4; ++i) pair[o][i] = multiply_f16(pair[o][i], factor);
      }
    }
    float sf[4];
    if constexpr (kScaleSums) {
#pragma unroll
      for (int o = 0; o < 4; ++o) sf[o] = kOneByOne ? e8m0_exact(one_scale(o, chunk), 0) : e8m0_exact(scale[o][0], chunk);
    }
    // Instructions on the same sums stand as far apart as registers allow.
    constexpr int kPairOf = kXTiles == 1 || (kScaleSums && kTight) ? 1 : 2;
    const auto add_products = [&](int from, int to) {
#pragma unroll
      for (int first = from; first < to; first += kPairOf) {
        std::uint32_t x[kPairOf][4];
        float part[2][kPairOf][4];
#pragma unroll
        for (int nt = 0; nt < kPairOf; ++nt) {
          load_x((columns ^ static_cast<std::uint32_t>(64 * chunk)) + (first + nt) * 8 * kGemmStage * 2, x[nt]);
#pragma unroll
          for (int i = 0; i < 8; ++i) part[i / 4][nt][i % 4] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 4 * kPairOf; ++i) {
          const int step = i / (2 * kPairOf);
          const int nt = i / 2 % kPairOf;
          const int half = i % 2;
          float(&sum)[4] = kScaleSums ? part[half][nt] : sums_[half][first + nt];
          const std::uint32_t a[4] = {pair[2 * half][2 * step], pair[2 * half + 1][2 * step], pair[2 * half][2 * step + 1],
                                      pair[2 * half + 1][2 * step + 1]};
          const std::uint32_t b[2] = {x[nt][2 * step], x[nt][2 * step + 1]};
          MmaM16N8K16Instruction<core::F16>::mma(sum, a, b, sum);
        }
        if constexpr (kScaleSums) {
#pragma unroll
          for (int i = 0; i < 8 * kPairOf; ++i) {
            const int half = i / (4 * kPairOf);
            const int nt = i / 4 % kPairOf;
            const int v = i % 4;
            // Where both ways meet, 2^11 takes codes decoded at 2^-14 to the other's unit.
            const float p = kAlwaysSums ? part[half][nt][v] : part[half][nt][v] * 2048.0f;
            sums_[half][first + nt][v] = fmaf(sf[2 * half + v / 2], p, sums_[half][first + nt][v]);
          }
        }
      }
    };
    if constexpr (kTight) {
      // X may end with the first half. The branch also keeps loads of the second half from being issued ahead of all products,
      // for which the registers do not suffice.
      add_products(0, kXTiles / 2);
      if (p_.m - first_x_ > kXTiles / 2 * 8) add_products(kXTiles / 2, kXTiles);
    } else {
      add_products(0, kXTiles);
    }
  }
}

/// A row's scales of a stage, as a lane uses them: its eight codes of each of the four chunks have one scale.
template <bool kNvfp4, int kXTiles, bool kPaired>
template <bool kScaleSums>
__device__ __forceinline__ void GemmBlock<kNvfp4, kXTiles, kPaired>::load_scales(std::uint32_t ring, int row, int shift, int t,
                                                                                 std::uint32_t (&out)[2]) const {
  if constexpr (kNvfp4) {
    // Two scales a chunk: lanes 0 and 1 of a row take the first, 2 and 3 the second.
    const std::uint32_t select = t < 2 ? 0x6240 : 0x7351;
    const std::uint32_t mine = __byte_perm(scale_word(ring, row, 0, shift), scale_word(ring, row, 1, shift), select);
    const std::uint32_t four = mine & 0x7f7f7f7fu;
    out[0] = e4m3_to_f16(four);
    out[1] = e4m3_to_f16(four >> 16);
  } else if constexpr (kScaleSums) {
    out[0] = scale_word(ring, row, 0, shift);
    out[1] = 0;
  } else {
    const std::uint32_t four = scale_word(ring, row, 0, shift);
    out[0] = ((four & 0x00ff00ffu) << 10) - kE8m0Zero;
    out[1] = (((four >> 8) & 0x00ff00ffu) << 10) - kE8m0Zero;
  }
}

/// A lane's eight columns of a row of X, paired.
template <bool kNvfp4, int kXTiles, bool kPaired>
__device__ __forceinline__ void GemmBlock<kNvfp4, kXTiles, kPaired>::load_x(std::uint32_t at, std::uint32_t (&x)[4]) const {
  std::uint32_t w[4];
  exec_.load_shared_16(lane_, at, w);
  if constexpr (kPaired) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = w[i];
  } else {
    x[0] = __byte_perm(w[0], w[2], 0x5410);
    x[1] = __byte_perm(w[0], w[2], 0x7632);
    x[2] = __byte_perm(w[1], w[3], 0x5410);
    x[3] = __byte_perm(w[1], w[3], 0x7632);
  }
}

}  // namespace fp4pa::sm80
