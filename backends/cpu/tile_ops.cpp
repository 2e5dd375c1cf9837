// The CPU's tile operations for every instruction set this compiler can build, chosen at run time.
//
// FP4PA_CPU_TARGET=NAME (a Highway target: SSE4, AVX2, AVX3, AVX3_DL, NEON, ...) keeps to that set or a lesser one, so that
// one machine can test them all. Another name is reported on stderr, and changes nothing.
#include "backends/cpu/tile_ops.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "api/log.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/tile_ops.inc"
#define HWY_WANT_AVX3_DL 1
#include "hwy/foreach_target.h"  // NOLINT: must precede highway.h
#include "hwy/highway.h"

#include "backends/cpu/tile_ops.inc"

namespace fp4pa::cpu {
HWY_EXPORT(Table);

namespace {

/// Lower target values are better instruction sets; disable everything better than the one asked for.
void apply_target_limit() {
  const char* limit = std::getenv("FP4PA_CPU_TARGET");
  if (limit == nullptr || *limit == '\0') return;
  char allowed[256] = "";
  int used = 0;
  for (std::int64_t bit = std::int64_t{1} << 62; bit != 0; bit >>= 1) {
    const char* const name = hwy::TargetName(bit);
    if (std::strcmp(name, "Unknown") == 0) continue;  // none of this architecture's
    if (std::strcmp(name, limit) == 0) {
      hwy::DisableTargets(bit - 1);
      return;
    }
    const int left = static_cast<int>(sizeof allowed) - used;
    const int wrote = std::snprintf(allowed + used, static_cast<std::size_t>(left), "%s%s", used == 0 ? "" : ", ", name);
    if (wrote > 0 && wrote < left) used += wrote;
  }
  api::report_variable("FP4PA_CPU_TARGET", limit, allowed, "the best of this CPU");
}

}  // namespace

const TileOps& tile_ops() noexcept {
  static const TileOps& ops = [&]() -> const TileOps& {
    apply_target_limit();
    return *HWY_DYNAMIC_DISPATCH(Table)();
  }();
  return ops;
}

}  // namespace fp4pa::cpu
