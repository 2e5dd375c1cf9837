// sm_80 to sm_100, many query rows: tiles decoded to 16-bit operands once for the block (tile_decode.hpp), queries in A.
//
// With queries in A a warp holds 32 rows, P goes from the first product's accumulators to the second one's A without leaving
// its lane, and each fragment of keys or values that ldmatrix brings is multiplied twice. The operand types are those of the
// decoded tiles: bf16 next to E8M0 scales and bf16 caches, f16 otherwise; queries and P as in key_product.hpp and
// value_product.hpp.
//
// With formats and head_dim decided at run time every kind is brought to tiles of one pitch, those of 16 bits too, and values when
// they are needed: keys' kinds times values' would be as many pieces of code.
#pragma once

#include <cstdint>

#include "backends/sm80/atoms.hpp"
#include "backends/sm80/query_pairs.hpp"
#include "backends/sm80/tile_decode.hpp"
#include "backends/sm80/value_product.hpp"
#include "core/simt/tile_backend.hpp"

namespace fp4pa::sm80 {

/// What probabilities come raised by where P is f16, and how much more they may be.
inline constexpr int kPrefillProbabilityLog2 = 12;
inline constexpr float kPrefillHeadroomLog2 = 3.0f;
template <class Operand>
inline constexpr int kProbabilityRaise = std::same_as<Operand, core::BF16> ? 0 : kPrefillProbabilityLog2;

/// Of an instance whose outputs come from one format: their only unit, see core/simt/shim.hpp. P is raised where its operand is f16,
/// and NVFP4 decoded to f16 is short of powers of two.
template <core::SimtConfig kConfig, bool = kConfig.segments == 1 && !core::is_any(kConfig.v[0])>
struct PrefillUnit {};
[[nodiscard]] FP4PA_FN constexpr int prefill_unit_log2(KvKind value) {
  const bool nvfp4 = value == KvKind::kNvfp4 || value == KvKind::kNvfp4Tokens;
  const int raise = decodes_to_bf16(value) ? kProbabilityRaise<core::BF16> : kProbabilityRaise<core::F16>;
  return -raise - (nvfp4 ? kDecodedNvfp4Log2 : 0);
}
template <core::SimtConfig kConfig>
struct PrefillUnit<kConfig, true> {
  static constexpr int kOnlyUnitLog2 = prefill_unit_log2(kConfig.v[0]);
};

template <core::SimtConfig kShape, class Executor>
struct PrefillShim : PrefillUnit<kShape> {
  static constexpr core::SimtConfig kConfig = kShape;
  using Exec = Executor;
  using Lane = typename Exec::Lane;
  template <class T>
  using PerLane = typename Exec::template PerLane<T>;

  using ScoreAtom = core::ScoreAtom<MmaM16N8K16<core::BF16>, core::Operand::kA>;
  using OutputAtom = core::OutputAtom<MmaM16N8K16<core::BF16>, core::Operand::kA>;

  static_assert(core::divides_rows(kConfig));
  static constexpr bool kIsAny = core::is_any(kConfig.k[0]);
  static_assert(kConfig.exact_head_dim != kIsAny && core::is_any(kConfig.v[0]) == kIsAny);
  static constexpr int kHeadDim = kConfig.head_dim;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kTileKeys = kConfig.tile_keys;
  static constexpr int kSteps = kHeadDim / 16;
  static constexpr int kThreads = Exec::kLanes * kConfig.warps;
  /// Behind the decoding kinds differ in their operands' type alone.
  static constexpr bool kSwitchesKinds = kIsAny;

  struct QueryRegisters {};  // the query stays in shared memory

  static constexpr bool kFactorsStay = true;
  static constexpr float kHeadroomLog2 = kPrefillHeadroomLog2;
  FP4PA_FN static int swizzle(int row, int chunk, int chunks) { return chunk ^ swizzle_bits(row, chunks); }
  FP4PA_FN static int token_of_slot(int slot) { return slot; }
  static constexpr int kTokenAlignment = core::kScalePiece;
  FP4PA_FN static float exp2(float x) { return exp2_fast(x); }
  FP4PA_FN static std::uint16_t to_f16(float x) { return round_f16(x); }
  FP4PA_FN static std::uint16_t to_bf16(float x) { return round_bf16(x); }
  FP4PA_FN static core::QueryForm query_form(KvKind kind) {
    if (decodes_to_bf16(kind)) return {core::QueryForm::kAsIs, 1.0f, true};
    core::QueryForm form = key_query_form(kind);
    if (kind == KvKind::kNvfp4) form.unit = core::exp2_exact(-kDecodedNvfp4Log2);
    return form;
  }

  FP4PA_FN static constexpr int dim_order(KvKind kind) { return core::is_fp4(kind) ? 2 : 1; }
  FP4PA_FN static int output_dim(int order, int m, int lane, int v) {
    constexpr bool kFixed = kConfig.segments == 1 && !kIsAny;
    const int x = 2 * (lane % 4) + v % 2;
    return 8 * m + ((kFixed ? dim_order(kConfig.v[0]) : order) == 2 ? decoded_dim(KvKind::kMxfp4, x) : x);
  }

  // The query in shared memory: [term][row tile][step of 16 dims][lane][register of A].
  FP4PA_FN static std::uint32_t query_address(std::uint32_t query, int tile, int step, int lane, int head_dim = kHeadDim) {
    return query + static_cast<std::uint32_t>(((tile * (head_dim / 16) + step) * Exec::kLanes + lane) * 16);
  }
  FP4PA_FN static constexpr int term_bytes(int head_dim = kHeadDim) { return kRowTiles * head_dim * Exec::kLanes; }

  FP4PA_FN static void store_query_row(Exec& exec, KvKind kind, std::uint32_t scratch, std::uint32_t query, int row,
                                       int head_dim, float multiplier, int terms) {
    each_pair_of_row(exec, kind, scratch, head_dim, multiplier, [&](Lane lane, int dim, float low, float high) {
      store_query_pair(exec, lane, kind, query, row, dim, low, high, terms, kIsAny ? head_dim : kHeadDim);
    });
  }
  static constexpr bool kStoresQuads = true;
  FP4PA_FN static void store_query_quads(Exec& exec, KvKind kind, std::uint32_t query, int row, int base, int,
                                         const PerLane<float[4]>& quad, int terms) {
    each_pair_of_quads<kConfig.head_dim>(exec, kind, base, quad, [&](Lane lane, int dim, float low, float high) {
      store_query_pair(exec, lane, kind, query, row, dim, low, high, terms);
    });
  }
  FP4PA_FN static void store_query_pair(Exec& exec, Lane lane, KvKind kind, std::uint32_t query, int row, int dim, float low,
                                        float high, int terms, int head_dim = kHeadDim) {
    const int p = pair_distance(kind) == 4 ? dim % 4 : dim % 8 / 2;  // register pair of a chunk of 8 dims
    const int in_register = row % 16 / 8 + 2 * (dim / 8 % 2);
    const std::uint32_t at = query_address(query, row / 16, dim / 16, row % 8 * 4 + p, head_dim) + 4 * in_register;
    store_pair(exec, lane, decodes_to_bf16(kind), low, high, terms, [&](int term) { return at + term * term_bytes(head_dim); });
  }
  FP4PA_FN static void load_query_registers(Exec&, std::uint32_t, int, PerLane<QueryRegisters>&) {}

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void query_key(Exec& exec, const Stream& stream, std::uint32_t query, const PerLane<QueryRegisters>&,
                                 int terms, Scores& scores) {
    // The last tile's are read by nobody after the stream's wait.
    constexpr KvKind kValue = kConfig.v[Stream::kSegment];
    constexpr bool kValuesToo = !kIsAny && needs_decoding(kValue);  // so that one barrier serves both
    if constexpr (is_decoded(kKind)) decode_keys<kKind>(exec, stream);
    if constexpr (kValuesToo) decode_values<kValue>(exec, stream);
    if constexpr (is_decoded(kKind) || kValuesToo) exec.block_barrier();
    const std::uint32_t keys = key_operands(stream);
    const int head_dim = kIsAny ? stream.head_dim() : kHeadDim;
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kTileKeys / 8 * kRowTiles * 4; ++i) scores[lane][i / (kRowTiles * 4)][i / 4 % kRowTiles][i % 4] = 0.0f;
    });
    with_element<kKind>(stream.k_kind(), [&](auto element) {
      FP4PA_NO_UNROLL
      for (int term = 0; term < terms; ++term) {
        multiply_keys<decltype(element)>(exec, keys, query + static_cast<std::uint32_t>(term * term_bytes(head_dim)), scores, head_dim);
      }
    });
  }

  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void probability_value(Exec& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                         typename Backend::Output& output) {
    if constexpr (kIsAny) {
      decode_values<kKind>(exec, stream);
      exec.block_barrier();
    }
    const KvKind kind = stream.v_kind();
    if constexpr (core::kHasOnlyUnit<PrefillShim>) {
      output.order = dim_order(kind);
    } else {
      backend.set_unit(output, stream.v_global(), prefill_unit_log2(kind));
      backend.adopt_order(output, dim_order(kind));
    }
    with_element<kKind>(kind, [&](auto element) {
      using Operand = decltype(element);
      multiply_values<Operand>(exec, value_operands(stream), p, output.value, kIsAny ? stream.head_dim() : kHeadDim);
    });
  }

 protected:
  static constexpr KvKind kValueKind = kConfig.v[0];
  FP4PA_FN static constexpr bool is_decoded(KvKind kind) { return kIsAny || needs_decoding(kind); }

  template <KvKind kKind, class Stream>
  FP4PA_FN static void decode_keys(Exec& exec, const Stream& stream) {
    const core::TileLayout layout = stream.layout();
    core::with_key_kind<kKind>(stream.k_kind(), [&](auto kind) {
      constexpr KvKind kOne = decltype(kind)::value;
      decode<kOne>(exec, stream.tile_offset(), {stream.tile_offset() + layout.k_scales, layout.k_scale_pitch},
                   key_operands(stream), {core::code_bytes(kOne, stream.head_dim()) / core::kChunkBytes, layout.k_chunks});
    });
  }
  template <KvKind kKind, class Stream>
  FP4PA_FN static void decode_values(Exec& exec, const Stream& stream) {
    const core::TileLayout layout = stream.layout();
    core::with_value_kind<kKind>(stream.v_kind(), [&](auto kind) {
      constexpr KvKind kOne = decltype(kind)::value;
      decode<kOne>(exec, stream.tile_offset() + layout.v_codes, {stream.tile_offset() + layout.v_scales, layout.v_scale_pitch},
                   value_operands(stream), {core::code_bytes(kOne, stream.head_dim()) / core::kChunkBytes, layout.v_chunks});
    });
  }
  /// @param row  of a call; nothing if the instance fixes it
  template <KvKind kKind>
  FP4PA_FN static void decode(Exec& exec, std::uint32_t from, StagedScales scales, std::uint32_t to, RowOfCodes row = {}) {
    using Decoder = TileDecoder<kKind, Exec, kHeadDim, kTileKeys, kThreads>;
    if constexpr (kIsAny) {
      Decoder::run(exec, from, row, scales, to);
    } else {
      Decoder::run(exec, from, scales, to);
    }
  }
  /// Where a tile's operands lie: decoded behind the stages, keys first, or as staged.
  template <class Stream>
  FP4PA_FN static std::uint32_t key_operands(const Stream& stream) {
    return is_decoded(kConfig.k[Stream::kSegment]) ? stream.behind_stages() : stream.tile_offset();
  }
  template <class Stream>
  FP4PA_FN static std::uint32_t value_operands(const Stream& stream) {
    constexpr int kKeyBytes = decoded_bytes(kConfig.k[Stream::kSegment], kHeadDim, kTileKeys);
    return is_decoded(kConfig.v[Stream::kSegment]) ? stream.behind_stages() + kKeyBytes
                                                   : stream.tile_offset() + stream.layout().v_codes;
  }

  static constexpr int kRowChunks = core::power_of_two_at_least(kHeadDim / 8);  // pitch of a row of operands
  template <KvKind kKind>
  using Element = std::conditional_t<decodes_to_bf16(kKind), core::BF16, core::F16>;
  /// Calls f(Element<kind>()) for the kind at hand: kKind if it is fixed, else `kind`.
  template <KvKind kKind, class F>
  FP4PA_FN static void with_element(KvKind kind, F&& f) {
    if constexpr (!core::is_any(kKind)) {
      f(Element<kKind>());
    } else if (decodes_to_bf16(kind)) {
      f(core::BF16());
    } else {
      f(core::F16());
    }
  }

  /// Of chunk first_chunk + chunk of row first_row + row, where first_row is a multiple of 8 and first_chunk is even: what
  /// differs between lanes apart from what is constant, so that addresses share registers.
  FP4PA_FN static std::uint32_t operand_offset(std::uint32_t tile, int first_row, int row, int first_chunk, int chunk) {
    const int swizzled = (first_chunk % 8) ^ (chunk ^ swizzle_bits(row, kRowChunks));
    return tile + static_cast<std::uint32_t>((row * kRowChunks + swizzled) * core::kChunkBytes) +
           static_cast<std::uint32_t>((first_row * kRowChunks + first_chunk / 8 * 8) * core::kChunkBytes);
  }

  template <class Operand, class Scores>
  FP4PA_FN static void multiply_keys(Exec& exec, std::uint32_t keys, std::uint32_t query, Scores& scores, int head_dim) {
    PerLane<int> id;
    exec.each_lane([&](Lane lane) { id[lane] = recomputed(lane.id); });
    FP4PA_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      if (16 * step >= head_dim) break;
      PerLane<std::uint32_t[kRowTiles][4]> q;
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int tile = 0; tile < kRowTiles; ++tile) {
          exec.load_shared_16(lane, query_address(query, tile, step, id[lane], head_dim), q[lane][tile]);
        }
      });
      FP4PA_UNROLL
      for (int pair = 0; pair < kTileKeys / 16; ++pair) {
        // Matrices: keys 0-7 and 8-15 of the pair, each with the lower and the upper half of the step's dims.
        PerLane<std::uint32_t[4]> words;
        exec.template load_matrix<false>(
            [&](Lane lane) {
              const int row = id[lane] / 16 * 8 + id[lane] % 8;
              return operand_offset(keys, 16 * pair, row, 2 * step, id[lane] / 8 % 2);
            },
            [&](Lane lane) -> auto& { return words[lane]; });
        FP4PA_UNROLL
        for (int half = 0; half < 2; ++half) {
          FP4PA_UNROLL
          for (int tile = 0; tile < kRowTiles; ++tile) {
            multiply<Operand>(exec, q, tile, words, half,
                              [&](Lane lane) -> auto& { return scores[lane][2 * pair + half][tile]; });
          }
        }
      }
    }
  }

  template <class Operand, class Scores, class Values>
  FP4PA_FN static void multiply_values(Exec& exec, std::uint32_t values, const Scores& p, Values& output, int head_dim = kHeadDim) {
    PerLane<int> id;
    exec.each_lane([&](Lane lane) { id[lane] = recomputed(lane.id); });
    FP4PA_UNROLL
    for (int step = 0; step < kTileKeys / 16; ++step) {
      PerLane<std::uint32_t[kRowTiles][4]> weight;
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int i = 0; i < kRowTiles * 4; ++i) {
          const auto& pair = p[lane][2 * step + i % 4 / 2][i / 4];
          const float raise = static_cast<float>(1 << kProbabilityRaise<Operand>);
          const float first = pair[i % 2 * 2];
          const float second = pair[i % 2 * 2 + 1];
          weight[lane][i / 4][i % 4] =
              std::same_as<Operand, core::BF16> ? pack_bf16(first, second) : pack_f16(first * raise, second * raise);
        }
      });
      FP4PA_UNROLL
      for (int pair = 0; pair < kHeadDim / 16; ++pair) {
        if (16 * pair >= head_dim) break;
        // Transposed matrices: tokens 0-7 and 8-15 of the step, for the lower and then the upper 8 dims of the pair.
        PerLane<std::uint32_t[4]> words;
        exec.template load_matrix<true>(
            [&](Lane lane) {
              return operand_offset(values, 16 * step, id[lane] % 16, 2 * pair, id[lane] / 16);
            },
            [&](Lane lane) -> auto& { return words[lane]; });
        FP4PA_UNROLL
        for (int half = 0; half < 2; ++half) {
          FP4PA_UNROLL
          for (int tile = 0; tile < kRowTiles; ++tile) {
            multiply<Operand>(exec, weight, tile, words, half,
                              [&](Lane lane) -> auto& { return output[lane][2 * pair + half][tile]; });
          }
        }
      }
    }
  }

  template <class Operand, class Sum>
  FP4PA_FN static void multiply(Exec& exec, PerLane<std::uint32_t[kRowTiles][4]>& a, int tile, PerLane<std::uint32_t[4]>& words,
                                int half, Sum&& sum) {
    PerLane<std::uint32_t[2]> b;
    exec.each_lane([&](Lane lane) {
      b[lane][0] = words[lane][2 * half];
      b[lane][1] = words[lane][2 * half + 1];
    });
    exec.template multiply<Operand>(sum, [&](Lane lane) -> auto& { return a[lane][tile]; },
                                       [&](Lane lane) -> auto& { return b[lane]; });
  }
};

}  // namespace fp4pa::sm80
