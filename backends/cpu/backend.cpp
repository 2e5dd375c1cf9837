// The CPU in the library's table of back ends, twice: with the best instruction set, and without SIMD.
#include "api/backend.hpp"

#include "backends/cpu/attention.hpp"
#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/dense.hpp"
#include "backends/cpu/gemm.hpp"
#include "backends/cpu/merge.hpp"
#include "backends/cpu/quantize.hpp"
#include "backends/cpu/tile_ops.hpp"

namespace fp4pa {
namespace {

bool available(const char** detail) noexcept {
  *detail = cpu::tile_ops().name;
  return true;
}
bool scalar_available(const char** detail) noexcept {
  *detail = cpu::scalar_tile_ops().name;
  return true;
}
Status run(const api::RunRequest& request) noexcept { return cpu::run(cpu::tile_ops(), request); }
Status scalar_run(const api::RunRequest& request) noexcept { return cpu::run(cpu::scalar_tile_ops(), request); }

}  // namespace

namespace api {

const Backend kCpuBackend{
    .name = "cpu",
    .available = available,
    .plan = cpu::plan,
    .run = run,
    .append = cpu::append,
    .append_two_tier = cpu::append_two_tier,
    .gather = cpu::gather,
    .copy_pages = cpu::copy_pages,
    .quantize = cpu::quantize,
    .dequantize = cpu::dequantize,
    .merge_states = cpu::merge_states,
    .dense = &cpu::kDenseOps,
    .quantize_weight = cpu::quantize_weight,
    .linear_workspace = cpu::linear_workspace,
    .linear = cpu::linear,
};

const Backend kCpuScalarBackend{
    .name = "cpu-scalar",
    .available = scalar_available,
    .plan = cpu::plan,
    .run = scalar_run,
    .append = cpu::scalar::append,
    .append_two_tier = cpu::scalar::append_two_tier,
    .gather = cpu::scalar::gather,
    .copy_pages = cpu::copy_pages,
    .quantize = cpu::scalar::quantize,
    .dequantize = cpu::scalar::dequantize,
    .merge_states = cpu::merge_states,
    .dense = &cpu::kScalarDenseOps,
    .quantize_weight = cpu::scalar::quantize_weight,
    .linear_workspace = cpu::linear_workspace,
    .linear = cpu::scalar::linear,
};

}  // namespace api
}  // namespace fp4pa
