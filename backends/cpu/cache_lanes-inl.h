// The element formats of core/formats, a vector at a time: the same integer and float operations in the same order, so
// that the bits are the same. Compiled once per instruction set: include only through cache_rows_simd.cpp.
//
// Everything runs on 32-bit lanes, at most 16 of them: a group of NVFP4 is never less than a vector. Magnitudes are
// compared as signed integers, which every instruction set has and which are right for bit patterns below the sign bit.
#include <cstdint>

#include "core/formats/elements.hpp"
#include "hwy/highway.h"

#if defined(FP4PA_CPU_CACHE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP4PA_CPU_CACHE_LANES_INL_H_
#undef FP4PA_CPU_CACHE_LANES_INL_H_
#else
#define FP4PA_CPU_CACHE_LANES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace fp4pa::cpu::row_simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using DU8 = hn::Rebind<std::uint8_t, DF>;
using DU16 = hn::Rebind<std::uint16_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

HWY_INLINE VI bits_of(VF x) { return hn::BitCast(DI(), x); }
HWY_INLINE VF float_of(VI bits) { return hn::BitCast(DF(), bits); }
HWY_INLINE VI ints(std::uint32_t value) { return hn::Set(DI(), static_cast<std::int32_t>(value)); }
HWY_INLINE VI magnitude_of(VI bits) { return hn::And(bits, ints(~core::kFloatSignBit)); }

/// Minifloat::encode_magnitude.
template <class Element>
HWY_INLINE VI encode_magnitude(VI magnitude) {
  constexpr int kShift = 23 - Element::kMantissaBits;
  const VI clamped = hn::Min(magnitude, ints(Element::kMaxBits));
  const VI smallest = ints(Element::kMinNormalExponent << 23);
  const VI binade = hn::Max(hn::And(clamped, ints(core::kFloatInfBits)), smallest);
  const VI magic = hn::Add(binade, ints(static_cast<std::uint32_t>(kShift) << 23));
  const VI steps = hn::Sub(bits_of(hn::Add(float_of(clamped), float_of(magic))), magic);
  return hn::Add(steps, hn::ShiftRight<kShift>(hn::Sub(binade, smallest)));
}

/// Minifloat::encode, for formats whose NaN code is kNan.
template <class Element, std::uint32_t kNan>
HWY_INLINE VI encode(VF x) {
  const VI bits = bits_of(x);
  const VI magnitude = magnitude_of(bits);
  const VI sign =
      hn::And(hn::BitCast(DI(), hn::ShiftRight<32 - Element::kBits>(hn::BitCast(hn::RebindToUnsigned<DI>(), bits))),
              ints(1u << (Element::kBits - 1)));
  const VI code = hn::Or(encode_magnitude<Element>(magnitude), sign);
  return hn::IfThenElse(hn::Gt(magnitude, ints(core::kFloatInfBits)), ints(kNan), code);
}
HWY_INLINE VI encode_e2m1(VF x) { return encode<core::E2M1, 0x07>(x); }
HWY_INLINE VI encode_e4m3(VF x) { return encode<core::E4M3, 0x7f>(x); }

/// Minifloat::decode of finite codes.
template <class Element>
HWY_INLINE VF decode_finite(VI code) {
  constexpr int kShift = 23 - Element::kMantissaBits;
  const VI magnitude = hn::And(code, ints(Element::kMagnitudeMask));
  const VI shifted = hn::ShiftLeft<kShift>(magnitude);
  const VI normal = hn::Add(shifted, ints(static_cast<std::uint32_t>(127 - Element::kBias) << 23));
  const VI smallest = ints(Element::kMinNormalExponent << 23);
  const VI subnormal = bits_of(hn::Sub(float_of(hn::Add(shifted, smallest)), float_of(smallest)));
  const VI value = hn::IfThenElse(hn::Lt(magnitude, ints(1u << Element::kMantissaBits)), subnormal, normal);
  const VI sign = hn::And(hn::ShiftLeft<32 - Element::kBits>(code), ints(core::kFloatSignBit));
  return float_of(hn::Or(value, sign));
}
HWY_INLINE VF decode_e2m1(VI code) { return decode_finite<core::E2M1>(code); }
HWY_INLINE VF decode_e4m3(VI code) {
  const VI sign = hn::And(hn::ShiftLeft<24>(code), ints(core::kFloatSignBit));
  const VI nan = hn::Or(ints(core::kFloatNanBits), sign);
  const auto is_nan = hn::Eq(hn::And(code, ints(0x7f)), ints(0x7f));
  return float_of(hn::IfThenElse(is_nan, nan, bits_of(decode_finite<core::E4M3>(code))));
}
/// Scale bytes.
HWY_INLINE VF decode_ue4m3(VI code) { return decode_e4m3(hn::And(code, ints(0x7f))); }
HWY_INLINE VF decode_e8m0(VI code) {
  const VI normal = hn::ShiftLeft<23>(code);
  const VI value = hn::IfThenElse(hn::Eq(code, hn::Zero(DI())), ints(0x00400000u), normal);
  return float_of(hn::IfThenElse(hn::Eq(code, ints(0xff)), ints(core::kFloatNanBits), value));
}

/// core::f16_to_f32 and core::f32_to_f16 on codes in 32-bit lanes.
HWY_INLINE VF f16_to_f32(VI half) {
  const VI sign = hn::ShiftLeft<16>(hn::And(half, ints(0x8000u)));
  const VI magnitude = hn::And(half, ints(0x7fffu));
  const VI fix = hn::IfThenElse(hn::Gt(magnitude, ints(0x7bffu)), ints((255u - 31u) << 23), ints(112u << 23));
  const VI normal = hn::Add(hn::ShiftLeft<13>(magnitude), fix);
  const VI subnormal = bits_of(hn::Mul(hn::ConvertTo(DF(), magnitude), hn::Set(DF(), 0x1p-24f)));
  return float_of(hn::Or(hn::IfThenElse(hn::Lt(magnitude, ints(0x0400u)), subnormal, normal), sign));
}
HWY_INLINE VI f32_to_f16(VF x) {
  const VI bits = bits_of(x);
  const VI magnitude = magnitude_of(bits);
  const VI sign = hn::And(hn::ShiftRight<16>(bits), ints(0x8000u));
  const VI odd = hn::And(hn::ShiftRight<13>(magnitude), ints(1));
  const VI normal = hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, ints((112u << 23) - 0x0fffu)), odd));
  const VI subnormal = hn::Sub(bits_of(hn::Add(float_of(magnitude), hn::Set(DF(), 0.5f))), ints(0x3f000000u));
  VI half = hn::IfThenElse(hn::Lt(magnitude, ints(0x38800000u)), subnormal, normal);
  half = hn::IfThenElse(hn::Lt(magnitude, ints(0x47800000u)), half, ints(0x7c00u));
  const VI nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), ints(0x03ffu)), ints(0x7e00u));
  half = hn::IfThenElse(hn::Gt(magnitude, ints(core::kFloatInfBits)), nan, half);
  return hn::Or(half, sign);
}
/// core::f32_to_bf16; only the low 16 bits of a lane count.
HWY_INLINE VI f32_to_bf16(VF x) {
  const VI bits = bits_of(x);
  const VI upper = hn::ShiftRight<16>(bits);
  const VI rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, ints(0x7fffu)), hn::And(upper, ints(1))));
  const auto is_nan = hn::Gt(magnitude_of(bits), ints(core::kFloatInfBits));
  return hn::And(hn::IfThenElse(is_nan, hn::Or(upper, ints(0x40u)), rounded), ints(0xffffu));
}

/// Codes between memory and lanes.
HWY_INLINE VI load_u8(const std::uint8_t* p) { return hn::PromoteTo(DI(), hn::LoadU(DU8(), p)); }
HWY_INLINE VI load_u16(const std::uint16_t* p) { return hn::PromoteTo(DI(), hn::LoadU(DU16(), p)); }
HWY_INLINE void store_u8(VI codes, std::uint8_t* p) {
  hn::StoreU(hn::TruncateTo(DU8(), hn::BitCast(hn::RebindToUnsigned<DI>(), codes)), DU8(), p);
}
HWY_INLINE void store_u16(VI codes, std::uint16_t* p) {
  hn::StoreU(hn::TruncateTo(DU16(), hn::BitCast(hn::RebindToUnsigned<DI>(), codes)), DU16(), p);
}

}  // namespace fp4pa::cpu::row_simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
