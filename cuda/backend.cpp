// CUDA in the library's table of back ends.
#include "api/backend.hpp"

#include "core/simt/describe.hpp"
#include "cuda/attention.hpp"
#include "cuda/device.hpp"
#include "cuda/gemm.hpp"
#include "cuda/variants.hpp"
#include "kernels/cache_ops.hpp"
#include "kernels/dense_ops.hpp"

namespace fp4pa::api {
namespace {

constexpr DenseOps kDenseOps{cuda::fill_dense_tables, cuda::expand_mxfp8, cuda::centre_keys, cuda::restore_lse};

}  // namespace

const Backend kCudaBackend{
    .name = "cuda",
    .available = cuda::device_available,
    .plan = cuda::plan,
    .run = cuda::run,
    .append = cuda::append,
    .append_two_tier = cuda::append_two_tier,
    .gather = cuda::gather,
    .copy_pages = cuda::copy_pages,
    .quantize = cuda::quantize,
    .dequantize = cuda::dequantize,
    .merge_states = cuda::merge_states,
    .dense = &kDenseOps,
    .quantize_weight = cuda::quantize_weight,
    .linear_workspace = cuda::linear_workspace,
    .linear = cuda::linear,
    .native = [](std::int32_t variant) noexcept { return cuda::is_native(variant); },
    .decodes_aside = [](std::int32_t variant) noexcept { return cuda::is_sm90(variant); },
    .describe = [](std::int32_t variant, char* text, std::size_t size) noexcept { core::describe(cuda::shape_of(variant), text, size); },
    .read_back = cuda::read_back,
};

}  // namespace fp4pa::api
