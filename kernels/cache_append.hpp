// append and gather: rows of new tokens into their slots, and rows at slots back into plain tensors.
#pragma once

#include "kernels/append_groups.hpp"
#include "kernels/append_pieces.hpp"
#include "kernels/gather_pieces.hpp"

namespace fp4pa::FP4PA_GPU {

/// A warp per (token, head); block_id_y() is the tensor.
FP4PA_KERNEL(append_rows, kThreads, AppendArgs args) {
  FP4PA_SHARED float rows[kWarps][kMaxRow];
  const CacheTensor& tensor = args.tensors[block_id_y()];
  if (tensor.view.scale_along_tokens()) return;
  const std::int64_t items = args.slots.size * args.heads;
  const std::int64_t step = std::int64_t{args.blocks} * kWarps;
  for (std::int64_t i = std::int64_t{block_id()} * kWarps + warp_id(); i < items; i += step) {
    const std::int64_t token = i / args.heads;
    const auto head = static_cast<std::int32_t>(i % args.heads);
    if (!args.slots.has(token)) continue;
    const core::SlotPlace place = core::place_of(args.slots.view[token], args.slots.page_size);
    float* const x = rows[warp_id()];
    load_input(tensor, args.inputs[block_id_y()], token, head, x);
    write_row(tensor, place.page, place.row, head, x);
  }
}

/// V scaled along tokens: a block per (token, head), and work only for tokens that begin a group.
FP4PA_KERNEL(append_groups, kThreads, AppendArgs args) {
  FP4PA_DYNAMIC_SHARED(float, group);  // [tokens, head_dim]
  const CacheTensor& tensor = args.tensors[1];
  const Slots& slots = args.slots;
  const std::int64_t items = slots.size * args.heads;
  for (std::int64_t i = block_id(); i < items; i += args.blocks) {
    std::int64_t token = i / args.heads;
    const auto head = static_cast<std::int32_t>(i % args.heads);
    if (!slots.has(token)) continue;
    const core::SlotPlace place = core::place_of(slots.view[token], slots.page_size);
    if (place.row % tensor.view.token_group() != 0) continue;
    const int left = slots.page_size - place.row;
    const int limit = tensor.view.token_group() < left ? tensor.view.token_group() : left;
    const std::int64_t first_slot = slots.view[token];
    sync_block();
    int tokens = 0;
    for (; tokens < limit; ++tokens) {
      if (token == slots.size || slots.view[token] != first_slot + tokens) break;
      if (tokens % kWarps == warp_id()) {
        load_input(tensor, args.inputs[1], token, head, group + tokens * tensor.head_dim);
      }
      do {
        ++token;
      } while (token < slots.size && slots.view[token] < 0);
    }
    sync_block();
    write_group(tensor, place.page, place.row, head, group, tokens);
  }
}

FP4PA_KERNEL(gather_rows, kThreads, AppendArgs args) {
  FP4PA_SHARED float rows[kWarps][kMaxRow];
  const CacheTensor& tensor = args.tensors[block_id_y()];
  const PlainRows& out = args.inputs[block_id_y()];
  if (out.data == nullptr) return;
  const std::int64_t items = args.slots.size * args.heads;
  const std::int64_t step = std::int64_t{args.blocks} * kWarps;
  for (std::int64_t i = std::int64_t{block_id()} * kWarps + warp_id(); i < items; i += step) {
    const std::int64_t token = i / args.heads;
    const auto head = static_cast<std::int32_t>(i % args.heads);
    if (!args.slots.has(token)) continue;
    const core::SlotPlace place = core::place_of(args.slots.view[token], args.slots.page_size);
    float* const x = rows[warp_id()];
    read_row(tensor, place.page, place.row, head, x);
    for (int d = lane_id(); d < tensor.head_dim; d += kLanes) {
      core::store_plain_row(x + d, 1, out.dtype, out.element(token, head, d));
    }
  }
}

[[nodiscard]] inline std::int32_t blocks_for(std::int64_t items) {
  constexpr std::int64_t kMost = 1 << 16;
  return static_cast<std::int32_t>(items < 1 ? 1 : items < kMost ? items : kMost);
}

Status append(const KvCacheDesc& cache, const KvInput& k, const KvInput& v, const api::SlotList& slots,
              const ExecDesc& exec) noexcept {
  const std::int64_t items = slots.size * cache.num_kv_heads;
  AppendArgs args{{k_of(cache), v_of(cache)}, {rows_of(k), rows_of(v)}, slots_of(cache, slots), cache.num_kv_heads,
                  blocks_for((items + kWarps - 1) / kWarps)};
  const bool groups = args.tensors[1].view.scale_along_tokens();
  const auto fits = [&](int i) {
    return aligned(args.inputs[i]) && narrow(args.tensors[i].view) && in_lanes(args.tensors[i]);
  };
  Status s;
  if (few(args) && fits(0) && (groups || fits(1))) {
    const bool rotation = args.tensors[0].rotation != 0;
    PieceShape shape = append_shape(kind_of(args.tensors[0]), k.dtype, rotation);
    if (append_in_turn(shape, rotation)) {
      DeviceProperties device{};
      if (s = current_device(&device); s != Status::kOk) return s;
      shape = filling(shape, args, device.multiprocessors);
    }
    PieceArgs pieces = piece_args(args, shape, append_shape(kind_of(args.tensors[1]), v.dtype, false));
    if (groups) pieces.threads[1] = 0;
    s = launch_pieces(append_of(args.tensors[0], k.dtype, rotation), append_of(args.tensors[1], v.dtype, rotation), pieces, exec,
                      "launching append");
  } else {
    s = launch(append_rows, grid(args.blocks, 2), kThreads, 0, exec.stream, args, "launching append");
  }
  if (s != Status::kOk || !groups) return s;
  if (few(args) && fits(1) && (args.tensors[1].view.format == KvFormat::kMxfp4 || cache.nvfp4_scale == Nvfp4Scale::kAmaxOver6)) {
    return launch_group_pieces(args, v.dtype, exec);
  }
  args.blocks = blocks_for(items);
  const std::size_t shared = sizeof(float) * static_cast<std::size_t>(kMaxGroup * cache.head_dim);
  return launch(append_groups, grid(args.blocks), kThreads, shared, exec.stream, args, "launching append of groups");
}

Status gather(const KvCacheDesc& cache, const api::SlotList& slots, const KvOutput& k, const KvOutput& v,
              const ExecDesc& exec) noexcept {
  const std::int64_t items = slots.size * cache.num_kv_heads;
  const AppendArgs args{{k_of(cache), v_of(cache)}, {rows_of(k), rows_of(v)}, slots_of(cache, slots), cache.num_kv_heads,
                        blocks_for((items + kWarps - 1) / kWarps)};
  const auto fits = [&](int i) {
    const PlainRows& r = args.inputs[i];
    return r.data == nullptr || (aligned(r) && narrow(args.tensors[i].view));
  };
  if (few(args) && fits(0) && fits(1)) {
    PieceArgs pieces = piece_args(args, gather_shape(kind_of(args.tensors[0]), k.dtype),
                                  gather_shape(kind_of(args.tensors[1]), v.dtype));
    for (int i = 0; i < 2; ++i) {
      if (args.inputs[i].data == nullptr) pieces.threads[i] = 0;
    }
    return launch_pieces(gather_of(kind_of(args.tensors[0]), k.dtype), gather_of(kind_of(args.tensors[1]), v.dtype), pieces, exec,
                         "launching gather");
  }
  return launch(gather_rows, grid(args.blocks, 2), kThreads, 0, exec.stream, args, "launching gather");
}

}  // namespace fp4pa::FP4PA_GPU
