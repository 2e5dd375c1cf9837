// Both ways of running an instance, compiled by one compiler with one mathematics.
#include "tests/gpu/sm120/portable_math.hpp"

#include "tests/gpu/sm120/kernels.hpp"

#include <array>
#include <utility>

#include "backends/emulator/sm120_exec.hpp"
#include "cuda/attend_native.cuh"
#include "cuda/variants.hpp"
#include "tests/gpu/mirror.hpp"
#include "tests/gpu/sm120/software_exec.hpp"

namespace fp4pa::gpu_test {
namespace {

/// The shim as it is but for exp2, which has an instruction of its own on a device.
template <int index, class Exec>
struct PortableShim : sm120::ShimFor<sm120::kInstances[index], Exec> {
  FP4PA_FN static float exp2(float x) { return portable::exp2f(x); }
};

/// A worker's items on the host.
template <int index, class Exec>
void attend_all(Exec& exec, const core::AttentionParams& params, const core::WorkList& list,
                         const core::SharedLayout& layout, int worker) {
  core::for_each_item(list, worker, [&](const core::WorkItem& item) {
    const core::RowMap rows(params, item);
    core::SimtTileBackend<PortableShim<index, Exec>> backend(exec, params, rows, layout);
    core::attend(backend, params, item);
  });
}

/// The kernel of cuda/attend_native.cuh, with the instructions in software.
template <int index>
__global__ void __launch_bounds__(sm120::kInstances[index].warps * 32)
    attend_in_software(const __grid_constant__ cuda::AttendArgs args) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  cuda::attend_native_items<index, PortableShim<index, SoftwareExec>>(args, shared);
}

template <int index>
void emulate_block_of(const core::AttentionParams& params, const core::WorkList& list, const core::SharedLayout& layout,
                      int worker, const emulator::Watch& watch) {
  emulator::run_block<emulator::Sm120Exec>(
      watch, worker, sm120::kInstances[index].warps, static_cast<std::size_t>(layout.bytes),
      [&](emulator::Sm120Exec& exec) { attend_all<index>(exec, params, list, layout, worker); });
}

template <int index>
void launch_of(const core::AttentionParams& params, const core::WorkList& list, const core::SharedLayout& layout) {
  must(cudaFuncSetAttribute(attend_in_software<index>, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.bytes),
       "raising the kernel's shared memory");
  const int warps = sm120::kInstances[index].warps;
  attend_in_software<index><<<list.partition.num_workers, warps * 32, static_cast<std::size_t>(layout.bytes)>>>(
      cuda::AttendArgs{params, list, layout, core::Divisor::of(warps)});
  must(cudaGetLastError(), "launching the kernel");
  must(cudaDeviceSynchronize(), "running the kernel");
}

/// f(integral_constant<int, index>) for a number that is known at run time.
template <class F>
void with_index(int index, F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    ((index == i ? f(std::integral_constant<int, i>()) : void()), ...);
  }(std::make_integer_sequence<int, sm120::kNumInstances>());
}

}  // namespace

void emulate_block(int index, const core::AttentionParams& params, const core::WorkList& list, const core::SharedLayout& layout,
                   int worker, const emulator::Watch& watch) {
  with_index(index, [&](auto i) { emulate_block_of<i.value>(params, list, layout, worker, watch); });
}

void launch(int index, const core::AttentionParams& params, const core::WorkList& list, const core::SharedLayout& layout) {
  with_index(index, [&](auto i) { launch_of<i.value>(params, list, layout); });
}

}  // namespace fp4pa::gpu_test
