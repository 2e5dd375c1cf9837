// Paged attention: plan on the host, run on the device.
//
// `plan` validates everything that can be validated without reading device memory and fixes the partition of the work.
// `run` reads lengths and tables from the back end's memory, never allocates, never synchronises (but with validate_device_data)
// and never throws; on a GPU it can be captured in a graph and replayed with other lengths up to the planned maxima.
//
// One call serves decode, several query tokens per sequence, chunked prefill and any mixture: the queries of sequence b are
// rows qo_indptr[b] .. qo_indptr[b+1]-1, and they are the last tokens of that sequence's seq_lens[b] keys.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4pa/cache.hpp"
#include "fp4pa/export.hpp"
#include "fp4pa/status.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa {

/// How page tables are given.
enum class TableKind : std::int32_t {
  kBlockTable = 0,  ///< block_table [batch, table_stride]
  kCsr = 1,         ///< kv_indptr [batch + 1] into kv_indices
};

/// What does not change between calls. Zero-initialised fields mean "none" unless said otherwise.
struct AttentionConfig {
  KvCacheDesc cache;                 ///< the only tier, or the old one
  bool two_tier = false;             ///< also read `recent` and the three numbers below (see TwoTierDesc). false: all three are 0 and
                                     ///< `recent` has no memory
  KvCacheDesc recent;
  std::int32_t window_tokens = 0;
  std::int32_t group_tokens = 0;
  std::int32_t ring_pages = 0;

  std::int32_t num_q_heads = 0;      ///< a multiple of cache.num_kv_heads; query head h reads KV head h / (q / kv)
  DType q_dtype = DType::kBF16;
  DType o_dtype = DType::kBF16;
  float sm_scale = 0.0f;             ///< multiplies Q K^T, 2^-126 to 2^126 in magnitude; 0 = 1 / sqrt(head_dim). Of heads padded with zeros
                                     ///< (72 and 80 to 96, 112 to 128) it is 1 / sqrt(dimension without them)

  bool causal = true;                ///< aligned to the end: query i of n sees keys 0 .. len - n + i
  std::int32_t sliding_window = 0;   ///< a query sees at most this many of its newest visible keys; 0 = all. Needs causal. Pages wholly
                                     ///< before the window of a call's first query are not read, nor their ids looked at: they may be free
  float softcap = 0.0f;              ///< logits become softcap * tanh(logit / softcap), 2^-126 to 2^126; 0 = off. Before ALiBi and masks
  bool sinks = false;                ///< AttentionArgs::sinks is read
  bool alibi = false;                ///< AttentionArgs::alibi_slopes is read
  bool tree_mask = false;            ///< AttentionArgs::tree_mask replaces the causal rule among a sequence's queries; not with alibi, and
                                     ///< max_q_len is at most 64. sliding_window is 0 or at least max_q_len then, and counts from a
                                     ///< query's depth, which is the number of queries that it sees (of a query that sees none: 1)

  std::int32_t max_batch = 0;        ///< 1 to 2^20
  std::int32_t max_q_tokens = 0;     ///< total query tokens of a call, over the batch; times num_q_heads below 2^31
  std::int32_t max_q_len = 0;        ///< query tokens of one sequence, 1 to max_q_tokens
  std::int32_t max_kv_len = 0;       ///< keys of one sequence, 0 to 2^30
  TableKind table_kind = TableKind::kBlockTable;

  bool batch_invariant = false;      ///< a sequence's result does not depend on the rest of the batch
  std::int32_t kv_split_tokens = 0;  ///< force splits of this many keys (a multiple of 64; from max_kv_len on none); 0 = balance over processors
  bool validate_device_data = false; ///< GPUs: also check lengths and page ids, which waits for the stream (CUDA: not in a capture,
                                     ///< where nothing is checked; HIP: never capture such a run); the CPU always does
  const char* backend = nullptr;     ///< a name; null (and not ""): FP4PA_FORCE_BACKEND, or else the best available
  std::int32_t num_threads = 0;      ///< CPU threads, at most 4096; 0 = OpenMP's choice at plan time. More than one: see ExecDesc
  MatrixPath matrix_path = MatrixPath::kAuto;  ///< whether FP4 matrix cores are used where there are any
};

/// What changes with every call. All pointers are in the back end's memory. On the CPU q, o and tree_mask of a call without query tokens
/// may be null, and the page tables of one in which no query has a key. What the plan does not ask for (sinks, slopes, a tree mask) is
/// not looked at.
///
/// A GPU trusts lengths and page ids: one outside its bounds makes it read memory that is not the cache's, or not a table's. With
/// AttentionConfig::validate_device_data they are checked first, and the call returns an error instead.
struct AttentionArgs {
  const void* q = nullptr;              ///< [tokens, num_q_heads, head_dim] q_dtype, 16-byte aligned
  std::int64_t q_token_stride = 0;      ///< elements, of any number (multiples of 16 bytes are fastest); 0 = num_q_heads head strides. Either all heads
                                        ///< of a token lie within its token stride, or all tokens of a head within its head stride
  std::int64_t q_head_stride = 0;       ///< elements; 0 = head_dim
  void* o = nullptr;                    ///< [tokens, num_q_heads, head_dim] o_dtype, 16-byte aligned; may not alias an input, which is not checked
  std::int64_t o_token_stride = 0;      ///< as those of q
  std::int64_t o_head_stride = 0;
  float* lse = nullptr;                 ///< optional [tokens, num_q_heads], natural log, sinks included; -inf: nothing seen

  std::int32_t batch = 0;
  const std::int32_t* qo_indptr = nullptr;    ///< [batch + 1], from 0, not decreasing
  const std::int32_t* seq_lens = nullptr;     ///< [batch] keys of each sequence, its queries included. With fewer keys than queries the first
                                              ///< queries stand before key 0: with causal they see nothing
  const std::int32_t* block_table = nullptr;  ///< kBlockTable: [batch, table_stride]
  std::int64_t table_stride = 0;              ///< entries; as many as batch rows of them the address space holds
  const std::int32_t* kv_indptr = nullptr;    ///< kCsr: [batch + 1], in pages
  const std::int32_t* kv_indices = nullptr;   ///< kCsr: [kv_indptr[batch]] page ids
  const std::int32_t* recent_table = nullptr; ///< two_tier: [batch, ring_pages]

  const float* sinks = nullptr;               ///< [num_q_heads] logits that only add to the denominator
  const float* alibi_slopes = nullptr;        ///< [num_q_heads]; adds slope * (key position - query position), positions in this call's sequence
  const std::uint64_t* tree_mask = nullptr;   ///< [tokens] bit j: this query sees its sequence's query j; bits from q_len on mean nothing; q_len <= 64

  void* workspace = nullptr;            ///< 256-byte aligned; contents survive between calls only for same_lengths
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;               ///< cudaStream_t or hipStream_t; ignored by the CPU

  /// The caller's promise that batch and the contents of qo_indptr and seq_lens equal those of the last run with this workspace, that nobody
  /// else has written to the workspace since, and that that run's plan equals this one but for the caches' pointers and global scales. A GPU
  /// then reuses that run's schedule instead of making one: for the layers of a model after its first. Layers that differ in anything else,
  /// as in sliding_window, need a plan and a workspace of their own. Without effect on the CPU and with validate_device_data.
  bool same_lengths = false;
};

/// A validated configuration with its partition. A plain value: copy it, keep it, use it from several threads at once (each
/// call with its own workspace), and on a GPU on every device of the same kind as the one that was current when it was made.
class AttentionPlan {
 public:
  /// As planned, but for its `backend`, which is null: see backend().
  [[nodiscard]] const AttentionConfig& config() const noexcept { return config_; }
  /// Bytes of workspace that a run takes.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }
  [[nodiscard]] const char* backend() const noexcept { return backend_name_; }
  /// Processors (CPU threads, or resident blocks) the work is divided over.
  [[nodiscard]] std::int32_t num_workers() const noexcept { return num_workers_; }

 private:
  friend struct PlanAccess;
  AttentionConfig config_{};
  const char* backend_name_ = "";
  std::size_t workspace_bytes_ = 0;
  std::int32_t num_workers_ = 0;
  std::int32_t tile_rows_ = 0;
  std::int32_t backend_index_ = -1;
  std::int32_t variant_ = 0;  // the back end's own choice of instance
  std::int32_t device_[3]{};  // that the partition is made for: architecture, multiprocessors, shared memory
};

/// Validates `config`, chooses a back end and an instance, and fixes the partition.
/// @errors validate(cache)'s, with a recent tier validate(TwoTierDesc)'s; kInvalidHeads, kInvalidSize, kInvalidArgument, kUnsupportedFormat
///         (a dtype; matrix_path is native and the back end has no such kernel), kUnsupportedHeadDim (a GPU has too little shared memory for
///         it), kNullPointer, kUnknownBackend, kBackendUnavailable, kDeviceError, kInternal (a kernel that does not fit on the device).
///         *plan is untouched on error.
[[nodiscard]] FP4PA_API Status plan(const AttentionConfig& config, AttentionPlan* plan) noexcept;

/// Computes O = softmax(sm_scale Q K^T + masks) V and, where asked, LSE.
/// Rows that see no key get O = 0 and LSE = -inf (or the sink's logit).
/// Against double precision over the values in the cache O, before it is rounded to o_dtype, is within 2e-3 (norm of the error by norm of O)
/// and LSE within 1e-3, as long as sm_scale times the magnitudes of a score's products add up to no more than about 2000: of more, f32
/// sums lose more; and as long as f32 holds what is computed on the way: an element of Q times sm_scale, log2(e) and K's global scale, and V's
/// magnitudes, added up over a sequence's keys, below 2^118. Where keys are multiplied as they lie (MatrixPath: SM120, gfx950), Q is a sum
/// of operands, and what that leaves of Q counts beside: 2^-14 of the magnitudes of a score's products where Q is f32 or rotated, 6^-5 of a
/// group's largest element with NVFP4 keys, 2^-21 of it else (docs/sm120.md).
/// NaN or infinity in V of a key that a mask hides may reach visible rows of the same tile, KV head and sequence: 0 times NaN is NaN.
/// @errors kNullPointer, kMisalignedPointer, kInvalidSize, kInvalidStrides, kInvalidArgument (recent_table with a plan of one tier),
///         kWorkspaceTooSmall, kPlanMismatch (a plan of another kind of device, too), kBackendUnavailable (no kernels for the current device), kDeviceError; where lengths and tables are looked
///         at, which is on the CPU always and on a GPU with validate_device_data, also kInvalidIndptr, kLengthExceedsTable,
///         kBlockIdOutOfRange, and on the CPU kInvalidGlobalScale. Nothing is written when an error is returned.
[[nodiscard]] FP4PA_API Status run(const AttentionPlan& plan, const AttentionArgs& args) noexcept;

/// Merges two normalised partial results over disjoint keys: o = (e^la oa + e^lb ob) / (e^la + e^lb), lse = log(e^la + e^lb).
/// `o` and `lse` may alias either input. A state with LSE = -inf contributes nothing. Sinks must have been passed to only one of the two
/// calls; with ALiBi both must count positions alike (docs/engine.md).
/// @param oa, ob, o  [rows, head_dim] dtype, dense; lse_a, lse_b, lse [rows] natural log; each aligned to its element
/// @errors kNullPointer, kMisalignedPointer, kInvalidSize, kUnsupportedHeadDim, kUnsupportedFormat, kInvalidArgument (num_threads),
///         kUnknownBackend, kBackendUnavailable, kDeviceError
[[nodiscard]] FP4PA_API Status merge_states(const void* oa, const float* lse_a, const void* ob, const float* lse_b,
                                            void* o, float* lse, DType dtype, std::int64_t rows, std::int32_t head_dim,
                                            const ExecDesc& exec = {}) noexcept;

}  // namespace fp4pa
