// Small tools of the CPU's tile operations and products: unrolling, row blocks, a four-by-four sum.
// Compiled once per instruction set: include only through tile_ops.cpp and gemm_ops.cpp.
#include <cstdint>
#include <type_traits>
#include <utility>

#include "hwy/highway.h"

#if defined(FP4PA_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP4PA_CPU_LANES_INL_H_
#undef FP4PA_CPU_LANES_INL_H_
#else
#define FP4PA_CPU_LANES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace fp4pa::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// f(integral_constant<int, 0>), ..., f(integral_constant<int, N - 1>): loops whose index must be a constant.
template <int N, class F>
HWY_INLINE void unroll(F&& f) {
  if constexpr (N > 1) unroll<N - 1>(f);
  f(std::integral_constant<int, N - 1>());
}

/// Calls f(integral_constant<int, rows of the block>, first row) with blocks of kMost, which is 4 or 2, then 2, then 1.
template <int kMost = 4, class Index, class F>
HWY_INLINE void for_each_row_block(Index rows, F&& f) {
  Index r = 0;
  for (; r + kMost <= rows; r += kMost) f(std::integral_constant<int, kMost>(), r);
  if (kMost > 2 && r + 2 <= rows) {
    f(std::integral_constant<int, 2>(), r);
    r += 2;
  }
  if (r < rows) f(std::integral_constant<int, 1>(), r);
}

#if HWY_TARGET != HWY_SCALAR
/// In every 128-bit block: lane t = sum of the block's four lanes of the t-th argument.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V transpose_add(D df, V t0, V t1, V t2, V t3) {
  const hn::Repartition<std::uint64_t, D> du64;
  const V a = hn::Add(hn::InterleaveLower(df, t0, t1), hn::InterleaveUpper(df, t0, t1));  // t0 t1 t0 t1, halves added
  const V b = hn::Add(hn::InterleaveLower(df, t2, t3), hn::InterleaveUpper(df, t2, t3));
  const auto a64 = hn::BitCast(du64, a);
  const auto b64 = hn::BitCast(du64, b);
  return hn::Add(hn::BitCast(df, hn::InterleaveLower(du64, a64, b64)),
                 hn::BitCast(df, hn::InterleaveUpper(du64, a64, b64)));
}

#endif

/// memory[0 .. lanes) += v.
template <class D>
HWY_INLINE void add_to(D df, hn::Vec<D> v, float* memory) {
  hn::StoreU(hn::Add(hn::LoadU(df, memory), v), df, memory);
}

}  // namespace fp4pa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
