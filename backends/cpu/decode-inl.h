// How each KV format becomes f32 lanes: the only part of the CPU's matrix core that knows bits.
//
// A decoder reads a chunk of one row, kParts vectors of L lanes, in lane order: lane i of part j is element
// `element(L, i, j)` of the chunk. Where lane i of every part comes from the same packed word, as for E2M1, that order
// costs no shuffle.
// Compiled once per instruction set: include only through tile_ops.cpp and gemm_ops.cpp.
#include <cstdint>
#include <cstring>

#include "core/formats/formats.hpp"
#include "fp4pa/types.hpp"
#include "hwy/highway.h"

#if defined(FP4PA_CPU_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP4PA_CPU_DECODE_INL_H_
#undef FP4PA_CPU_DECODE_INL_H_
#else
#define FP4PA_CPU_DECODE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace fp4pa::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Calls f(tag, begin, end) over a row's ranges of whole chunks, widest vectors first; with kMerge a range is as long as its
/// vectors allow, else it is one chunk. A chunk is kParts vectors; the length is a multiple of 32, so that four lanes of eight
/// parts always fit.
template <class Decode, bool kMerge, class Index, class F>
HWY_INLINE void for_each_range(Index length, F&& f) {
  constexpr std::size_t kMaxLanes = hn::MaxLanes(hn::ScalableTag<float>());
  Index d = 0;
  const auto take = [&](auto df) HWY_ATTR {
    constexpr Index kChunk = Decode::kParts * static_cast<Index>(hn::MaxLanes(df));
    const Index end = d + (length - d) / kChunk * kChunk;
    while (d < end) {
      const Index next = kMerge ? end : d + kChunk;
      f(df, d, next);
      d = next;
    }
  };
  take(hn::CappedTag<float, 16>());
  if constexpr (kMaxLanes >= 16) take(hn::CappedTag<float, 8>());
  if constexpr (kMaxLanes >= 8) take(hn::CappedTag<float, 4>());
}

/// Indices for a look-up in a table of kLanes entries from words with other bits above them.
template <std::size_t kLanes, class DU, class VU>
HWY_INLINE VU lookup_index(DU du, VU words) {
#if HWY_ARCH_X86 && !HWY_IS_DEBUG_BUILD
  (void)du;
  return words;  // the x86 permutations read only the bits they need
#else
  return hn::And(words, hn::Set(du, static_cast<hn::TFromD<DU>>(kLanes - 1)));
#endif
}

/// E2M1, eight codes to a 32-bit word.
struct DecodeE2M1 {
  static constexpr int kParts = 8;
  static constexpr int kBitsPerElement = 4;
  static constexpr int element(int, int lane, int part) { return kParts * lane + part; }

  template <int J, class D>
  static HWY_INLINE hn::Vec<D> part(D df, const std::uint8_t* chunk) {
    const hn::RebindToUnsigned<D> du;
    const auto words = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(chunk));
    constexpr std::size_t kLanes = hn::MaxLanes(D());
#if HWY_TARGET == HWY_SCALAR
    static_assert(kLanes == 1);
    return hn::Set(df, core::E2M1::decode(static_cast<std::uint8_t>((hn::GetLane(words) >> (4 * J)) & 15u)));
#else
    if constexpr (kLanes == 16) {
      // One permutation is the whole decode: 16 codes, 16 lanes. The instruction reads the low four bits of an index.
      HWY_ALIGN static constexpr float kTable[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                     -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
      return lookup(df, hn::Load(df, kTable), hn::ShiftRight<4 * J>(words));
    } else if constexpr (kLanes == 8) {
      // Eight lanes hold the magnitudes; the index is the low three bits, the sign is shifted into place.
      HWY_ALIGN static constexpr float kTable[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
      const auto magnitude = lookup(df, hn::Load(df, kTable), hn::ShiftRight<4 * J>(words));
      const auto sign = hn::And(hn::ShiftLeft<28 - 4 * J>(words), hn::Set(du, 0x80000000u));
      return hn::BitCast(df, hn::Or(hn::BitCast(du, magnitude), sign));
    } else {
      static_assert(kLanes == 4);
      // Twice the value is a small integer: a byte look-up puts it into the top byte of its lane.
      const hn::Repartition<std::uint8_t, D> du8;
      const hn::RebindToSigned<D> di;
      HWY_ALIGN static constexpr std::int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
      const auto table = hn::Load(du8, reinterpret_cast<const std::uint8_t*>(kTwice));
      const auto index = hn::ShiftLeft<24>(hn::And(hn::ShiftRight<4 * J>(words), hn::Set(du, 15u)));
      const auto twice = hn::BitCast(di, hn::TableLookupBytes(table, hn::BitCast(du8, index)));
      return hn::Mul(hn::ConvertTo(df, twice), hn::Set(df, 0x1p-25f));
    }
#endif
  }

 private:
#if HWY_TARGET != HWY_SCALAR
  template <class D, class V, class VI>
  static HWY_INLINE V lookup(D df, V table, VI words) {
    constexpr std::size_t kLanes = hn::MaxLanes(D());
    const hn::RebindToUnsigned<D> du;
    return hn::TableLookupLanes(table, hn::IndicesFromVec(df, lookup_index<kLanes>(du, words)));
  }
#endif
};

/// Two bf16 to a 32-bit word.
struct DecodeBf16 {
  static constexpr int kParts = 2;
  static constexpr int kBitsPerElement = 16;
  static constexpr int element(int, int lane, int part) { return kParts * lane + part; }

  template <int J, class D>
  static HWY_INLINE hn::Vec<D> part(D df, const std::uint8_t* chunk) {
    const hn::RebindToUnsigned<D> du;
    const auto words = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(chunk));
    return hn::BitCast(df, J == 0 ? hn::ShiftLeft<16>(words) : hn::And(words, hn::Set(du, 0xFFFF0000u)));
  }
};

/// f16 codes in the high half of each lane to f32, on targets without the instruction: exponent and mantissa are moved and
/// rescaled, subnormals go through the integer, Inf and NaN get their exponent filled. (Highway's emulation knows neither.)
template <class D, class VU>
HWY_INLINE hn::Vec<D> f16_bits_to_f32(D df, VU half_in_high_bits) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto sign = hn::And(half_in_high_bits, hn::Set(du, 0x80000000u));
  const auto magnitude = hn::ShiftRight<3>(hn::And(half_in_high_bits, hn::Set(du, 0x7FFF0000u)));
  const auto normal = hn::Mul(hn::BitCast(df, hn::Max(magnitude, hn::Set(du, 0x00800000u))), hn::Set(df, 0x1p112f));
  const auto small =
      hn::Mul(hn::ConvertTo(df, hn::BitCast(di, hn::ShiftRight<13>(magnitude))), hn::Set(df, 0x1p-24f));
  const auto special = hn::BitCast(df, hn::Or(magnitude, hn::Set(du, 0x7F800000u)));
  auto value = hn::IfThenElse(hn::RebindMask(df, hn::Lt(magnitude, hn::Set(du, 0x00800000u))), small, normal);
  value = hn::IfThenElse(hn::RebindMask(df, hn::Gt(magnitude, hn::Set(du, 0x0F7FFFFFu))), special, value);
  return hn::BitCast(df, hn::Or(hn::BitCast(du, value), sign));
}

/// f16 in its natural order.
struct DecodeF16 {
  static constexpr int kParts = 2;
  static constexpr int kBitsPerElement = 16;
  static constexpr int element(int lanes, int lane, int part) { return part * lanes + lane; }

  template <int J, class D>
  static HWY_INLINE hn::Vec<D> part(D df, const std::uint8_t* chunk) {
    const auto* const halves = reinterpret_cast<const std::uint16_t*>(chunk) + J * hn::MaxLanes(D());
#if HWY_TARGET == HWY_SCALAR || (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2)
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> du16;
    return f16_bits_to_f32(df, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(du16, halves))));
#else
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(df, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(halves)));
#endif
  }
};

/// E4M3 codes, one in the low byte of each lane, the other bits zero.
template <class D, class VU>
HWY_INLINE hn::Vec<D> e4m3_to_f32(D df, VU code) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(du, 0x80u)));
  const auto magnitude = hn::And(code, hn::Set(du, 0x7Fu));
  const auto normal = hn::BitCast(df, hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, 120u << 23)));
  const auto small = hn::Mul(hn::ConvertTo(df, hn::BitCast(di, magnitude)), hn::Set(df, 0x1p-9f));
  auto value = hn::IfThenElse(hn::RebindMask(df, hn::Lt(magnitude, hn::Set(du, 8u))), small, normal);
  value = hn::IfThenElse(hn::RebindMask(df, hn::Eq(magnitude, hn::Set(du, 0x7Fu))),
                         hn::BitCast(df, hn::Set(du, 0x7FC00000u)), value);
  return hn::BitCast(df, hn::Or(hn::BitCast(du, value), sign));
}

/// Four E4M3 to a 32-bit word; what decode_e4m3-inl.h has no better way for.
struct DecodeE4M3Words {
  static constexpr int kParts = 4;
  static constexpr int kBitsPerElement = 8;
  static constexpr int element(int, int lane, int part) { return kParts * lane + part; }

  template <int J, class D>
  static HWY_INLINE hn::Vec<D> part(D df, const std::uint8_t* chunk) {
    const hn::RebindToUnsigned<D> du;
    const auto words = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(chunk));
    return e4m3_to_f32(df, hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * J>(words)));
  }
};

/// E8M0 codes, one in the low byte of each lane: 2^(code - 127), with 2^-127 and NaN at the ends.
template <class D, class VU>
HWY_INLINE hn::Vec<D> e8m0_to_f32(D df, VU code) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::Max(hn::ShiftLeft<23>(code), hn::Set(du, 0x00400000u));
  const auto nan = hn::BitCast(df, hn::Set(du, 0x7FC00000u));
  return hn::IfThenElse(hn::RebindMask(df, hn::Eq(code, hn::Set(du, 255u))), nan, hn::BitCast(df, bits));
}

template <bool kE8m0, class D, class VU>
HWY_INLINE hn::Vec<D> decode_scales(D df, VU codes) {
  if constexpr (kE8m0) {
    return e8m0_to_f32(df, codes);
  } else {
    const hn::RebindToUnsigned<D> du;
    return e4m3_to_f32(df, hn::And(codes, hn::Set(du, 0x7Fu)));  // UE4M3: the sign bit is ignored
  }
}

/// Byte look-up that puts scale i / kGroupWords into the low byte of lane i and zeros above it.
template <std::size_t kLanes, int kGroupWords>
struct SpreadIndex {
  std::uint8_t byte[4 * kLanes];
  constexpr SpreadIndex() : byte{} {
    for (std::size_t i = 0; i < kLanes; ++i) {
      byte[4 * i] = static_cast<std::uint8_t>(i / kGroupWords);
      byte[4 * i + 1] = byte[4 * i + 2] = byte[4 * i + 3] = 0x80;
    }
  }
};

/// Scales of a chunk of packed words along head_dim, one per lane (a lane's word never crosses a group).
/// `group_words` is the number of words that share a scale: 4 (MXFP4), 2 (NVFP4) or 8 (MXFP8, whose group may be wider than
/// the chunk).
template <int kGroupWords, bool kE8m0, class D>
HWY_INLINE hn::Vec<D> chunk_scales(D df, const std::uint8_t* scales) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  const hn::RebindToUnsigned<D> du;
#if HWY_TARGET == HWY_SCALAR
  static_assert(kLanes == 1);
  return decode_scales<kE8m0>(df, hn::Set(du, std::uint32_t{scales[0]}));
#else
  // Never read past the chunk's own scales: they may be the last bytes of the pool.
  constexpr std::size_t kBytes = kLanes < kGroupWords ? 1 : kLanes / kGroupWords;
  const hn::Repartition<std::uint64_t, D> du64;
  const hn::Repartition<std::uint8_t, D> du8;
  std::uint64_t word = 0;
  std::memcpy(&word, scales, kBytes);
  HWY_ALIGN static constexpr SpreadIndex<kLanes, kGroupWords> kSpread;
  const auto bytes = hn::BitCast(du8, hn::Set(du64, word));
  const auto codes = hn::TableLookupBytesOr0(bytes, hn::Load(du8, kSpread.byte));
  return decode_scales<kE8m0>(df, hn::BitCast(du, codes));
#endif
}

}  // namespace fp4pa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
