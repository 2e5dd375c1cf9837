// The beginning of a segment on the SIMT back end: the item's query rows to shared memory, in operand form; see query.hpp.
//
// Rows of whole quads are read several at a time and rotated in registers, without a detour through shared memory: an item of
// few keys would otherwise spend most of its time on waiting for one row after the other. Other rows come one by one. The first of
// them are asked for before the first keys (ask_query): behind those they would come last, when 20 MB of keys have come in.
#pragma once

#include "core/simt/tile_backend.hpp"

namespace fp4pa::core {

template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::ask_query(const RowMap& rows, const TensorView& k, std::int32_t kv_head, AskedQuery& asked) {
  asked.k_global = k.global(kv_head);
  if constexpr (kAsksQuads) ask_query_quads(rows, exec_.warp(), exec_.num_warps(), asked.quads);
}

/// @param asked  what ask_query() left
template <class Shim>
template <std::int32_t S>
FP4PA_FN void SimtTileBackend<Shim>::load_query(const RowMap& rows, const TensorView& k, AskedQuery& asked) {
  constexpr KvKind kFixed = kConfig.k[S];
  const KvKind kind = is_any(kFixed) ? kv_kind(k) : kFixed;
  const QueryForm form = Shim::query_form(kind);
  const float multiplier = p_.scale_log2 * asked.k_global;
  // The sign of a negative multiplier goes into the operand: a row's factor keeps the order of its scores.
  const float sign = multiplier < 0.0f ? -1.0f : 1.0f;
  const float magnitude = multiplier * sign;
  if constexpr (!kFixedKind) terms_ = terms_of(kind);
  // When keys are divided all warps use the same rows and share the loading of them.
  const int first = divides_rows(kConfig) ? 0 : exec_.warp();
  const int step = divides_rows(kConfig) ? 1 : exec_.num_warps();
  if constexpr (requires { typename Shim::RowChunks; }) {
    if (p_.rotation == Rotation::kNone && terms() == 1 && query_rows_are_chunks(p_.q)) {
      Shim::RowChunks::load_query(exec_, p_, rows, row_base(), form, sign, query_offset(),
                                  layout_.row_factors + 4 * row_base(), magnitude * form.unit);
      return;
    }
  }
  if constexpr (kReadsQuads) {
    for (int r = first; r < kWarpRows; r += kQuadRows * step) {
      if (!kAsksQuads || r != first) ask_query_quads(rows, r, step, asked.quads);
      take_query_quads(kind, form, magnitude, sign, r, step, asked.quads);
    }
    return;
  }
  FP4PA_NO_UNROLL
  for (int r = first; r < kWarpRows; r += step) {
    const QueryRow q = load_query_row(exec_, p_, rotation(), rows, row_base() + r, scratch_offset(), form, magnitude);
    Shim::store_query_row(exec_, kind, scratch_offset(), query_offset(), r, head_dim(), sign * q.to_operand, terms());
    exec_.each_lane([&](Lane lane) {
      if (lane.id == 0) {
        exec_.template store_shared<float>(lane, layout_.row_factors + 4 * (row_base() + r), q.factor);
      }
    });
    exec_.warp_barrier();  // the scratch row is free
  }
}

/// Asks for rows r, r + step, ... of this warp; those that do not exist are zeros.
template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::ask_query_quads(const RowMap& rows, int r, int step, AskedQuads& asked) {
  const bool aligned = query_rows_are_quads(p_.q);
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int i = 0; i < kQuadRows; ++i) {
      const int row = row_base() + r + i * step;
      const bool exists = r + i * step < kWarpRows && row < rows.num_rows;
      const std::int64_t at = exists ? rows.token(row) * p_.q.token_stride + rows.head(row) * p_.q.head_stride : 0;
      FP4PA_UNROLL
      for (int q = 0; q < kQuads; ++q) {
        const int dim = 4 * (q * E::kLanes + lane.id);
        asked[lane].quad[i][q] = {};
        if (exists && (kWholeQuads || dim < kConfig.head_dim)) {
          asked[lane].quad[i][q] = load_query_quad<kHalves>(exec_, p_.q, aligned, at + dim);
        }
      }
    }
  });
}

/// Brings them to shared memory.
template <class Shim>
FP4PA_FN void SimtTileBackend<Shim>::take_query_quads(KvKind kind, QueryForm form, float magnitude, float sign, int r, int step,
                                                      const AskedQuads& asked) {
  PerLane<float[kQuadRows][kQuads][4]> x;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int i = 0; i < kQuadRows * kQuads; ++i) {
      query_quad<kHalves, E>(p_.q.dtype, asked[lane].quad[i / kQuads][i % kQuads], x[lane][i / kQuads][i % kQuads]);
    }
  });
  float norm = 1.0f;
  if (rotation() != Rotation::kNone) {
    const int block = static_cast<int>(rotation());
    rotate_quads<E>(exec_, x, (kWarpRows - r + step - 1) / step, block);
    norm = hadamard_norm(block);
  }
  FP4PA_UNROLL
  for (int i = 0; i < kQuadRows; ++i) {
    if (r + i * step >= kWarpRows) break;
    int shift = 0;
    if (form.binade != QueryForm::kAsIs) {
      PerLane<std::uint32_t> amax;
      exec_.each_lane([&](Lane lane) {
        amax[lane] = 0;
        FP4PA_UNROLL
        for (int q = 0; q < 4 * kQuads; ++q) {
          const std::uint32_t bits = magnitude_bits(x[lane][i][q / 4][q % 4] * norm);
          amax[lane] = bits > amax[lane] ? bits : amax[lane];
        }
      });
      shift = query_shift(form, exec_.reduce_max(amax));
    }
    FP4PA_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      PerLane<float[4]> quad;
      exec_.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int d = 0; d < 4; ++d) quad[lane][d] = x[lane][i][q][d] * (sign * norm * exp2_exact(shift));
      });
      Shim::store_query_quads(exec_, kind, query_offset(), r + i * step, 4 * q * E::kLanes, head_dim(), quad, terms());
    }
    exec_.each_lane([&](Lane lane) {
      if (lane.id == 0) {
        exec_.template store_shared<float>(lane, layout_.row_factors + 4 * (row_base() + r + i * step),
                                           magnitude * form.unit * exp2_exact(-shift));
      }
    });
  }
}

}  // namespace fp4pa::core
