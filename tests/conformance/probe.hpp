// Scale probing: which lane's scale byte moves which row (column), found by moving one at a time.
//
// All scales are 1 and all elements of one group of k are 1; doubling one byte of one lane then changes the rows that
// it scales and no others. This needs nothing from the traits but their element maps, so that it also tells which of
// two published maps is right when it runs on the hardware.
#pragma once

#include "tests/conformance/checks.hpp"

namespace fp4pa::conformance {

/// [lane][byte]; kNotRead where doubling changed nothing, {-2, -2} where it changed more than one row or group.
template <class Atom>
using ProbeTable = std::array<std::array<core::ScaleCoord, 4>, Atom::kLanes>;
inline constexpr core::ScaleCoord kAmbiguous{-2, -2};

template <class Executor>
ProbeTable<typename Executor::Atom> probe_scales(Executor& executor, Selects select, bool of_a) {
  using Atom = typename Executor::Atom;
  const std::uint32_t one = core::value_code<typename Atom::Scale>(1.0f) * 0x01010101u;
  const auto two = static_cast<std::uint8_t>(core::value_code<typename Atom::Scale>(2.0f));

  ProbeTable<Atom> table;
  for (auto& lane : table) lane.fill(core::kNotRead);
  for (int group = 0; group < Atom::kScaleGroups; ++group) {
    Matrices<Atom> m;
    for (int k = group * Atom::kScaleGroup; k < (group + 1) * Atom::kScaleGroup; ++k) {
      for (auto& row : m.a) row[k] = core::value_code<typename Atom::ElementA>(1.0f);
      for (auto& col : m.b) col[k] = core::value_code<typename Atom::ElementB>(1.0f);
    }
    Inputs<Atom> base = pack<Atom>(m, select);
    for (int lane = 0; lane < Atom::kLanes; ++lane) base.sfa[lane] = base.sfb[lane] = one;

    std::vector<Inputs<Atom>> in(Atom::kLanes * 4, base);
    std::vector<Outputs<Atom>> out(in.size());
    for (int i = 0; i < Atom::kLanes * 4; ++i) {
      std::uint32_t& word = of_a ? in[i].sfa[i / 4] : in[i].sfb[i / 4];
      word = core::put_scale_byte(word, i % 4, two);
    }
    executor.run(select, in, out);
    for (int i = 0; i < Atom::kLanes * 4; ++i) {
      const auto d = unpack<Atom>(out[i]);
      core::ScaleCoord& found = table[i / 4][i % 4];
      for (int e = 0; e < Atom::kM * Atom::kN; ++e) {
        if (d[e] == static_cast<float>(Atom::kScaleGroup)) continue;
        const core::ScaleCoord here{of_a ? e / Atom::kN : e % Atom::kN, group};
        const bool doubled = d[e] == static_cast<float>(2 * Atom::kScaleGroup);
        found = doubled && (found == core::kNotRead || found == here) ? here : kAmbiguous;
      }
    }
  }
  return table;
}

/// The probed tables of every select against the traits.
template <class Executor>
std::string check_probe(Executor& executor, const SelectPairs& pairs = select_pairs<typename Executor::Atom>()) {
  using Atom = typename Executor::Atom;
  for (const Selects& select : pairs) {
    for (const bool of_a : {true, false}) {
      const auto table = probe_scales(executor, select, of_a);
      for (int lane = 0; lane < Atom::kLanes; ++lane) {
        for (int byte = 0; byte < 4; ++byte) {
          const core::ScaleCoord expected =
              of_a ? Atom::sfa_coord(lane, byte, select.a) : Atom::sfb_coord(lane, byte, select.b);
          const core::ScaleCoord found = table[lane][byte];
          if (found == expected) continue;
          return text(select) + ": lane " + std::to_string(lane) + " byte " + std::to_string(byte) + " of " +
                 (of_a ? "SFA" : "SFB") + " moves (" + std::to_string(found.index) + ", " +
                 std::to_string(found.group) + ") and not (" + std::to_string(expected.index) + ", " +
                 std::to_string(expected.group) + ")";
        }
      }
    }
  }
  return {};
}

}  // namespace fp4pa::conformance
