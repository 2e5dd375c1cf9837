// The attention kernel: a block per worker, each walking its items of the schedule.
//
// A translation unit compiles one row of kInstances for every architecture. In the code object of one that the row is not for,
// the kernel ends at once; it is never selected there.
#pragma once

#include "hip/words.hpp"

#include "core/schedule/work.hpp"
#include "hip/instances.hpp"
#include "hip/kernels.hpp"
#if defined(__gfx950__)
#include "backends/gfx950/exec.hpp"
#include "backends/gfx950/shim.hpp"
#elif defined(__gfx942__)
#include "backends/gfx942/exec.hpp"
#include "backends/gfx942/shim.hpp"
#endif

namespace fp4pa::hip {

/// Waves of a SIMD, of which a compute unit has four, for which registers are allotted.
constexpr int waves_per_simd(const SimtConfig& c) { return (c.blocks * c.warps + 3) / 4; }

#if defined(__gfx950__)
constexpr bool has_kernel(const SimtConfig&) { return true; }
using WaveExec = gfx950::WaveExec;
template <int index>
using Shim = gfx950::Shim<kInstances[index], WaveExec>;
#elif defined(__gfx942__)
constexpr bool has_kernel(const SimtConfig& c) { return !needs_gfx950(c); }
using WaveExec = gfx942::WaveExec;
template <int index>
using Shim = gfx942::Shim<kInstances[index], WaveExec>;
#endif

/// The arguments, of which the compiler has read nothing before.
FP4PA_DEVICE inline const AttendArgs& read_anew(const AttendArgs& args) {
#if defined(__HIP_DEVICE_COMPILE__)
  using Argument = const __attribute__((address_space(4))) AttendArgs*;
  const auto at = std::bit_cast<std::uint64_t>((Argument)&args);
  const auto half = [&](int shift) {
    const std::uint32_t word = WaveExec::anew(static_cast<std::uint32_t>(at >> shift));
    return std::uint64_t{static_cast<std::uint32_t>(WaveExec::uniform(static_cast<int>(word)))} << shift;
  };
  return *(const AttendArgs*)std::bit_cast<Argument>(half(0) | half(32));
#else
  return args;
#endif
}

/// Inlined whatever its size: a call would put its registers on a stack in memory.
template <int index>
FP4PA_DEVICE __attribute__((always_inline)) inline void attend([[maybe_unused]] const AttendArgs& args) {
#if defined(__HIP_DEVICE_COMPILE__)
  if constexpr (has_kernel(kInstances[index])) {
    using B = core::SimtTileBackend<Shim<index>>;
    constexpr const SimtConfig& kShape = kInstances[index];
    // What shared_layout_of() assumes about the back end's sizes.
    static_assert(B::kQueries == kAtomQueries);
    if constexpr (is_native(kShape)) {
      constexpr QueryRoom kRoom = query_room(kShape, kShape.head_dim);
      static_assert(Shim<index>::kNativeQueryBytes <= kRoom.terms * kRoom.elements * 2 * kShape.row_tiles * kAtomQueries);
    }
    FP4PA_DYNAMIC_SHARED(std::uint8_t, shared);
    WaveExec exec(shared, static_cast<int>(args.warps.divisor));
    core::for_each_item(args.list, block_id(), args.list.partition.starts[block_id()], [&](const core::WorkItem& item) {
      // What an item needs is found for that item, and not kept in scalar registers from one to the next.
      exec.forget();
      const AttendArgs& own = read_anew(args);
      const core::RowMap rows(own.params, item);
      B backend(exec, own.params, rows, own.layout);
      core::attend(backend, own.params, item, rows);
    });
  }
#endif
}

/// A kernel's only argument where it lies in memory. As a parameter it would be loaded at the kernel's head and kept; read
/// from there it is loaded where it is needed.
FP4PA_DEVICE inline const AttendArgs& arguments([[maybe_unused]] const AttendArgs& parameter) {
#if defined(__HIP_DEVICE_COMPILE__)
  return *(const AttendArgs*)__builtin_amdgcn_kernarg_segment_ptr();
#else
  return parameter;
#endif
}

}  // namespace fp4pa::hip

/// Compiles row `index` of kInstances as the kernel fp4pa_attend_<index>; see attend_instance.hip.in.
#define FP4PA_INSTANTIATE_ATTEND(index)                                              \
  extern "C" __attribute__((                                                         \
      global, visibility("hidden"),                                                  \
      amdgpu_flat_work_group_size(64, 64 * fp4pa::hip::kInstances[index].warps),     \
      amdgpu_waves_per_eu(fp4pa::hip::waves_per_simd(fp4pa::hip::kInstances[index])))) void \
  fp4pa_attend_##index(const fp4pa::hip::AttendArgs args) {                          \
    fp4pa::hip::attend<index>(fp4pa::hip::arguments(args));                          \
  }                                                                                  \
  namespace fp4pa::hip {                                                             \
  template <>                                                                        \
  const void* attend_function<index>() noexcept {                                    \
    return reinterpret_cast<const void*>(&fp4pa_attend_##index);                     \
  }                                                                                  \
  }
