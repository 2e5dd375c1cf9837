// The long way of a stream of keys, for any tile of any pages: every row is found by itself, see key_stream.hpp.
//
// Who looks a row up is not who copies from it: addresses pass through shared memory, 0 for a row that does not exist. Behind
// those of the rows are those of the rows of scales along tokens.
#pragma once

#include "core/simt/key_stream.hpp"

namespace fp4pa::core {

template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::look_up_rows(std::int32_t index, PerLane<Pages>& pages) {
  const KeyRange keys = walk_.tile(index);
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int i = 0; i < kOwned; ++i) {
      const std::int32_t key = keys.begin + i * kThreads + thread(lane);
      const auto page = static_cast<std::uint32_t>(key) / static_cast<std::uint32_t>(segment_.page_size);
      pages[lane].of_key[i] = key < keys.end ? segment_.table.page(item_.seq, static_cast<std::int32_t>(page)) : 0;
    }
  });
}

template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::stage_rows(std::int32_t index, int slot, KeyRange keys) {
  if constexpr (!kBlockTeam) exec_.warp_barrier();  // the addresses may lie in a scratch that somebody still reads
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int i = 0; i < kOwned; ++i) {
      const int row = i * kThreads + thread(lane);
      if (row < kTileKeys) locate(lane, keys, row, i);
    }
  });
  look_up_pages(index + step(), pages_);
  team_barrier();
  exec_.each_lane([&](Lane lane) {
    copy_codes(lane, slot_offset(slot), layout().k_chunks, code_bytes(k_kind(), head_dim()) / kChunkBytes, 0);
    copy_codes(lane, slot_offset(slot) + layout().v_codes, layout().v_chunks, code_bytes(v_kind(), head_dim()) / kChunkBytes, 8);
    if constexpr (kTokenWords > 0) load_token_scales(lane);
  });
  exec_.copy_commit();
}

/// Addresses and scales of row `row` of a tile, the i-th that this thread owns.
template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::locate(Lane lane, KeyRange keys, int row, int i) {
  const std::int32_t key = keys.begin + row;
  const bool exists = key < keys.end;
  const std::int64_t page = by_runs_ ? page_of_row(pages_[lane], row, i) : pages_[lane].of_key[i];
  const auto row_in_page = static_cast<std::uint32_t>(key) % static_cast<std::uint32_t>(segment_.page_size);
  const std::int32_t token = exists ? static_cast<std::int32_t>(row_in_page) : 0;
  const auto address = [&](const std::uint8_t* p) {
    return exists ? static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(p)) : 0;
  };
  const std::uint32_t entry = addresses_ + row * 16;
  exec_.template store_shared<std::uint64_t>(lane, entry, address(segment_.k.row(page, token, item_.kv_head)));
  exec_.template store_shared<std::uint64_t>(lane, entry + 8, address(segment_.v.row(page, token, item_.kv_head)));
  const auto scales = [&](const TensorView& t, [[maybe_unused]] KvKind kind) {
    if constexpr (requires { Shim::kLoadsArguments; }) {
      return t.scales + t.scale_group_offset(page, token >> scale_shift(kind), item_.kv_head);  // a constant spares a load
    } else {
      return t.scale_row(page, token, item_.kv_head);
    }
  };
  const int k_bytes = exists ? key_scale_bytes(k_kind(), head_dim()) : 0;
  const int v_bytes = exists ? key_scale_bytes(v_kind(), head_dim()) : 0;
  if constexpr (kKWords > 0) {
    load_scale_words(exec_, scales(segment_.k, k_kind()), k_bytes, k_words_, scales_[lane].k[i]);
  }
  if constexpr (kVWords > 0) {
    load_scale_words(exec_, scales(segment_.v, v_kind()), v_bytes, v_words_, scales_[lane].v[i]);
  }
  if constexpr (kTokenWords > 0) {
    if (along_tokens(v_kind()) && row % kScalePiece == 0) {
      exec_.template store_shared<std::uint64_t>(lane, addresses_ + kTileKeys * 16 + row / kScalePiece * 8,
                                                 address(scales(segment_.v, v_kind())));
    }
  }
}

/// Neighbouring lanes fill neighbouring chunks, as devices want it that copy a warp's chunks as one; which chunk of the row
/// that is, is the source's affair.
/// @param which  0 for K's addresses, 8 for V's
template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::copy_codes(Lane lane, std::uint32_t to, int pitch_chunks, int chunks, int which) {
  static_assert(kThreads % 32 == 0);  // the longest row has 32 chunks, all of them a power of two
  constexpr bool kKnown = kConfig.exact_head_dim;
  const int total = kTileKeys * pitch_chunks;
  const Lane own = lane_anew<E>(lane);  // else a dozen offsets are kept from tile to tile
  const int column = thread(own) % pitch_chunks;
  const std::uint32_t entry = addresses_ + thread(own) / pitch_chunks * 16 + which;
  const std::uint32_t target = to + (thread(own) - own.id) * kChunkBytes;  // the first lane's
  FP4PA_UNROLL
  for (int at = 0; at < total; at += kThreads) {
    const int row = thread(own) / pitch_chunks + at / pitch_chunks;
    const int chunk = Shim::swizzle(row, column, pitch_chunks);  // its own inverse
    if (!(kKnown && total % kThreads == 0) && at + thread(own) >= total) continue;
    if (chunk >= chunks) continue;
    const auto from = exec_.template load_shared<std::uint64_t>(own, entry + at / pitch_chunks * 16);
    const auto* const data = reinterpret_cast<const std::uint8_t*>(static_cast<std::uintptr_t>(from));
    if constexpr (requires { exec_.copy_lanes_16(own, target, data, true); }) {
      exec_.copy_lanes_16(own, target + at * kChunkBytes, data + chunk * kChunkBytes, from != 0);
    } else {
      exec_.copy_async_16(own, target + (at + own.id) * kChunkBytes, data + chunk * kChunkBytes, from != 0);
    }
  }
}

/// Asks for this thread's words of the scales along tokens.
template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::load_token_scales(Lane lane) {
  if (!along_tokens(v_kind())) return;
  const int row_words = head_dim() / 4;
  FP4PA_UNROLL
  for (int i = 0; i < kTokenWords; ++i) {
    const int word = i * kThreads + thread(lane);
    const int piece = word / row_words;
    std::uint32_t loaded[1] = {0};
    if (piece < kTileKeys / kScalePiece) {
      const auto from = exec_.template load_shared<std::uint64_t>(lane, addresses_ + kTileKeys * 16 + piece * 8);
      const auto* const row = reinterpret_cast<const std::uint8_t*>(static_cast<std::uintptr_t>(from));
      if (from != 0) load_scale_words(exec_, row + word % row_words * 4, 4, v_words_, loaded);
    }
    scales_[lane].tokens[i] = loaded[0];
  }
}

}  // namespace fp4pa::core
