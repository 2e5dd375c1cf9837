// SM120's instructions in software, for any device from sm_80 on: the same fragments in the same lanes, operands exchanged by
// shuffles, and the arithmetic of the models in backends/emulator/isa. Slow, and bit for bit what the emulator computes.
//
// What sm_80 has itself (ldmatrix, movmatrix, cp.async, barriers) is the device's own. Products are not, sm_80's neither: how a
// device sums is its affair.
#pragma once

#include <cstdint>

#include "backends/emulator/isa/emulated.hpp"
#include "backends/sm80/exec.hpp"

namespace fp4pa::gpu_test {

/// What every lane of a warp holds, in every lane: anything that isa/ indexes by [lane][register].
template <int kRegisters>
struct Gathered {
  std::uint32_t words[32][kRegisters];

  __device__ __forceinline__ explicit Gathered(const std::uint32_t (&mine)[kRegisters]) {
    FP4PA_NO_UNROLL
    for (int lane = 0; lane < 32; ++lane) {
      FP4PA_UNROLL
      for (int r = 0; r < kRegisters; ++r) words[lane][r] = __shfl_sync(0xffffffffu, mine[r], lane);
    }
  }
  __device__ __forceinline__ const std::uint32_t (&operator[](int lane) const)[kRegisters] { return words[lane]; }
};

/// Words of scales, by [lane].
struct GatheredWords : Gathered<1> {
  __device__ __forceinline__ explicit GatheredWords(const std::uint32_t (&mine)[1]) : Gathered<1>(mine) {}
  __device__ __forceinline__ std::uint32_t operator[](int lane) const { return words[lane][0]; }
};

/// d += a b of one warp. Not inlined: a kernel has hundreds of them.
template <class Model, int kRegistersA, int kRegistersB>
__device__ __noinline__ void multiply_in_software(float (&d)[4], const std::uint32_t (&a)[kRegistersA],
                                                  const std::uint32_t (&b)[kRegistersB], std::uint32_t sfa, std::uint32_t sfb,
                                                  emulator::isa::Selectors select) {
  const Gathered<kRegistersA> all_a(a);
  const Gathered<kRegistersB> all_b(b);
  const GatheredWords all_sfa({sfa});
  const GatheredWords all_sfb({sfb});
  emulator::isa::execute_lane<Model>(static_cast<int>(threadIdx.x % 32), all_a, all_b, d, all_sfa, all_sfb, select, d);
}

/// An atom's instruction, in the form of backends/sm120/mma.hpp.
template <core::AtomTraits T>
struct SoftwareInstruction {
  using Atom = T;

  template <core::ScaleSelect kSelectA = core::ScaleSelect{}, core::ScaleSelect kSelectB = core::ScaleSelect{}>
  __device__ __forceinline__ static void mma(float (&d)[4], const std::uint32_t (&a)[Atom::kRegistersA],
                                             const std::uint32_t (&b)[Atom::kRegistersB], const float (&c)[4],
                                             std::uint32_t sfa = 0, std::uint32_t sfb = 0) {
    if constexpr (core::kIsScaled<Atom>) static_assert(Atom::valid_select_a(kSelectA) && Atom::valid_select_b(kSelectB));
    float sum[4] = {c[0], c[1], c[2], c[3]};
    multiply_in_software<typename emulator::isa::ModelOf<Atom>::Type>(
        sum, a, b, sfa, sfb, {kSelectA.byte, kSelectA.thread, kSelectB.byte, kSelectB.thread});
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) d[i] = sum[i];
  }
};

/// ldmatrix.m8n16.x{1,2,4}.b8x16.b4x16_p64, see backends/sm120/copies.hpp: two bytes of a row whose address another lane has.
template <int kMatrices>
__device__ __forceinline__ void ldmatrix_expand_in_software(std::uint32_t (&d)[kMatrices], const std::uint8_t* row) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto mine = reinterpret_cast<std::uint64_t>(row);
  FP4PA_UNROLL
  for (int i = 0; i < kMatrices; ++i) {
    const auto* const from = reinterpret_cast<const std::uint8_t*>(__shfl_sync(0xffffffffu, mine, 8 * i + lane / 4));
    const std::uint32_t low = from[lane % 4 * 2];
    const std::uint32_t high = from[lane % 4 * 2 + 1];
    d[i] = (low & 15u) | low >> 4 << 8 | (high & 15u) << 16 | high >> 4 << 24;
  }
}

/// ldmatrix.m16n16.x{1,2}.trans.b8x16.b4x16_p64: a nibble of each of four rows.
template <int kMatrices>
__device__ __forceinline__ void ldmatrix_expand_trans_in_software(std::uint32_t (&d)[2 * kMatrices], const std::uint8_t* row) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto mine = reinterpret_cast<std::uint64_t>(row);
  FP4PA_UNROLL
  for (int r = 0; r < 2 * kMatrices; ++r) {
    const int column = lane / 4 + 8 * (r % 2);
    d[r] = 0;
    FP4PA_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int source = 16 * (r / 2) + lane % 4 * 4 + j;
      const auto* const from = reinterpret_cast<const std::uint8_t*>(__shfl_sync(0xffffffffu, mine, source));
      const std::uint32_t code = (from[column / 2] >> (4 * (column % 2))) & 15u;
      d[r] |= code << (8 * j);
    }
  }
}

class SoftwareExec : public sm80::WarpExec {
 public:
  using sm80::WarpExec::WarpExec;

  template <class Atom, core::ScaleSelect kSelectA, core::ScaleSelect kSelectB, class D, class A, class B, class ScaleA,
            class ScaleB>
  __device__ __forceinline__ void multiply_scaled(D&& d, A&& a, B&& b, ScaleA&& sfa, ScaleB&& sfb) const {
    this->each_lane([&](Lane lane) {
      auto& sum = d(lane);
      SoftwareInstruction<Atom>::template mma<kSelectA, kSelectB>(sum, a(lane), b(lane), sum, sfa(lane), sfb(lane));
    });
  }
  template <class Element, class D, class A, class B>
  __device__ __forceinline__ void multiply(D&& d, A&& a, B&& b) const {
    this->each_lane([&](Lane lane) {
      auto& sum = d(lane);
      SoftwareInstruction<sm80::MmaM16N8K16<Element>>::mma(sum, a(lane), b(lane), sum);
    });
  }
};

static_assert(core::Exec<SoftwareExec>);

}  // namespace fp4pa::gpu_test
