// The end of a work item on the SIMT back end: row sums completed, the warps' results merged, results stored.
//
// Warps that divided the keys hold states of the same rows relative to their own maxima. They exchange states first, so that
// each can bring its output to the common maximum, and warp 0 then adds up the outputs in the order of the warps: the sum does
// not depend on who was faster.
#pragma once

#include "core/formats/half.hpp"
#include "core/simt/tile_backend.hpp"

namespace fp4pa::core {

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::finish_rows(RowVector& max, RowVector& sum, Output& output) {
  reduce_peers(sum, [](float a, float b) { return a + b; });
  // Sums leave the unit of the probabilities, and the output its own.
  each_row([](float& x) { x *= exp2_exact(-probability_log2<Shim>()); }, sum);
  set_unit(output, 1.0f, 0);
  if constexpr (!divides_rows(kConfig)) {
    if (exec_.num_warps() > 1) merge_warps(max, sum, output);
  }
}

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::merge_warps(RowVector& max, RowVector& sum, Output& output) {
  // Warps may have ended in different segments. Zeros lie in every order.
  constexpr KvKind kLast = kConfig.v[kSegments - 1];
  adopt_order(output, Shim::dim_order(is_any(kLast) ? kv_kind(p_.segments[kSegments - 1].v) : kLast));

  constexpr int kStates = kOutputRegisters * E::kLanes * 4;  // states lie behind the accumulators
  const auto area = [&](int warp) { return static_cast<std::uint32_t>(layout_.stages + warp * layout_.team_bytes); };
  exec_.template copy_wait<0>();
  exec_.block_barrier();
  exec_.each_lane([&](Lane lane) {
    if (!first_peer(lane)) return;
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      const std::uint32_t at = area(exec_.warp()) + kStates + 8 * row(lane, s);
      exec_.template store_shared<float>(lane, at, max.value[lane][s]);
      exec_.template store_shared<float>(lane, at + 4, sum.value[lane][s]);
    }
  });
  exec_.block_barrier();

  RowVector weight;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      const std::uint32_t at = kStates + 8 * row(lane, s);
      float common = kMinusInf;
      for (int w = 0; w < exec_.num_warps(); ++w) {
        common = math::max(common, exec_.template load_shared<float>(lane, area(w) + at));
      }
      float total = 0.0f;
      for (int w = 0; w < exec_.num_warps(); ++w) {
        total += exec_.template load_shared<float>(lane, area(w) + at + 4) *
                 rescale(exec_.template load_shared<float>(lane, area(w) + at), common);
      }
      weight.value[lane][s] = rescale(max.value[lane][s], common);
      max.value[lane][s] = common;
      sum.value[lane][s] = total;
    }
  });
  scale_rows(output, weight);

  const auto at = [&](Lane lane, int tile, int nt, int v) {
    return static_cast<std::uint32_t>((((tile * kRowTiles + nt) * kOutputValues + v) * E::kLanes + lane.id) * 4);
  };
  if (exec_.warp() != 0) {
    each_output(output, [&](float& value, Lane lane, int tile, int nt, int v) {
      exec_.template store_shared<float>(lane, area(exec_.warp()) + at(lane, tile, nt, v), value);
    });
  }
  exec_.block_barrier();
  if (exec_.warp() != 0) return;
  for (int w = 1; w < exec_.num_warps(); ++w) {
    each_output(output, [&](float& value, Lane lane, int tile, int nt, int v) {
      value += exec_.template load_shared<float>(lane, area(w) + at(lane, tile, nt, v));
    });
  }
}

/// Brings the output into another order of dims, 32 dims of one query tile at a time through the warp's scratch.
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
  static_assert(kDimBlock * kQueries * 4 <= kScratchBytes);
  const auto at = [&](Lane lane, int of, int m, int v) {
    const int dim = Shim::output_dim(of, m, lane.id, v);
    return static_cast<std::uint32_t>(scratch_offset() + (OutputSlots::query(lane.id, v) * kDimBlock + dim) * 4);
  };
  FP4PA_UNROLL
  for (int block = 0; block < kConfig.head_dim / kDimBlock; ++block) {
    FP4PA_UNROLL
    for (int nt = 0; nt < kRowTiles; ++nt) {
      exec_.warp_barrier();
      exec_.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int m = 0; m < kTiles; ++m) {
          FP4PA_UNROLL
          for (int v = 0; v < kOutputValues; ++v) {
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
            output.value[lane][block * kTiles + m][nt][v] = exec_.template load_shared<float>(lane, at(lane, order, m, v));
          }
        }
      });
    }
  }
}

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

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::store_output(const RowMap& rows, const Output& output) const {
  if (!holds_result()) return;
  if constexpr (requires { Shim::kQuadsHoldChunks; }) {
    if (stores_chunks()) {
      store_output_chunks(rows, output);
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
  constexpr int kTiles = kOutputBlock / Shim::OutputAtom::kDims;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int nt = 0; nt < kRowTiles; ++nt) {
      FP4PA_UNROLL
      for (int v = 0; v < kOutputValues; ++v) {
        const int r = row_base() + nt * kQueries + OutputSlots::query(lane.id, v);
        if (r >= num_rows_) continue;
        T* const out = static_cast<T*>(p_.o.data) + rows.token(r) * p_.o.token_stride + rows.head(r) * p_.o.head_stride;
        FP4PA_UNROLL
        for (int tile = 0; tile < kDimTiles; ++tile) {
          const int block = tile / kTiles * kOutputBlock;
          if (block >= head_dim()) continue;
          out[block + Shim::output_dim(output.order, tile % kTiles, lane.id, v)] = round(output.value[lane][tile][nt][v]);
        }
      }
    }
  });
}

/// Whether the output's rows are 16 bits wide and begin on 16 bytes.
template <class Shim>
FP4PA_FN bool SimtTileBackend<Shim>::stores_chunks() const {
  const auto address = reinterpret_cast<std::uintptr_t>(p_.o.data) | static_cast<std::uintptr_t>(p_.o.token_stride * 2) |
                       static_cast<std::uintptr_t>(p_.o.head_stride * 2);
  return p_.o.dtype != DType::kF32 && address % 16 == 0;
}

/// Of shims whose four lanes 4i .. 4i + 3 hold a row's chunks of 8 dims together, two each (kQuadsHoldChunks): every lane gets the
/// whole of every fourth chunk, in two exchanges, and stores it at once.
template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::store_output_chunks(const RowMap& rows, const Output& output) const {
  static_assert(Shim::OutputAtom::kDims == 8 && kOutputValues == 4 && kDimTiles % 4 == 0 && kRowTiles == 1);
  const bool f16 = p_.o.dtype == DType::kF16;
  FP4PA_UNROLL
  for (int s = 0; s < 2; ++s) {
    FP4PA_UNROLL
    for (int tile = 0; tile < kDimTiles; tile += 4) {
      PerLane<std::uint32_t> word[4];
      exec_.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int m = 0; m < 4; ++m) {
          const auto& x = output.value[lane][tile + m][0];
          word[m][lane] = f16 ? Shim::pack_f16(x[2 * s], x[2 * s + 1]) : Shim::pack_bf16(x[2 * s], x[2 * s + 1]);
        }
      });
      FP4PA_UNROLL
      for (int bit = 1; bit <= 2; bit *= 2) {
        FP4PA_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int low = bit == 1 ? 2 * i : i;  // a pair of words, of which a lane keeps one and gives the other away
          PerLane<std::uint32_t> give;
          exec_.each_lane([&](Lane lane) { give[lane] = (lane.id & bit) != 0 ? word[low][lane] : word[low + bit][lane]; });
          const PerLane<std::uint32_t> got = exec_.shuffle_xor(give, bit);
          exec_.each_lane([&](Lane lane) { ((lane.id & bit) != 0 ? word[low][lane] : word[low + bit][lane]) = got[lane]; });
        }
      }
      exec_.each_lane([&](Lane lane) {
        const int r = row_base() + OutputSlots::query(lane.id, 2 * s);
        if (r >= num_rows_) return;
        QueryChunk chunk{{word[0][lane], word[1][lane], word[2][lane], word[3][lane]}};
        Shim::order_output_chunk(chunk.word);
        auto* const row = static_cast<std::uint16_t*>(p_.o.data) + rows.token(r) * p_.o.token_stride + rows.head(r) * p_.o.head_stride;
        *reinterpret_cast<QueryChunk*>(row + 8 * (tile + lane.id % 4)) = chunk;
      });
    }
  }
}

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::store_lse(const RowMap& rows, const RowVector& lse) const {
  if (!holds_result()) return;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      const int r = row(lane, s);
      if (first_peer(lane) && r < num_rows_) p_.lse[rows.token(r) * p_.num_q_heads + rows.head(r)] = lse.value[lane][s];
    }
  });
}

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::store_partial(const WorkItem& item, const Output& output, const RowVector& max,
                                                   const RowVector& sum) const {
  if (!holds_result()) return;
  constexpr int kTiles = kOutputBlock / Shim::OutputAtom::kDims;
  const std::int64_t first = item.partial_slot * p_.partition.tile_rows;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      const int r = row(lane, s);
      if (!first_peer(lane) || r >= num_rows_) continue;
      p_.partial_state[2 * (first + r)] = max.value[lane][s];
      p_.partial_state[2 * (first + r) + 1] = sum.value[lane][s];
    }
    FP4PA_UNROLL
    for (int nt = 0; nt < kRowTiles; ++nt) {
      FP4PA_UNROLL
      for (int v = 0; v < kOutputValues; ++v) {
        const int r = row_base() + nt * kQueries + OutputSlots::query(lane.id, v);
        if (r >= num_rows_) continue;
        float* const out = p_.partial_output + (first + r) * p_.head_dim;
        FP4PA_UNROLL
        for (int tile = 0; tile < kDimTiles; ++tile) {
          const int block = tile / kTiles * kOutputBlock;
          if (block < head_dim()) {
            out[block + Shim::output_dim(output.order, tile % kTiles, lane.id, v)] = output.value[lane][tile][nt][v];
          }
        }
      }
    }
  });
}

}  // namespace fp4pa::core
