// The row kernels as core defines them.
#include "backends/cpu/cache_rows.hpp"
#include "core/formats/hadamard.hpp"
#include "core/paging/plain_row.hpp"

namespace fp4pa::cpu {
namespace {

void encode_mxfp8(const float* x, int n, ScaleMode mode, std::uint8_t* codes, std::uint8_t* scales) {
  for (int g = 0; g * 32 < n; ++g) scales[g] = core::encode_mxfp8(x + g * 32, 32, mode, codes + g * 32);
}

void decode_mxfp8(const std::uint8_t* codes, const std::uint8_t* scales, int n, float* x) {
  for (int g = 0; g * 32 < n; ++g) core::decode_mxfp8(codes + g * 32, 32, scales[g], x + g * 32);
}

}  // namespace

const RowKernels kScalarRows = {
    .load = core::load_plain_row,
    .store = core::store_plain_row,
    .rotate = core::hadamard,
    .encode = core::encode_row,
    .decode = core::decode_row,
    .encode_group = core::encode_group,
    .decode_group_row = core::decode_group_row,
    .encode_mxfp8 = encode_mxfp8,
    .decode_mxfp8 = decode_mxfp8,
};

}  // namespace fp4pa::cpu
