// The same tile operations without SIMD: the yardstick that the vector code is compared with.
#define HWY_COMPILE_ONLY_SCALAR

#include "backends/cpu/tile_ops.hpp"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/tile_ops.inc"
#include "hwy/foreach_target.h"  // NOLINT: must precede highway.h
#include "hwy/highway.h"

#include "backends/cpu/tile_ops.inc"

namespace fp4pa::cpu {

const TileOps& scalar_tile_ops() noexcept { return *HWY_STATIC_DISPATCH(Table)(); }

}  // namespace fp4pa::cpu
