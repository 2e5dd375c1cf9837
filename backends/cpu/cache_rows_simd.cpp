// The row kernels for every instruction set this compiler can build, chosen at run time.
//
// They are core's functions over again (tests/cache/test_row_kernels.cpp holds every set to the same bits), so that a
// cache written here can be continued by any other back end.
#include "backends/cpu/cache_rows.hpp"
#include "backends/cpu/tile_ops.hpp"
#include "core/formats/hadamard.hpp"
#include "core/paging/plain_row.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/cache_rows_simd.cpp"
#include "hwy/foreach_target.h"  // NOLINT: must precede highway.h
#include "hwy/highway.h"

#include "backends/cpu/cache_fp4-inl.h"
#include "backends/cpu/cache_hadamard-inl.h"
#include "backends/cpu/cache_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4pa::cpu::row_simd::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
const RowKernels* CacheRows() { return &kScalarRows; }
#else

int lanes() { return static_cast<int>(hn::Lanes(DF())); }

void load_row(const void* row, DType dtype, int n, float* out) {
  const DF df;
  const auto* const halves = static_cast<const std::uint16_t*>(row);
  const auto* const floats = static_cast<const float*>(row);
  for (int i = 0; i < n; i += lanes()) {
    VF x = hn::Zero(df);
    switch (dtype) {
      case DType::kF32: x = hn::LoadU(df, floats + i); break;
      case DType::kF16: x = f16_to_f32(load_u16(halves + i)); break;
      case DType::kBF16: x = float_of(hn::ShiftLeft<16>(load_u16(halves + i))); break;
    }
    hn::StoreU(x, df, out + i);
  }
}

void store_row(const float* x, int n, DType dtype, void* row) {
  const DF df;
  auto* const halves = static_cast<std::uint16_t*>(row);
  auto* const floats = static_cast<float*>(row);
  for (int i = 0; i < n; i += lanes()) {
    const VF v = hn::LoadU(df, x + i);
    switch (dtype) {
      case DType::kF32: hn::StoreU(v, df, floats + i); break;
      case DType::kF16: store_u16(f32_to_f16(v), halves + i); break;
      case DType::kBF16: store_u16(f32_to_bf16(v), halves + i); break;
    }
  }
}

void rotate_row(float* x, int n, int block) { rotate(x, n, block); }

void encode_fp8_row(const float* x, int n, float global, std::uint8_t* codes) {
  const DF df;
  for (int i = 0; i < n; i += lanes()) {
    store_u8(encode_e4m3(hn::Div(hn::LoadU(df, x + i), hn::Set(df, global))), codes + i);
  }
}

void encode_mxfp8(const float* x, int n, ScaleMode mode, std::uint8_t* codes, std::uint8_t* scales) {
  const DF df;
  for (int g = 0; g * 32 < n; ++g) {
    scales[g] = core::e8m0_from_amax<core::E4M3>(amax_of(x + g * 32, 32), mode);
    const VF reciprocal = hn::Set(df, core::e8m0_reciprocal(scales[g]));
    for (int i = g * 32; i < (g + 1) * 32; i += lanes()) {
      store_u8(encode_e4m3(hn::Mul(hn::LoadU(df, x + i), reciprocal)), codes + i);
    }
  }
}

void decode_mxfp8(const std::uint8_t* codes, const std::uint8_t* scales, int n, float* x) {
  const DF df;
  for (int i = 0; i < n; i += lanes()) {
    const VF scale = hn::Set(df, core::E8M0::decode(scales[i / 32]));
    hn::StoreU(hn::Mul(decode_e4m3(load_u8(codes + i)), scale), df, x + i);
  }
}

void encode_row(KvFormat format, const float* x, int n, float global, core::EncodeRule rule, std::uint8_t* codes,
                std::uint8_t* scales) {
  switch (format) {
    case KvFormat::kMxfp4: encode_mx_row(x, n, 32, rule.scale_mode, codes, scales); break;
    case KvFormat::kE8m0PerToken: encode_mx_row(x, n, n, rule.scale_mode, codes, scales); break;
    case KvFormat::kNvfp4: encode_nvfp4_row(x, n, global, rule.nvfp4_scale, codes, scales); break;
    case KvFormat::kFp8E4m3: encode_fp8_row(x, n, global, codes); break;
    case KvFormat::kBf16: store_row(x, n, DType::kBF16, codes); break;
    case KvFormat::kF16: store_row(x, n, DType::kF16, codes); break;
    case KvFormat::kMxfp8: encode_mxfp8(x, n, rule.scale_mode, codes, scales); break;
  }
}

void decode_fp4_row(KvFormat format, const std::uint8_t* packed, const std::uint8_t* scales, int n, float global,
                    float* x) {
  const DF df;
  const int group = core::row_group(format, n);
  alignas(64) std::uint8_t codes[kMaxRow];
  unpack_codes(packed, n, codes);
  for (int g = 0; g * group < n; ++g) {
    const bool nvfp4 = format == KvFormat::kNvfp4;
    const VF scale = hn::Set(df, nvfp4 ? core::UE4M3::decode(scales[g]) : core::E8M0::decode(scales[g]));
    for (int i = g * group; i < (g + 1) * group; i += lanes()) {
      const VF value = hn::Mul(decode_e2m1(load_u8(codes + i)), scale);
      hn::StoreU(nvfp4 ? hn::Mul(value, hn::Set(df, global)) : value, df, x + i);
    }
  }
}

void decode_row(KvFormat format, const std::uint8_t* codes, const std::uint8_t* scales, int n, float global, float* x) {
  const DF df;
  switch (format) {
    case KvFormat::kMxfp4:
    case KvFormat::kE8m0PerToken:
    case KvFormat::kNvfp4: decode_fp4_row(format, codes, scales, n, global, x); break;
    case KvFormat::kFp8E4m3:
      for (int i = 0; i < n; i += lanes()) {
        hn::StoreU(hn::Mul(decode_e4m3(load_u8(codes + i)), hn::Set(df, global)), df, x + i);
      }
      break;
    case KvFormat::kBf16: load_row(codes, DType::kBF16, n, x); break;
    case KvFormat::kF16: load_row(codes, DType::kF16, n, x); break;
    case KvFormat::kMxfp8: decode_mxfp8(codes, scales, n, x); break;
  }
}

void encode_group(KvFormat format, const core::GroupValues& group, int n, float global, core::EncodeRule rule,
                  std::uint8_t* codes, std::int64_t token_stride, std::uint8_t* scales) {
  encode_fp4_group(format, group, n, global, rule, codes, token_stride, scales);
}

void decode_group_row(KvFormat format, const std::uint8_t* packed, const std::uint8_t* scales, int n, float global,
                      float* x) {
  const DF df;
  alignas(64) std::uint8_t codes[kMaxRow];
  unpack_codes(packed, n, codes);
  for (int i = 0; i < n; i += lanes()) {
    const VF element = decode_e2m1(load_u8(codes + i));
    const VI scale = load_u8(scales + i);
    const VF value = format == KvFormat::kNvfp4 ? hn::Mul(hn::Mul(element, decode_ue4m3(scale)), hn::Set(df, global))
                                                : hn::Mul(element, decode_e8m0(scale));
    hn::StoreU(value, df, x + i);
  }
}

const RowKernels* CacheRows() {
  static const RowKernels rows = {
      .load = load_row,
      .store = store_row,
      .rotate = rotate_row,
      .encode = encode_row,
      .decode = decode_row,
      .encode_group = encode_group,
      .decode_group_row = decode_group_row,
      .encode_mxfp8 = encode_mxfp8,
      .decode_mxfp8 = decode_mxfp8,
  };
  return &rows;
}
#endif

}  // namespace fp4pa::cpu::row_simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4pa::cpu {
namespace row_simd {
HWY_EXPORT(CacheRows);
const RowKernels* chosen() { return HWY_DYNAMIC_DISPATCH(CacheRows)(); }
}  // namespace row_simd

const RowKernels& fastest_rows() noexcept {
  // The tile operations read the limit that FP4PA_CPU_TARGET sets and tell Highway; it holds for these kernels too.
  (void)tile_ops();
  return *row_simd::chosen();
}

}  // namespace fp4pa::cpu
#endif
