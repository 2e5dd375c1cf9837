// append by pieces, V scaled along tokens.
#pragma once

#include "kernels/piece_columns.hpp"

namespace fp4pa::FP4PA_GPU {

/// V scaled along tokens by pieces: a thread has eight columns of a head and the groups that begin in kGroup of the input's tokens.
/// It reads a group twice, for its scales and for its codes; the second time it is in a cache.
template <DType kDType>
struct GroupColumns {
  const PieceArgs& args;
  PieceColumn column;
  const std::uint8_t* from;  // the columns of token 0
  std::int64_t step;
  std::uint64_t first_slot;
  std::uint32_t first_token;
  int limit;  // tokens that the group can have

  FP4PA_DEVICE void values(std::uint32_t token, float (&x)[8]) const {
    RawPiece<kDType, 8> raw;
    raw.load(from + token * step);
    raw.values(x);
  }
  /// Whether the input has the whole group, kGroup tokens, one after another.
  template <int kGroup>
  [[nodiscard]] FP4PA_DEVICE bool whole() const {
    const bool whole = limit == kGroup && first_token + kGroup <= args.tokens;
    if (!whole) return false;
    std::uint32_t others = 0;
    FP4PA_UNROLL
    for (std::uint32_t t = 1; t < kGroup; ++t) {
      others |= static_cast<std::uint64_t>(args.slots[first_token + t]) != first_slot + t ? 1u : 0u;
    }
    return others == 0;
  }
  /// f(row, x) for the tokens there are; padding may stand between them.
  template <int kGroup, class F>
  FP4PA_DEVICE void each(bool whole, const F& f) const {
    if (whole) {
      constexpr int kAhead = 8;
      FP4PA_NO_UNROLL
      for (int t = 0; t < kGroup; t += kAhead) {
        RawPiece<kDType, 8> raw[kAhead];
        FP4PA_UNROLL
        for (int i = 0; i < kAhead; ++i) raw[i].load(from + (first_token + static_cast<std::uint32_t>(t + i)) * step);
        FP4PA_UNROLL
        for (int i = 0; i < kAhead; ++i) {
          float x[8];
          raw[i].values(x);
          f(t + i, x);
        }
      }
      return;
    }
    std::uint32_t token = first_token;
    FP4PA_NO_UNROLL
    for (int row = 0; row < limit; ++row) {
      if (token >= args.tokens || slot_of(args, token) != first_slot + static_cast<std::uint32_t>(row)) return;
      float x[8];
      values(token, x);
      f(row, x);
      do {
        ++token;
      } while (token < args.tokens && args.slots[token] < 0);
    }
  }
};

template <DType kDType, int kGroup>
FP4PA_DEVICE inline void append_group_columns(const GroupColumns<kDType>& group, const PageRow& at) {
  const PieceArgs& args = group.args;
  const CacheTensor& tensor = args.tensors[1];
  constexpr bool kNvfp4 = kGroup == 16;
  const bool whole = group.template whole<kGroup>();
  std::uint32_t twice[8] = {};
  group.template each<kGroup>(whole, [&](int, const float (&x)[8]) {
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t magnitude = core::float_bits(x[i]) << 1;
      twice[i] = magnitude > twice[i] ? magnitude : twice[i];
    }
  });
  const float to_units = kNvfp4 ? 1.0f / tensor.view.global(static_cast<std::int32_t>(group.column.head)) : 1.0f;
  const std::uint32_t units = core::float_bits(to_units);
  bool direct = kDType == DType::kBF16 && (units & 0x007fffffu) == 0 && units >= 0x20000000u && units < 0x60000000u;
  std::uint32_t nan = 0;  // nibbles of columns
  std::uint8_t scales[8];
  float factors[8];
  FP4PA_UNROLL
  for (int i = 0; i < 8; ++i) {
    const float amax = core::float_from_bits(twice[i] >> 1);
    if constexpr (kNvfp4) {
      scales[i] = core::nvfp4_candidates_in_units(amax, to_units, Nvfp4Scale::kAmaxOver6).six;
      factors[i] = scales[i] == 0 ? 0.0f : near_reciprocal(ue4m3_scale(scales[i])) * core::kE2m1HalfUnit;
      direct = direct && scales[i] != 0x7e;
    } else {
      scales[i] = core::e8m0_from_amax<core::E2M1>(amax, tensor.rule.scale_mode);
      factors[i] = core::e8m0_reciprocal(scales[i]) * core::kE2m1HalfUnit;
    }
    if (scales[i] == (kNvfp4 ? core::UE4M3::kNan : core::E8M0::kNan)) nan |= 0xfu << (4 * i);
  }
  if (direct) {
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) factors[i] *= to_units;
  }

  const PieceTarget target = target_of<PieceKind::kMxfp4>(tensor.view, group.column, group.column.element);
  std::uint8_t* const codes = target.codes_at(at);
  constexpr float kLimit = kNvfp4 ? 2688.0f : core::float_from_bits(core::kFloatInfBits);  // see encode_nvfp4_piece
  group.template each<kGroup>(whole, [&](int row, const float (&x)[8]) {
    float y[8];
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) {
      float t = x[i];
      if (!direct) {
        t = t * to_units;
        t = core::odd_bf16(t > kLimit ? kLimit : t < -kLimit ? -kLimit : t);
      }
      y[i] = nan != 0 && ((nan >> (4 * i)) & 1u) != 0 ? 0.0f : t * factors[i];
    }
    const std::uint32_t halves[4] = {pack_f16(y[0], y[4]), pack_f16(y[1], y[5]), pack_f16(y[2], y[6]), pack_f16(y[3], y[7])};
    *reinterpret_cast<std::uint32_t*>(codes + steps(static_cast<std::uint32_t>(row), target.token_stride)) =
        (core::e2m1_codes(halves) & ~nan) | (0x77777777u & nan);
  });
  std::uint8_t* const to = target.scales_at(at, tensor.view.scale_shift);
  if (args.words_of_scales != 0) {
    Words<8> words{};
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) words.w[i / 4] |= std::uint32_t{scales[i]} << (8 * (i % 4));
    *reinterpret_cast<Words<8>*>(to) = words;
  } else {
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = scales[i];
  }
}

template <DType kDType>
FP4PA_KERNEL(append_group_pieces, kPieceThreads, PieceArgs args) {
  const std::uint32_t thread = static_cast<std::uint32_t>(block_id()) * kPieceThreads + static_cast<std::uint32_t>(thread_id());
  if (thread >= args.threads[1]) return;
  const CacheTensor& tensor = args.tensors[1];
  const auto group_tokens = static_cast<std::uint32_t>(tensor.view.token_group());
  PieceColumn column = column_of(args, 1, thread, 8);
  column.token = column.token / kTokensOfThread * group_tokens;
  const PlainRows& rows = args.rows[1];
  GroupColumns<kDType> group{
      args,
      column,
      static_cast<const std::uint8_t*>(rows.element(0, static_cast<std::int32_t>(column.head), static_cast<int>(column.element))),
      rows.token_stride * size_of(kDType),
      0,
      0,
      0};
  FP4PA_NO_UNROLL
  for (std::uint32_t token = column.token, end = token + group_tokens; token < end; ++token) {
    const std::uint64_t slot = slot_of(args, token);
    const PageRow at = page_row(args, slot);
    if (!at.there || at.row % group_tokens != 0) continue;
    const std::uint32_t left = args.page_size.divisor - at.row;
    group.first_slot = slot;
    group.first_token = token;
    group.limit = static_cast<int>(left < group_tokens ? left : group_tokens);
    if (group_tokens == 16) {
      append_group_columns<kDType, 16>(group, at);
    } else {
      append_group_columns<kDType, 32>(group, at);
    }
  }
}

}  // namespace fp4pa::FP4PA_GPU
