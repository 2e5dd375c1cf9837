// append by pieces, V scaled along tokens.
#pragma once

#include "kernels/column_scales.hpp"
#include "kernels/piece_columns.hpp"

namespace fp4pa::FP4PA_GPU {

/// Of groups in place of tokens.
constexpr PieceShape kGroupShape{8, 1, 1};
constexpr std::uint32_t kTokensOfLane = 8;
constexpr int kAppendGroupThreads = 128;  // of a block

/// The usual case, of bfloat16 on devices that have pairs of it: a window of kGroup of the input's tokens is a group, one slot after
/// another, and finite. kLanesOfGroup neighbouring threads have eight of its tokens each, of eight columns, in registers: every
/// kLanesOfGroup-th token, so that what they store together are neighbouring rows.
template <int kGroup>
struct WholeGroup {
  static constexpr std::uint32_t kRows = kTokensOfLane;
  static constexpr std::uint32_t kLanesOfGroup = kGroup / kRows;
  static constexpr bool kNvfp4 = kGroup == 16;
  using Raw = RawPiece<DType::kBF16, 8>;
  static constexpr std::uint32_t kSharers = 4;  // chunks of 32 columns, of which a head has a whole number
  const PieceArgs& args;
  PieceColumn column;   // token: the first of the group
  std::uint32_t lane;   // of the group's threads
  std::uint32_t chunk;  // number of the eight columns; kSharers of them look at a lane's slots together

  /// Where the group lies, if the window is one. Every thread of the warp calls this.
  [[nodiscard]] FP4PA_DEVICE PageRow place(bool in_input) const {
    std::uint32_t first[1];
    constexpr std::uint32_t kOwn = kRows / kSharers;
    std::uint32_t slots[kOwn];
    const std::uint32_t own = lane + chunk % kSharers * kOwn * kLanesOfGroup;  // row of the group
    slots_of<PieceShape{8, 1, 1}>(args, column.token, first);
    slots_of<PieceShape{8, kLanesOfGroup, kOwn}>(args, column.token + own, slots);
    PageRow at = page_row(args, first[0]);
    const bool begins = at.there && at.row % kGroup == 0 && at.row + kGroup <= args.page_size.divisor;
    std::uint32_t others = 0;
    FP4PA_UNROLL
    for (std::uint32_t i = 0; i < kOwn; ++i) others |= slots[i] ^ (first[0] + own + i * kLanesOfGroup);
    std::uint32_t all = in_input && begins && others == 0 ? 1u : 0u;
    FP4PA_UNROLL
    for (std::uint32_t bit = 1; bit < kLanesOfGroup * kSharers; bit *= 2) all &= shuffle_xor(all, static_cast<int>(bit));
    at.there = all != 0;
    return at;
  }
  /// Of eight columns, two a word, with a sign.
  FP4PA_DEVICE void amax_of(const Raw (&raw)[kRows], std::uint32_t (&most)[4]) const {
    FP4PA_UNROLL
    for (int p = 0; p < 4; ++p) {
      most[p] = raw[0].words[0].w[p];
      FP4PA_UNROLL
      for (std::uint32_t t = 1; t < kRows; ++t) most[p] = Bf16Pairs::max_magnitude(most[p], raw[t].words[0].w[p]);
      FP4PA_UNROLL
      for (std::uint32_t bit = 1; bit < kLanesOfGroup; bit *= 2) {
        most[p] = Bf16Pairs::max_magnitude(most[p], shuffle_xor(most[p], static_cast<int>(bit)));
      }
    }
  }
  /// Every thread of the warp calls this.
  /// @return  whether it was such a window and is done, which all lanes of a group agree on
  [[nodiscard]] FP4PA_DEVICE bool append(bool thread_is_there) const {
    const PlainRows& rows = args.rows[1];
    const auto* const from = static_cast<const std::uint8_t*>(
        rows.element(column.token + lane, static_cast<std::int32_t>(column.head), static_cast<int>(column.element)));
    const std::int64_t step = rows.token_stride * size_of(DType::kBF16) * kLanesOfGroup;
    const bool in_input = thread_is_there && column.token + kGroup <= args.tokens;
    Raw raw[kRows] = {};
    if (in_input) {
      FP4PA_UNROLL
      for (std::uint32_t t = 0; t < kRows; ++t) raw[t].load(from + t * step);
    }
    const PageRow at = place(in_input);  // while values are on their way
    std::uint32_t most[4];
    amax_of(raw, most);
    if constexpr (kNvfp4) {
      return append_nvfp4(raw, most, at);
    } else {
      return append_mxfp4(raw, most, at);
    }
  }

 private:
  [[nodiscard]] FP4PA_DEVICE bool append_mxfp4(const Raw (&raw)[kRows], const std::uint32_t (&most)[4], const PageRow& at) const {
    constexpr std::uint32_t kFinite = core::bf16_pair(0x7f7f);
    const std::uint32_t carry = core::e8m0_carry<core::E2M1>(args.tensors[1].rule.scale_mode);
    std::uint32_t scales[4];
    std::uint32_t largest = 0;
    std::uint32_t largest_scale = 0;
    FP4PA_UNROLL
    for (int p = 0; p < 4; ++p) {
      scales[p] = core::e8m0_of_bf16_amax<Bf16Pairs>(most[p], core::bf16_pair(carry >> 16));
      largest = Bf16Pairs::max_halves(largest, most[p] & 0x7fff7fffu);
      largest_scale = Bf16Pairs::max_halves(largest_scale, scales[p]);
    }
    constexpr std::uint32_t kMost = core::bf16_pair(core::Bf16ToUnits::kMostOnce);
    if (!at.there || Bf16Pairs::max_halves(largest, kFinite) != kFinite ||
        Bf16Pairs::max_halves(largest_scale, kMost) != kMost) {
      return false;
    }
    std::uint32_t factors[4];  // of columns i and i + 4
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t two = Bf16Pairs::bytes(scales[i / 2], scales[i / 2 + 2], i % 2 == 0 ? 0x5410u : 0x7632u);
      factors[i] = core::Bf16ToUnits::factors_of(two);
    }
    const Words<8> bytes = {{Bf16Pairs::bytes(scales[0], scales[1], 0x6420u), Bf16Pairs::bytes(scales[2], scales[3], 0x6420u)}};
    store(at, raw, bytes, [&](const Raw& x) { return core::e2m1_codes_of_bf16<Bf16Pairs>(x.words[0].w, factors); });
    return true;
  }
  [[nodiscard]] FP4PA_DEVICE bool append_nvfp4(const Raw (&raw)[kRows], const std::uint32_t (&most)[4], const PageRow& at) const {
    static_assert(!kNvfp4 || kLanesOfGroup == 2);
    const ColumnScales<DType::kBF16, true> scales(args.tensors[1], column.head, most, lane != 0);
    if (!at.there || scales.nan != 0) return false;
    if (scales.direct) {
      store(at, raw, scales.scales, [&](const Raw& x) { return scales.template codes<false, true>(x); });
    } else {
      store(at, raw, scales.scales, [&](const Raw& x) { return scales.template codes<false, false>(x); });
    }
    return true;
  }
  template <class Encode>
  FP4PA_DEVICE void store(const PageRow& at, const Raw (&raw)[kRows], const Words<8>& scales, const Encode& encode) const {
    const core::TensorView& view = args.tensors[1].view;
    const PieceTarget target = target_of<PieceKind::kMxfp4>(view, column, column.element);
    std::uint8_t* const codes = target.codes_at({at.page, at.row + lane, true});
    FP4PA_UNROLL
    for (std::uint32_t t = 0; t < kRows; ++t) {
      *reinterpret_cast<std::uint32_t*>(codes + steps(t * kLanesOfGroup, target.token_stride)) = encode(raw[t]);
    }
    if (lane == 0) store_scales(target.scales_at(at, view.scale_shift), scales, args.words_of_scales);
  }
};

/// Groups that begin anywhere in kGroup of the input's tokens, with padding between them, or cut short by the end of a page: a thread has
/// eight columns, and reads a group twice, for its scales and for its codes.
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
      constexpr int kAhead = kDType == DType::kF32 ? 2 : kDType == DType::kF16 ? 8 : 4;  // as registers allow
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
  const bool whole = group.template whole<kGroup>();
  float amax[8] = {};
  group.template each<kGroup>(whole, [&](int, const float (&x)[8]) {
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) amax[i] = larger_magnitude(amax[i], x[i]);
  });
  const ColumnScales<kDType, kGroup == 16> scales(tensor, group.column.head, amax);
  const PieceTarget target = target_of<PieceKind::kMxfp4>(tensor.view, group.column, group.column.element);
  std::uint8_t* const codes = target.codes_at(at);
  group.template each<kGroup>(whole, [&](int row, const float (&x)[8]) {
    *reinterpret_cast<std::uint32_t*>(codes + steps(static_cast<std::uint32_t>(row), target.token_stride)) =
        scales.template codes<true, false>(x);
  });
  store_scales(target.scales_at(at, tensor.view.scale_shift), scales.scales, args.words_of_scales);
}

/// kLanesOfGroup threads, or one where that is not done, have eight columns of a head and the groups that begin in kGroup of the
/// input's tokens.
template <DType kDType, int kGroup>
FP4PA_DEVICE inline void append_groups_of_thread(const PieceArgs& args) {
  using Whole = WholeGroup<kGroup>;
  constexpr bool kWhole = kDType == DType::kBF16 && Bf16Pairs::kThere;
  const std::uint32_t index = static_cast<std::uint32_t>(block_id()) * kAppendGroupThreads + static_cast<std::uint32_t>(thread_id());
  const bool there = index < (kWhole ? args.threads[1] : args.threads[1] / Whole::kLanesOfGroup);
  PieceColumn column = column_of<kGroupShape>(args, 1, !there ? 0 : kWhole ? index / Whole::kLanesOfGroup : index);
  column.token *= kGroup;
  if constexpr (kWhole) {
    const std::uint32_t lane = index % Whole::kLanesOfGroup;
    const Whole group{args, column, lane, index / Whole::kLanesOfGroup};
    if (group.append(there)) return;
    if (!there || lane != 0) return;
  } else if (!there) {
    return;
  }
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
  for (std::uint32_t token = column.token, end = token + kGroup; token < end; ++token) {
    const std::uint64_t slot = slot_of(args, token);
    const PageRow at = page_row(args, narrow_slot_of(args, token));
    if (!at.there || at.row % kGroup != 0) continue;
    const std::uint32_t left = args.page_size.divisor - at.row;
    group.first_slot = slot;
    group.first_token = token;
    group.limit = static_cast<int>(left < kGroup ? left : kGroup);
    append_group_columns<kDType, kGroup>(group, at);
  }
}
template <DType kDType, int kGroup>
FP4PA_KERNEL(append_group_pieces, kAppendGroupThreads, PieceArgs args) {
  append_groups_of_thread<kDType, kGroup>(args);
  wait_for_previous();
}

template <int kGroup>
[[nodiscard]] inline PieceKernel append_groups_of(DType dtype) {
  return {dtype == DType::kF32   ? append_group_pieces<DType::kF32, kGroup>
          : dtype == DType::kF16 ? append_group_pieces<DType::kF16, kGroup>
                                 : append_group_pieces<DType::kBF16, kGroup>,
          kAppendGroupThreads};
}
/// V alone, beside K's kernel; @param a  of append
[[nodiscard]] inline Status launch_group_pieces(const AppendArgs& a, DType dtype, const ExecDesc& exec) noexcept {
  PieceArgs args = piece_args(a, kGroupShape, kGroupShape);
  const auto group = static_cast<std::uint32_t>(a.tensors[1].view.token_group());
  args.threads[1] = (args.tokens + group - 1) / group * args.per_tokens[1].divisor * (group / kTokensOfLane);
  return launch_beside((group == 16 ? append_groups_of<16>(dtype) : append_groups_of<32>(dtype)).run,
                       grid((args.threads[1] + kAppendGroupThreads - 1) / kAppendGroupThreads), kAppendGroupThreads, exec.stream,
                       args, "launching append of groups");
}

}  // namespace fp4pa::FP4PA_GPU
