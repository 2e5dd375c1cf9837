// Codes of the matrix product for many rows of X, arranged as lanes take them by warps that do nothing else.
//
// Of 32 columns, four words of a row, lane t of four multiplies columns 2t and 2t + 1 of each word's eight: byte t of each (X keeps its
// order, gemm_many_multiply.hpp). Where it would load all four words for that, permute them and decode codes that are neighbours, word t
// here gets these bytes, the lower four bits of each and then the upper ones: what ldmatrix brings it, and what decoding pairs.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm90/gemm_many_ring.hpp"

namespace fp4pa::sm90 {

/// Word t: the lower halves of byte t of the four words, then the upper ones.
[[nodiscard]] __device__ __forceinline__ uint4 arranged(const uint4& x) {
  constexpr std::uint32_t kLower = 0x0f0f0f0fu;
  const std::uint32_t lower[2] = {sm80::select_bits(kLower, x.x, x.y << 4), sm80::select_bits(kLower, x.z, x.w << 4)};
  const std::uint32_t upper[2] = {sm80::select_bits(kLower, x.x >> 4, x.y), sm80::select_bits(kLower, x.z >> 4, x.w)};
  // Of bytes 0 and 1, and of 2 and 3.
  const std::uint32_t lower_01 = __byte_perm(lower[0], lower[1], 0x5140), lower_23 = __byte_perm(lower[0], lower[1], 0x7362);
  const std::uint32_t upper_01 = __byte_perm(upper[0], upper[1], 0x5140), upper_23 = __byte_perm(upper[0], upper[1], 0x7362);
  return make_uint4(__byte_perm(lower_01, upper_01, 0x5410), __byte_perm(lower_01, upper_01, 0x7632),
                    __byte_perm(lower_23, upper_23, 0x5410), __byte_perm(lower_23, upper_23, 0x7632));
}

/// Where they lie, stage by stage as the engine brings them: no thread touches another's 16 bytes.
template <ManyLayout kLayout>
__device__ __forceinline__ void arrange_codes(const ManyRing<kLayout>& ring, std::uint8_t* shared, int stages) {
  constexpr int kPieces = ManyLayout::kRows * sm80::kCodeBytes / 16 / ManyLayout::kArrangers;
  const int thread = static_cast<int>(threadIdx.x) % ManyLayout::kArrangers;
#pragma unroll 1
  for (int s = 0; s < stages; ++s) {
    auto* const codes = reinterpret_cast<uint4*>(shared + ring.slot(s) + kLayout.x_bytes()) + thread;
    barrier_wait(ring.codes(s), ring.parity(s));
    uint4 x[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) x[i] = codes[i * ManyLayout::kArrangers];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) codes[i * ManyLayout::kArrangers] = arranged(x[i]);
    barrier_arrive(ring.full(s));
  }
}

}  // namespace fp4pa::sm90
