/* libfp4pa in C99: matrix products with an FP4 right operand. Included by fp4pa.h; gemm.hpp describes the layouts at length.
 * Conventions are those of fp4pa.h.
 */
#ifndef FP4PA_FP4PA_GEMM_H
#define FP4PA_FP4PA_GEMM_H

#include "fp4pa/fp4pa.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the left operand is multiplied as. */
typedef int32_t fp4pa_activation_form;
enum {
  FP4PA_ACTIVATIONS_16BIT = 0, /* f16 or bf16, as given (W4A16) */
  FP4PA_ACTIVATIONS_FP4 = 1    /* quantised to the weight's format in the call (W4A4) */
};

/* `batch` weights [rows = N, cols = K], one after another. With G = ceil(K / group), group 32 (MXFP4) or 16 (NVFP4):
 *   codes   [N, G * group / 2] bytes, the even column in the low nibble; codes past K are 0,
 *           but in a group that NaN or infinity makes NaN
 *   scales  [N, G] bytes, E8M0 or E4M3: row-major, or in the 128x4 layout with its padding */
typedef struct fp4pa_fp4_weight {
  size_t struct_size;
  fp4pa_block_format format; /* FP4PA_BLOCK_MXFP4 or FP4PA_BLOCK_NVFP4 */
  fp4pa_scale_layout scale_layout;
  int64_t rows;
  int64_t cols; /* any number */
  int64_t batch;
  const void* codes;             /* 16-byte aligned */
  const void* scales;            /* 4-byte aligned */
  const float* global_scale_ptr; /* NVFP4: null, or [batch] decode multipliers in the back end's memory, read instead; the CPU checks them */
  float global_scale;            /* NVFP4's decode multiplier, 2^-126 to 2^126; 1 for MXFP4 */
  int32_t reserved;              /* zero */
} fp4pa_fp4_weight;
/* Defaults: MXFP4, linear, batch 1, global scale 1; sizes of 0. */
FP4PA_API void fp4pa_fp4_weight_init_sized(fp4pa_fp4_weight* weight, size_t struct_size);

/* Bytes of the codes and of the scales of `batch` weights; 0 for sizes or formats that have none. */
FP4PA_API size_t fp4pa_fp4_weight_code_bytes(fp4pa_block_format format, int64_t rows, int64_t cols, int64_t batch);
FP4PA_API size_t fp4pa_fp4_weight_scale_bytes(fp4pa_block_format format, fp4pa_scale_layout layout, int64_t rows,
                                              int64_t cols, int64_t batch);

/* Quantises w [batch, rows, cols] (dense, dtype) into codes and scales and fills in *weight, which refers to them.
 *   global_scales  NVFP4: [batch] floats that receive amax / 2688 of the finite elements, at least 2^-126; null: config's global_scale is used. Null for MXFP4
 * Errors: FP4PA_NULL_POINTER, FP4PA_MISALIGNED_POINTER, FP4PA_INVALID_SIZE, FP4PA_UNSUPPORTED_FORMAT,
 * FP4PA_INVALID_GLOBAL_SCALE, FP4PA_INVALID_ARGUMENT, FP4PA_UNKNOWN_BACKEND, FP4PA_BACKEND_UNAVAILABLE,
 * FP4PA_DEVICE_ERROR. */
FP4PA_API fp4pa_status fp4pa_fp4_quantize_weight(const fp4pa_quantize_config* config, const void* w, fp4pa_dtype dtype,
                                                 int64_t rows, int64_t cols, int64_t batch, void* codes, void* scales,
                                                 float* global_scales, fp4pa_fp4_weight* weight, const fp4pa_exec* exec);

/* Weights in safetensors files, in the host's memory: the library's own form, gpt-oss's and ModelOpt's are read, the first is written
 * (gemm.hpp has them). A build without a JSON parser answers FP4PA_BACKEND_UNAVAILABLE.
 * Describes the weight called `name`; pointers become null. Errors: FP4PA_NULL_POINTER, FP4PA_INVALID_ARGUMENT (struct_size),
 * FP4PA_FILE_ERROR, FP4PA_BACKEND_UNAVAILABLE. */
FP4PA_API fp4pa_status fp4pa_fp4_find_weight(const char* path, const char* name, fp4pa_fp4_weight* weight);
/* Reads it into codes, scales and global_scales (NVFP4: [batch] floats; not written for MXFP4), to which *weight then refers. Before, *weight is
 * what fp4pa_fp4_find_weight described, or has 0 rows: where the file has another weight by now, nothing is written. Errors: those, and
 * FP4PA_MISALIGNED_POINTER. */
FP4PA_API fp4pa_status fp4pa_fp4_load_weight(const char* path, const char* name, void* codes, void* scales, float* global_scales,
                                             fp4pa_fp4_weight* weight);
/* Writes a file of this one weight, following a symbolic link; what exists and is no regular file is refused. Errors: those, and
 * FP4PA_INVALID_SIZE, FP4PA_UNSUPPORTED_FORMAT, FP4PA_INVALID_GLOBAL_SCALE. */
FP4PA_API fp4pa_status fp4pa_fp4_save_weight(const char* path, const char* name, const fp4pa_fp4_weight* weight);

/* out [batch, m, N] = x [batch, m, K] weight^T + bias, dense and aligned to their elements; m and N below 2^31, K up to 2^31 - 128, batch
 * up to 65535. A weight with batch 1 serves every x. */
typedef struct fp4pa_linear_args {
  size_t struct_size;
  const fp4pa_fp4_weight* weight;
  const void* x;
  void* out;        /* may not alias an input */
  const void* bias; /* null, or [N] */
  int64_t m;        /* rows of x per batch */
  int64_t batch;
  fp4pa_dtype x_dtype; /* FP4PA_F32 only with FP4PA_ACTIVATIONS_FP4 */
  fp4pa_dtype out_dtype;
  fp4pa_dtype bias_dtype;
  fp4pa_activation_form activations;
  fp4pa_scale_mode scale_mode;   /* FP4PA_ACTIVATIONS_FP4, MXFP4 */
  fp4pa_nvfp4_scale nvfp4_scale; /* FP4PA_ACTIVATIONS_FP4, NVFP4 */
  float x_global_scale;          /* FP4PA_ACTIVATIONS_FP4, NVFP4: 0 takes amax / 2688 of each x; 0 with all else */
  /* 0 or 1. 1 is the caller's promise that the weight was complete before the preceding kernel in the stream began, as one that is loaded
   * with a model is. CUDA (sm_90) then reads it while that kernel still runs. */
  int32_t weight_settled;
  void* workspace; /* 256-byte aligned, null where 0 bytes are needed */
  size_t workspace_bytes;
} fp4pa_linear_args;
/* Defaults: batch 1, bf16 throughout, 16-bit activations. */
FP4PA_API void fp4pa_linear_args_init_sized(fp4pa_linear_args* args, size_t struct_size);

/* Bytes of workspace that fp4pa_fp4_linear needs; pointers but `weight` are not looked at. On the CPU they hold a part for each thread that
 * the call would start from here. A workspace with fewer parts, down to the one of num_threads = 1, does as well, with as many threads: where
 * OpenMP chooses, another calling thread may be given more. Errors: FP4PA_NULL_POINTER, FP4PA_INVALID_SIZE, FP4PA_UNSUPPORTED_FORMAT,
 * FP4PA_INVALID_ARGUMENT, FP4PA_UNKNOWN_BACKEND, FP4PA_BACKEND_UNAVAILABLE, FP4PA_DEVICE_ERROR. */
FP4PA_API fp4pa_status fp4pa_fp4_linear_workspace(const fp4pa_linear_args* args, size_t* bytes, const fp4pa_exec* exec);
/* Computes it: exact products, f32 sums, and a result that is rounded from them. Never allocates, never synchronises.
 * Errors: FP4PA_NULL_POINTER, FP4PA_MISALIGNED_POINTER, FP4PA_INVALID_SIZE, FP4PA_UNSUPPORTED_FORMAT,
 * FP4PA_INVALID_GLOBAL_SCALE, FP4PA_INVALID_ARGUMENT, FP4PA_WORKSPACE_TOO_SMALL, FP4PA_UNKNOWN_BACKEND,
 * FP4PA_BACKEND_UNAVAILABLE, FP4PA_DEVICE_ERROR. */
FP4PA_API fp4pa_status fp4pa_fp4_linear(const fp4pa_linear_args* args, const fp4pa_exec* exec);

/* out [batch, m, n] = a [batch, m, k] b [batch, n, k]^T, both quantised on the fly. All three are dense and aligned to their elements; m
 * (0 is allowed) and n below 2^31, k up to 2^31 - 128, batch up to 65535. */
typedef struct fp4pa_matmul_args {
  size_t struct_size;
  const void* a;
  const void* b;
  void* out; /* may not alias an input */
  int64_t m, n, k;
  int64_t batch;
  fp4pa_block_format format; /* FP4PA_BLOCK_MXFP4 or FP4PA_BLOCK_NVFP4, of both */
  fp4pa_scale_mode scale_mode;
  fp4pa_nvfp4_scale nvfp4_scale;
  fp4pa_dtype a_dtype;
  fp4pa_dtype b_dtype;
  fp4pa_dtype out_dtype;
  void* workspace; /* 256-byte aligned */
  size_t workspace_bytes;
} fp4pa_matmul_args;
/* Defaults: MXFP4, batch 1, bf16 throughout. */
FP4PA_API void fp4pa_matmul_args_init_sized(fp4pa_matmul_args* args, size_t struct_size);

/* Bytes of workspace that a call takes, or fewer as for fp4pa_fp4_linear; pointers need not be set. Errors: as fp4pa_fp4_linear_workspace. */
FP4PA_API fp4pa_status fp4pa_fp4_matmul_workspace(const fp4pa_matmul_args* args, size_t* bytes, const fp4pa_exec* exec);
/* Errors: as fp4pa_fp4_linear. */
FP4PA_API fp4pa_status fp4pa_fp4_matmul(const fp4pa_matmul_args* args, const fp4pa_exec* exec);

static inline void fp4pa_fp4_weight_init(fp4pa_fp4_weight* x) { fp4pa_fp4_weight_init_sized(x, sizeof *x); }
static inline void fp4pa_linear_args_init(fp4pa_linear_args* x) { fp4pa_linear_args_init_sized(x, sizeof *x); }
static inline void fp4pa_matmul_args_init(fp4pa_matmul_args* x) { fp4pa_matmul_args_init_sized(x, sizeof *x); }

#ifdef __cplusplus
}
#endif

#endif /* FP4PA_FP4PA_GEMM_H */
