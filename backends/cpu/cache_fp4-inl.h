// The FP4 encoders of core/formats and core/paging a vector at a time, along rows and down columns.
// Compiled once per instruction set: include only through cache_rows_simd.cpp.
//
// Scales are chosen by core's own functions, one call a group; what is done for every element - the largest magnitude,
// four-over-six's squared errors, the codes - is done in lanes. Codes pass through one byte each before two are put
// into one.
#include <cstdint>

#include "backends/cpu/cache_lanes-inl.h"
#include "backends/cpu/cache_rows.hpp"
#include "core/formats/block.hpp"
#include "hwy/highway.h"

#if defined(FP4PA_CPU_CACHE_FP4_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP4PA_CPU_CACHE_FP4_INL_H_
#undef FP4PA_CPU_CACHE_FP4_INL_H_
#else
#define FP4PA_CPU_CACHE_FP4_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace fp4pa::cpu::row_simd::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

/// codes [n], a byte each, to packed [n / 2]; n a multiple of 16.
HWY_INLINE void pack_codes(const std::uint8_t* codes, int n, std::uint8_t* packed) {
  const hn::CappedTag<std::uint16_t, 8> du16;
  const hn::Rebind<std::uint8_t, decltype(du16)> du8;
  const hn::Repartition<std::uint8_t, decltype(du16)> pairs;
  const int lanes = static_cast<int>(hn::Lanes(du16));
  for (int i = 0; i < n / 2; i += lanes) {
    const auto v = hn::BitCast(du16, hn::LoadU(pairs, codes + 2 * i));  // even | odd << 8
    hn::StoreU(hn::TruncateTo(du8, hn::Or(v, hn::ShiftRight<4>(v))), du8, packed + i);
  }
}

/// The inverse.
HWY_INLINE void unpack_codes(const std::uint8_t* packed, int n, std::uint8_t* codes) {
  const hn::CappedTag<std::uint16_t, 8> du16;
  const hn::Rebind<std::uint8_t, decltype(du16)> du8;
  const hn::Repartition<std::uint8_t, decltype(du16)> pairs;
  const int lanes = static_cast<int>(hn::Lanes(du16));
  const auto mask = hn::Set(du16, 0x0f0f);
  for (int i = 0; i < n / 2; i += lanes) {
    const auto v = hn::PromoteTo(du16, hn::LoadU(du8, packed + i));
    hn::StoreU(hn::BitCast(pairs, hn::And(hn::Or(v, hn::ShiftLeft<4>(v)), mask)), pairs, codes + 2 * i);
  }
}

/// core::group_amax.
HWY_INLINE float amax_of(const float* x, int n) {
  const DF df;
  VI amax = hn::Zero(DI());
  for (int i = 0; i < n; i += static_cast<int>(hn::Lanes(df))) {
    amax = hn::Max(amax, magnitude_of(bits_of(hn::LoadU(df, x + i))));
  }
  return core::float_from_bits(static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(DI(), amax))));
}

/// core::nvfp4_normalise with 1 / global worked out.
HWY_INLINE VF nvfp4_normalise(VF x, VF reciprocal_global) {
  return float_of(hn::Min(magnitude_of(bits_of(hn::Mul(x, reciprocal_global))), ints(core::float_bits(4096.0f))));
}
/// core::nvfp4_magnitude_code with 1 / sf (0 for a zero or NaN sf) worked out.
HWY_INLINE VI nvfp4_magnitude_code(VF t, VF reciprocal_sf) {
  const VI bits = bits_of(t);
  const VI low = hn::Add(hn::And(bits, ints(0xfffu)), ints(0xfffu));
  const VI odd = hn::And(hn::Or(bits, low), ints(~0xfffu));
  const VI quotient = bits_of(hn::Mul(float_of(odd), reciprocal_sf));
  return encode_magnitude<core::E2M1>(hn::And(hn::Add(quotient, ints(0x80u)), ints(~0xffu)));
}
HWY_INLINE VF reciprocal_or_zero(VF sf) {
  const DF df;
  return hn::IfThenElseZero(hn::Gt(sf, hn::Zero(df)), hn::Div(hn::Set(df, 1.0f), sf));
}

/// core::e2m1_code_nvfp4. `sf_is_nan` has its sign bit set where the scale is NaN.
HWY_INLINE VI nvfp4_code(VF x, VF reciprocal_global, VF reciprocal_sf, VI sf_is_nan) {
  const VI bits = bits_of(x);
  const VI sign = hn::And(hn::ShiftRight<28>(bits), ints(8u));
  const VI code = hn::Or(nvfp4_magnitude_code(nvfp4_normalise(x, reciprocal_global), reciprocal_sf), sign);
  const auto nan = hn::Or(hn::Gt(magnitude_of(bits), ints(core::kFloatInfBits)), hn::Lt(sf_is_nan, hn::Zero(DI())));
  return hn::IfThenElse(nan, ints(7u), code);
}
/// -1 in the lanes whose scale is NaN.
HWY_INLINE VI nan_flag(VI sf) {
  return hn::VecFromMask(DI(), hn::Eq(hn::And(sf, ints(0x7fu)), ints(core::UE4M3::kNan)));
}

/// core::Nvfp4SquaredError: the sums of the even and of the odd lanes.
struct SquaredErrors {
  using DI64 = hn::Repartition<std::int64_t, DI>;
  VF sf, reciprocal_sf, unit_reciprocal;
  hn::Vec<DI64> even, odd;

  HWY_INLINE void add(VF t) {
    const VI code = nvfp4_magnitude_code(t, reciprocal_sf);
    const VF difference = hn::Sub(t, hn::Mul(decode_e2m1(code), sf));
    const VF rounded = hn::Add(hn::Mul(difference, unit_reciprocal), hn::Set(DF(), 12582912.0f));
    const VI steps = hn::Sub(bits_of(rounded), ints(0x4b400000u));
    const VI odd_steps = hn::BitCast(DI(), hn::ShiftRight<32>(hn::BitCast(DI64(), steps)));
    even = hn::Add(even, hn::MulEven(steps, steps));
    odd = hn::Add(odd, hn::MulEven(odd_steps, odd_steps));
  }
  HWY_INLINE std::int64_t total() const { return hn::GetLane(hn::SumOfLanes(DI64(), hn::Add(even, odd))); }
};
HWY_INLINE SquaredErrors squared_errors(VF sf, VF unit_reciprocal) {
  const SquaredErrors::DI64 di64;
  return {sf, reciprocal_or_zero(sf), unit_reciprocal, hn::Zero(di64), hn::Zero(di64)};
}

/// core::nvfp4_candidates and what Nvfp4SquaredError::make derives, for a group in each lane.
struct Nvfp4Choices {
  VI six, four;
  VF unit_reciprocal;  // of no meaning where six and four are the same
};
HWY_INLINE Nvfp4Choices nvfp4_choices(VF amax, VF reciprocal_global, Nvfp4Scale choice) {
  const DF df;
  const VF t = nvfp4_normalise(amax, reciprocal_global);
  const auto bad = hn::Gt(bits_of(amax), ints(core::kFloatInfBits - 1));
  const VI nan = ints(core::UE4M3::kNan);
  const VI six = hn::IfThenElse(bad, nan, encode_magnitude<core::E4M3>(bits_of(hn::Div(t, hn::Set(df, 6.0f)))));
  // 2^(21 - exponent of t), by its exponent field 21 - (field - 127) + 127.
  const VI field = hn::ShiftRight<23>(bits_of(t));
  const VF unit = float_of(hn::ShiftLeft<23>(hn::Sub(ints(275u), field)));
  if (choice != Nvfp4Scale::kFourOverSix) return {six, six, unit};
  const VI four = encode_magnitude<core::E4M3>(bits_of(hn::Mul(t, hn::Set(df, 0.25f))));
  return {six, hn::IfThenElse(bad, nan, four), unit};
}

/// core::nvfp4_scale of every 16 adjacent elements; n at most 256.
HWY_INLINE void nvfp4_row_scales(const float* x, int n, VF reciprocal_global, Nvfp4Scale choice, std::uint8_t* scales) {
  const DF df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const int groups = n / 16;
  alignas(64) float amax[kMaxRow / 16] = {};
  for (int g = 0; g < groups; ++g) amax[g] = amax_of(x + g * 16, 16);
  alignas(64) std::int32_t six[kMaxRow / 16];
  alignas(64) std::int32_t four[kMaxRow / 16];
  alignas(64) float unit[kMaxRow / 16];
  for (int g = 0; g < groups; g += lanes) {
    const Nvfp4Choices pick = nvfp4_choices(hn::Load(df, amax + g), reciprocal_global, choice);
    hn::Store(pick.six, DI(), six + g);
    hn::Store(pick.four, DI(), four + g);
    hn::Store(pick.unit_reciprocal, df, unit + g);
  }
  for (int g = 0; g < groups; ++g) {
    scales[g] = static_cast<std::uint8_t>(six[g]);
    if (six[g] == four[g]) continue;
    const VF unit_reciprocal = hn::Set(df, unit[g]);
    SquaredErrors with_six = squared_errors(decode_ue4m3(hn::Set(DI(), six[g])), unit_reciprocal);
    SquaredErrors with_four = squared_errors(decode_ue4m3(hn::Set(DI(), four[g])), unit_reciprocal);
    for (int i = g * 16; i < (g + 1) * 16; i += lanes) {
      const VF t = nvfp4_normalise(hn::LoadU(df, x + i), reciprocal_global);
      with_six.add(t);
      with_four.add(t);
    }
    if (with_four.total() < with_six.total()) scales[g] = static_cast<std::uint8_t>(four[g]);
  }
}

/// MXFP4 (group 32) and E8M0 per token (group n).
HWY_INLINE void encode_mx_row(const float* x, int n, int group, ScaleMode mode, std::uint8_t* packed,
                              std::uint8_t* scales) {
  const DF df;
  alignas(64) std::uint8_t codes[kMaxRow];
  for (int g = 0; g * group < n; ++g) {
    scales[g] = core::e8m0_from_amax<core::E2M1>(amax_of(x + g * group, group), mode);
    const VF reciprocal = hn::Set(df, core::e8m0_reciprocal(scales[g]));
    for (int i = g * group; i < (g + 1) * group; i += static_cast<int>(hn::Lanes(df))) {
      store_u8(encode_e2m1(hn::Mul(hn::LoadU(df, x + i), reciprocal)), codes + i);
    }
  }
  pack_codes(codes, n, packed);
}

HWY_INLINE void encode_nvfp4_row(const float* x, int n, float global, Nvfp4Scale choice, std::uint8_t* packed,
                                 std::uint8_t* scales) {
  const DF df;
  const VF reciprocal_global = hn::Set(df, 1.0f / global);
  nvfp4_row_scales(x, n, reciprocal_global, choice, scales);
  alignas(64) std::uint8_t codes[kMaxRow];
  for (int g = 0; g * 16 < n; ++g) {
    const VI scale = hn::Set(DI(), scales[g]);
    const VF reciprocal = reciprocal_or_zero(decode_ue4m3(scale));
    const VI nan = nan_flag(scale);
    for (int i = g * 16; i < (g + 1) * 16; i += static_cast<int>(hn::Lanes(df))) {
      store_u8(nvfp4_code(hn::LoadU(df, x + i), reciprocal_global, reciprocal, nan), codes + i);
    }
  }
  pack_codes(codes, n, packed);
}

/// core::nvfp4_scale of a vector of columns, for a group along tokens.
HWY_INLINE VI nvfp4_column_scales(const core::GroupValues& group, int column, VF amax, VF reciprocal_global,
                                  Nvfp4Scale choice) {
  const DF df;
  const Nvfp4Choices pick = nvfp4_choices(amax, reciprocal_global, choice);
  if (choice != Nvfp4Scale::kFourOverSix) return pick.six;
  SquaredErrors six = squared_errors(decode_ue4m3(pick.six), pick.unit_reciprocal);
  SquaredErrors four = squared_errors(decode_ue4m3(pick.four), pick.unit_reciprocal);
  for (int t = 0; t < group.tokens; ++t) {
    const VF value = nvfp4_normalise(hn::LoadU(df, group.x + t * group.stride + column), reciprocal_global);
    six.add(value);
    four.add(value);
  }
  // A 64-bit comparison fills both halves of its lane with ones or zeros: the even lanes take their lower half of one,
  // the odd lanes their upper half of the other.
  const SquaredErrors::DI64 di64;
  const VI even = hn::BitCast(DI(), hn::VecFromMask(di64, hn::Lt(four.even, six.even)));
  const VI odd = hn::BitCast(DI(), hn::VecFromMask(di64, hn::Lt(four.odd, six.odd)));
  const auto take_four = hn::And(hn::Ne(hn::OddEven(odd, even), hn::Zero(DI())), hn::Ne(pick.six, pick.four));
  return hn::IfThenElse(take_four, pick.four, pick.six);
}

/// core::encode_group.
HWY_INLINE void encode_fp4_group(KvFormat format, const core::GroupValues& group, int n, float global,
                                 core::EncodeRule rule, std::uint8_t* packed, std::int64_t token_stride,
                                 std::uint8_t* scales) {
  const DF df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const bool nvfp4 = format == KvFormat::kNvfp4;
  const VF reciprocal_global = hn::Set(df, 1.0f / global);
  alignas(64) float reciprocal[kMaxRow];
  alignas(64) std::int32_t nan[kMaxRow];
  for (int column = 0; column < n; column += lanes) {
    VI amax_bits = hn::Zero(DI());
    for (int t = 0; t < group.tokens; ++t) {
      amax_bits = hn::Max(amax_bits, magnitude_of(bits_of(hn::LoadU(df, group.x + t * group.stride + column))));
    }
    if (nvfp4) {
      const VI scale = nvfp4_column_scales(group, column, float_of(amax_bits), reciprocal_global, rule.nvfp4_scale);
      store_u8(scale, scales + column);
      hn::Store(reciprocal_or_zero(decode_ue4m3(scale)), df, reciprocal + column);
      hn::Store(nan_flag(scale), DI(), nan + column);
      continue;
    }
    alignas(64) float amax[16];
    hn::Store(float_of(amax_bits), df, amax);
    for (int i = 0; i < lanes; ++i) {
      scales[column + i] = core::e8m0_from_amax<core::E2M1>(amax[i], rule.scale_mode);
      reciprocal[column + i] = core::e8m0_reciprocal(scales[column + i]);
    }
  }
  alignas(64) std::uint8_t codes[kMaxRow];
  for (int t = 0; t < group.tokens; ++t) {
    for (int i = 0; i < n; i += lanes) {
      const VF x = hn::LoadU(df, group.x + t * group.stride + i);
      const VF scale = hn::Load(df, reciprocal + i);
      const VI code =
          nvfp4 ? nvfp4_code(x, reciprocal_global, scale, hn::Load(DI(), nan + i)) : encode_e2m1(hn::Mul(x, scale));
      store_u8(code, codes + i);
    }
    pack_codes(codes, n, packed + t * token_stride);
  }
}

#endif

}  // namespace fp4pa::cpu::row_simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
