// The instructions of gfx950 and gfx942 on an emulated wave of 64: the scaled and the plain matrix products, transposing
// reads of LDS, and loads that go straight to LDS.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "backends/emulator/isa/ds_read_tr.hpp"
#include "backends/emulator/isa/emulated.hpp"
#include "backends/emulator/warp_exec.hpp"

namespace fp4pa::emulator {

/// Both chips; gfx942 lacks the scaled products and the transposing reads, which its shim must not use: only the compiler can
/// tell.
/// @tparam kDirectCopies  an asynchronous copy is a load to LDS of 16 bytes a lane, as gfx950 has it, and not a detour through
///                        registers
template <BankRule kBanks, bool kDirectCopies>
class CdnaExec : public WarpExec<64, kBanks> {
  using Base = WarpExec<64, kBanks>;

 public:
  using Base::Base;
  using typename Base::Lane;
  static constexpr int kLanes = Base::kLanes;

  /// d += a b, each a function from a lane to its registers.
  template <class Atom, class D, class A, class B>
  void multiply(D&& d, A&& a, B&& b) {
    const ByLane<Lane, D> sum{d};
    isa::Emulated<Atom>::mma(sum, ByLane<Lane, A>{a}, ByLane<Lane, B>{b}, sum);
  }
  /// With block scales: sfa and sfb are functions from a lane to its word of scales.
  template <class Atom, core::ScaleSelect kSelectA, core::ScaleSelect kSelectB, class D, class A, class B, class SfA,
            class SfB>
  void multiply_scaled(D&& d, A&& a, B&& b, SfA&& sfa, SfB&& sfb) {
    const ByLane<Lane, D> sum{d};
    isa::Emulated<Atom>::template mma<kSelectA, kSelectB>(sum, ByLane<Lane, A>{a}, ByLane<Lane, B>{b}, sum,
                                                          ByLane<Lane, SfA>{sfa}, ByLane<Lane, SfB>{sfb});
  }

  /// ds_read_b64_tr_b{4,8,16}: every lane points at 8 bytes; words(lane) is an array of two words.
  template <int kBits, class Offset, class Words>
  void read_transposed(Offset&& offset, Words&& words, Site at = Site::current()) {
    static_assert(kBits == 4 || kBits == 8 || kBits == 16);
    std::array<std::uint32_t, 64> address;
    for (int lane = 0; lane < kLanes; ++lane) address[static_cast<std::size_t>(lane)] = offset(Lane{lane});
    const ByLane<Lane, Words> out{words};
    isa::ds_read_b64_tr(kBits, address, this->collective_read(at, 8), out);
    this->count_collective(at, 8, address.data());
  }

  /// A load to LDS has one base for the wave and leaves lane i's bytes at base + 16 i. Lanes may be inactive.
  void copy_async_16(Lane lane, std::uint32_t to, const void* from, bool valid, Site at = Site::current()) {
    Base::copy_async_16(lane, to, from, valid, at);
    if constexpr (!kDirectCopies) return;
    const Access now = this->access(lane.id, at);
    bases_[now.site][static_cast<std::size_t>(lane.id)].push_back({to - 16u * static_cast<std::uint32_t>(lane.id), now});
  }

  template <class F>
  void each_lane(F&& f) {
    Base::each_lane(f);
    for (auto& [site, lanes] : bases_) check_targets(lanes);
    bases_.clear();
  }
  template <class F>
  [[nodiscard]] bool any(F&& f) {
    return Base::any(f);
  }

 private:
  struct Issued {
    std::uint32_t base;
    Access by;
  };

  /// The lane that copied most often names the instructions' bases; what the others copied must be a selection of those, in
  /// order.
  void check_targets(const std::array<std::vector<Issued>, 64>& lanes) {
    std::size_t longest = 0;
    for (std::size_t l = 1; l < lanes.size(); ++l) {
      if (lanes[l].size() > lanes[longest].size()) longest = l;
    }
    for (const std::vector<Issued>& lane : lanes) {
      auto next = lanes[longest].begin();
      for (const Issued& copy : lane) {
        while (next != lanes[longest].end() && next->base != copy.base) ++next;
        if (next == lanes[longest].end()) {
          this->block().report(FindingKind::kCopyTarget, copy.by,
                               copy.base + std::int64_t{16} * copy.by.lane);
          return;
        }
        ++next;
      }
    }
  }

  std::map<std::uint16_t, std::array<std::vector<Issued>, 64>> bases_;
};

using Gfx950Exec = CdnaExec<BankRule{64}, true>;
using Gfx942Exec = CdnaExec<BankRule{32}, false>;
static_assert(core::Exec<Gfx950Exec> && core::Exec<Gfx942Exec>);

}  // namespace fp4pa::emulator
