// The dense calls' own steps on a GPU: the entries of api::DenseOps. As kernels/cache_ops.hpp, for each runtime.
#pragma once

#include "api/dense_ops.hpp"

namespace fp4pa::FP4PA_GPU {

extern const api::DenseOps kDenseOps;

}  // namespace fp4pa::FP4PA_GPU
