/* libfp4pa in C99: every function of fp4pa.hpp but some accessors of a plan and the constexpr helpers of enumerations.
 *
 * Conventions
 *   - A function that can fail returns fp4pa_status; fp4pa_last_error_detail() then has a sentence with the offending value
 *     and the allowed set. Nothing is written on error. Nothing aborts or throws. What is printed, to
 *     stderr, is what FP4PA_LOG asks for, and that FP4PA_LOG or FP4PA_CPU_TARGET has a value that is not known.
 *   - Every struct that is passed by pointer starts with its own size and is filled by its fp4pa_*_init before anything is set in it. A library
 *     that is newer than the caller takes the missing fields for their defaults; one that is older refuses fields that it
 *     does not know when they are not zero. Structs inside structs have reserved words instead of room to grow.
 *   - Enumerations are int32_t with named constants, so that their size is the same everywhere. The values are part of the
 *     ABI and equal those of the C++ enums.
 *   - Pointers to structs are only read during the call. Pointers inside them are the caller's memory and stay its own.
 *   - Sizes are in bytes where the name says so, strides of plain tensors in elements.
 *   - On the CPU the calling thread rounds to nearest and does not flush subnormal floats (x86: FTZ and DAZ off), which is how a
 *     thread starts. Codes and results depend on it.
 */
#ifndef FP4PA_FP4PA_H
#define FP4PA_FP4PA_H

#include <stddef.h>
#include <stdint.h>

#include "fp4pa/export.hpp"  /* plain preprocessor, as is the next one */
#include "fp4pa/version.hpp" /* FP4PA_VERSION_*, FP4PA_ABI_VERSION */

#ifdef __cplusplus
extern "C" {
#endif

/* --- Status ---------------------------------------------------------------------------------------------------------- */

typedef int32_t fp4pa_status;
enum {
  FP4PA_OK = 0,
  FP4PA_NULL_POINTER = 1,         /* a required pointer is null */
  FP4PA_MISALIGNED_POINTER = 2,   /* a pointer or stride breaks the documented alignment (strides of MXFP8 tensors: FP4PA_INVALID_STRIDES) */
  FP4PA_INVALID_SIZE = 3,         /* a count is zero, negative or too large */
  FP4PA_UNSUPPORTED_HEAD_DIM = 4, /* head_dim is not a multiple of 32 from 32 to 256, or its tiles need more shared memory than the GPU has */
  FP4PA_INVALID_HEADS = 5,        /* query heads are not a multiple of KV heads; without a cache also a number of heads outside 1 to 65536 */
  FP4PA_UNSUPPORTED_FORMAT = 6,   /* unknown format, dtype, layout, axis, rotation, rule for scales or slot type, or a combination that no reader has */
  FP4PA_INVALID_STRIDES = 7,      /* strides overlap, or do not cover a row */
  FP4PA_INVALID_GLOBAL_SCALE = 8, /* a global scale outside of 2^-126 to 2^126 (NaN, too), or other than 1 where a format has none */
  FP4PA_LENGTH_EXCEEDS_TABLE = 9, /* a sequence is longer than its row of the page table */
  FP4PA_BLOCK_ID_OUT_OF_RANGE = 10,
  FP4PA_SLOT_OUT_OF_RANGE = 11,
  FP4PA_INCOMPLETE_GROUP = 12, /* V scaled along tokens: an append would leave or touch an unfinished group */
  FP4PA_INVALID_INDPTR = 13,   /* an indptr does not start at 0, decreases, or does not end within the rows of the call */
  FP4PA_WORKSPACE_TOO_SMALL = 14,
  FP4PA_UNKNOWN_BACKEND = 15,     /* no back end of that name in this build */
  FP4PA_BACKEND_UNAVAILABLE = 16, /* built, but this machine cannot run it; or this build does not have the call */
  FP4PA_INVALID_ARGUMENT = 17,    /* a parameter is outside its documented range; also a wrong struct_size */
  FP4PA_PLAN_MISMATCH = 18,       /* run was called with arguments the plan was not made for */
  FP4PA_DEVICE_ERROR = 19,
  FP4PA_INTERNAL = 20,  /* a bug in libfp4pa, or no memory for what a call keeps on the host; the detail says which */
  FP4PA_FILE_ERROR = 21 /* a file cannot be read or written, or does not hold what was asked for */
};

/* The C++ spelling, for example "kUnsupportedHeadDim"; "kUnknownStatus" for a value outside the list. Never null. */
FP4PA_API const char* fp4pa_status_name(fp4pa_status status);
/* Detail of the last failing call on this thread. Never null; valid until the next failing call on this thread. */
FP4PA_API const char* fp4pa_last_error_detail(void);

/* --- Version and back ends --------------------------------------------------------------------------------------------- */

/* "0.1.0 (cpu, cpu-scalar)": the version, and the back ends of this build. */
FP4PA_API const char* fp4pa_version_string(void);
/* FP4PA_ABI_VERSION of the library. A program should refuse a library whose value differs from its header's. */
FP4PA_API int32_t fp4pa_abi_version(void);

typedef struct fp4pa_backend_info {
  size_t struct_size;
  const char* name;   /* "cpu", "cpu-scalar", "cuda", "hip", ...; static storage */
  const char* detail; /* the current device or instruction set it would use, or why it cannot run; static storage */
  int32_t available;  /* 1: can run here, now */
} fp4pa_backend_info;
FP4PA_API void fp4pa_backend_info_init_sized(fp4pa_backend_info* info, size_t struct_size);

/* How many back ends this build has. */
FP4PA_API int32_t fp4pa_backend_count(void);
/* The back end at `index`, best first, from 0 to fp4pa_backend_count() - 1.
 * Errors: FP4PA_NULL_POINTER, FP4PA_INVALID_ARGUMENT (index, struct_size). */
FP4PA_API fp4pa_status fp4pa_get_backend(int32_t index, fp4pa_backend_info* out);

/* Which back end runs, on which stream. Functions take a null fp4pa_exec for the defaults. */
typedef struct fp4pa_exec {
  size_t struct_size;
  const char* backend; /* a name; null (and not ""): FP4PA_FORCE_BACKEND from the environment (read once), or else the best one available: memory must be its */
  void* stream;        /* cudaStream_t or hipStream_t; ignored by the CPU */
  int32_t num_threads; /* CPU threads, at most 4096; 0 = OpenMP's choice. 1 is the calling thread alone. With more, OpenMP's runtime may
                        * allocate, and ends the process where it cannot or cannot start its threads */
  /* 0 or 1. 1, GPUs: fp4pa_append, fp4pa_append_two_tier, fp4pa_gather and fp4pa_copy_pages read their slots, lengths and tables back,
   * which waits for the stream, and refuse what the CPU always refuses. Not in a graph */
  int32_t validate_device_data;
} fp4pa_exec;
FP4PA_API void fp4pa_exec_init_sized(fp4pa_exec* exec, size_t struct_size);

/* --- Types ------------------------------------------------------------------------------------------------------------- */

/* Element type of a plain tensor. */
typedef int32_t fp4pa_dtype;
enum { FP4PA_F32 = 0, FP4PA_F16 = 1, FP4PA_BF16 = 2 };

/* How the K or the V of a page is encoded; bytes per token and KV head, for head_dim D. */
typedef int32_t fp4pa_kv_format;
enum {
  FP4PA_KV_MXFP4 = 0,          /* E2M1, one E8M0 scale per 32 elements: D/2 + D/32 */
  FP4PA_KV_NVFP4 = 1,          /* E2M1, one E4M3 scale per 16 elements, fp32 decode multiplier: D/2 + D/16 */
  FP4PA_KV_E8M0_PER_TOKEN = 2, /* E2M1, one E8M0 scale per token and head: D/2 + 1 */
  FP4PA_KV_FP8_E4M3 = 3,       /* E4M3 (OCP), fp32 decode multiplier: D */
  FP4PA_KV_BF16 = 4,           /* 2 D */
  FP4PA_KV_F16 = 5,            /* 2 D */
  FP4PA_KV_MXFP8 = 6           /* E4M3 (OCP), one E8M0 scale per 32 elements: D + D/32 */
};

/* Which way the groups of V's scales run; K's always run along head_dim. */
typedef int32_t fp4pa_scale_axis;
enum {
  FP4PA_SCALE_AXIS_HEAD_DIM = 0,
  FP4PA_SCALE_AXIS_TOKENS = 1 /* V in MXFP4 (32 tokens) or NVFP4 (16 tokens) only */
};

/* How FP4 reaches the matrix cores of a GPU that can multiply it as it lies in the cache, its block scales included. */
typedef int32_t fp4pa_matrix_path;
enum {
  FP4PA_MATRIX_AUTO = 0,   /* native where there is such a kernel; on SM120 a decoding kernel is preferred to a native one for few query
                              rows when it reads the keys fewer times */
  FP4PA_MATRIX_NATIVE = 1, /* as it lies in the cache; a plan refuses what has no such kernel */
  FP4PA_MATRIX_DECODE = 2  /* decoded to 16 bits (on CPUs, or to f32) before the product, as CPUs and other GPUs always do */
};

/* How an E8M0 scale is chosen from a group's largest magnitude. */
typedef int32_t fp4pa_scale_mode;
enum {
  FP4PA_SCALE_FLOOR = 0, /* OCP's, and the default */
  FP4PA_SCALE_CEIL = 1,
  FP4PA_SCALE_RCEIL = 2,
  FP4PA_SCALE_EVEN = 3
};

/* How NVFP4 picks the scale of a group of 16. */
typedef int32_t fp4pa_nvfp4_scale;
enum {
  FP4PA_NVFP4_AMAX_OVER_6 = 0,
  FP4PA_NVFP4_FOUR_OVER_SIX = 1 /* amax / 6 or amax / 4, whichever leaves the smaller squared error (of errors rounded to 2^-22 of the
                                   power of two above amax: near ties fall by that) */
};

/* Order of the two E2M1 codes of a byte; only EVEN_LOW is read, the other is refused. */
typedef int32_t fp4pa_nibble_order;
enum { FP4PA_NIBBLE_EVEN_LOW = 0, FP4PA_NIBBLE_SPLIT_HALF = 1 };

/* Order of a page's scales along tokens; only LINEAR is read, the other is refused. */
typedef int32_t fp4pa_scale_swizzle;
enum { FP4PA_SWIZZLE_LINEAR = 0, FP4PA_SWIZZLE_FOUR_TOKENS = 1 };

/* Orthonormal Hadamard rotation along head_dim, in blocks of this many elements; must divide head_dim. */
typedef int32_t fp4pa_rotation;
enum {
  FP4PA_ROTATION_NONE = 0,
  FP4PA_ROTATION_HADAMARD16 = 16,
  FP4PA_ROTATION_HADAMARD32 = 32,
  FP4PA_ROTATION_HADAMARD64 = 64,
  FP4PA_ROTATION_HADAMARD128 = 128
};

/* Integer type of a slot mapping. */
typedef int32_t fp4pa_index_type;
enum { FP4PA_INT32 = 0, FP4PA_INT64 = 1 };

/* Order of the dimensions inside a page, for the helpers that fill in strides. */
typedef int32_t fp4pa_page_order;
enum {
  FP4PA_PAGE_HND = 0, /* [pages, heads, page_size, ...] */
  FP4PA_PAGE_NHD = 1  /* [pages, page_size, heads, ...] */
};

/* Which of a cache's two tensors is meant. */
typedef int32_t fp4pa_tensor_kind;
enum { FP4PA_K = 0, FP4PA_V = 1 };

/* How page tables are given. */
typedef int32_t fp4pa_table_kind;
enum {
  FP4PA_TABLE_BLOCK = 0, /* block_table [batch, table_stride] */
  FP4PA_TABLE_CSR = 1    /* kv_indptr [batch + 1] into kv_indices */
};

/* --- Cache --------------------------------------------------------------------------------------------------------------- */

/* The K or the V of every page. Element (page p, token t, head h) starts at
 *   data + p * page_stride_bytes + t * token_stride_bytes + h * head_stride_bytes
 * and its head_dim elements are contiguous. Scales are addressed the same way from the scale strides and hold head_dim/32
 * (MXFP4, MXFP8), head_dim/16 (NVFP4) or 1 (per token) contiguous bytes; with scale_axis TOKENS, t counts groups of 32 or 16
 * tokens and each holds head_dim bytes. No two rows may overlap: neither within an array, where strides nest (each is at least the span of all
 * rows at smaller ones), nor of two arrays of a cache, nor of two tiers (which may share a pool where all their page strides are equal, and
 * page ids keep them apart). Of arrays that lie in each other with different strides, 4096 pairs of pages, tokens and heads are looked at. */
typedef struct fp4pa_kv_tensor {
  size_t struct_size; /* set by fp4pa_cache_init */
  fp4pa_kv_format format;
  fp4pa_scale_axis scale_axis;
  fp4pa_nibble_order nibble_order;
  fp4pa_scale_swizzle scale_swizzle;
  void* data;                /* 16-byte aligned */
  int64_t page_stride_bytes; /* multiple of 16, as are the next two */
  int64_t token_stride_bytes;
  int64_t head_stride_bytes;
  void* scales; /* null for formats without scales; any alignment */
  int64_t scale_page_stride_bytes;
  int64_t scale_token_stride_bytes;
  int64_t scale_head_stride_bytes;
  /* Decode multiplier of NVFP4 and FP8 (value = code * scale * global); 1 for other formats. When global_scale_ptr is set
   * it is read instead, from the memory of the back end that runs: 1 float, or num_kv_heads with global_scale_per_head. */
  float global_scale;
  int32_t global_scale_per_head; /* 0 or 1 */
  const float* global_scale_ptr; /* aligned to 4 bytes */
  uint64_t reserved[4]; /* zero */
} fp4pa_kv_tensor;

/* One pool of pages, in memory that the caller owns. K and V may differ in format. */
typedef struct fp4pa_cache {
  size_t struct_size;
  fp4pa_kv_tensor k;
  fp4pa_kv_tensor v;
  int32_t num_kv_heads;    /* at least 1 */
  int32_t head_dim;        /* a multiple of 32 from 32 to 256 */
  int32_t page_size;       /* tokens, 1 to 1024; with V scaled along tokens a multiple of 32 (MXFP4) or 16 (NVFP4) */
  fp4pa_rotation rotation; /* of K on append and of Q on load */
  int64_t num_pages;       /* 1 to 2^31 - 1 */
  fp4pa_scale_mode scale_mode;
  fp4pa_nvfp4_scale nvfp4_scale;
} fp4pa_cache;
/* Defaults: K and V in MXFP4 with scales along head_dim, no rotation, floor, global scales of 1; sizes of 0. */
FP4PA_API void fp4pa_cache_init_sized(fp4pa_cache* cache, size_t struct_size);

/* Bytes of one token's codes for one head; 0 for an unknown format and a head_dim below 1. */
FP4PA_API int64_t fp4pa_kv_data_bytes(fp4pa_kv_format format, int32_t head_dim);
/* Bytes of one token's scales for one head, or of one token group's along tokens; 0 without scales. */
FP4PA_API int64_t fp4pa_kv_scale_bytes(fp4pa_kv_format format, fp4pa_scale_axis axis, int32_t head_dim);
/* Tokens that share one scale along tokens: 32 (MXFP4) or 16 (NVFP4); 1 for everything else. */
FP4PA_API int32_t fp4pa_kv_token_group(fp4pa_kv_format format, fp4pa_scale_axis axis);

/* Fills the strides of four separate dense arrays (K codes, K scales, V codes, V scales). Formats, axes, num_kv_heads,
 * head_dim and page_size must be set, num_pages may still be 0; pointers are left alone. Errors: FP4PA_NULL_POINTER,
 * FP4PA_INVALID_ARGUMENT; for what no cache has FP4PA_INVALID_SIZE, FP4PA_UNSUPPORTED_HEAD_DIM, FP4PA_UNSUPPORTED_FORMAT. */
FP4PA_API fp4pa_status fp4pa_set_dense_strides(fp4pa_cache* cache, fp4pa_page_order order);
/* Bytes of the dense arrays that fp4pa_set_dense_strides describes; 0 for a bad argument, for sizes that no cache has, and for more bytes
 * than an address space has. */
FP4PA_API int64_t fp4pa_dense_data_bytes(const fp4pa_cache* cache, fp4pa_tensor_kind tensor);
FP4PA_API int64_t fp4pa_dense_scale_bytes(const fp4pa_cache* cache, fp4pa_tensor_kind tensor);
/* Fills strides and pointers for interleaved pages [K codes, K scales, V codes, V scales], each part padded to 16 bytes,
 * from one base pointer (16-byte aligned). With a null base only the strides are set, so that the size can be asked for
 * first. *page_bytes (may be null) receives the bytes of one page. Errors: as fp4pa_set_dense_strides, and FP4PA_MISALIGNED_POINTER. */
FP4PA_API fp4pa_status fp4pa_set_interleaved_pages(fp4pa_cache* cache, fp4pa_page_order order, void* base,
                                                   int64_t* page_bytes);

/* Checks a description on the host: formats, sizes, alignment, overlapping strides, scales.
 * Errors: FP4PA_NULL_POINTER, FP4PA_MISALIGNED_POINTER, FP4PA_INVALID_SIZE, FP4PA_UNSUPPORTED_HEAD_DIM,
 * FP4PA_UNSUPPORTED_FORMAT, FP4PA_INVALID_STRIDES, FP4PA_INVALID_GLOBAL_SCALE, FP4PA_INVALID_ARGUMENT (struct_size). */
FP4PA_API fp4pa_status fp4pa_validate_cache(const fp4pa_cache* cache);

/* A cache in two tiers: the newest tokens in 16 or 8 bits, everything older in 4. Token t of a sequence lies in the recent
 * tier at page (t / recent->page_size) % ring_pages of the sequence's row of the recent table, row t % recent->page_size.
 *
 * A sequence of `length` tokens is consistent when its old pages hold tokens 0 .. fp4pa_quantised_tokens(length) - 1 and its ring the
 * rest. fp4pa_append_two_tier preserves this. It cannot detect a ring that does not match a length set otherwise: the next groups to leave
 * the window are then quantised from whatever the ring holds. Prefix hits, forks and rejected drafts: docs/engine.md has a recipe for
 * each. */
typedef struct fp4pa_two_tier {
  size_t struct_size;
  const fp4pa_cache* old_tier; /* any format */
  const fp4pa_cache* recent;   /* bf16, f16 or fp8_e4m3; same heads, head_dim and rotation */
  int32_t window_tokens;       /* 16 to 256 */
  int32_t group_tokens;        /* multiple of V's token group; divides old_tier->page_size or is a multiple of it */
  int32_t ring_pages;          /* ring_pages * recent->page_size >= window_tokens + group_tokens */
} fp4pa_two_tier;
/* Defaults: window_tokens 64, group_tokens 32; the rest 0. */
FP4PA_API void fp4pa_two_tier_init_sized(fp4pa_two_tier* cache, size_t struct_size);

/* Tokens of a sequence of `length` that the old tier holds: (length - window) rounded down to whole groups, at least 0. */
FP4PA_API int32_t fp4pa_quantised_tokens(int32_t length, int32_t window_tokens, int32_t group_tokens);
/* Pages of the old tier that a sequence of `length` tokens occupies; 0 for a bad argument. */
FP4PA_API int32_t fp4pa_old_tier_pages(const fp4pa_two_tier* cache, int32_t length);
/* The smallest ring_pages that a window, a group and a recent page size allow; 0 for arguments below 1. */
FP4PA_API int32_t fp4pa_min_ring_pages(int32_t window_tokens, int32_t group_tokens, int32_t page_size);
/* The same where a sequence may lose up to max_rollback tokens again (rejected drafts, a truncation): a ring of at least window_tokens +
 * group_tokens - 1 + max_rollback tokens still holds what the shorter sequence needs. The caller lowers the length, to no less than
 * max_rollback below the longest that the sequence has been; up to window_tokens, pages of the old tier have never held what is dropped. 0
 * for a negative max_rollback. */
FP4PA_API int32_t fp4pa_min_ring_pages_with_rollback(int32_t window_tokens, int32_t group_tokens, int32_t page_size,
                                                     int32_t max_rollback);
/* Errors: those of fp4pa_validate_cache with the tier named, FP4PA_INVALID_SIZE, FP4PA_UNSUPPORTED_FORMAT. */
FP4PA_API fp4pa_status fp4pa_validate_two_tier(const fp4pa_two_tier* cache);

/* Rows to read: [num_tokens, num_kv_heads, head_dim], the last dimension contiguous. */
typedef struct fp4pa_kv_input {
  size_t struct_size;
  const void* data;     /* aligned to its element */
  int64_t token_stride; /* elements; 0 = num_kv_heads head strides */
  int64_t head_stride;  /* elements; 0 = head_dim */
  fp4pa_dtype dtype;
} fp4pa_kv_input;
/* Default dtype: FP4PA_BF16. */
FP4PA_API void fp4pa_kv_input_init_sized(fp4pa_kv_input* input, size_t struct_size);

/* Rows to write, of the same shape. */
typedef struct fp4pa_kv_output {
  size_t struct_size;
  void* data;
  int64_t token_stride;
  int64_t head_stride;
  fp4pa_dtype dtype;
} fp4pa_kv_output;
/* Default dtype: FP4PA_F32. */
FP4PA_API void fp4pa_kv_output_init_sized(fp4pa_kv_output* output, size_t struct_size);

/* Writes token i of k and v to slot slots[i] (page slot / page_size, row slot % page_size), rotating K and quantising on
 * the way. Negative slots are skipped; slots must be distinct, which is not checked. With V scaled along tokens, tokens come in runs that start at
 * a group boundary and hold whole groups; only the last group that the call writes in a page may be shorter (its missing rows count as
 * zeros and it cannot be extended later; of a page's runs that is checked where one follows the other). So V along tokens without a recent tier is for what comes in whole groups, prompts; token by token it needs
 * fp4pa_append_two_tier.
 * The CPU checks every slot before it writes anything. A GPU checks none unless exec->validate_device_data asks for it: a token whose slot
 * is past the pool is skipped, V of a token that begins inside a group, or follows a gap in one, is not stored although its K is
 * (single-token appends included), and the call returns FP4PA_OK.
 *   slots  [num_tokens] of slot_type, aligned to it, in the back end's memory
 * Errors: those of fp4pa_validate_cache, FP4PA_INVALID_ARGUMENT (validate_device_data in a capture, on CUDA, too), FP4PA_UNKNOWN_BACKEND,
 * FP4PA_BACKEND_UNAVAILABLE, FP4PA_DEVICE_ERROR; on the CPU, and on a GPU with validate_device_data, FP4PA_SLOT_OUT_OF_RANGE,
 * FP4PA_INCOMPLETE_GROUP; with validate_device_data FP4PA_INTERNAL (no memory for the slots). */
FP4PA_API fp4pa_status fp4pa_append(const fp4pa_cache* cache, const fp4pa_kv_input* k, const fp4pa_kv_input* v,
                                    const void* slots, fp4pa_index_type slot_type, int64_t num_tokens,
                                    const fp4pa_exec* exec);

/* Appends to a two-tier cache. Sequence b receives tokens indptr[b] .. indptr[b+1]-1 of k and v; groups that leave the
 * window are quantised, and the ring is left with the last tokens it has room for. Token by token, in chunks or at once end bit-identical
 * in both tiers.
 * The ring of a sequence has to hold its tokens fp4pa_quantised_tokens(seq_lens[b]) .. seq_lens[b] - 1. A sequence that begins with
 * tokens of a prefix cache has none of them there: recompute window_tokens tokens behind P whole groups, write them with
 * fp4pa_append(recent) to their places in the ring, and continue from a length of P + window_tokens (docs/engine.md).
 *   indptr       [batch + 1] int32, from 0, not decreasing, to at most num_tokens; rows behind its end are padding, and not
 *                stored. May be null where num_tokens is 0; the CPU looks at it there, too
 *   seq_lens     [batch] int32, lengths before this append; the caller adds the counts afterwards
 *   old_table    [batch, old_table_stride] int32 page ids of the old tier, enough for the new length
 *   recent_table [batch, ring_pages] int32 page ids of the recent tier
 * The CPU checks indptr, lengths and page ids before it writes anything. A GPU checks nothing unless exec->validate_device_data asks for
 * it, and returns FP4PA_OK: rows outside num_tokens, pages past a sequence's row of old_table and page ids outside a pool are left out; a
 * negative length counts as 0.
 * Errors: those of fp4pa_validate_two_tier, FP4PA_INVALID_ARGUMENT (num_threads, struct_size; validate_device_data in a capture, on CUDA),
 * FP4PA_UNKNOWN_BACKEND, FP4PA_BACKEND_UNAVAILABLE, FP4PA_DEVICE_ERROR; on the CPU, and on a GPU with validate_device_data,
 * FP4PA_INVALID_INDPTR, FP4PA_INVALID_SIZE (a negative length), FP4PA_LENGTH_EXCEEDS_TABLE, FP4PA_BLOCK_ID_OUT_OF_RANGE; with
 * validate_device_data FP4PA_INTERNAL (no memory for the tables). */
FP4PA_API fp4pa_status fp4pa_append_two_tier(const fp4pa_two_tier* cache, const fp4pa_kv_input* k,
                                             const fp4pa_kv_input* v, const int32_t* indptr, const int32_t* seq_lens,
                                             int32_t batch, int64_t num_tokens, const int32_t* old_table,
                                             int64_t old_table_stride, const int32_t* recent_table,
                                             const fp4pa_exec* exec);

/* Dequantises the tokens at `slots` into k and v; either may be null, or have null data. K comes out as stored: rotated if
 * the cache is. A negative slot leaves its row untouched, and on a GPU one past the pool, too, unless exec->validate_device_data asks for
 * an error. Errors: as fp4pa_append, without FP4PA_INCOMPLETE_GROUP. */
FP4PA_API fp4pa_status fp4pa_gather(const fp4pa_cache* cache, const void* slots, fp4pa_index_type slot_type,
                                    int64_t num_tokens, const fp4pa_kv_output* k, const fp4pa_kv_output* v,
                                    const fp4pa_exec* exec);

/* Copies whole pages (codes and scales) src[i] -> dst[i] inside a cache. No page may be both a source and a destination,
 * nor a destination twice. The CPU checks this, and every page id, before it writes anything. A GPU checks nothing unless
 * exec->validate_device_data asks for it, and returns FP4PA_OK: a copy with a page id outside the pool is left out.
 *   src, dst  [num_copies] int32, in the back end's memory; fewer than num_pages
 * Errors: those of fp4pa_validate_cache, FP4PA_INVALID_ARGUMENT (num_threads, struct_size; validate_device_data in a capture, on CUDA),
 * FP4PA_UNKNOWN_BACKEND, FP4PA_BACKEND_UNAVAILABLE, FP4PA_DEVICE_ERROR; on the CPU, and on a GPU with validate_device_data,
 * FP4PA_BLOCK_ID_OUT_OF_RANGE, FP4PA_INVALID_ARGUMENT (a page that is a destination twice, or a source and a destination),
 * FP4PA_INTERNAL (no memory to check the ids in). */
FP4PA_API fp4pa_status fp4pa_copy_pages(const fp4pa_cache* cache, const int32_t* src, const int32_t* dst,
                                        int64_t num_copies, const fp4pa_exec* exec);

/* --- Quantising tensors -------------------------------------------------------------------------------------------------- */

/* Block format of a quantised tensor; groups run along the last dimension. */
typedef int32_t fp4pa_block_format;
enum {
  FP4PA_BLOCK_MXFP4 = 0, /* E2M1 codes, two a byte, one E8M0 per 32 */
  FP4PA_BLOCK_NVFP4 = 1, /* E2M1 codes, two a byte, one E4M3 per 16, fp32 decode multiplier */
  FP4PA_BLOCK_MXFP8 = 2  /* E4M3 codes, one E8M0 per 32 */
};

/* Where the scale factors lie. */
typedef int32_t fp4pa_scale_layout;
enum {
  FP4PA_SCALES_LINEAR = 0, /* row-major [rows, groups] */
  FP4PA_SCALES_BLOCKED = 1 /* the 128x4 atom of block-scaled GEMMs; rows pad to 128 and groups to 4 */
};

/* How a tensor is quantised, and how what quantising made of it is read. */
typedef struct fp4pa_quantize_config {
  size_t struct_size;
  fp4pa_block_format format;
  fp4pa_scale_layout scale_layout;
  fp4pa_scale_mode scale_mode;   /* MXFP4, MXFP8 */
  fp4pa_nvfp4_scale nvfp4_scale; /* NVFP4 */
  float global_scale;            /* NVFP4 decode multiplier, amax / 2688 uses the whole range; 1 for the others */
} fp4pa_quantize_config;
/* Defaults: MXFP4, linear, floor, amax over 6, global scale 1. */
FP4PA_API void fp4pa_quantize_config_init_sized(fp4pa_quantize_config* config, size_t struct_size);

/* Bytes of the codes, and of the scales with their padding, of a [rows, cols] tensor; 0 for a shape or a format that
 * cannot be quantised. */
FP4PA_API size_t fp4pa_quantized_code_bytes(fp4pa_block_format format, int64_t rows, int64_t cols);
FP4PA_API size_t fp4pa_quantized_scale_bytes(fp4pa_block_format format, fp4pa_scale_layout layout, int64_t rows,
                                             int64_t cols);

/* Quantises x [rows, cols] (dense, dtype) into codes and scales; padding scales become 0.
 * Errors: FP4PA_NULL_POINTER, FP4PA_MISALIGNED_POINTER, FP4PA_INVALID_SIZE (cols must be a positive multiple of the group
 * size), FP4PA_UNSUPPORTED_FORMAT, FP4PA_INVALID_GLOBAL_SCALE, FP4PA_INVALID_ARGUMENT, FP4PA_UNKNOWN_BACKEND,
 * FP4PA_BACKEND_UNAVAILABLE, FP4PA_DEVICE_ERROR. x is aligned to its element; codes and scales may lie anywhere. NaN or infinity in x
 * makes NaN of its group; in NVFP4 a finite x whose quotient by the global scale overflows saturates. Outputs must not alias x, which is not
 * checked. */
FP4PA_API fp4pa_status fp4pa_quantize(const fp4pa_quantize_config* config, const void* x, fp4pa_dtype dtype,
                                      int64_t rows, int64_t cols, void* codes, void* scales, const fp4pa_exec* exec);
/* The inverse: y [rows, cols] = code * scale (* global_scale) in f32, then rounded to dtype. Errors: as fp4pa_quantize. */
FP4PA_API fp4pa_status fp4pa_dequantize(const fp4pa_quantize_config* config, const void* codes, const void* scales,
                                        int64_t rows, int64_t cols, void* y, fp4pa_dtype dtype, const fp4pa_exec* exec);

/* --- Attention ------------------------------------------------------------------------------------------------------------- */

/* What does not change between calls. */
typedef struct fp4pa_attention_config {
  size_t struct_size;
  const fp4pa_cache* cache;  /* the only tier, or the old one; copied by plan_create, its memory is not */
  const fp4pa_cache* recent; /* null: one tier */
  int32_t window_tokens;     /* with recent: as in fp4pa_two_tier, as are the next two; without recent: 0, all three */
  int32_t group_tokens;
  int32_t ring_pages;

  int32_t num_q_heads; /* a multiple of num_kv_heads; query head h reads KV head h / (num_q_heads / num_kv_heads) */
  fp4pa_dtype q_dtype;
  fp4pa_dtype o_dtype;
  float sm_scale; /* multiplies Q K^T, 2^-126 to 2^126 in magnitude; 0 = 1 / sqrt(head_dim). Of heads padded with zeros it is
                     1 / sqrt(dimension without them) */

  int32_t causal;         /* 0 or 1. Aligned to the end: query i of n sees keys 0 .. len - n + i */
  int32_t sliding_window; /* a query sees at most this many of its newest visible keys; 0 = all. Needs causal. Pages wholly before the
                             window of a call's first query are not read, and their ids not looked at: they may be free */
  float softcap;          /* logits become softcap * tanh(logit / softcap), 2^-126 to 2^126; 0 = off. Before ALiBi and masks */
  int32_t sinks;          /* 0 or 1: fp4pa_attention_args.sinks is read */
  int32_t alibi;          /* 0 or 1: fp4pa_attention_args.alibi_slopes is read */
  int32_t tree_mask;      /* 0 or 1: fp4pa_attention_args.tree_mask replaces the causal rule among a sequence's queries; not with alibi,
                             and max_q_len is at most 64. sliding_window is 0 or at least max_q_len then, and counts from a query's
                             depth, which is the number of queries that it sees (of a query that sees none: 1) */

  int32_t max_batch;    /* 1 to 2^20 */
  int32_t max_q_tokens; /* query tokens of a call, over the batch; times num_q_heads below 2^31 */
  int32_t max_q_len;    /* query tokens of one sequence, 1 to max_q_tokens */
  int32_t max_kv_len;   /* keys of one sequence, 0 to 2^30 */
  fp4pa_table_kind table_kind;

  int32_t batch_invariant;      /* 0 or 1: a sequence's result does not depend on the rest of the batch */
  int32_t kv_split_tokens;      /* force splits of this many keys (a multiple of 64; from max_kv_len on none); 0 = balance over processors */
  int32_t validate_device_data; /* 0 or 1: GPUs also check lengths and page ids, which waits for the stream (CUDA: not in a capture, where
                                   nothing is checked; HIP: never capture such a run); the CPU always does */
  int32_t num_threads;          /* CPU threads, at most 4096; 0 = OpenMP's choice at plan time. More than one: see fp4pa_exec */
  const char* backend;          /* a name; null (and not ""): FP4PA_FORCE_BACKEND, or else the best available */
  fp4pa_matrix_path matrix_path;
} fp4pa_attention_config;
/* Defaults: causal, Q and O in bf16, block table; the rest 0. */
FP4PA_API void fp4pa_attention_config_init_sized(fp4pa_attention_config* config, size_t struct_size);

/* What changes with every call. All pointers are in the back end's memory. On the CPU q, o and tree_mask of a call without query tokens may
 * be null, and the page tables of one in which no query has a key. What the plan does not ask for (sinks, slopes, a tree mask) is not
 * looked at.
 * A GPU trusts lengths and page ids: one outside its bounds makes it read memory that is not the cache's, or not a table's. With
 * validate_device_data of the configuration they are checked first, and the call returns an error instead. */
typedef struct fp4pa_attention_args {
  size_t struct_size;
  const void* q;          /* [tokens, num_q_heads, head_dim] q_dtype, 16-byte aligned */
  int64_t q_token_stride; /* elements, of any number (multiples of 16 bytes are fastest); 0 = num_q_heads head strides. Either all heads of a token lie within its token stride, or all tokens of
                             a head within its head stride */
  int64_t q_head_stride;  /* elements; 0 = head_dim */
  void* o; /* [tokens, num_q_heads, head_dim] o_dtype, 16-byte aligned; may not alias an input, which is not checked */
  int64_t o_token_stride; /* as those of q */
  int64_t o_head_stride;
  float* lse; /* null, or [tokens, num_q_heads], natural log, sinks included; -inf: nothing seen */

  const int32_t* qo_indptr;    /* [batch + 1], from 0, not decreasing: rows of q that belong to each sequence */
  const int32_t* seq_lens;     /* [batch] keys of each sequence, its queries included. With fewer keys than queries the first queries stand
                                  before key 0: with causal they see nothing */
  const int32_t* block_table;  /* FP4PA_TABLE_BLOCK: [batch, table_stride] */
  int64_t table_stride;        /* entries; as many as batch rows of them the address space holds */
  const int32_t* kv_indptr;    /* FP4PA_TABLE_CSR: [batch + 1], in pages */
  const int32_t* kv_indices;   /* FP4PA_TABLE_CSR: [kv_indptr[batch]] page ids */
  const int32_t* recent_table; /* two tiers: [batch, ring_pages] */

  const float* sinks;        /* [num_q_heads] logits that only add to the denominator */
  const float* alibi_slopes; /* [num_q_heads]; adds slope * (key position - query position), positions in this call's sequence */
  const uint64_t* tree_mask; /* [tokens] bit j: this query sees its sequence's query j; bits from q_len on mean nothing; at most 64 queries */

  void* workspace; /* 256-byte aligned; contents survive between calls only for same_lengths */
  size_t workspace_bytes;
  void* stream; /* cudaStream_t or hipStream_t; ignored by the CPU */
  int32_t batch;
  /* 0 or 1. 1 is the caller's promise that batch and the contents of qo_indptr and seq_lens equal those of the last run with this
   * workspace, that nobody else has written to the workspace since, and that that run's plan equals this one but for the caches' pointers
   * and global scales. A GPU then reuses that run's schedule instead of making one: for the layers of a model after its first. Layers that
   * differ in anything else, as in sliding_window, need a plan and a workspace of their own. Without effect on the CPU and with
   * validate_device_data. */
  int32_t same_lengths;
} fp4pa_attention_args;
FP4PA_API void fp4pa_attention_args_init_sized(fp4pa_attention_args* args, size_t struct_size);

/* A validated configuration with its partition. Immutable: several threads may run one plan at once, each with its own
 * workspace, and on a GPU on every device of the same kind as the one that was current when it was made. */
typedef struct fp4pa_plan fp4pa_plan;

/* Validates `config`, chooses a back end and an instance, fixes the partition. *plan is untouched on error; otherwise it is
 * destroyed with fp4pa_plan_destroy. Errors: those of fp4pa_validate_cache, with a recent tier of fp4pa_validate_two_tier;
 * FP4PA_INVALID_HEADS, FP4PA_INVALID_SIZE, FP4PA_INVALID_ARGUMENT, FP4PA_UNSUPPORTED_FORMAT (a dtype; matrix_path is native and the back
 * end has no such kernel), FP4PA_UNSUPPORTED_HEAD_DIM (a GPU has too little shared memory for it), FP4PA_NULL_POINTER,
 * FP4PA_UNKNOWN_BACKEND, FP4PA_BACKEND_UNAVAILABLE, FP4PA_DEVICE_ERROR, FP4PA_INTERNAL (no memory for the plan itself, or a kernel that
 * does not fit on the device). */
FP4PA_API fp4pa_status fp4pa_plan_create(const fp4pa_attention_config* config, fp4pa_plan** plan);
/* Null is allowed. */
FP4PA_API void fp4pa_plan_destroy(fp4pa_plan* plan);
/* Bytes of workspace that fp4pa_run needs; 0 for null. */
FP4PA_API size_t fp4pa_plan_workspace_bytes(const fp4pa_plan* plan);
/* The back end that will run; "" for null. */
FP4PA_API const char* fp4pa_plan_backend(const fp4pa_plan* plan);
/* Processors (CPU threads, or resident blocks) the work is divided over; 0 for null. */
FP4PA_API int32_t fp4pa_plan_num_workers(const fp4pa_plan* plan);

/* O = softmax(sm_scale Q K^T + masks) V and, where asked, LSE. Rows that see no key get O = 0 and LSE = -inf (or the sink's
 * logit). Against double precision over the values in the cache O, before it is rounded to o_dtype, is within 2e-3 (norm of the error by
 * norm of O) and LSE within 1e-3, as long as sm_scale times the magnitudes of a score's products add up to no more than about 2000 (of
 * more, f32 sums lose more), and as long as f32 holds what is computed on the way: an element of Q times sm_scale, log2(e) and K's global
 * scale, and V's magnitudes, added up over a sequence's keys, below 2^118. Where keys are multiplied as they lie, on SM120 and gfx950, what
 * operands leave of Q counts beside: 2^-14 of the magnitudes of a score's products where Q is f32 or rotated, 6^-5 of a group's largest
 * element with NVFP4 keys, 2^-21 of it else. NaN or infinity in V of a key that a mask hides may reach visible rows of the same tile, KV
 * head and sequence. Never allocates, never synchronises (but with validate_device_data). Errors: FP4PA_NULL_POINTER,
 * FP4PA_MISALIGNED_POINTER, FP4PA_INVALID_SIZE, FP4PA_INVALID_STRIDES, FP4PA_INVALID_ARGUMENT (struct_size; recent_table with a plan of
 * one tier), FP4PA_WORKSPACE_TOO_SMALL, FP4PA_PLAN_MISMATCH (a plan of another kind of device, too), FP4PA_BACKEND_UNAVAILABLE (no kernels for
 * the current device), FP4PA_DEVICE_ERROR; where lengths
 * and tables are looked at, which is on the CPU always and on a GPU with validate_device_data, also FP4PA_INVALID_INDPTR,
 * FP4PA_LENGTH_EXCEEDS_TABLE, FP4PA_BLOCK_ID_OUT_OF_RANGE, and on the CPU FP4PA_INVALID_GLOBAL_SCALE. */
FP4PA_API fp4pa_status fp4pa_run(const fp4pa_plan* plan, const fp4pa_attention_args* args);

/* Merges two normalised partial results over disjoint keys: o = (e^la oa + e^lb ob) / (e^la + e^lb),
 * lse = log(e^la + e^lb). o and lse may alias either input. A state with LSE = -inf contributes nothing. Sinks must have been passed to
 * only one of the two calls; with ALiBi both must count positions alike (docs/engine.md).
 *   oa, ob, o [rows, head_dim] dtype, dense; lse_a, lse_b, lse [rows], natural log; each aligned to its element
 * Errors: FP4PA_NULL_POINTER, FP4PA_MISALIGNED_POINTER, FP4PA_INVALID_SIZE, FP4PA_UNSUPPORTED_HEAD_DIM,
 * FP4PA_UNSUPPORTED_FORMAT, FP4PA_INVALID_ARGUMENT (num_threads), FP4PA_UNKNOWN_BACKEND, FP4PA_BACKEND_UNAVAILABLE, FP4PA_DEVICE_ERROR. */
FP4PA_API fp4pa_status fp4pa_merge_states(const void* oa, const float* lse_a, const void* ob, const float* lse_b, void* o,
                                          float* lse, fp4pa_dtype dtype, int64_t rows, int32_t head_dim,
                                          const fp4pa_exec* exec);

/* --- Initialisation -------------------------------------------------------------------------------------------------------- */

/* Each sets every field to its default and struct_size to the size that this header knows. The _sized functions above are
 * for callers that load the library at run time. */
static inline void fp4pa_backend_info_init(fp4pa_backend_info* x) { fp4pa_backend_info_init_sized(x, sizeof *x); }
static inline void fp4pa_exec_init(fp4pa_exec* x) { fp4pa_exec_init_sized(x, sizeof *x); }
static inline void fp4pa_cache_init(fp4pa_cache* x) { fp4pa_cache_init_sized(x, sizeof *x); }
static inline void fp4pa_two_tier_init(fp4pa_two_tier* x) { fp4pa_two_tier_init_sized(x, sizeof *x); }
static inline void fp4pa_kv_input_init(fp4pa_kv_input* x) { fp4pa_kv_input_init_sized(x, sizeof *x); }
static inline void fp4pa_kv_output_init(fp4pa_kv_output* x) { fp4pa_kv_output_init_sized(x, sizeof *x); }
static inline void fp4pa_quantize_config_init(fp4pa_quantize_config* x) {
  fp4pa_quantize_config_init_sized(x, sizeof *x);
}
static inline void fp4pa_attention_config_init(fp4pa_attention_config* x) {
  fp4pa_attention_config_init_sized(x, sizeof *x);
}
static inline void fp4pa_attention_args_init(fp4pa_attention_args* x) { fp4pa_attention_args_init_sized(x, sizeof *x); }

#ifdef __cplusplus
}
#endif

#include "fp4pa/fp4pa_dense.h"
#include "fp4pa/fp4pa_gemm.h"

#endif /* FP4PA_FP4PA_H */
