// Around a matrix product: weights to codes, X to the rows that the decoding kernels read, and the magnitudes that both need. A thread
// per group or unit of any shape and address; where rows are whole groups at 16 bytes, gemm_pieces.hpp has the same in words.
#pragma once

#include "core/formats/amax.hpp"
#include "core/formats/block.hpp"
#include "core/paging/plain_row.hpp"
#include "kernels/gemm_args.hpp"
#include "kernels/gemm_pieces.hpp"

namespace fp4pa::FP4PA_GPU {

/// Eight elements from `first` on, zeros past `cols`; 16-byte loads where the address allows.
FP4PA_DEVICE inline void load_8(const void* row, DType dtype, std::int64_t first, std::int64_t cols, float* out) {
  const void* const from = core::element_address(row, dtype, first);
  if (first + 8 <= cols && reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
    const auto* const source = static_cast<const FourWords*>(from);
    const FourWords low = source[0];
    if (dtype == DType::kF32) {
      const FourWords high = source[1];
      for (int i = 0; i < 4; ++i) {
        out[i] = core::float_from_bits(low.w[i]);
        out[i + 4] = core::float_from_bits(high.w[i]);
      }
    } else {
      for (int i = 0; i < 8; ++i) {
        const auto half = static_cast<std::uint16_t>(low.w[i / 2] >> (16 * (i % 2)));
        out[i] = dtype == DType::kF16 ? core::f16_to_f32(half) : core::bf16_to_f32(half);
      }
    }
    return;
  }
  for (int i = 0; i < 8; ++i) {
    out[i] = 0.0f;
    if (first + i < cols) core::load_plain_row(core::element_address(row, dtype, first + i), dtype, 1, out + i);
  }
}

struct AmaxArgs {
  const void* x;
  DType dtype;
  std::int64_t n;
  std::int32_t blocks;  // of a run
  std::uint32_t* amax;
};

/// A share of a run in x, runs in y.
FP4PA_KERNEL(amax_of, kGemmThreads, AmaxArgs args) {
  const void* const run = core::element_address(args.x, args.dtype, block_id_y() * args.n);
  std::uint32_t bits = 0;
  const std::int64_t step = std::int64_t{8} * kGemmThreads * args.blocks;
  for (std::int64_t at = 8 * (std::int64_t{block_id()} * kGemmThreads + thread_id()); at < args.n; at += step) {
    float v[8];
    load_8(run, args.dtype, at, args.n, v);
    for (const float e : v) bits = core::finite_amax_step(bits, e);
  }
  bits = block_max(bits);
  if (thread_id() == 0) atomic_max(args.amax + block_id_y(), bits);
}

struct GlobalsArgs {
  float* globals;  // bits of magnitudes, which become multipliers
  std::int64_t batch;
};
FP4PA_KERNEL(globals_of, kGemmThreads, GlobalsArgs args) {
  const std::int64_t b = std::int64_t{block_id()} * kGemmThreads + thread_id();
  if (b < args.batch) args.globals[b] = core::nvfp4_global_scale(core::float_bits(args.globals[b]));
}

/// A thread per group; batches in y.
FP4PA_KERNEL(quantize_weight_groups, kGemmThreads, WeightArgs args) {
  const core::WeightLayout layout{args.config.format, args.config.scale_layout, args.rows, args.cols};
  const std::int64_t index = std::int64_t{block_id()} * kGemmThreads + thread_id();
  if (index >= args.rows * layout.groups()) return;
  const std::int64_t row = index / layout.groups();
  const std::int64_t g = index - row * layout.groups();
  const std::int64_t b = block_id_y();
  const void* const from = core::element_address(args.w, args.dtype, (b * args.rows + row) * args.cols);
  FP4PA_OWN_ARRAY(float, x, 32, kGemmThreads);
  for (int i = 0; i < layout.group(); i += 8) load_8(from, args.dtype, g * layout.group() + i, args.cols, x + i);
  std::uint8_t* const codes = args.codes + b * layout.code_bytes() + row * layout.code_row_bytes() + g * layout.group() / 2;
  std::uint8_t* const scale = args.scales + b * layout.scale_bytes() + layout.scale_offset(row, g);
  if (layout.format == BlockFormat::kNvfp4) {
    const float global = args.globals != nullptr ? args.globals[b] : args.config.global_scale;
    *scale = core::encode_nvfp4(x, global, args.config.nvfp4_scale, codes);
  } else {
    *scale = core::encode_e2m1_e8m0(x, 32, args.config.scale_mode, codes);
  }
}

/// 32 elements quantised and decoded in place, without the tensor's multiplier.
FP4PA_DEVICE inline void through_fp4(const PrepareArgs& args, float global, float* x) {
  FP4PA_OWN_ARRAY(std::uint8_t, codes, 16, kGemmThreads);
  if (args.format == BlockFormat::kNvfp4) {
    for (int g = 0; g < 2; ++g) {
      const std::uint8_t scale = core::encode_nvfp4(x + 16 * g, global, args.nvfp4_scale, codes);
      core::decode_nvfp4(codes, scale, 1.0f, x + 16 * g);
    }
  } else {
    const std::uint8_t scale = core::encode_e2m1_e8m0(x, 32, args.scale_mode, codes);
    core::decode_e2m1_e8m0(codes, 32, scale, x);
  }
}

/// Rows of bf16 that a block has for itself, of up to this many eights a thread, are read once: all at once, and kept until the row's
/// largest element is known.
constexpr int kHeldEights = 4;
FP4PA_DEVICE inline bool holds_row(const PrepareArgs& p) {
  return p.shares == 1 && p.dtype == DType::kBF16 && p.cols % 8 == 0 && reinterpret_cast<std::uintptr_t>(p.x) % 16 == 0 &&
         p.out_cols <= 8 * kHeldEights * kGemmThreads;
}
/// Such a row to f16. Returns what it is multiplied by.
FP4PA_DEVICE inline float prepare_held_row(const PrepareArgs& p, std::int64_t row) {
  FourWords held[kHeldEights];  // indexed by constants alone
  const auto* const from = static_cast<const FourWords*>(p.x) + row * (p.cols / 8);
  FP4PA_UNROLL
  for (int i = 0; i < kHeldEights; ++i) {
    const int eight = i * kGemmThreads + thread_id();
    held[i] = 8 * eight < p.cols ? from[eight] : FourWords{};
  }
  std::uint32_t most = 0;  // the upper half of a float's bits
  FP4PA_UNROLL
  for (int i = 0; i < 4 * kHeldEights; ++i) {
    const std::uint32_t two = held[i / 4].w[i % 4] & 0x7fff7fffu;
    for (const std::uint32_t m : {two & 0xffffu, two >> 16}) most = m < core::kFloatInfBits >> 16 && m > most ? m : most;
  }
  const float scale = core::row_scale(core::float_from_bits(block_max(most) << 16));
  FP4PA_UNROLL
  for (int i = 0; i < kHeldEights; ++i) {
    const int eight = i * kGemmThreads + thread_id();
    if (8 * eight >= p.out_cols) continue;
    float x[8];
    FP4PA_UNROLL
    for (int e = 0; e < 8; ++e) x[e] = core::bf16_to_f32(static_cast<std::uint16_t>(held[i].w[e / 2] >> (16 * (e % 2))));
    *reinterpret_cast<FourWords*>(p.out + row * p.out_cols + 8 * eight) = eight_to_f16(p, x, scale);
  }
  return scale;
}

/// A row of X in x, a share of its units in y. bf16, f32 and decoded values become f16 times a power of two (row_scale).
template <bool kQuantise>
FP4PA_KERNEL(prepare_rows, kGemmThreads, PrepareArgs p) {
  allow_dependents();
  const std::int64_t row = p.first_row + block_id();
  const std::int64_t b = row / p.m;
  const void* const from = core::element_address(p.x, p.dtype, row * p.cols);
  const bool nvfp4 = kQuantise && p.format == BlockFormat::kNvfp4;
  float global = p.global;
  if (nvfp4 && global == 0.0f) global = core::nvfp4_global_scale(p.amax[b]);

  float scale = 1.0f;
  const bool held = !kQuantise && holds_row(p);
  if (held) {
    scale = prepare_held_row(p, row);
  } else if (kQuantise || p.dtype != DType::kF16) {
    std::uint32_t bits = 0;
    for (std::int64_t at = 8 * std::int64_t{thread_id()}; at < p.cols; at += 8 * kGemmThreads) {
      float v[8];
      load_8(from, p.dtype, at, p.cols, v);
      for (const float e : v) {
        const std::uint32_t m = core::magnitude_bits(e);
        bits = m < core::kFloatInfBits && m > bits ? m : bits;
      }
    }
    bits = block_max(bits);
    // NVFP4's values are in units of the multiplier.
    scale = core::row_scale(core::float_from_bits(bits) / (nvfp4 ? global : 1.0f));
  }
  if (block_id_y() == 0 && thread_id() == 0) {
    p.inverse[row] = 1.0f / scale;
    if (p.globals != nullptr && row == b * p.m) p.globals[b] = global;
  }

  if (held) return;
  constexpr int kUnit = kQuantise ? 32 : 8;
  const std::int64_t units = p.out_cols / kUnit;
  for (std::int64_t unit = std::int64_t{block_id_y()} * kGemmThreads + thread_id(); unit < units;
       unit += std::int64_t{kGemmThreads} * p.shares) {
    FP4PA_OWN_ARRAY(float, x, 32, kGemmThreads);
    for (int i = 0; i < kUnit; i += 8) load_8(from, p.dtype, unit * kUnit + i, p.cols, x + i);
    if constexpr (kQuantise) through_fp4(p, global, x);
    auto* const out = reinterpret_cast<FourWords*>(p.out + row * p.out_cols + unit * kUnit);
    for (int i = 0; i < kUnit / 8; ++i) out[i] = eight_to_f16(p, x + 8 * i, scale);
  }
}

[[nodiscard]] inline std::int64_t gemm_blocks(std::int64_t items) { return (items + kGemmThreads - 1) / kGemmThreads; }

/// Launches of a block a row, as many as the grid has room for: f(first row, rows) launches.
template <class F>
[[nodiscard]] Status launch_rows(std::int64_t rows, F&& f) noexcept {
  for (std::int64_t first = 0; first < rows; first += kMostBlocks) {
    const Status s = f(first, rows - first < kMostBlocks ? rows - first : kMostBlocks);
    if (s != Status::kOk) return s;
  }
  return Status::kOk;
}

/// Largest magnitude of each of `batch` runs of n elements, as bits.
[[nodiscard]] inline Status launch_amax(const void* x, DType dtype, std::int64_t n, std::int64_t batch, std::uint32_t* amax,
                                        void* stream) noexcept {
  const auto bytes = static_cast<std::size_t>(batch) * sizeof *amax;
  if (const Status s = clear(amax, bytes, stream, "clearing amax"); s != Status::kOk) return s;
  const std::int64_t share = gemm_blocks((n + 7) / 8);
  const AmaxArgs args{x, dtype, n, static_cast<std::int32_t>(share < 1024 ? share : 1024), amax};
  return launch(amax_of, grid(args.blocks, batch), kGemmThreads, 0, stream, args, "launching amax");
}

Status prepare_x(const LinearArgs& a, const api::PreparedX& to, const ExecDesc& exec) noexcept {
  auto* const memory = static_cast<std::uint8_t*>(a.workspace);
  const bool quantise = a.activations == ActivationForm::kFp4;
  const bool pieces = quantise && in_fp4_pieces(a.weight.format, a.x, 1, a.weight.cols);
  // Few rows are shared by several blocks: each finds the row's largest element itself.
  const std::int64_t share = to.rows >= 128 ? 1 : gemm_blocks(to.cols / (pieces ? 16 : quantise ? 32 : 8));
  PrepareArgs args{a.x, a.x_dtype, a.m, a.batch, a.weight.cols, a.weight.format, a.scale_mode, a.nvfp4_scale, a.x_global_scale,
                   nullptr, reinterpret_cast<std::uint16_t*>(memory), to.cols, reinterpret_cast<float*>(memory + to.inverse),
                   nullptr, static_cast<std::int32_t>(share < 16 ? share : 16), to.paired, 0};
  if (to.has_globals) {
    args.globals = reinterpret_cast<float*>(memory + to.globals);
    if (a.x_global_scale == 0.0f) {
      auto* const amax = reinterpret_cast<std::uint32_t*>(memory + to.amax);
      const Status s = launch_amax(a.x, a.x_dtype, a.m * a.weight.cols, a.batch, amax, exec.stream);
      if (s != Status::kOk) return s;
      args.amax = amax;
    }
  }
  auto* const kernel = pieces ? FP4PA_OF_DTYPE(a.x_dtype, prepare_pieces) : quantise ? prepare_rows<true> : prepare_rows<false>;
  return launch_rows(to.rows, [&](std::int64_t first, std::int64_t rows) {
    args.first_row = first;
    return launch(kernel, grid(rows, args.shares), kGemmThreads, 0, exec.stream, args, "preparing x");
  });
}

Status quantize_weight(const api::WeightRequest& r, const ExecDesc& exec) noexcept {
  const core::WeightLayout layout{r.config.format, r.config.scale_layout, r.rows, r.cols};
  if (r.global_scales != nullptr) {
    auto* const bits = reinterpret_cast<std::uint32_t*>(r.global_scales);
    if (const Status s = launch_amax(r.w, r.dtype, r.rows * r.cols, r.batch, bits, exec.stream); s != Status::kOk) return s;
    const GlobalsArgs globals{r.global_scales, r.batch};
    const Status s = launch(globals_of, grid(gemm_blocks(r.batch)), kGemmThreads, 0, exec.stream, globals, "launching globals");
    if (s != Status::kOk) return s;
  }
  const bool padded = r.rows % core::kScaleAtomRows != 0 || layout.groups() % core::kScaleAtomGroups != 0;
  if (layout.scale_layout == ScaleLayout::kBlocked && padded) {
    const auto bytes = static_cast<std::size_t>(r.batch * layout.scale_bytes());
    if (const Status s = clear(r.scales, bytes, exec.stream, "clearing the scales' padding"); s != Status::kOk) return s;
  }
  const WeightArgs args{r.config, r.w, r.dtype, r.rows, r.cols, static_cast<std::uint8_t*>(r.codes),
                        static_cast<std::uint8_t*>(r.scales), r.global_scales};
  if (in_fp4_pieces(r.config.format, r.w, r.rows, r.cols)) {
    const auto count = static_cast<std::uint32_t>(r.rows * r.cols / 16);
    const WeightPieceArgs pieces{args, count, core::Divisor::of(static_cast<std::uint32_t>(layout.groups()))};
    return launch(FP4PA_OF_DTYPE(r.dtype, quantize_weight_pieces), grid((count + kPieceThreads - 1) / kPieceThreads, r.batch), kPieceThreads, 0,
                  exec.stream, pieces, "launching quantize_weight");
  }
  return launch(quantize_weight_groups, grid(gemm_blocks(r.rows * layout.groups()), r.batch), kGemmThreads, 0, exec.stream, args,
                "launching quantize_weight");
}

}  // namespace fp4pa::FP4PA_GPU
