// The dense calls' own steps on the CPU: entries of api::DenseOps.
#pragma once

#include "api/dense_ops.hpp"

namespace fp4pa::cpu {

extern const api::DenseOps kDenseOps;
extern const api::DenseOps kScalarDenseOps;

}  // namespace fp4pa::cpu
