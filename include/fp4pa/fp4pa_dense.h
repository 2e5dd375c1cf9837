/* libfp4pa in C99: attention over contiguous Q, K and V, quantised to FP4 on the way or given in MXFP8. Included by fp4pa.h,
 * whose conventions hold here.
 *
 * A batch is packed: the rows of Q are those of sequence 0, then those of sequence 1, ..., and so are the rows of K and V.
 * q_indptr and kv_indptr, int32 [batch + 1] from 0 in the back end's memory, say where each begins; a null one means
 * tokens / batch rows each. The CPU checks what they hold. On a GPU, which reads them in device memory, invalid lengths are not
 * reported, and nothing outside the tensors and the workspace is touched: a sequence with more than max_kv_len keys counts as empty
 * (O = 0, LSE = -inf), and one with more than max_q_len queries may leave some rows of O and LSE unwritten. */
#ifndef FP4PA_FP4PA_DENSE_H
#define FP4PA_FP4PA_DENSE_H

#include "fp4pa/fp4pa.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- Dense attention in FP4 ---------------------------------------------------------------------------------------------- */

/* What does not change between calls. */
typedef struct fp4pa_dense_config {
  size_t struct_size;
  int32_t num_q_heads; /* a multiple of num_kv_heads; query head h reads KV head h / (num_q_heads / num_kv_heads) */
  int32_t num_kv_heads; /* both 1 to 65536 */
  int32_t head_dim; /* a multiple of 32 from 32 to 256 */
  fp4pa_dtype q_dtype;
  fp4pa_dtype kv_dtype; /* of K and V as they are given */
  fp4pa_dtype o_dtype;
  float sm_scale; /* multiplies Q K^T, 2^-126 to 2^126 in magnitude; 0 = 1 / sqrt(head_dim) */
  int32_t causal; /* 0 or 1. Aligned to the end: query i of n sees keys 0 .. len - n + i */

  fp4pa_kv_format k_format; /* what K and V become: any format of a cache */
  fp4pa_kv_format v_format;
  fp4pa_scale_axis v_scale_axis;
  int32_t rotation; /* Hadamard block of K before quantising and of Q on load: 0, 16, 32, 64 or 128; must divide head_dim */
  int32_t smooth_k; /* 0 or 1: quantise K less its mean over each sequence's tokens, rounded to f32 first; O and LSE are those of K itself */
  fp4pa_scale_mode scale_mode;   /* MXFP4, MXFP8, E8M0 per token */
  fp4pa_nvfp4_scale nvfp4_scale; /* NVFP4 */
  float k_global_scale;          /* decode multipliers of NVFP4 and FP8; 1 for other formats. With NVFP4 and a multiplier of 1, groups whose
                                    largest magnitude lies between 0.012 and 2688 are in range */
  float v_global_scale;

  int32_t max_batch;     /* 1 to 2^20 */
  int32_t max_q_tokens;  /* rows of Q, over the batch; times num_q_heads below 2^31 */
  int32_t max_q_len;     /* of one sequence, 1 to max_q_tokens */
  int32_t max_kv_tokens; /* rows of K and V, over the batch, 0 to 2^30 */
  int32_t max_kv_len;    /* of one sequence, 0 to max_kv_tokens */
  int32_t batch_invariant; /* 0 or 1: a sequence's result does not depend on the rest of the batch */
  int32_t num_threads;     /* CPU threads, at most 4096; 0 = OpenMP's choice at plan time. More than one: see fp4pa_exec */
  const char* backend;     /* null: FP4PA_FORCE_BACKEND, or else the best available */
  fp4pa_matrix_path matrix_path; /* as fp4pa_attention_config's */
} fp4pa_dense_config;
/* Defaults: not causal, everything in bf16, NVFP4 along head_dim, global scales 1; the rest 0. */
FP4PA_API void fp4pa_dense_config_init_sized(fp4pa_dense_config* config, size_t struct_size);

/* What changes with every call. All pointers are in the back end's memory; strides are in elements, 0 = dense: a head stride of head_dim,
 * a token stride of as many head strides as there are heads. */
typedef struct fp4pa_dense_args {
  size_t struct_size;
  const void* q; /* [q_tokens, num_q_heads, head_dim] q_dtype, 16-byte aligned */
  int64_t q_token_stride;
  int64_t q_head_stride;
  const void* k; /* [kv_tokens, num_kv_heads, head_dim] kv_dtype, aligned to its element */
  int64_t k_token_stride;
  int64_t k_head_stride;
  const void* v;
  int64_t v_token_stride;
  int64_t v_head_stride;
  void* o; /* [q_tokens, num_q_heads, head_dim] o_dtype, 16-byte aligned; may not alias an input */
  int64_t o_token_stride;
  int64_t o_head_stride;
  float* lse; /* null, or [q_tokens, num_q_heads], natural log; -inf: nothing seen */

  const int32_t* q_indptr;
  const int32_t* kv_indptr;
  void* workspace; /* 256-byte aligned; contents need not survive between calls */
  size_t workspace_bytes;
  void* stream; /* cudaStream_t or hipStream_t; ignored by the CPU */
  int32_t batch; /* 0: no work; both numbers of rows are 0, too */
  int32_t q_tokens;
  int32_t kv_tokens;
  int32_t reserved; /* 0 */
} fp4pa_dense_args;
FP4PA_API void fp4pa_dense_args_init_sized(fp4pa_dense_args* args, size_t struct_size);

/* A validated configuration; immutable, usable from several threads at once, each with its own workspace. */
typedef struct fp4pa_dense_plan fp4pa_dense_plan;

/* *plan is untouched on error; otherwise it is destroyed with fp4pa_dense_plan_destroy. Errors: FP4PA_INVALID_SIZE,
 * FP4PA_INVALID_HEADS, FP4PA_UNSUPPORTED_HEAD_DIM, FP4PA_UNSUPPORTED_FORMAT, FP4PA_INVALID_ARGUMENT,
 * FP4PA_INVALID_GLOBAL_SCALE, FP4PA_NULL_POINTER, FP4PA_UNKNOWN_BACKEND, FP4PA_BACKEND_UNAVAILABLE, FP4PA_DEVICE_ERROR, FP4PA_INTERNAL. */
FP4PA_API fp4pa_status fp4pa_dense_plan_create(const fp4pa_dense_config* config, fp4pa_dense_plan** plan);
/* Null is allowed. */
FP4PA_API void fp4pa_dense_plan_destroy(fp4pa_dense_plan* plan);
/* Bytes of workspace that fp4pa_dense_run needs: quantised K and V, tables, and the attention's own; 0 for null. */
FP4PA_API size_t fp4pa_dense_plan_workspace_bytes(const fp4pa_dense_plan* plan);
/* The back end that will run; "" for null. */
FP4PA_API const char* fp4pa_dense_plan_backend(const fp4pa_dense_plan* plan);

/* Quantises K and V once and computes O = softmax(sm_scale Q K^T + mask) V and, where asked, LSE. Rows that see no key get
 * O = 0 and LSE = -inf. Never allocates, never synchronises. Errors: FP4PA_NULL_POINTER, FP4PA_MISALIGNED_POINTER,
 * FP4PA_INVALID_SIZE, FP4PA_INVALID_STRIDES, FP4PA_INVALID_ARGUMENT (struct_size, reserved), FP4PA_WORKSPACE_TOO_SMALL,
 * FP4PA_PLAN_MISMATCH (a size past the plan's, too), FP4PA_BACKEND_UNAVAILABLE (no kernels for the current device), FP4PA_DEVICE_ERROR; on the CPU also FP4PA_INVALID_INDPTR. */
FP4PA_API fp4pa_status fp4pa_dense_run(const fp4pa_dense_plan* plan, const fp4pa_dense_args* args);

/* --- Attention in MXFP8 -------------------------------------------------------------------------------------------------- */

/* A [tokens, heads, head_dim] tensor: E4M3 codes, and one E8M0 scale per 32 of them along head_dim,
 * [tokens, heads, head_dim / 32]. Strides in bytes, 0 = dense: a head stride of a row, a token stride of `heads` head strides. */
typedef struct fp4pa_mxfp8_tensor {
  const void* codes; /* 16-byte aligned, strides multiples of 16 */
  int64_t token_stride;
  int64_t head_stride;
  const void* scales; /* no alignment */
  int64_t scale_token_stride;
  int64_t scale_head_stride;
  int64_t reserved[2]; /* 0 */
} fp4pa_mxfp8_tensor;

/* Where K and V are decoded; the values are the same. */
typedef int32_t fp4pa_mxfp8_decode;
enum {
  FP4PA_MXFP8_AUTO = 0,     /* once where max_q_len * num_q_heads / num_kv_heads, the rows that share a key, is at least 64 and the
                             * device has no kernel whose matrix core takes the codes as they lie or whose warps decode beside it */
  FP4PA_MXFP8_PER_TILE = 1, /* by the kernel, each time a tile is read */
  FP4PA_MXFP8_ONCE = 2      /* to bf16 in the workspace before the attention */
};

/* What does not change between calls of MXFP8 attention. */
typedef struct fp4pa_mxfp8_config {
  size_t struct_size;
  int32_t num_q_heads;  /* a multiple of num_kv_heads */
  int32_t num_kv_heads; /* both 1 to 65536 */
  int32_t head_dim; /* a multiple of 32 from 32 to 256 */
  fp4pa_dtype o_dtype;
  float sm_scale; /* multiplies Q K^T, 2^-126 to 2^126 in magnitude; 0 = 1 / sqrt(head_dim) */
  int32_t causal;
  fp4pa_scale_layout scale_layout; /* of all three tensors; only FP4PA_SCALES_LINEAR */
  fp4pa_mxfp8_decode decode;

  int32_t max_batch; /* as in fp4pa_dense_config, as is all that follows */
  int32_t max_q_tokens;
  int32_t max_q_len;
  int32_t max_kv_tokens;
  int32_t max_kv_len;
  int32_t batch_invariant;
  int32_t num_threads;
  int32_t reserved; /* 0 */
  const char* backend;
} fp4pa_mxfp8_config;
/* Defaults: not causal, O in bf16, linear scales; the rest 0. */
FP4PA_API void fp4pa_mxfp8_config_init_sized(fp4pa_mxfp8_config* config, size_t struct_size);

/* What changes with every call. All pointers are in the memory of the back end that runs. */
typedef struct fp4pa_mxfp8_args {
  size_t struct_size;
  fp4pa_mxfp8_tensor q; /* [q_tokens, num_q_heads, head_dim] */
  fp4pa_mxfp8_tensor k; /* [kv_tokens, num_kv_heads, head_dim] */
  fp4pa_mxfp8_tensor v;
  void* o; /* as in fp4pa_dense_args, as is all that follows */
  int64_t o_token_stride;
  int64_t o_head_stride;
  float* lse;

  const int32_t* q_indptr;
  const int32_t* kv_indptr;
  void* workspace;
  size_t workspace_bytes;
  void* stream;
  int32_t batch; /* 0: no work; both numbers of rows are 0, too */
  int32_t q_tokens;
  int32_t kv_tokens;
  int32_t reserved; /* 0 */
} fp4pa_mxfp8_args;
FP4PA_API void fp4pa_mxfp8_args_init_sized(fp4pa_mxfp8_args* args, size_t struct_size);

/* A validated configuration with its partition; create, use from any thread, destroy. */
typedef struct fp4pa_mxfp8_plan fp4pa_mxfp8_plan;

/* Errors: as fp4pa_dense_plan_create. */
FP4PA_API fp4pa_status fp4pa_mxfp8_plan_create(const fp4pa_mxfp8_config* config, fp4pa_mxfp8_plan** plan);
/* Null is ignored. */
FP4PA_API void fp4pa_mxfp8_plan_destroy(fp4pa_mxfp8_plan* plan);
/* Bytes of workspace that a call takes, 256-byte aligned; 0 for null. */
FP4PA_API size_t fp4pa_mxfp8_plan_workspace_bytes(const fp4pa_mxfp8_plan* plan);
/* Name of the back end that runs it; "" for null. */
FP4PA_API const char* fp4pa_mxfp8_plan_backend(const fp4pa_mxfp8_plan* plan);

/* O = softmax(sm_scale Q K^T + mask) V over the values code * scale of all three tensors, V's scales included; and, where
 * asked, LSE. Errors: as fp4pa_dense_run. */
FP4PA_API fp4pa_status fp4pa_mxfp8_run(const fp4pa_mxfp8_plan* plan, const fp4pa_mxfp8_args* args);

static inline void fp4pa_dense_config_init(fp4pa_dense_config* x) { fp4pa_dense_config_init_sized(x, sizeof *x); }
static inline void fp4pa_dense_args_init(fp4pa_dense_args* x) { fp4pa_dense_args_init_sized(x, sizeof *x); }
static inline void fp4pa_mxfp8_config_init(fp4pa_mxfp8_config* x) { fp4pa_mxfp8_config_init_sized(x, sizeof *x); }
static inline void fp4pa_mxfp8_args_init(fp4pa_mxfp8_args* x) { fp4pa_mxfp8_args_init_sized(x, sizeof *x); }

#ifdef __cplusplus
}
#endif

#endif /* FP4PA_FP4PA_DENSE_H */
