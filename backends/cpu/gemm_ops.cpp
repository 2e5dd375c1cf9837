// The products for every instruction set this compiler can build, chosen at run time.
#include "backends/cpu/gemm_ops.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm_ops.inc"
#include "hwy/foreach_target.h"  // NOLINT: must precede highway.h
#include "hwy/highway.h"

#include "backends/cpu/gemm_ops.inc"
#include "backends/cpu/tile_ops.hpp"

namespace fp4pa::cpu {
HWY_EXPORT(GemmTable);

const GemmOps& gemm_ops() noexcept {
  static const GemmOps& ops = []() -> const GemmOps& {
    (void)tile_ops();  // applies FP4PA_CPU_TARGET
    return *HWY_DYNAMIC_DISPATCH(GemmTable)();
  }();
  return ops;
}

}  // namespace fp4pa::cpu
