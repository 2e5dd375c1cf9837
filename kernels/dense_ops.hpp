// The dense calls' own steps on a GPU: the entries of api::DenseOps. As kernels/cache_ops.hpp, for each runtime.
#pragma once

#include "api/dense_ops.hpp"

namespace fp4pa::FP4PA_GPU {

[[nodiscard]] Status fill_dense_tables(const core::DenseLengths& lengths, const core::DenseTables& tables,
                                       const ExecDesc& exec) noexcept;
[[nodiscard]] Status expand_mxfp8(const core::Mxfp8Rows& rows, std::int64_t tokens, std::int32_t heads,
                                  std::int32_t head_dim, std::uint16_t* out, const ExecDesc& exec) noexcept;
[[nodiscard]] Status centre_keys(const core::KeyMean& mean, const ExecDesc& exec) noexcept;
[[nodiscard]] Status restore_lse(const core::KeyMean& mean, const core::HeadTensor& q, std::int32_t num_q_heads,
                                 float sm_scale, float* lse, const ExecDesc& exec) noexcept;

}  // namespace fp4pa::FP4PA_GPU
