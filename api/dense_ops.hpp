// What a back end does for the dense calls around the attention itself; part of its table (api/backend.hpp).
#pragma once

#include <cstdint>

#include "core/dense/expand.hpp"
#include "core/dense/key_mean.hpp"
#include "core/dense/lengths.hpp"
#include "fp4pa/cache.hpp"
#include "fp4pa/status.hpp"

namespace fp4pa::api {

struct DenseOps {
  Status (*fill_tables)(const core::DenseLengths&, const core::DenseTables&, const ExecDesc&) noexcept;
  /// @param out  [tokens, heads, head_dim] bf16, dense
  Status (*expand)(const core::Mxfp8Rows&, std::int64_t tokens, std::int32_t heads, std::int32_t head_dim,
                   std::uint16_t* out, const ExecDesc&) noexcept;
  /// Means of the keys, and the keys less them.
  Status (*centre_keys)(const core::KeyMean&, const ExecDesc&) noexcept;
  Status (*restore_lse)(const core::KeyMean&, const core::HeadTensor& q, std::int32_t num_q_heads, float sm_scale,
                        float* lse, const ExecDesc&) noexcept;
};

}  // namespace fp4pa::api
