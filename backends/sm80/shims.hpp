// Which shim of sm_80 an instance is built on.
#pragma once

#include <type_traits>

#include "backends/sm80/prefill_shim.hpp"
#include "backends/sm80/shim.hpp"

namespace fp4pa::sm80 {

namespace internal {
template <core::SimtConfig kConfig, class Exec, bool kDecodeTiles>
struct ShimOf {
  using Type = Shim<kConfig, Exec>;
};
template <core::SimtConfig kConfig, class Exec>
struct ShimOf<kConfig, Exec, true> {
  using Type = PrefillShim<kConfig, Exec>;
};
}  // namespace internal

template <core::SimtConfig kConfig, class Exec>
using ShimFor = typename internal::ShimOf<kConfig, Exec, kConfig.decode_tiles>::Type;

}  // namespace fp4pa::sm80
