// gfx950 as a shim of the SIMT back end.
//
// An instance with tiles of 128 keys is native: keys with E8M0 scales, and values with E8M0 scales along tokens, enter the
// block-scaled matrix instruction as they lie in the cache. What its scales cannot express - NVFP4, values scaled along
// head_dim - and everything that is not FP4 is decoded to 16 bits, as in every instance with smaller tiles. The two products
// choose independently; the order of tokens is the instance's.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/gfx942/shim.hpp"
#include "backends/gfx950/atoms.hpp"
#include "backends/gfx950/convert.hpp"
#include "backends/gfx950/key_product.hpp"
#include "backends/gfx950/value_product.hpp"
#include "core/atom/token_order.hpp"

namespace fp4pa::gfx950 {

/// @tparam kReads  how a native value product turns V; see value_product.hpp
template <core::SimtConfig kShape, class Executor, ValueReads kReads = ValueReads::kColumns16>
struct Shim : gfx942::DecodeShim<Shim<kShape, Executor, kReads>, kShape, Executor> {
  using Base = gfx942::DecodeShim<Shim, kShape, Executor>;
  using typename Base::Exec;
  using Base::kConfig;
  template <class T>
  using PerLane = typename Exec::template PerLane<T>;

  static constexpr bool kWide = kConfig.tile_keys == 128;
  static constexpr bool kNativeKeys = kWide && native_key(kConfig.k[0]);
  static constexpr bool kNativeValues = kWide && kConfig.v[0] == KvKind::kMxfp4Tokens;
  static_assert(!kWide || (kConfig.exact_head_dim && kConfig.head_dim % 64 == 0));
  static constexpr ValueReads kValueReads = kReads;
  // With the columns of single dims no other format would leave an output in the same order.
  static_assert(kReads == ValueReads::kColumns16 || kConfig.segments == 1);

  using NativeAtom = MfmaScaleF32_16x16x128_F8f6f4<core::E2M1, core::E4M3>;
  using HalfAtom = MfmaF32_16x16x32<core::F16>;
  // Rows lie alike in both.
  using ScoreAtom = core::ScoreAtom<HalfAtom, core::Operand::kB>;
  using OutputAtom = core::OutputAtom<HalfAtom, core::Operand::kB>;

  using QueryRegisters =
      std::conditional_t<kNativeKeys, typename NativeQuery<Shim>::Registers, typename Base::QueryRegisters>;

  static constexpr int kNativeQueryBytes = NativeQuery<Shim>::kBytes;

  FP4PA_FN static int token_of_slot(int slot) { return gfx942::token_of_slot(kWide, slot); }
  static constexpr int kTokenAlignment = kNativeValues ? 32 : core::kScalePiece;

  static constexpr bool kConvertsBytes = FP4PA_GFX950_SCALED_CONVERSIONS != 0;
  template <class Element>
  FP4PA_FN static std::uint32_t convert_byte(std::uint32_t word) {
    return e2m1_byte_to<Element>(word);
  }
  FP4PA_FN static void convert_word(std::uint32_t codes, std::uint32_t (&pairs)[4]) { e2m1_word_to_f16(codes, pairs); }

  static constexpr int kDimsPerLane = kNativeValues ? 4 : 2;
  static constexpr int kOutputBlock = 16 * kDimsPerLane;
  FP4PA_FN static int output_dim(int, int m, int lane, int v) {
    if constexpr (kNativeValues) {
      return NativeValueProduct<Shim>::output_dim(m, lane, v);
    } else {
      return kDimsPerLane * (lane / 16 * 4 + v) + m;
    }
  }
  using FourDims = std::conditional_t<kNativeValues, NativeFourDims<kReads>, gfx942::FourDims>;

  FP4PA_FN static core::QueryForm query_form(KvKind kind) {
    return is_native(kind) ? core::QueryForm{core::QueryForm::kAsIs, 1.0f, false} : Base::query_form(kind);
  }
  FP4PA_FN static int query_terms(const core::AttentionParams& p, KvKind kind) {
    if (!is_native(kind)) return core::query_terms(p.q.dtype, p.rotation, Base::query_form(kind).bf16);
    const int needed = native_query_terms(p.q.dtype, p.rotation);
    return needed < kConfig.terms ? needed : kConfig.terms;
  }
  FP4PA_FN static void store_query_row(Exec& exec, KvKind kind, std::uint32_t scratch, std::uint32_t query, int row,
                                       int head_dim, float multiplier, int terms) {
    if constexpr (kNativeKeys) {
      if (is_native(kind)) return NativeQuery<Shim>::store_row(exec, scratch, query, row, multiplier);
    }
    Base::store_query_row(exec, kind, scratch, query, row, head_dim, multiplier, terms);
  }
  FP4PA_FN static void load_query_registers(Exec& exec, std::uint32_t query, int head_dim,
                                            PerLane<QueryRegisters>& registers) {
    if constexpr (kNativeKeys) {
      // With a second segment the query may be that one's, in another form.
      if constexpr (kConfig.segments == 1) NativeQuery<Shim>::load(exec, query, registers);
    } else {
      Base::load_query_registers(exec, query, head_dim, registers);
    }
  }

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void query_key(Exec& exec, const Stream& stream, std::uint32_t query, PerLane<QueryRegisters>& registers,
                                 int terms, Scores& scores) {
    if constexpr (is_native(kKind)) {
      // Two loops, and no branch in one: loads of later keys pass the products of earlier ones.
      if (kConfig.terms > 2 && terms > 2) return native_query_key<kKind, kConfig.terms>(exec, stream, query, registers, scores);
      native_query_key<kKind, 2>(exec, stream, query, registers, scores);
    } else {
      Base::template query_key<kKind>(exec, stream, query, registers, terms, scores);
    }
  }
  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void probability_value(Exec& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                         typename Backend::Output& output) {
    if constexpr (kNativeValues && kKind == KvKind::kMxfp4Tokens) {
      NativeValueProduct<Shim>::multiply(exec, backend, stream, p, output);
    } else {
      Base::template probability_value<kKind>(exec, backend, stream, p, output);
    }
  }

  /// d += a b over 32 of depth, four registers each.
  template <class Element, class D, class A, class B>
  FP4PA_FN static void multiply_16(Exec& exec, D&& d, A&& a, B&& b) {
    exec.template multiply<MfmaF32_16x16x32<Element>>(d, a, b);
  }

 private:
  /// Whether keys of this kind are multiplied by the block-scaled instruction.
  FP4PA_FN static constexpr bool is_native(KvKind kind) { return kNativeKeys && native_key(kind); }

  template <KvKind kKind, int kTerms, class Stream, class Scores>
  FP4PA_FN static void native_query_key(Exec& exec, const Stream& stream, std::uint32_t query,
                                        PerLane<QueryRegisters>& registers, Scores& scores) {
    if constexpr (kConfig.segments > 1) NativeQuery<Shim>::template load<kTerms>(exec, query, registers);
    NativeKeyProduct<Shim>::template multiply<kKind, kTerms>(exec, stream, registers, scores);
  }

  // The wide order is the one that the atoms' maps ask for.
  static consteval bool wide_order_is_right() {
    constexpr auto kOrder = core::in_lane_token_order<core::ScoreAtom<NativeAtom, core::Operand::kB>,
                                                      core::OutputAtom<NativeAtom, core::Operand::kB>>();
    if (!kOrder.exists) return false;
    for (int slot = 0; slot < 128; ++slot) {
      if (kOrder.token_of_slot[slot] != gfx942::token_of_slot(true, slot)) return false;
    }
    return true;
  }
  static_assert(wide_order_is_right());
};

}  // namespace fp4pa::gfx950
