// The end of a work item on the SIMT back end: row sums completed, the warps' results merged, results stored.
//
// Warps that divided the keys hold states of the same rows relative to their own maxima. They exchange states first, so that
// each can bring its output to the common maximum. When results are stored they lay their outputs side by side in shared memory,
// row by row, and every thread adds up a few dims in the order of the warps: the sum does not depend on who was faster.
#pragma once

#include "core/formats/half.hpp"
#include "core/simt/tile_backend.hpp"

namespace fp4pa::core {

/// Rounding as core/formats/half.hpp does it, or by the shim's own instruction.
template <class Shim>
FP4PA_FN std::uint16_t round_to_f16(float x) {
  if constexpr (requires { Shim::to_f16(x); }) {
    return Shim::to_f16(x);
  } else {
    return f32_to_f16(x);
  }
}
template <class Shim>
FP4PA_FN std::uint16_t round_to_bf16(float x) {
  if constexpr (requires { Shim::to_bf16(x); }) {
    return Shim::to_bf16(x);
  } else {
    return f32_to_bf16(x);
  }
}

/// Warps whose results are read together while warps are merged: one behind the other, each would be waited for.
inline constexpr int kTogether = 4;

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::finish_rows(RowVector& max, RowVector& sum, Output& output) {
  reduce_peers(sum, [](float a, float b) { return a + b; });
  // Sums leave the unit of the probabilities, and the output its own. Relative to a maximum without its headroom a probability would be
  // more than 1, and the output of values near f32's end infinite.
  constexpr float kHeadroom = headroom_log2<Shim>();
  constexpr int kUnit = -probability_log2<Shim>() - static_cast<int>(kHeadroom);
  const bool left_only_unit = kSegments > 1 && output.unit_log2 != 0;
  each_row([](float& x) { x *= exp2_exact(kUnit); }, sum);
  if constexpr (kHeadroom > 0.0f) {
    each_row([](float& m) { m += kHeadroom; }, max);
    output.unit_log2 -= static_cast<int>(kHeadroom);
  }
  if constexpr (kHasOnlyUnit<Shim>) {
    output.unit = left_only_unit ? 1.0f : value_global();
    output.unit_log2 += Shim::kOnlyUnitLog2;
  }
  set_unit(output, 1.0f, 0);
  if constexpr (!divides_rows(kConfig)) {
    merge_states(max, sum, output);
  }
}

/// The warps' maxima and sums, exchanged through their scratch, and this warp's output brought to the common maximum. The lanes that
/// share a row read a few warps' states each: the code runs once an item, and short code is what makes it short.
template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::merge_states(RowVector& max, RowVector& sum, Output& output) {
  static_assert(8 * kWarpRows <= kScratchBytes);
  const int warps = exec_.num_warps();
  const auto state = [&](Lane lane, int warp, int s) { return static_cast<std::uint32_t>(warp * kScratchBytes + 8 * row(lane, s)); };
  exec_.template copy_wait<0>();
  exec_.warp_barrier();  // the last tile may still be read from the scratch
  exec_.each_lane([&](Lane lane) {
    if (!first_peer(lane)) return;
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      const std::uint32_t at = state(lane, exec_.warp(), s);
      exec_.template store_shared<float>(lane, at, max.value[lane][s]);
      exec_.template store_shared<float>(lane, at + 4, sum.value[lane][s]);
    }
  });
  exec_.block_barrier();

  RowVector common;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      float highest = kMinusInf;
      FP4PA_NO_UNROLL
      for (int w = Slots::peer(lane.id); w < warps; w += Slots::kPeers) {
        highest = math::max(highest, exec_.template load_shared<float>(lane, state(lane, w, s)));
      }
      common.value[lane][s] = highest;
    }
  });
  reduce_peers(common, [](float a, float b) { return math::max(a, b); });
  RowVector weight;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      const float highest = common.value[lane][s];
      float total = 0.0f;
      FP4PA_NO_UNROLL
      for (int w = Slots::peer(lane.id); w < warps; w += Slots::kPeers) {
        const std::uint32_t at = state(lane, w, s);
        total += exec_.template load_shared<float>(lane, at + 4) * rescale(exec_.template load_shared<float>(lane, at), highest);
      }
      sum.value[lane][s] = total;
      weight.value[lane][s] = rescale(max.value[lane][s], highest);
    }
  });
  reduce_peers(sum, [](float a, float b) { return a + b; });
  max = common;
  scale_rows(output, weight);
}

/// Lays this warp's output into shared memory, [row][dim]; where a lane has four neighbouring dims (Shim::FourDims), as one store, which no
/// other lane's banks are in the way of.
template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::lay_out(const Output& output) const {
  constexpr int kTiles = kOutputBlock / Shim::OutputAtom::kDims;
  constexpr KvKind kLast = kConfig.v[kSegments - 1];
  // All zeros have no order yet.
  const int order =
      output.order != 0 ? output.order : Shim::dim_order(is_any(kLast) ? kv_kind(p_.segments[kSegments - 1].v) : kLast);
  const auto address = [&](Lane lane, int tile, int nt, int v) {
    const int dim = tile / kTiles * kOutputBlock + Shim::output_dim(order, tile % kTiles, lane.id, v);
    const int r = nt * kQueries + query_of(OutputSlots::query(lane.id, v));
    return static_cast<std::uint32_t>(result_offset(exec_.warp()) + (r * kResultPitch + dim) * 4);
  };
  exec_.each_lane([&](Lane lane) {
    if (!holds_output(lane)) return;
    if constexpr (requires { typename Shim::FourDims; }) {
      using Fours = typename Shim::FourDims;
      if (order == Fours::kOrder) {
        for_each_value<kDimTiles / Fours::kTiles, Fours::kFours>([&](int tiles, int nt, int four) {
          const int tile = tiles * Fours::kTiles;
          const auto value = [&](int k) { return output.value[lane][tile + Fours::tile(k)][nt][Fours::value(four, k)]; };
          exec_.template store_shared<FourFloats>(lane, address(lane, tile, nt, Fours::value(four, 0)),
                                                  {{value(0), value(1), value(2), value(3)}});
        });
        return;
      }
    }
    for_each_value<kDimTiles, kOutputValues>([&](int tile, int nt, int v) {
      exec_.template store_shared<float>(lane, address(lane, tile, nt, v), output.value[lane][tile][nt][v]);
    });
  });
}

/// Adds up what the warps laid out, and stores it: a thread has twice four dims of a row at a time, half a row apart, so that neighbouring
/// threads read neighbouring banks.
/// @param row_at  (row) -> where the row begins, in elements of `dtype`
/// @param chunks  rows begin on 16 bytes, so that four dims are one store
template <class Shim>
template <class RowAt>
FP4PA_FN void SimtTileBackend<Shim>::store_sums(DType dtype, void* data, bool chunks, RowAt&& row_at) const {
  constexpr int kChunks = kConfig.head_dim / 8;  // of a row
  const int warps = exec_.num_warps();
  const int threads = warps * E::kLanes;
  exec_.block_barrier();
  exec_.each_lane([&](Lane lane) {
    FP4PA_NO_UNROLL
    for (int i = exec_.warp() * E::kLanes + lane.id; i < rows_.num_rows * kChunks; i += threads) {
      const int r = i / kChunks;
      const int dim = i % kChunks * 4;
      const int apart = head_dim() / 2;
      if (dim >= apart) continue;
      float x[2][4] = {};
      FP4PA_NO_UNROLL
      for (int first = 0; first < warps; first += kTogether) {
        FourFloats four[2 * kTogether];
        FP4PA_UNROLL
        for (int j = 0; j < 2 * kTogether; ++j) {
          const int w = first + j / 2;
          four[j] = {};
          if (w < warps) {
            four[j] = exec_.template load_shared<FourFloats>(lane, result_offset(w) + (r * kResultPitch + dim + j % 2 * apart) * 4);
          }
        }
        FP4PA_UNROLL
        for (int j = 0; j < 2 * kTogether; ++j) {
          FP4PA_UNROLL
          for (int d = 0; d < 4; ++d) x[j % 2][d] += four[j].value[d];
        }
      }
      FP4PA_UNROLL
      for (int j = 0; j < 2; ++j) store_four(dtype, data, row_at(r) + dim + j * apart, chunks, x[j]);
    }
  });
}

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::store_four(DType dtype, void* data, std::int64_t at, bool chunk,
                                                const float (&x)[4]) const {
  if (dtype == DType::kF32) {
    float* const to = static_cast<float*>(data) + at;
    if (chunk) {
      *reinterpret_cast<FourFloats*>(to) = {{x[0], x[1], x[2], x[3]}};
    } else {
      FP4PA_UNROLL
      for (int d = 0; d < 4; ++d) to[d] = x[d];
    }
    return;
  }
  struct alignas(8) FourHalves {
    std::uint32_t word[2];
  } packed;
  FP4PA_UNROLL
  for (int d = 0; d < 4; d += 2) {
    const std::uint32_t low = dtype == DType::kF16 ? round_to_f16<Shim>(x[d]) : round_to_bf16<Shim>(x[d]);
    const std::uint32_t high = dtype == DType::kF16 ? round_to_f16<Shim>(x[d + 1]) : round_to_bf16<Shim>(x[d + 1]);
    packed.word[d / 2] = low | high << 16;
  }
  std::uint16_t* const to = static_cast<std::uint16_t*>(data) + at;
  if (chunk) {
    *reinterpret_cast<FourHalves*>(to) = packed;
  } else {
    FP4PA_UNROLL
    for (int d = 0; d < 4; ++d) to[d] = static_cast<std::uint16_t>(packed.word[d / 2] >> (d % 2 * 16));
  }
}

/// Brings the output into another order of dims, 32 dims of as many queries as have room through the warp's scratch.
template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::adopt_order(Output& output, int order) const {
  const int old = output.order;
  output.order = order;
  // One V format and one segment: there is one order.
  if constexpr (!kOneOrder && (kSegments > 1 || is_any(kConfig.v[0]))) {
    if (old != order && old != 0) move_dims(output, old, order);
  }
}

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::move_dims(Output& output, int old, int order) const {
  constexpr int kTiles = kDimBlock / Shim::OutputAtom::kDims;
  constexpr int kAtOnce = kScratchBytes / (kDimBlock * 4) < Shim::OutputAtom::kQueries ? kScratchBytes / (kDimBlock * 4)
                                                                                      : Shim::OutputAtom::kQueries;
  constexpr int kPasses = Shim::OutputAtom::kQueries / kAtOnce;
  static_assert(Shim::OutputAtom::kQueries % kAtOnce == 0);
  const auto moves = [](Lane lane, int v, int pass) { return kPasses == 1 || OutputSlots::query(lane.id, v) / kAtOnce == pass; };
  const auto at = [&](Lane lane, int of, int m, int v) {
    const int dim = Shim::output_dim(of, m, lane.id, v);
    return static_cast<std::uint32_t>(scratch_offset() + (OutputSlots::query(lane.id, v) % kAtOnce * kDimBlock + dim) * 4);
  };
  FP4PA_UNROLL
  for (int block = 0; block < kConfig.head_dim / kDimBlock; ++block) {
    FP4PA_UNROLL
    for (int part = 0; part < kRowTiles * kPasses; ++part) {
      const int nt = part / kPasses;
      const int pass = part % kPasses;
      exec_.warp_barrier();
      exec_.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int m = 0; m < kTiles; ++m) {
          FP4PA_UNROLL
          for (int v = 0; v < kOutputValues; ++v) {
            if (!moves(lane, v, pass)) continue;
            exec_.template store_shared<float>(lane, at(lane, old, m, v), output.value[lane][block * kTiles + m][nt][v]);
          }
        }
      });
      exec_.warp_barrier();
      exec_.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int m = 0; m < kTiles; ++m) {
          FP4PA_UNROLL
          for (int v = 0; v < kOutputValues; ++v) {
            if (!moves(lane, v, pass)) continue;
            output.value[lane][block * kTiles + m][nt][v] = exec_.template load_shared<float>(lane, at(lane, order, m, v));
          }
        }
      });
    }
  }
}

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::store_output(const RowMap& rows, const Output& output) const {
  if constexpr (!divides_rows(kConfig)) {
    lay_out(output);
    store_sums(p_.o.dtype, p_.o.data, stores_chunks(),
               [&](int r) { return rows.token(r) * p_.o.token_stride + rows.head(r) * p_.o.head_stride; });
    return;
  }
  if constexpr (requires { typename Shim::RowChunks; }) {
    if (p_.o.dtype != DType::kF32 && stores_chunks()) {
      Shim::RowChunks::store_output(exec_, p_.o, rows, row_base(), output.value, query_offset());
      return;
    }
  }
  switch (p_.o.dtype) {
    case DType::kF32: store_output_as<float>(rows, output, [](float x) { return x; }); break;
    case DType::kF16: store_output_as<std::uint16_t>(rows, output, [](float x) { return round_to_f16<Shim>(x); }); break;
    case DType::kBF16: store_output_as<std::uint16_t>(rows, output, [](float x) { return round_to_bf16<Shim>(x); }); break;
  }
}

template <class Shim>
template <class T, class Round>
FP4PA_FN void SimtTileBackend<Shim>::store_output_as(const RowMap& rows, const Output& output, Round&& round) const {
  store_elements(
      output,
      [&](int r) {
        return static_cast<T*>(p_.o.data) + rows.token(r) * p_.o.token_stride + rows.head(r) * p_.o.head_stride;
      },
      round);
}

/// Rows that exist, element by element, by the lanes that have them.
/// @param row    from a row to where its first element goes
/// @param round  from f32 to what is stored
template <class Shim>
template <class Row, class Round>
FP4PA_FN void SimtTileBackend<Shim>::store_elements(const Output& output, Row&& row, Round&& round) const {
  constexpr int kTiles = kOutputBlock / Shim::OutputAtom::kDims;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int nt = 0; nt < kRowTiles; ++nt) {
      FP4PA_UNROLL
      for (int v = 0; v < kOutputValues; ++v) {
        const int r = row_base() + nt * kQueries + OutputSlots::query(lane.id, v);
        if (r >= rows_.num_rows) continue;
        auto* const out = row(r);
        FP4PA_UNROLL
        for (int m = 0; m < kTiles; ++m) {
          const int dim = Shim::output_dim(output.order, m, lane.id, v);
          FP4PA_UNROLL
          for (int block = 0; block < kDimTiles / kTiles; ++block) {
            if (block * kOutputBlock >= head_dim()) break;
            out[block * kOutputBlock + dim] = round(output.value[lane][block * kTiles + m][nt][v]);
          }
        }
      }
    }
  });
}

/// Whether the output's rows begin on 16 bytes.
template <class Shim>
FP4PA_FN bool SimtTileBackend<Shim>::stores_chunks() const {
  const int bytes = p_.o.dtype == DType::kF32 ? 4 : 2;
  const auto address = reinterpret_cast<std::uintptr_t>(p_.o.data) | static_cast<std::uintptr_t>(p_.o.token_stride * bytes) |
                       static_cast<std::uintptr_t>(p_.o.head_stride * bytes);
  return address % 16 == 0;
}

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::store_lse(const RowMap& rows, const RowVector& lse) const {
  if (!holds_result()) return;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      const int r = row(lane, s);
      if (first_peer(lane) && r < rows_.num_rows) p_.lse[rows.token(r) * p_.num_q_heads + rows.head(r)] = lse.value[lane][s];
    }
  });
}

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::store_partial(const WorkItem& item, const Output& output, const RowVector& max,
                                                   const RowVector& sum) const {
  const std::int64_t first = item.partial_slot * p_.partition.tile_rows;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      const int r = row(lane, s);
      if (!holds_result() || !first_peer(lane) || r >= rows_.num_rows) continue;
      p_.partial_state[2 * (first + r)] = max.value[lane][s];
      p_.partial_state[2 * (first + r) + 1] = sum.value[lane][s];
    }
  });
  if constexpr (!divides_rows(kConfig)) {
    lay_out(output);
    store_sums(DType::kF32, p_.partial_output, true, [&](int r) { return (first + r) * p_.head_dim; });
    return;
  }
  store_elements(output, [&](int r) { return p_.partial_output + (first + r) * p_.head_dim; }, [](float x) { return x; });
}

}  // namespace fp4pa::core
