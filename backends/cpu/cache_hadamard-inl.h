// core::hadamard a vector at a time: the same butterflies at distance 1, 2, 4, ... and one product at the end.
// Compiled once per instruction set: include only through cache_rows_simd.cpp.
//
// Distances below a vector are a shuffle, then the sum in the lower lane of a pair and the difference in the upper; the
// others are sums and differences of whole vectors. Each value passes the same additions as in core, so the bits agree.
#include "backends/cpu/cache_lanes-inl.h"
#include "core/formats/hadamard.hpp"
#include "hwy/highway.h"

#if defined(FP4PA_CPU_CACHE_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP4PA_CPU_CACHE_HADAMARD_INL_H_
#undef FP4PA_CPU_CACHE_HADAMARD_INL_H_
#else
#define FP4PA_CPU_CACHE_HADAMARD_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace fp4pa::cpu::row_simd::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void rotate(float* x, int n, int block) { core::hadamard(x, n, block); }
#else

/// One vector through the distances that stay inside it.
HWY_INLINE VF butterflies_inside(VF x) {
  const DF df;
  const hn::Repartition<std::uint64_t, DF> du64;
  const auto lanes = hn::Lanes(df);
  const VF swapped1 = hn::Shuffle2301(x);
  x = hn::OddEven(hn::Sub(swapped1, x), hn::Add(x, swapped1));
  const VF swapped2 = hn::Shuffle1032(x);
  x = hn::BitCast(df, hn::OddEven(hn::BitCast(du64, hn::Sub(swapped2, x)), hn::BitCast(du64, hn::Add(x, swapped2))));
  if (lanes >= 8) {
    const VF swapped4 = hn::SwapAdjacentBlocks(x);
    x = hn::OddEvenBlocks(hn::Sub(swapped4, x), hn::Add(x, swapped4));
  }
  if (lanes >= 16) {
    const VF swapped8 = hn::ConcatLowerUpper(df, x, x);
    x = hn::ConcatUpperLower(df, hn::Sub(swapped8, x), hn::Add(x, swapped8));
  }
  return x;
}

/// As core::hadamard.
HWY_INLINE void rotate(float* x, int n, int block) {
  const DF df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const VF norm = hn::Set(df, core::hadamard_norm(block));
  for (int start = 0; start + block <= n; start += block) {
    float* const y = x + start;
    for (int i = 0; i < block; i += lanes) hn::StoreU(butterflies_inside(hn::LoadU(df, y + i)), df, y + i);
    for (int distance = lanes; distance < block; distance *= 2) {
      for (int first = 0; first < block; first += 2 * distance) {
        for (int i = first; i < first + distance; i += lanes) {
          const VF a = hn::LoadU(df, y + i);
          const VF b = hn::LoadU(df, y + i + distance);
          hn::StoreU(hn::Add(a, b), df, y + i);
          hn::StoreU(hn::Sub(a, b), df, y + i + distance);
        }
      }
    }
    for (int i = 0; i < block; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(df, y + i), norm), df, y + i);
  }
}
#endif

}  // namespace fp4pa::cpu::row_simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
