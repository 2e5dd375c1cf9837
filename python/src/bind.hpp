// What each file of this folder adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace fp4pa::python {

void bind_cache(nanobind::module_& m);
void bind_cache_operations(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_quantize(nanobind::module_& m);
void bind_gemm(nanobind::module_& m);
void bind_dense(nanobind::module_& m);

}  // namespace fp4pa::python
