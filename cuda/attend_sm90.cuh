// The kernels of sm_90a: rows of sm90::kInstances. Compiled for sm_90a alone.
#pragma once

#include "backends/sm90/exec.hpp"
#include "backends/sm90/prefill_shim.hpp"
#include "backends/sm90/producer.hpp"
#include "cuda/attend_items.cuh"
#include "cuda/variants.hpp"

namespace fp4pa::cuda {

template <int index>
using WgmmaShim = sm90::PrefillShim<sm90::kInstances[index], sm90::ConsumerExec>;

/// Registers of a thread, out of those with which all begin: what multiplying has more, decoding has less.
constexpr int consumer_registers(const core::SimtConfig& c) { return c.head_dim > 128 ? 208 : c.blocks == 1 ? 168 : 152; }
constexpr int producer_registers(const core::SimtConfig& c) {
  constexpr int kUnit = 8;
  const int warps = c.warps + c.producers;
  const int all = 65536 / 32 / (c.blocks * warps) / kUnit * kUnit;
  return (all * warps - consumer_registers(c) * c.warps) / c.producers;
}

/// The items of the block, for the warps that multiply.
template <class Shim>
__device__ __forceinline__ void attend_published(const AttendArgs& args, std::uint8_t* shared, const sm90::ItemRing& items) {
  typename Shim::Exec exec(shared);
  items.for_each(exec, [&](const sm90::PublishedItem& it, sm90::ItemPlace) __attribute__((always_inline)) {
    // In registers where these suffice: whoever asks which keys all rows see has just waited for products.
    constexpr bool kKeeps = Shim::kConfig.blocks > 1;
    const std::conditional_t<kKeeps, core::RowMap, const core::RowMap&> rows = it.rows;
    core::SimtTileBackend<Shim> backend(exec, args.params, rows, args.layout);
    core::attend(backend, args.params, it.item, rows);
  });
}

/// The same for the warps that decode keys (kSide 0) or values (1). The first warp of values, which are
/// needed later than keys, finds the items for all.
template <core::SimtConfig kConfig, int kSide, bool kPlain>
__device__ __forceinline__ void produce_published(const AttendArgs& args, std::uint8_t* shared, const sm90::Ring<kConfig>& ring,
                                                  const sm90::ItemRing& items) {
  constexpr int kWarps = sm90::producers_of_side(kConfig);
  sm90::ProducerExec<kConfig.warps + kSide * kWarps, kWarps> exec(shared);
  exec.place.steps = kSide;
  items.for_each(exec, [&](const sm90::PublishedItem& it, sm90::ItemPlace at) __attribute__((always_inline)) {
    if (kSide == 1) {
      constexpr int kThreads = 32 * kWarps;
      sm90::prefetch_queries<kConfig.k[0]>(exec, args.params, it.rows, static_cast<int>(threadIdx.x) % kThreads, kThreads);
    }
    sm90::produce<kConfig, kSide, kPlain>(exec, args.params, it, ring);
    if (kSide == 0 || exec.warp() != 0) return;
    if (threadIdx.x % 32 == 0) items.publish(exec, {at.steps + sm90::kItemsAhead}, args.list, args.params);
    exec.warp_barrier();
  });
}

/// With the loader that the call's places need: decided once, so that a kernel has two loops of which one runs.
template <core::SimtConfig kConfig, int kSide>
__device__ __forceinline__ void produce_side(const AttendArgs& args, std::uint8_t* shared, const sm90::Ring<kConfig>& ring,
                                             const sm90::ItemRing& items) {
  if (sm90::all_have_plain_places<kConfig, kSide>(args.params)) {
    produce_published<kConfig, kSide, true>(args, shared, ring, items);
  } else {
    produce_published<kConfig, kSide, false>(args, shared, ring, items);
  }
}

/// @tparam index  row of sm90::kInstances
template <int index>
__global__ void __launch_bounds__(sm90::threads_of(sm90::kInstances[index]), sm90::kInstances[index].blocks)
    attend_sm90(const __grid_constant__ AttendArgs args) {
  constexpr core::SimtConfig kConfig = sm90::kInstances[index];
  constexpr int kConsumers = kConfig.warps * 32;
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const sm90::Ring<kConfig> ring(args.layout.stages);
  const sm90::ItemRing items(shared, ring.items());
  const sm90::WarpExec block(shared);  // by whole warps: it speaks with its lanes
  wait_for_previous();
  allow_dependents();
  if (threadIdx.x == kConsumers) {
    ring.set_up(block);
    items.set_up(block, kConfig.warps + kConfig.producers);
    items.start(args.list, static_cast<std::int32_t>(blockIdx.x));
    for (sm90::ItemPlace at; at.steps < sm90::kItemsAhead; ++at.steps) items.publish(block, at, args.list, args.params);
  }
  __syncthreads();
  // By numbers of warps that the compiler knows to be the same in all lanes: else it thinks warps divided from here on.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
  if (warp < kConfig.warps) {
    sm90::take_registers<consumer_registers(kConfig)>();
    attend_published<WgmmaShim<index>>(args, shared, items);
  } else {
    sm90::give_registers<producer_registers(kConfig)>();
    if (warp < kConfig.warps + sm90::producers_of_side(kConfig)) {
      produce_side<kConfig, 0>(args, shared, ring, items);
    } else {
      produce_side<kConfig, 1>(args, shared, ring, items);
    }
  }
}

// Named by number, because nvcc 13.0 loses the shape of a shim that it meets in an assertion.
template <int index>
constexpr bool wgmma_sizes_agree() {
  return sizes_agree<WgmmaShim<index>>();
}

}  // namespace fp4pa::cuda

/// Compiles row `index` of sm90::kInstances; see attend_instances.cu.in.
#define FP4PA_INSTANTIATE_ATTEND_SM90(index)                                  \
  namespace fp4pa::cuda {                                                     \
  static_assert(wgmma_sizes_agree<index>());                                  \
  template <>                                                                 \
  const void* attend_function<kFirstSm90 + index>() noexcept {                \
    return reinterpret_cast<const void*>(&attend_sm90<index>);                \
  }                                                                           \
  }
