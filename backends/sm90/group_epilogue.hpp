// The end of a work item of group_backend.hpp: row sums completed over the warps, results stored four dims at a time.
#pragma once

#include "backends/sm90/group_backend.hpp"
#include "core/formats/half.hpp"

namespace fp4pa::sm90 {

template <core::SimtConfig kShape, class Executor>
FP4PA_FN void GroupBackend<kShape, Executor>::finish_rows(RowVector& max, RowVector& sum, Output& output) {
  if (!opened_) {  // no key
    each_row([](float& m) { m = core::kMinusInf; }, max);
    return;
  }
  constexpr int kUnit = -kProbabilityLog2 - static_cast<int>(kHeadroomLog2);
  exchange(sum, [](float a, float b) { return a + b; });
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      // Without the headroom probabilities would be more than 1, see SimtTileBackend.
      sum.value[lane][s] *= core::exp2_exact(kUnit);
      max.value[lane][s] = number(lane, Layout::kMaxima, row(lane, s)) + kHeadroomLog2;
    }
  });
  const int unit_log2 = has_windows(kValueKind) ? window_log2(value_top_) : -sm80::kNvfp4Log2;
  const float global = global_;
  each_output(output, [=](float& value, Lane, int) { value *= global; });
  scale_output(output, unit_log2 + kUnit);
}

/// f(row, first dim, dims' values) for every four dims of a row that a lane holds.
template <core::SimtConfig kShape, class Executor>
template <class F>
FP4PA_FN void GroupBackend<kShape, Executor>::each_quad(const Output& output, F&& f) const {
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      if (row(lane, s) >= num_rows_) continue;
      const auto& x = output.value[lane];
      f(row(lane, s), core::kDimBlock * exec_.warp() + lane.id / 4 * 4,
        Quad{{x[0][s / 2][0][s % 2], x[0][s / 2][0][2 + s % 2], x[1][s / 2][0][s % 2], x[1][s / 2][0][2 + s % 2]}});
    }
  });
}

template <core::SimtConfig kShape, class Executor>
FP4PA_FN void GroupBackend<kShape, Executor>::store_output(const core::RowMap& rows, const Output& output) const {
  const auto address = reinterpret_cast<std::uintptr_t>(p_.o.data);
  const int bytes = p_.o.dtype == DType::kF32 ? 4 : 2;
  const bool whole = ((address | static_cast<std::uintptr_t>(p_.o.token_stride * bytes) |
                       static_cast<std::uintptr_t>(p_.o.head_stride * bytes)) &
                      static_cast<std::uintptr_t>(4 * bytes - 1)) == 0;
  each_quad(output, [&](int row, int dim, const Quad& x) {
    const std::int64_t at = rows.token(row) * p_.o.token_stride + rows.head(row) * p_.o.head_stride + dim;
    if (p_.o.dtype == DType::kF32) {
      auto* const to = static_cast<float*>(p_.o.data) + at;
      if (whole) {
        *reinterpret_cast<Quad*>(to) = x;
      } else {
        FP4PA_UNROLL
        for (int d = 0; d < 4; ++d) to[d] = x.of[d];
      }
      return;
    }
    const bool f16 = p_.o.dtype == DType::kF16;
    Halves halves;
    FP4PA_UNROLL
    for (int d = 0; d < 4; d += 2) {
      halves.word[d / 2] = f16 ? sm80::pack_f16(x.of[d], x.of[d + 1]) : sm80::pack_bf16(x.of[d], x.of[d + 1]);
    }
    auto* const to = static_cast<std::uint16_t*>(p_.o.data) + at;
    if (whole) {
      *reinterpret_cast<Halves*>(to) = halves;
    } else {
      FP4PA_UNROLL
      for (int d = 0; d < 4; ++d) to[d] = static_cast<std::uint16_t>(halves.word[d / 2] >> (d % 2 * 16));
    }
  });
}

template <core::SimtConfig kShape, class Executor>
FP4PA_FN void GroupBackend<kShape, Executor>::store_lse(const core::RowMap& rows, const RowVector& lse) const {
  exec_.each_lane([&](Lane lane) {
    if (exec_.warp() != 0 || !first_peer(lane)) return;
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      const int r = row(lane, s);
      if (r < num_rows_) p_.lse[rows.token(r) * p_.num_q_heads + rows.head(r)] = lse.value[lane][s];
    }
  });
}

template <core::SimtConfig kShape, class Executor>
FP4PA_FN void GroupBackend<kShape, Executor>::store_partial(const core::WorkItem& item, const Output& output,
                                                            const RowVector& max, const RowVector& sum) const {
  const std::int64_t first = item.partial_slot * p_.partition.tile_rows;
  exec_.each_lane([&](Lane lane) {
    if (exec_.warp() != 0 || !first_peer(lane)) return;
    FP4PA_UNROLL
    for (int s = 0; s < kRowSlots; ++s) {
      const int r = row(lane, s);
      if (r >= num_rows_) continue;
      p_.partial_state[2 * (first + r)] = max.value[lane][s];
      p_.partial_state[2 * (first + r) + 1] = sum.value[lane][s];
    }
  });
  each_quad(output, [&](int row, int dim, const Quad& x) {
    *reinterpret_cast<Quad*>(p_.partial_output + (first + row) * p_.head_dim + dim) = x;
  });
}

}  // namespace fp4pa::sm90
