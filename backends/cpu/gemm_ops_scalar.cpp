// The same products without SIMD: the yardstick that the vector code is compared with.
#define HWY_COMPILE_ONLY_SCALAR

#include "backends/cpu/gemm_ops.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm_ops.inc"
#include "hwy/foreach_target.h"  // NOLINT: must precede highway.h
#include "hwy/highway.h"

#include "backends/cpu/gemm_ops.inc"

namespace fp4pa::cpu {

const GemmOps& scalar_gemm_ops() noexcept { return *HWY_STATIC_DISPATCH(GemmTable)(); }

}  // namespace fp4pa::cpu
