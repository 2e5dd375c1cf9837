// The prefill kernels of sm_90a: rows of sm90::kInstances. Compiled for sm_90a alone.
#pragma once

#include "backends/sm90/exec.hpp"
#include "backends/sm90/prefill_shim.hpp"
#include "backends/sm90/producer.hpp"
#include "cuda/attend_items.cuh"
#include "cuda/variants.hpp"

namespace fp4pa::cuda {

template <int index>
using WgmmaShim = sm90::PrefillShim<sm90::kInstances[index], sm90::ConsumerExec>;

/// Registers of a thread, of 168 with which all begin: 2 x 208 + 88 for each three.
inline constexpr int kConsumerRegisters = 208;
inline constexpr int kProducerRegisters = 88;

/// @tparam index  row of sm90::kInstances
template <int index>
__global__ void __launch_bounds__(sm90::threads_of(sm90::kInstances[index]), 1)
    attend_sm90(const __grid_constant__ AttendArgs args) {
  constexpr core::SimtConfig kConfig = sm90::kInstances[index];
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const sm90::WarpExec block(shared);  // by whole warps: it speaks with its lanes
  if (threadIdx.x == 0) sm90::Ring<kConfig>(args.layout.stages).set_up(block);
  __syncthreads();
  if (threadIdx.x < kConfig.warps * 32) {
    sm90::take_registers<kConsumerRegisters>();
    attend_items<WgmmaShim<index>>(args, shared);
  } else {
    sm90::give_registers<kProducerRegisters>();
    sm90::ProducerExec<kConfig.warps, kConfig.producers> exec(shared);
    wait_for_previous();
    allow_dependents();
    core::for_each_item(args.list, static_cast<std::int32_t>(blockIdx.x), [&](const core::WorkItem& item) {
      sm90::produce<kConfig>(exec, args.params, item, args.layout);
    });
  }
}

// Named by number, because nvcc 13.0 loses the shape of a shim that it meets in an assertion.
template <int index>
constexpr bool wgmma_sizes_agree() {
  return sizes_agree<WgmmaShim<index>>();
}

}  // namespace fp4pa::cuda

/// Compiles row `index` of sm90::kInstances; see attend_sm90_instance.cu.in.
#define FP4PA_INSTANTIATE_ATTEND_SM90(index)                                  \
  namespace fp4pa::cuda {                                                     \
  static_assert(wgmma_sizes_agree<index>());                                  \
  template <>                                                                 \
  const void* attend_function<kFirstSm90 + index>() noexcept {                \
    return reinterpret_cast<const void*>(&attend_sm90<index>);                \
  }                                                                           \
  }
