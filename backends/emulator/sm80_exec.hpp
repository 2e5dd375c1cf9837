// The instructions of sm_80 to sm_100 on an emulated warp: the names of backends/sm80/exec.hpp, the models of isa/.
#pragma once

#include <array>
#include <cstdint>

#include "backends/emulator/isa/emulated.hpp"
#include "backends/emulator/isa/ldmatrix.hpp"
#include "backends/emulator/warp_exec.hpp"

namespace fp4pa::emulator {

class Sm80Exec : public WarpExec<32, BankRule{32}> {
 public:
  using WarpExec::WarpExec;

  template <bool kTransposed, class Offset, class Words>
  void load_matrix(Offset&& offset, Words&& words, Site at = Site::current()) {
    const auto address = addresses(offset);
    const ByLane<Lane, Words> out{words};
    isa::ldmatrix_m8n8(4, kTransposed, address, collective_read(at, 16), out);
    count_collective(at, 16, address.data());
  }

  template <class Word>
  void transpose(Word&& word) {
    const ByLane<Lane, Word> w{word};
    isa::movmatrix_m8n8_trans(w, w);
  }

  template <class Element, class D, class A, class B>
  void multiply(D&& d, A&& a, B&& b) {
    const ByLane<Lane, D> sum{d};
    isa::Emulated<sm80::MmaM16N8K16<Element>>::mma(sum, ByLane<Lane, A>{a}, ByLane<Lane, B>{b}, sum);
  }

 protected:
  template <class Offset>
  static std::array<std::uint32_t, kLanes> addresses(Offset&& offset) {
    std::array<std::uint32_t, kLanes> a;
    for (int lane = 0; lane < kLanes; ++lane) a[static_cast<std::size_t>(lane)] = offset(Lane{lane});
    return a;
  }
};

static_assert(core::Exec<Sm80Exec>);

}  // namespace fp4pa::emulator
