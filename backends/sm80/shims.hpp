// Which shim of sm_80 an instance is built on.
#pragma once

#include <type_traits>

#include "backends/sm80/prefill_shim.hpp"
#include "backends/sm80/rows_shim.hpp"
#include "backends/sm80/shim.hpp"

namespace fp4pa::sm80 {

template <core::SimtConfig kConfig, class Exec>
using ShimFor = std::conditional_t<kConfig.decode_tiles, PrefillShim<kConfig, Exec>,
                                   std::conditional_t<kConfig.query_is_a, RowsShim<kConfig, Exec>, Shim<kConfig, Exec>>>;

}  // namespace fp4pa::sm80
