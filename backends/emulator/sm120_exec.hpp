// What SM120 and SM121 have beyond sm_80: block-scaled products, and loads of matrices that expand FP4 to bytes.
#pragma once

#include <array>
#include <cstdint>

#include "backends/emulator/sm80_exec.hpp"

namespace fp4pa::emulator {

class Sm120Exec : public Sm80Exec {
 public:
  using Sm80Exec::Sm80Exec;

  /// d += a b with block scales, each a function from a lane to its registers or its word of scales.
  template <class Atom, core::ScaleSelect kSelectA, core::ScaleSelect kSelectB, class D, class A, class B, class SfA,
            class SfB>
  void multiply_scaled(D&& d, A&& a, B&& b, SfA&& sfa, SfB&& sfb) {
    const ByLane<Lane, D> sum{d};
    isa::Emulated<Atom>::template mma<kSelectA, kSelectB>(sum, ByLane<Lane, A>{a}, ByLane<Lane, B>{b}, sum,
                                                          ByLane<Lane, SfA>{sfa}, ByLane<Lane, SfB>{sfb});
  }

  /// ldmatrix.m8n16.x{1,2,4}.b8x16.b4x16_p64, see backends/sm120/copies.hpp. Lane l gives the offset of row l % 8 of matrix
  /// l / 8; words(lane) is an array of kMatrices words.
  template <int kMatrices = 4, class Offset, class Words>
  void load_matrix_expand(Offset&& offset, Words&& words, Site at = Site::current()) {
    static_assert(kMatrices == 1 || kMatrices == 2 || kMatrices == 4);
    auto address = addresses(offset);
    const ByLane<Lane, Words> out{words};
    isa::ldmatrix_m8n16_expand(kMatrices, address, collective_read(at, 16), out);
    for (std::size_t lane = 8 * kMatrices; lane < kLanes; ++lane) address[lane] = kInactive;
    count_collective(at, 16, address.data());
  }
  /// ldmatrix.m16n16.x{1,2}.trans.b8x16.b4x16_p64. Lane l gives the offset of row l % 16 of matrix l / 16; words(lane) is an
  /// array of 2 * kMatrices words.
  template <int kMatrices = 2, class Offset, class Words>
  void load_matrix_expand_transposed(Offset&& offset, Words&& words, Site at = Site::current()) {
    static_assert(kMatrices == 1 || kMatrices == 2);
    auto address = addresses(offset);
    const ByLane<Lane, Words> out{words};
    isa::ldmatrix_m16n16_expand_trans(kMatrices, address, collective_read(at, 16), out);
    for (std::size_t lane = 16 * kMatrices; lane < kLanes; ++lane) address[lane] = kInactive;
    count_collective(at, 16, address.data());
  }
};

static_assert(core::Exec<Sm120Exec>);

}  // namespace fp4pa::emulator
