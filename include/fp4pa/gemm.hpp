// Matrix products with an FP4 right operand: C [M, N] = A [M, K] B [N, K]^T.
//
// B is a weight that is quantised once and kept: codes, scales and (NVFP4) a decode multiplier, in memory that the caller
// owns. An Fp4Weight describes it, whoever quantised it. A is multiplied as it is (W4A16), or quantised in every call to
// the weight's format (W4A4). Nothing here allocates: what a call needs beside its arguments is asked for in bytes and
// handed in as workspace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4pa/cache.hpp"
#include "fp4pa/export.hpp"
#include "fp4pa/quantize.hpp"
#include "fp4pa/status.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa {

/// What the left operand is multiplied as.
enum class ActivationForm : std::int32_t {
  k16Bit = 0,  ///< f16 or bf16, as given (W4A16)
  kFp4 = 1,    ///< quantised to the weight's format in the call (W4A4)
};

[[nodiscard]] constexpr const char* name_of(ActivationForm v) noexcept {
  switch (v) {
    case ActivationForm::k16Bit: return "a16";
    case ActivationForm::kFp4: return "a4";
  }
  return "unknown";
}

/// One FP4 weight [rows = N, cols = K], or a batch of them one after another. With G = ceil(K / group) groups in a row (of
/// 32 for MXFP4, 16 for NVFP4), each weight of the batch has
///   codes   [N, G * group / 2] bytes, two E2M1 codes a byte, the even column in the low nibble; codes past K are 0,
///           but in a group that NaN or infinity makes NaN
///   scales  [N, G] bytes, E8M0 or E4M3: row-major, or in the 128x4 layout with its padding
/// Weights of others that are laid out so need no conversion: gpt-oss's `blocks` [N, G, 16] and `scales` [N, G] (MXFP4,
/// linear), ModelOpt's `weight` [N, K/2], `weight_scale` [N, K/16] and `weight_scale_2` (NVFP4, linear).
struct Fp4Weight {
  BlockFormat format = BlockFormat::kMxfp4;  ///< MXFP4 or NVFP4
  ScaleLayout scale_layout = ScaleLayout::kLinear;
  std::int64_t rows = 0;  ///< N, output features
  std::int64_t cols = 0;  ///< K, input features; any number
  std::int64_t batch = 1;
  const void* codes = nullptr;   ///< 16-byte aligned
  const void* scales = nullptr;  ///< 4-byte aligned
  /// NVFP4's decode multiplier (value = code * scale * global), 2^-126 to 2^126; 1 for MXFP4. When global_scale_ptr is set, [batch] floats
  /// in the memory of the back end are read instead, and checked where that is the host's.
  float global_scale = 1.0f;
  const float* global_scale_ptr = nullptr;  ///< 4-byte aligned
};

/// Bytes of the codes and of the scales of `batch` weights; 0 for sizes or formats that have none.
[[nodiscard]] FP4PA_API std::size_t fp4_weight_code_bytes(BlockFormat format, std::int64_t rows, std::int64_t cols,
                                                          std::int64_t batch = 1) noexcept;
[[nodiscard]] FP4PA_API std::size_t fp4_weight_scale_bytes(BlockFormat format, ScaleLayout layout, std::int64_t rows,
                                                           std::int64_t cols, std::int64_t batch = 1) noexcept;

/// Quantises w [batch, rows, cols] (dense, `dtype`) and describes the result.
/// @param codes        fp4_weight_code_bytes, 16-byte aligned
/// @param scales       fp4_weight_scale_bytes, 4-byte aligned; padding becomes 0
/// @param global_scales  NVFP4: [batch] floats that receive amax / 2688 of each weight, at least 2^-126, where amax is of its
///                     finite elements (1 where none is but zeros); null: config.global_scale is used. Must be null for MXFP4
/// @param weight       filled in; it refers to codes, scales and global_scales
/// @errors kNullPointer, kMisalignedPointer, kInvalidSize, kUnsupportedFormat, kInvalidGlobalScale, kInvalidArgument,
///         kUnknownBackend, kBackendUnavailable, kDeviceError
[[nodiscard]] FP4PA_API Status fp4_quantize_weight(const QuantizeConfig& config, const void* w, DType dtype,
                                                   std::int64_t rows, std::int64_t cols, std::int64_t batch, void* codes,
                                                   void* scales, float* global_scales, Fp4Weight* weight,
                                                   const ExecDesc& exec = {}) noexcept;

// --- Weights in safetensors files, in the host's memory. Three forms are read, the first is written:
//   own       NAME.codes U8 [batch, N, row bytes], NAME.scales U8 [batch, bytes], NAME.global_scales F32 [batch] (NVFP4), and
//             the metadata "fp4pa.weight.NAME", a JSON object with format, scale_layout, rows, cols and batch
//   gpt-oss   NAME_blocks U8 [(experts,) N, groups, 16] and NAME_scales U8 [(experts,) N, groups]: MXFP4
//   ModelOpt  NAME.weight U8 [N, K/2], NAME.weight_scale F8_E4M3 [N, K/16] and NAME.weight_scale_2 F32 []: NVFP4
// A build without a JSON parser answers kBackendUnavailable. A file that is none, or not of these forms, is a kFileError, and so is a
// lack of memory. Tensors have up to 64 extents.

/// Describes the weight called `name`: format, layout of the scales, sizes. Its pointers are null.
/// @errors kNullPointer, kFileError, kBackendUnavailable
[[nodiscard]] FP4PA_API Status fp4_find_weight(const char* path, const char* name, Fp4Weight* weight) noexcept;
/// Reads it, and describes the result.
/// @param codes, scales  fp4_weight_code_bytes and fp4_weight_scale_bytes of what fp4_find_weight described
/// @param global_scales  NVFP4: [batch] floats; not written and may be null for MXFP4
/// @param weight         in: what fp4_find_weight described, else rows of 0. A file that has another weight by now is then a
///                       kFileError, before anything is written. Out: filled in; it refers to codes, scales and global_scales
/// @errors kNullPointer, kMisalignedPointer, kFileError, kBackendUnavailable
[[nodiscard]] FP4PA_API Status fp4_load_weight(const char* path, const char* name, void* codes, void* scales, float* global_scales,
                                               Fp4Weight* weight) noexcept;
/// Writes a file of this one weight, through a temporary name of its own beside it: of calls at the same time, the last one's file is left. A
/// symbolic link is followed. What exists and is no regular file is refused.
/// @errors kNullPointer, kMisalignedPointer, kInvalidSize, kUnsupportedFormat, kInvalidGlobalScale, kFileError, kBackendUnavailable
[[nodiscard]] FP4PA_API Status fp4_save_weight(const char* path, const char* name, const Fp4Weight& weight) noexcept;

/// out [batch, m, N] = x [batch, m, K] weight^T + bias, all dense and aligned to their elements; m and N below 2^31, K up to 2^31 - 128,
/// batch up to 65535. A weight with batch 1 serves every x.
struct LinearArgs {
  Fp4Weight weight;
  const void* x = nullptr;
  DType x_dtype = DType::kBF16;  ///< W4A16: f16 or bf16; W4A4: also f32
  void* out = nullptr;           ///< may not alias an input
  DType out_dtype = DType::kBF16;
  const void* bias = nullptr;  ///< null, or [N], shared by the batch
  DType bias_dtype = DType::kBF16;
  std::int64_t m = 0;  ///< rows of x per batch; 0 is allowed and does nothing
  std::int64_t batch = 1;

  ActivationForm activations = ActivationForm::k16Bit;
  /// W4A4: how x is quantised. An x_global_scale of 0 takes amax / 2688 of the finite elements of each x of the batch
  /// (NVFP4); a calibrated one saves that pass. It is 0 with everything but W4A4 in NVFP4 (else kInvalidGlobalScale).
  ScaleMode scale_mode = ScaleMode::kFloor;
  Nvfp4Scale nvfp4_scale = Nvfp4Scale::kAmaxOver6;
  float x_global_scale = 0.0f;

  void* workspace = nullptr;  ///< 256-byte aligned, null where 0 bytes are needed; contents need not survive between calls
  std::size_t workspace_bytes = 0;

  /// The caller's promise that the weight was complete before the preceding kernel in the stream began, as one that is loaded with a model
  /// is. CUDA (sm_90) then reads it while that kernel still runs (programmatic dependent launch).
  bool weight_settled = false;
};

/// Bytes of workspace that fp4_linear needs for these sizes and forms; pointers are not looked at. On HIP the answer is for devices of
/// the current one's kind. On the CPU it has room for every thread that the call would start from this calling thread. A smaller
/// workspace serves too, down to what num_threads = 1 needs: the call then starts only as many threads as it has room for. So another
/// calling thread, to which OpenMP may give more threads, can use it as well.
/// @errors kNullPointer, kInvalidSize, kUnsupportedFormat, kInvalidArgument, kUnknownBackend, kBackendUnavailable, kDeviceError
[[nodiscard]] FP4PA_API Status fp4_linear_workspace(const LinearArgs& args, std::size_t* bytes,
                                                    const ExecDesc& exec = {}) noexcept;

/// Computes it. Products are those of the decoded operands (exactly, for W4A4 and W4A16 alike) and summed in f32; the sum
/// is multiplied by the decode multipliers, the bias added in f32, and the result rounded to its type. Same arguments on the same back
/// end and device: the same bits. Never allocates, never synchronises.
/// @errors kNullPointer, kMisalignedPointer, kInvalidSize, kUnsupportedFormat, kInvalidGlobalScale, kWorkspaceTooSmall,
///         kInvalidArgument, kUnknownBackend, kBackendUnavailable, kDeviceError
[[nodiscard]] FP4PA_API Status fp4_linear(const LinearArgs& args, const ExecDesc& exec = {}) noexcept;

/// out [batch, m, n] = a [batch, m, k] b [batch, n, k]^T with both operands quantised on the fly. All three are dense and aligned to their
/// elements; m (0 is allowed) and n below 2^31, k up to 2^31 - 128, batch up to 65535.
struct MatmulArgs {
  BlockFormat format = BlockFormat::kMxfp4;  ///< MXFP4 or NVFP4, of both
  ScaleMode scale_mode = ScaleMode::kFloor;
  Nvfp4Scale nvfp4_scale = Nvfp4Scale::kAmaxOver6;
  const void* a = nullptr;
  DType a_dtype = DType::kBF16;
  const void* b = nullptr;
  DType b_dtype = DType::kBF16;
  void* out = nullptr;  ///< may not alias an input
  DType out_dtype = DType::kBF16;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;
  void* workspace = nullptr;  ///< 256-byte aligned
  std::size_t workspace_bytes = 0;
};

/// Bytes of workspace that fp4_matmul needs; a smaller one does as for fp4_linear.
/// @errors as fp4_linear_workspace
[[nodiscard]] FP4PA_API Status fp4_matmul_workspace(const MatmulArgs& args, std::size_t* bytes,
                                                    const ExecDesc& exec = {}) noexcept;
/// Computes it: what fp4_quantize_weight of b and fp4_linear with ActivationForm::kFp4 would, NVFP4's multipliers from the operands. Never
/// allocates, never synchronises.
/// @errors as fp4_linear
[[nodiscard]] FP4PA_API Status fp4_matmul(const MatmulArgs& args, const ExecDesc& exec = {}) noexcept;

}  // namespace fp4pa
