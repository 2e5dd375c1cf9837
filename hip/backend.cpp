// HIP in the library's table of back ends.
#include "api/backend.hpp"

#include "core/simt/describe.hpp"
#include "hip/attention.hpp"
#include "hip/device.hpp"
#include "hip/gemm.hpp"
#include "hip/instances.hpp"
#include "kernels/cache_ops.hpp"
#include "kernels/dense_ops.hpp"

namespace fp4pa::api {
namespace {

constexpr DenseOps kDenseOps{hip::fill_dense_tables, hip::expand_mxfp8, hip::centre_keys, hip::restore_lse};

}  // namespace

const Backend kHipBackend{
    .name = "hip",
    .available = hip::device_available,
    .plan = hip::plan,
    .run = hip::run,
    .append = hip::append,
    .append_two_tier = hip::append_two_tier,
    .gather = hip::gather,
    .copy_pages = hip::copy_pages,
    .quantize = hip::quantize,
    .dequantize = hip::dequantize,
    .merge_states = hip::merge_states,
    .dense = &kDenseOps,
    .quantize_weight = hip::quantize_weight,
    .linear_workspace = hip::linear_workspace,
    .linear = hip::linear,
    .native = [](std::int32_t variant) noexcept { return hip::is_native(hip::kInstances[variant]); },
    .describe = [](std::int32_t variant, char* text, std::size_t size) noexcept { core::describe(hip::kInstances[variant], text, size); },
    .read_back = [](void* to_host, const void* from, std::size_t bytes, void* stream) noexcept {
      return hip::check(hip::read_behind(static_cast<hip::Stream>(stream), to_host, from, bytes), "reading back what is to be checked");
    },
};

}  // namespace fp4pa::api
