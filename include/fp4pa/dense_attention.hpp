// Attention over contiguous Q, K and V: quantised to FP4 on the way (dense), or given in MXFP8.
//
// Both are a paged call with a trivial page table: they lay out what the kernel body wants in the caller's workspace,
// on the caller's stream, and run the plan of fp4pa/attention.hpp. As there, `plan_*` validates and fixes the
// partition, `run_*` never allocates and never synchronises. Every run quantises, or expands, once; nothing of it
// happens inside the attention loop.
//
// A batch is packed: the rows of Q are those of sequence 0, then those of sequence 1, ..., and so are the rows of K and
// V. Where each begins is told by q_indptr and kv_indptr ("cu_seqlens"), int32 [batch + 1] from 0 in the back end's
// memory; a null one means equal lengths. Causal is aligned to the end: query i of n sees keys 0 .. len - n + i.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4pa/attention.hpp"
#include "fp4pa/cache.hpp"
#include "fp4pa/export.hpp"
#include "fp4pa/status.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa {

/// The largest call that a plan serves.
struct DenseLimits {
  std::int32_t max_batch = 0;      ///< 1 to 2^20
  std::int32_t max_q_tokens = 0;   ///< rows of Q, over the batch; times num_q_heads below 2^31
  std::int32_t max_q_len = 0;      ///< of one sequence, 1 to max_q_tokens
  std::int32_t max_kv_tokens = 0;  ///< rows of K and V, over the batch, 0 to 2^30
  std::int32_t max_kv_len = 0;     ///< of one sequence, 0 to max_kv_tokens
};

/// The rows of one call. The CPU checks what the indptr hold. On a GPU, which reads them in device memory, invalid lengths are not
/// reported, and nothing outside the tensors and the workspace is touched: a sequence with more than max_kv_len keys counts as empty (O = 0,
/// LSE = -inf), and one with more than max_q_len queries may leave some rows of O and LSE unwritten.
struct DenseBatch {
  std::int32_t batch = 0;                   ///< 0: no work; both numbers of rows are 0, too
  std::int32_t q_tokens = 0;                ///< rows of Q
  std::int32_t kv_tokens = 0;               ///< rows of K and V
  const std::int32_t* q_indptr = nullptr;   ///< [batch + 1]; null: q_tokens / batch rows each
  const std::int32_t* kv_indptr = nullptr;  ///< [batch + 1]; null: kv_tokens / batch rows each
};

// --- Dense attention in FP4 ----------------------------------------------------------------------

/// What does not change between calls of dense attention.
struct DenseAttentionConfig {
  std::int32_t num_q_heads = 0;  ///< a multiple of num_kv_heads; query head h reads KV head h / (q / kv)
  std::int32_t num_kv_heads = 0;  ///< both 1 to 65536
  std::int32_t head_dim = 0;  ///< a multiple of 32 from 32 to 256
  DType q_dtype = DType::kBF16;
  DType kv_dtype = DType::kBF16;  ///< of K and V as they are given
  DType o_dtype = DType::kBF16;
  float sm_scale = 0.0f;  ///< multiplies Q K^T, 2^-126 to 2^126 in magnitude; 0 = 1 / sqrt(head_dim)
  bool causal = false;

  KvFormat k_format = KvFormat::kNvfp4;  ///< what K and V become: any format of a cache
  KvFormat v_format = KvFormat::kNvfp4;
  VScaleAxis v_scale_axis = VScaleAxis::kHeadDim;  ///< kTokens lets FP4 matrix cores multiply V as it lies
  Rotation rotation = Rotation::kNone;  ///< of K before quantising and of Q on load; must divide head_dim
  /// Quantise K less its mean over each sequence's tokens (per KV head), which is rounded to f32 first. Attention does not change by it, nor does the
  /// LSE that is returned; what a few large channels would cost in precision does.
  bool smooth_k = false;
  ScaleMode scale_mode = ScaleMode::kFloor;         ///< MXFP4, MXFP8, E8M0 per token
  Nvfp4Scale nvfp4_scale = Nvfp4Scale::kAmaxOver6;  ///< NVFP4
  float k_global_scale = 1.0f;  ///< decode multipliers of NVFP4 and FP8; 1 for other formats. With NVFP4 and a multiplier of 1,
  float v_global_scale = 1.0f;  ///< groups whose largest magnitude lies between 0.012 and 2688 are in range

  DenseLimits limits;
  bool batch_invariant = false;   ///< a sequence's result does not depend on the rest of the batch
  const char* backend = nullptr;  ///< null: FP4PA_FORCE_BACKEND, or else the best available
  std::int32_t num_threads = 0;   ///< CPU threads, at most 4096; 0 = OpenMP's choice at plan time. More than one: see ExecDesc
  MatrixPath matrix_path = MatrixPath::kAuto;  ///< as AttentionConfig's: native asks for a kernel that multiplies K (and V, where its
                                               ///< scales allow it) as they lie, or is refused
};

/// What changes with every call. All pointers are in the back end's memory; strides are in elements, 0 = dense: a head stride of head_dim,
/// a token stride of as many head strides as there are heads.
struct DenseAttentionArgs {
  const void* q = nullptr;  ///< [q_tokens, num_q_heads, head_dim] q_dtype, 16-byte aligned
  std::int64_t q_token_stride = 0;
  std::int64_t q_head_stride = 0;
  KvInput k;  ///< [kv_tokens, num_kv_heads, head_dim]; dtype must be the plan's kv_dtype
  KvInput v;
  void* o = nullptr;  ///< [q_tokens, num_q_heads, head_dim] o_dtype, 16-byte aligned; may not alias an input
  std::int64_t o_token_stride = 0;
  std::int64_t o_head_stride = 0;
  float* lse = nullptr;  ///< optional [q_tokens, num_q_heads], natural log; -inf: nothing seen

  DenseBatch rows;
  void* workspace = nullptr;  ///< 256-byte aligned; contents need not survive between calls
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;  ///< cudaStream_t or hipStream_t; ignored by the CPU
};

/// A validated configuration with its partition; a plain value, as AttentionPlan is.
class DenseAttentionPlan {
 public:
  /// As planned, but for its `backend`, which is null: see backend().
  [[nodiscard]] const DenseAttentionConfig& config() const noexcept { return config_; }
  /// Of the whole call: quantised K and V, tables, the centred keys where asked, and the attention's own.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }
  [[nodiscard]] const char* backend() const noexcept { return attention_.backend(); }
  [[nodiscard]] std::int32_t num_workers() const noexcept { return attention_.num_workers(); }

 private:
  friend struct DensePlanAccess;
  DenseAttentionConfig config_{};
  AttentionPlan attention_{};
  std::size_t workspace_bytes_ = 0;
};

/// Chooses a back end and kernels, and says how much workspace a call needs. Allocates nothing on a device.
/// @errors kInvalidSize, kInvalidHeads, kUnsupportedHeadDim, kUnsupportedFormat, kInvalidArgument, kInvalidGlobalScale,
///         kNullPointer, kUnknownBackend, kBackendUnavailable, kDeviceError, kInternal. *plan is untouched on error.
[[nodiscard]] FP4PA_API Status plan_dense_attention(const DenseAttentionConfig& config,
                                                    DenseAttentionPlan* plan) noexcept;

/// Quantises K and V and computes O = softmax(sm_scale Q K^T + mask) V and, where asked, LSE. Rows that see no key get
/// O = 0 and LSE = -inf. As near to double precision over the quantised values as `run` is.
/// @errors kNullPointer, kMisalignedPointer, kInvalidSize, kInvalidStrides, kWorkspaceTooSmall, kPlanMismatch (a dtype that is not the
///         plan's, too), kBackendUnavailable (no kernels for the current device), kDeviceError; on the CPU also kInvalidIndptr. O and LSE are not written when an error is
///         returned.
[[nodiscard]] FP4PA_API Status run_dense_attention(const DenseAttentionPlan& plan,
                                                   const DenseAttentionArgs& args) noexcept;

// --- Attention in MXFP8 --------------------------------------------------------------------------

/// A [tokens, heads, head_dim] tensor in MXFP8: E4M3 codes, and one E8M0 (UE8M0) scale per 32 of them along head_dim,
/// [tokens, heads, head_dim / 32]. Strides in bytes, 0 = dense: a head stride of a row, a token stride of `heads` head strides.
struct Mxfp8Tensor {
  const void* codes = nullptr;  ///< 16-byte aligned, strides multiples of 16
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  const void* scales = nullptr;  ///< no alignment
  std::int64_t scale_token_stride = 0;
  std::int64_t scale_head_stride = 0;
};

/// Where K and V are decoded. The values are the same, the speed is not.
enum class Mxfp8Decode : std::int32_t {
  kAuto = 0,     ///< kOnce where at least 64 query rows share a key (max_q_len * num_q_heads / num_kv_heads), else kPerTile.
                 ///< Always kPerTile with a kernel whose matrix core takes the codes as they lie, or whose warps decode beside it
  kPerTile = 1,  ///< by the kernel, each time a tile is read: the fewest bytes, for few queries
  kOnce = 2,     ///< to bf16 in the workspace before the attention: each code once, for many queries
};

/// What does not change between calls of MXFP8 attention.
struct Mxfp8AttentionConfig {
  std::int32_t num_q_heads = 0;  ///< a multiple of num_kv_heads
  std::int32_t num_kv_heads = 0;  ///< both 1 to 65536
  std::int32_t head_dim = 0;  ///< a multiple of 32 from 32 to 256
  DType o_dtype = DType::kBF16;
  float sm_scale = 0.0f;  ///< multiplies Q K^T, 2^-126 to 2^126 in magnitude; 0 = 1 / sqrt(head_dim)
  bool causal = false;
  ScaleLayout scale_layout = ScaleLayout::kLinear;  ///< of all three tensors; the 128x4 layout is refused
  Mxfp8Decode decode = Mxfp8Decode::kAuto;

  DenseLimits limits;
  bool batch_invariant = false;  ///< this and the next two as DenseAttentionConfig's
  const char* backend = nullptr;
  std::int32_t num_threads = 0;
};

/// What changes with every call. All pointers are in the back end's memory.
struct Mxfp8AttentionArgs {
  Mxfp8Tensor q;      ///< [q_tokens, num_q_heads, head_dim]
  Mxfp8Tensor k;      ///< [kv_tokens, num_kv_heads, head_dim]
  Mxfp8Tensor v;      ///< [kv_tokens, num_kv_heads, head_dim]
  void* o = nullptr;  ///< [q_tokens, num_q_heads, head_dim] o_dtype, 16-byte aligned; may not alias an input
  std::int64_t o_token_stride = 0;  ///< elements; 0 = dense, as in DenseAttentionArgs
  std::int64_t o_head_stride = 0;
  float* lse = nullptr;  ///< optional [q_tokens, num_q_heads], natural log; -inf: nothing seen

  DenseBatch rows;
  void* workspace = nullptr;  ///< 256-byte aligned; contents need not survive between calls
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;
};

/// A validated configuration with its partition; a plain value, as AttentionPlan is.
class Mxfp8AttentionPlan {
 public:
  /// As planned, but for its `backend`, which is null: see backend().
  [[nodiscard]] const Mxfp8AttentionConfig& config() const noexcept { return config_; }
  /// Of the whole call: decoded K and V where they are, tables, and the attention's own.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }
  [[nodiscard]] const char* backend() const noexcept { return attention_.backend(); }
  [[nodiscard]] std::int32_t num_workers() const noexcept { return attention_.num_workers(); }
  /// kPerTile or kOnce: what kAuto has become.
  [[nodiscard]] Mxfp8Decode decode() const noexcept { return decode_; }

 private:
  friend struct DensePlanAccess;
  Mxfp8AttentionConfig config_{};
  AttentionPlan attention_{};
  std::size_t workspace_bytes_ = 0;
  Mxfp8Decode decode_ = Mxfp8Decode::kAuto;
};

/// The same for MXFP8.
/// @errors as plan_dense_attention
[[nodiscard]] FP4PA_API Status plan_mxfp8_attention(const Mxfp8AttentionConfig& config,
                                                    Mxfp8AttentionPlan* plan) noexcept;

/// O = softmax(sm_scale Q K^T + mask) V over the values code * scale of all three tensors, V's scales included; and,
/// where asked, LSE; as near to double precision as `run` is. K and V may be the same memory. A NaN scale (0xFF) or code makes NaN of what it belongs to.
/// @errors as run_dense_attention
[[nodiscard]] FP4PA_API Status run_mxfp8_attention(const Mxfp8AttentionPlan& plan,
                                                   const Mxfp8AttentionArgs& args) noexcept;

[[nodiscard]] constexpr const char* name_of(Mxfp8Decode v) noexcept {
  switch (v) {
    case Mxfp8Decode::kAuto:
      return "auto";
    case Mxfp8Decode::kPerTile:
      return "per_tile";
    case Mxfp8Decode::kOnce:
      return "once";
  }
  return "unknown";
}

}  // namespace fp4pa
