// Queries of 16 bits and one term on their way to shared memory, and outputs of 16 bits on their way out: 16 bytes a lane.
//
// A warp has 16 rows. Lanes stand side by side along a row, and ask the lane that knows where it lies. All in loops: what
// runs once an item takes longer to fetch than to execute.
#pragma once

#include <cstdint>

#include "backends/sm80/query_pairs.hpp"
#include "backends/sm90/operand_tile.hpp"
#include "core/attention/params.hpp"
#include "core/attention/row_map.hpp"
#include "core/simt/peers.hpp"
#include "core/simt/query.hpp"

namespace fp4pa::sm90 {

/// @tparam kKey, kValue  FP4's dims lie as they fall out of the decoding, p and p + 4 of eight side by side (decoded_dim)
template <core::KvKind kKey, core::KvKind kValue, class E, int kHeadDim>
struct RowChunks {
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Chunk = core::QueryChunk;
  using Query = QueryTile<kHeadDim>;

  static constexpr int kRows = 16;                             // of a warp
  static constexpr int kRowLanes = kHeadDim / 8;               // that share a row
  static constexpr int kSideBySide = E::kLanes / kRowLanes;    // rows
  static constexpr int kCopies = kRows / kSideBySide;          // of a lane
  static constexpr int kUnrolled = 2;
  static_assert(E::kLanes % kRowLanes == 0 && kCopies % kUnrolled == 0);

  /// Brings the rows of a warp to its place in operand form, and their factors. Codes become bf16 on the way, exactly but for
  /// magnitudes below 2^-126.
  /// @param row_base  of the item's rows, this warp's first
  /// @param query     offset of the warp's queries
  /// @param factors   offset of its rows' factors
  /// @param magnitude  what every factor has in common
  FP4PA_FN static void load_query(E& exec, const core::AttentionParams& p, const core::RowMap& rows, int row_base,
                                  core::QueryForm form, float sign, std::uint32_t query, std::uint32_t factors, float magnitude) {
    const core::HeadTensor& q = p.q;
    const bool scaled = core::queries_have_scales<kKey>(p);
    const PerLane<std::int64_t> from = places(exec, q, rows, row_base);
    each_copy([&](int c) {
      const PerLane<std::int64_t> at = place_of_copy(exec, from, c);
      exec.each_lane([&](Lane lane) {
        const std::int64_t first = (at[lane] < 0 ? 0 : at[lane]) + chunk(lane) * 8;
        if (scaled) {
          exec.copy_async_8(lane, address(lane, query, c), static_cast<const std::uint8_t*>(q.data) + first, at[lane] >= 0);
        } else {
          exec.copy_async_16(lane, address(lane, query, c), static_cast<const std::uint16_t*>(q.data) + first, at[lane] >= 0);
        }
      });
    });
    exec.copy_commit();
    PerLane<std::uint32_t> scales;
    if (scaled) scales = load_scales(exec, p.q_scales, rows, row_base);
    exec.template copy_wait<0>();
    exec.warp_barrier();
    const bool moves = form.binade == core::QueryForm::kAsIs && q.dtype == (form.bf16 ? DType::kBF16 : DType::kF16) &&
                       sign > 0.0f;
    each_copy([&](int c) {
      PerLane<Chunk> x;
      PerLane<int> shift;
      exec.each_lane([&](Lane lane) { shift[lane] = 0; });
      if (scaled) {
        expand(exec, scales, query, c, x);
      } else {
        exec.each_lane([&](Lane lane) { x[lane] = exec.template load_shared<Chunk>(lane, address(lane, query, c)); });
      }
      if (!moves) convert(exec, q.dtype, form, sign, x, shift);
      exec.each_lane([&](Lane lane) {
        if constexpr (core::is_fp4(kKey)) sm80::pair_dims(x[lane].word);
        exec.template store_shared<Chunk>(lane, address(lane, query, c), x[lane]);
        if (chunk(lane) == 0) {
          exec.template store_shared<float>(lane, factors + 4 * static_cast<std::uint32_t>(row(lane, c)),
                                            magnitude * core::exp2_exact(-shift[lane]));
        }
      });
    });
  }

  /// Stores a warp's outputs, [dims / 8][1][4] a lane as the instruction leaves them. They are laid out in the place of the
  /// queries, whose swizzle suits them too, and leave from there in whole rows.
  template <class Values>
  FP4PA_FN static void store_output(E& exec, const core::HeadTensor& o, const core::RowMap& rows, int row_base,
                                    const Values& values, std::uint32_t query) {
    const PerLane<std::int64_t> to = places(exec, o, rows, row_base);
    exec.block_barrier();  // no product reads queries any more
    if (o.dtype == DType::kF16) {
      lay_out(exec, values, query, sm80::pack_f16);
    } else {
      lay_out(exec, values, query, sm80::pack_bf16);
    }
    exec.warp_barrier();
    each_copy([&](int c) {
      const PerLane<std::int64_t> at = place_of_copy(exec, to, c);
      exec.each_lane([&](Lane lane) {
        if (at[lane] < 0) return;
        auto x = exec.template load_shared<Chunk>(lane, address(lane, query, c));
        if constexpr (core::is_fp4(kValue)) sm80::unpair_dims(x.word);
        *reinterpret_cast<Chunk*>(static_cast<std::uint16_t*>(o.data) + at[lane] + chunk(lane) * 8) = x;
      });
    });
  }

 private:
  /// Row and chunk that a lane copies.
  [[nodiscard]] FP4PA_FN static int row(Lane lane, int c) { return c * kSideBySide + lane.id / kRowLanes; }
  [[nodiscard]] FP4PA_FN static int chunk(Lane lane) { return lane.id % kRowLanes; }
  [[nodiscard]] FP4PA_FN static std::uint32_t address(Lane lane, std::uint32_t query, int c) {
    return Query::chunk_address(query, 1, 0, row(lane, c), chunk(lane));
  }
  template <class F>
  FP4PA_FN static void each_copy(F&& f) {
    FP4PA_NO_UNROLL
    for (int first = 0; first < kCopies; first += kUnrolled) {
      FP4PA_UNROLL
      for (int i = 0; i < kUnrolled; ++i) f(first + i);
    }
  }

  /// The element at which row lane % kRows of a warp begins; -1: there is no such row.
  [[nodiscard]] FP4PA_FN static PerLane<std::int64_t> places(E& exec, const core::HeadTensor& t, const core::RowMap& rows,
                                                             int row_base) {
    PerLane<std::int64_t> place;
    exec.each_lane([&](Lane lane) {
      const int r = row_base + lane.id % kRows;
      place[lane] = r < rows.num_rows ? rows.token(r) * t.token_stride + rows.head(r) * t.head_stride : -1;
    });
    return place;
  }
  [[nodiscard]] FP4PA_FN static PerLane<std::int64_t> place_of_copy(E& exec, const PerLane<std::int64_t>& place, int c) {
    return exec.shuffle(place, [c](Lane lane) { return row(lane, c); });
  }

  static constexpr int kLaneScales = kRows * (kHeadDim / 32) / E::kLanes;
  /// Lane l: scales l / kRows * kLaneScales and on of row l % kRows, a byte each.
  [[nodiscard]] FP4PA_FN static PerLane<std::uint32_t> load_scales(E& exec, const core::QueryScales& scales,
                                                                   const core::RowMap& rows, int row_base) {
    PerLane<std::uint32_t> out;
    exec.each_lane([&](Lane lane) {
      const int r = row_base + lane.id % kRows;
      out[lane] = 0;
      if (r >= rows.num_rows) return;
      const std::uint8_t* const from = scales.data + rows.token(r) * scales.token_stride + rows.head(r) * scales.head_stride +
                                       lane.id / kRows * kLaneScales;
      FP4PA_UNROLL
      for (int i = 0; i < kLaneScales; ++i) {
        out[lane] |= std::uint32_t{exec.template load_global<std::uint8_t>(from + i)} << (8 * i);
      }
    });
    return out;
  }
  /// Eight codes, in the first half of a chunk's place, to bf16.
  FP4PA_FN static void expand(E& exec, const PerLane<std::uint32_t>& scales, std::uint32_t query, int c, PerLane<Chunk>& x) {
    struct alignas(8) Codes {
      std::uint32_t word[2];
    };
    const PerLane<std::uint32_t> of_row =
        exec.shuffle(scales, [c](Lane lane) { return row(lane, c) + chunk(lane) / 4 / kLaneScales * kRows; });
    exec.each_lane([&](Lane lane) {
      const std::uint32_t scale = of_row[lane] >> (8 * (chunk(lane) / 4 % kLaneScales));
      const float factor = core::E8M0::decode(static_cast<std::uint8_t>(scale));
      const auto codes = exec.template load_shared<Codes>(lane, address(lane, query, c));
      FP4PA_UNROLL
      for (int i = 0; i < 2; ++i) {
        std::uint32_t pairs[2];
        sm80::e4m3_to_f16(codes.word[i], pairs);
        FP4PA_UNROLL
        for (int j = 0; j < 2; ++j) {
          const auto value = [&](std::uint32_t half) { return core::query_half<E>(DType::kF16, half) * factor; };
          x[lane].word[2 * i + j] = sm80::pack_bf16(value(pairs[j] & 0xffffu), value(pairs[j] >> 16));
        }
      }
    });
  }

  /// From a query's elements to operands.
  /// @param shift  the power of two that a lane's row is multiplied by, see query_shift
  FP4PA_FN static void convert(E& exec, DType dtype, core::QueryForm form, float sign, PerLane<Chunk>& x, PerLane<int>& shift) {
    if (form.binade != core::QueryForm::kAsIs) {
      PerLane<std::uint32_t> largest;  // magnitudes compare like the numbers that they are in 15 bits
      exec.each_lane([&](Lane lane) {
        largest[lane] = 0;
        FP4PA_UNROLL
        for (int w = 0; w < 4; ++w) largest[lane] = sm80::max_halves(largest[lane], x[lane].word[w] & 0x7fff7fffu);
      });
      core::combine_peers<kRowLanes - 1>(exec, largest, sm80::max_halves);
      exec.each_lane([&](Lane lane) {
        const std::uint32_t amax = sm80::max_halves(largest[lane], largest[lane] >> 16) & 0xffffu;
        shift[lane] = core::query_shift(form, core::magnitude_bits(core::query_half<E>(dtype, amax)));
      });
    }
    const auto convert_from = [&](DType from) {
      exec.each_lane([&](Lane lane) {
        const float multiplier = sign * core::exp2_exact(shift[lane]);
        FP4PA_UNROLL
        for (int w = 0; w < 4; ++w) {
          std::uint32_t& word = x[lane].word[w];
          const float low = core::query_half<E>(from, word & 0xffffu) * multiplier;
          const float high = core::query_half<E>(from, word >> 16) * multiplier;
          word = form.bf16 ? sm80::pack_bf16(low, high) : sm80::pack_f16(low, high);
        }
      });
    };
    if (dtype == DType::kBF16) {
      convert_from(DType::kBF16);
    } else {
      convert_from(DType::kF16);
    }
  }

  template <class Values, class Pack>
  FP4PA_FN static void lay_out(E& exec, const Values& values, std::uint32_t query, Pack&& pack) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kHeadDim / 8 * 2; ++i) {
        const auto& x = values[lane][i / 2][0];
        const int half = i % 2;  // of the rows
        exec.template store_shared<std::uint32_t>(
            lane, Query::chunk_address(query, 1, 0, lane.id / 4 + 8 * half, i / 2) + static_cast<std::uint32_t>(lane.id % 4 * 4),
            pack(x[2 * half], x[2 * half + 1]));
      }
    });
  }
};

}  // namespace fp4pa::sm90
