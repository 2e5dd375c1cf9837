// SM120 and SM121 as a shim of the SIMT back end: products in which FP4 enters the matrix core as it lies in the cache and
// the hardware applies the block scales. Both have a decoding twin in backends/sm80, which runs here too.
//
//   K   MXFP4, a scale per token, NVFP4, MXFP8   native: E4M3 or E2M1 query in two to five terms (query.hpp)
//   V   MXFP4 along tokens                       native: E4M3 P in two terms (value_product.hpp)
//   V   NVFP4 along tokens                       native: E2M1 P in four terms (packed_value_product.hpp)
//   V   otherwise                                policy: sm_80's product, decoded in registers and exact as there. The hardware
//                                                scales a row of V's dims over the tokens of the depth; scales along head_dim
//                                                are none of that kind
//   recent tier (16 or 8 bits)                   sm_80's products
//
// Many query rows with a V that is decoded have a shim of their own, prefill_shim.hpp.
#pragma once

#include <cstdint>

#include "backends/sm120/key_product.hpp"
#include "backends/sm120/packed_value_product.hpp"
#include "backends/sm120/value_product.hpp"
#include "backends/sm80/shim.hpp"

namespace fp4pa::sm120 {

/// K's scales lie as in the cache, for the hardware; those of a V that is decoded as its product wants them.
struct NativeScales : sm80::OperandScales {
  [[nodiscard]] FP4PA_FN static constexpr int key_bytes(KvKind k, int head_dim) {
    return core::CacheScales::key_bytes(k, head_dim);
  }
  template <class E, class Lane, int kWords>
  FP4PA_FN static void store_key(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t at, int key,
                                 const std::uint32_t (&words)[kWords]) {
    core::CacheScales::store_key(exec, lane, k, head_dim, at, key, words);
  }
};

/// How many operands Q and P are the sum of. Kernels have kAllTerms; tests measure what fewer would cost.
struct Terms {
  int query;        // at most; fewer where the query's type needs no more
  int probability;  // at most: two of E4M3, four of E2M1
};
inline constexpr Terms kAllTerms{5, 4};

/// V's products that no hardware scale expresses go to the decoding product.
[[nodiscard]] FP4PA_FN constexpr bool native_value(KvKind kind) { return core::along_tokens(kind); }
[[nodiscard]] FP4PA_FN constexpr bool native_key(KvKind kind) {
  return kind == KvKind::kMxfp4 || kind == KvKind::kPerToken || kind == KvKind::kNvfp4 || kind == KvKind::kMxfp8;
}

template <core::SimtConfig kShape, class Executor, Terms kOperandTerms = kAllTerms>
struct Shim : sm80::Shim<kShape, Executor> {
  using Base = sm80::Shim<kShape, Executor>;
  static constexpr core::SimtConfig kConfig = kShape;
  using Exec = Executor;
  using Lane = typename Exec::Lane;
  template <class T>
  using PerLane = typename Exec::template PerLane<T>;
  static_assert(kConfig.exact_head_dim && native_key(kConfig.k[0]), "the decoding shim serves what is not native");

  using ScaleForm = NativeScales;
  using Form = KeyForm<kConfig.k[0], kConfig.head_dim>;
  static_assert(kConfig.head_dim % Form::kDepth == 0);
  using ScoreAtom = core::ScoreAtom<typename Form::Atom, core::Operand::kB>;
  // Dims and queries of an output lie alike in both value products.
  using OutputAtom = core::OutputAtom<MmaMxf8f6f4M16N8K32<core::E2M1, core::E4M3>, core::Operand::kB>;
  // Between two segments a query would have to be held twice.
  static constexpr bool kQueryInRegisters = kConfig.segments == 1 && kConfig.row_tiles == 1;
  using QueryRegisters = NativeQuery<Form, kConfig.row_tiles, kQueryInRegisters>;
  static constexpr Terms kTerms = kOperandTerms;
  // Room for a query is two terms of 16 bits, see core/simt/shared_layout.hpp.
  static_assert(QueryLayout<Form, kConfig.row_tiles>::kBytes <= 2 * kConfig.row_tiles * 8 * kConfig.head_dim * 2);

  static constexpr int kTokenAlignment = kConfig.v[0] == KvKind::kMxfp4Tokens ? 32 : Base::kTokenAlignment;

  FP4PA_FN static core::QueryForm query_form(KvKind kind) {
    // A row is brought to about 1, so that its groups' scales need not reach the ends of their range; E4M3's begin at 2^-9 and
    // end at 448, which is 6 times less than the largest element in its group.
    if (native_key(kind)) return {kind == KvKind::kNvfp4 ? 10 : 0, 1.0f, false};
    return Base::query_form(kind);
  }
  FP4PA_FN static int query_terms(const core::AttentionParams& p, KvKind kind) {
    if (!native_key(kind)) return core::query_terms(p.q.dtype, p.rotation, Base::query_form(kind).bf16);
    const int needed = Form::kPacked ? 5 : p.q.dtype == DType::kBF16 && p.rotation == Rotation::kNone ? 2 : 3;
    return needed < kTerms.query ? needed : kTerms.query;
  }

  FP4PA_FN static void store_query_row(Exec& exec, KvKind kind, std::uint32_t scratch, std::uint32_t query, int row,
                                       int head_dim, float multiplier, int terms) {
    if (native_key(kind)) {
      store_native_row<Form, kConfig.row_tiles>(exec, scratch, query, row, head_dim, multiplier, terms);
    } else {
      // Both terms, because load_query_registers() reads all of the room, whichever segment is opened.
      Base::store_query_row(exec, kind, scratch, query, row, head_dim, multiplier, 2);
    }
  }
  FP4PA_FN static void store_query_quads(Exec& exec, KvKind kind, std::uint32_t query, int row, int base, int head_dim,
                                         const PerLane<float[4]>& quad, int terms) {
    if (native_key(kind)) {
      store_native_quads<Form, kConfig.row_tiles>(exec, query, row, base, head_dim, quad, terms);
    } else {
      Base::store_query_quads(exec, kind, query, row, base, head_dim, quad, 2);
    }
  }
  FP4PA_FN static void load_query_registers(Exec& exec, std::uint32_t query, int, PerLane<QueryRegisters>& registers) {
    exec.each_lane([&](Lane lane) { registers[lane].load(exec, lane, query); });
  }

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void query_key(Exec& exec, const Stream& stream, std::uint32_t query,
                                 const PerLane<QueryRegisters>& registers, int terms, Scores& scores) {
    if constexpr (native_key(kKind)) {
      NativeKeyProduct<Shim, Form>::multiply(exec, stream, registers, terms, scores);
    } else {
      sm80::KeyProduct<Shim>::template multiply<kKind>(exec, stream, query, registers, terms, scores);
    }
  }
  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void probability_value(Exec& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                         typename Backend::Output& output) {
    if constexpr (kKind == KvKind::kNvfp4Tokens) {
      PackedValueProduct<Shim>::multiply(exec, backend, stream, p, output);
    } else if constexpr (kKind == KvKind::kMxfp4Tokens) {
      NativeValueProduct<Shim>::multiply(exec, backend, stream, p, output);
    } else {
      sm80::ValueProduct<Shim>::template multiply<kKind>(exec, backend, stream, p, output);
    }
  }
};

}  // namespace fp4pa::sm120
