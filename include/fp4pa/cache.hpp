// The paged KV cache: what a reader must know of it, and the operations that fill and move it.
//
// A cache is memory that the caller owns. A KvCacheDesc describes it completely, so that HND, NHD and interleaved pages
// are strides and not modes, and so that a layout nobody reads is refused by name instead of read wrongly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4pa/export.hpp"
#include "fp4pa/status.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa {

/// Order of the two E2M1 codes of a byte. Only kEvenLow is read; the other is named so that it can be refused.
enum class NibbleOrder : std::int32_t {
  kEvenLow = 0,    ///< element 2i in the low nibble of byte i
  kSplitHalf = 1,  ///< ggml: element j beside element j + 16; refused
};

/// Order of a page's scales along tokens. Only kLinear is read; the other is named so that it can be refused.
enum class ScaleSwizzle : std::int32_t {
  kLinear = 0,
  kFourTokens = 1,  ///< the 4-token interleave of SM100 readers; refused
};

/// The K or the V of every page.
///
/// Element (page p, token t, head h) starts at `data + p*page_stride + t*token_stride + h*head_stride` (bytes); its
/// head_dim elements are contiguous. Scales of the same element start at the scale address formed the same way from the
/// scale strides, with head_dim/32 (MXFP4, MXFP8), head_dim/16 (NVFP4) or 1 (per token) contiguous bytes. With
/// `scale_axis == kTokens`, "t" in the scale address counts groups of 32 (MXFP4) or 16 (NVFP4) tokens of the page and each
/// holds head_dim bytes, one per column. No two rows may overlap: neither within an array, where strides nest (each is at least the span
/// of all rows at smaller ones), nor of two arrays of a cache, nor of two tiers (which may share a pool where all their page strides are
/// equal, and page ids keep them apart). Of arrays that lie in each other with different strides, 4096 pairs of pages, tokens and heads
/// are looked at.
struct KvTensorDesc {
  KvFormat format = KvFormat::kMxfp4;
  VScaleAxis scale_axis = VScaleAxis::kHeadDim;  ///< kTokens only for V, and only MXFP4 and NVFP4
  NibbleOrder nibble_order = NibbleOrder::kEvenLow;
  ScaleSwizzle scale_swizzle = ScaleSwizzle::kLinear;

  void* data = nullptr;  ///< 16-byte aligned
  std::int64_t page_stride_bytes = 0;   ///< multiple of 16, as are the next two
  std::int64_t token_stride_bytes = 0;
  std::int64_t head_stride_bytes = 0;

  void* scales = nullptr;  ///< null for formats without scales; no alignment
  std::int64_t scale_page_stride_bytes = 0;
  std::int64_t scale_token_stride_bytes = 0;
  std::int64_t scale_head_stride_bytes = 0;

  /// Decode multiplier of NVFP4 and FP8 (value = code * scale * global); must be 1 for other formats. When
  /// `global_scale_ptr` is set it is read instead, from the memory of the back end that runs: one float, or num_kv_heads
  /// floats with `global_scale_per_head`.
  float global_scale = 1.0f;
  const float* global_scale_ptr = nullptr;  ///< aligned to 4 bytes
  bool global_scale_per_head = false;
};

/// One pool of pages. The K and the V may differ in format; they share pages and tokens.
struct KvCacheDesc {
  KvTensorDesc k;
  KvTensorDesc v;
  std::int32_t num_kv_heads = 0;  ///< at least 1
  std::int32_t head_dim = 0;   ///< a multiple of 32 from 32 to 256
  std::int32_t page_size = 0;  ///< tokens, 1 to 1024; with V scaled along tokens a multiple of 32 (MXFP4) or 16 (NVFP4)
  std::int64_t num_pages = 0;  ///< up to 2^31 - 1; pools past 4 GiB are fine
  Rotation rotation = Rotation::kNone;  ///< of K on append and of Q on load; must divide head_dim
  ScaleMode scale_mode = ScaleMode::kFloor;             ///< used when encoding MXFP4, MXFP8 and E8M0 per token
  Nvfp4Scale nvfp4_scale = Nvfp4Scale::kAmaxOver6;      ///< used when encoding NVFP4
};

/// Order of the dimensions inside a page.
enum class PageOrder : std::int32_t {
  kHnd = 0,  ///< [pages, heads, page_size, ...]
  kNhd = 1,  ///< [pages, page_size, heads, ...]
};

/// Bytes of one token's codes for one head. 0 for an unknown format and a head_dim below 1.
[[nodiscard]] FP4PA_API std::int64_t kv_data_bytes(KvFormat format, std::int32_t head_dim) noexcept;
/// Bytes of one token's scales for one head along head_dim, or of one token group's along tokens; 0 without scales.
[[nodiscard]] FP4PA_API std::int64_t kv_scale_bytes(KvFormat format, VScaleAxis axis, std::int32_t head_dim) noexcept;
/// Tokens that share one scale along tokens: 32 (MXFP4) or 16 (NVFP4); 1 for everything else.
[[nodiscard]] FP4PA_API std::int32_t kv_token_group(KvFormat format, VScaleAxis axis) noexcept;

/// Fills the strides of `k` and `v` for four separate dense arrays (K codes, K scales, V codes, V scales) in the given
/// order. Formats, axes, num_kv_heads, head_dim and page_size must be set, and are not checked here; pointers are left alone.
FP4PA_API void set_dense_strides(KvCacheDesc& cache, PageOrder order) noexcept;
/// Bytes of the dense arrays that `set_dense_strides` describes for `tensor`, which is cache.k or cache.v; 0 for sizes that no cache has
/// (last_error_detail says which), and for more bytes than an address space has.
[[nodiscard]] FP4PA_API std::int64_t dense_data_bytes(const KvCacheDesc& cache, const KvTensorDesc& tensor) noexcept;
[[nodiscard]] FP4PA_API std::int64_t dense_scale_bytes(const KvCacheDesc& cache, const KvTensorDesc& tensor) noexcept;
/// Fills strides and pointers for interleaved pages [K codes, K scales, V codes, V scales], each part padded to 16 bytes,
/// from one base pointer (16-byte aligned). With a null base only the strides are set, so that the size can be asked for first; num_pages
/// may then be 0. Returns the bytes of one page; 0, with nothing set, for sizes that no cache has or a base that is not aligned.
FP4PA_API std::int64_t set_interleaved_pages(KvCacheDesc& cache, PageOrder order, void* base) noexcept;

/// Checks a description on the host: formats, sizes, alignment, rows that overlap, scales.
/// @errors kNullPointer, kMisalignedPointer, kInvalidSize, kUnsupportedHeadDim, kUnsupportedFormat, kInvalidStrides,
///         kInvalidGlobalScale
[[nodiscard]] FP4PA_API Status validate(const KvCacheDesc& cache) noexcept;

/// A cache in two tiers: the newest tokens in 16 or 8 bits, everything older in 4. The recent tier keeps between
/// `window_tokens` and `window_tokens + group_tokens - 1` tokens of a sequence (fewer while it is shorter); groups of
/// `group_tokens` leave it together and are quantised once, in the append that pushes them out.
///
/// The recent tier is a ring: token t of a sequence lies at page (t / recent.page_size) % ring_pages of that sequence's row
/// of the recent table, row t % recent.page_size.
///
/// A sequence of `length` tokens is consistent when its old pages hold tokens 0 .. quantised_tokens(length) - 1 and its ring tokens
/// quantised_tokens(length) .. length - 1. append_two_tier preserves this. It cannot detect a ring that does not match a length set
/// otherwise: the next groups to leave the window are then quantised from whatever the ring holds. Prefix hits, forks and rejected
/// drafts: docs/engine.md has a recipe for each.
struct TwoTierDesc {
  KvCacheDesc old_tier;                  ///< any format
  KvCacheDesc recent;                    ///< bf16, f16 or fp8_e4m3; same heads, head_dim and rotation as old_tier
  std::int32_t window_tokens = 64;       ///< 16 to 256
  std::int32_t group_tokens = 32;        ///< multiple of the V token group; divides old_tier.page_size or is a multiple of it
  std::int32_t ring_pages = 0;           ///< ring_pages * recent.page_size >= window_tokens + group_tokens
};

/// Tokens of a sequence of `length` tokens that the old tier holds; a pure function, so that readers need only the length. 0 for a
/// window or group that no cache has.
[[nodiscard]] constexpr std::int32_t quantised_tokens(std::int32_t length, std::int32_t window_tokens,
                                                      std::int32_t group_tokens) noexcept {
  if (window_tokens < 0 || group_tokens < 1 || length <= window_tokens) return 0;
  return (length - window_tokens) / group_tokens * group_tokens;
}
/// Old-tier pages that a sequence of `length` tokens occupies.
[[nodiscard]] FP4PA_API std::int32_t old_tier_pages(const TwoTierDesc& cache, std::int32_t length) noexcept;
/// The smallest ring_pages that a window, a group and a recent page size allow; 0 where one of them is not positive.
/// @param max_rollback  tokens that a sequence may lose again (rejected drafts, a truncation): a ring of at least window_tokens +
///                      group_tokens - 1 + max_rollback tokens still holds what the shorter sequence needs. The caller lowers the
///                      length, to no less than max_rollback below the longest that the sequence has been; up to window_tokens, pages
///                      of the old tier have never held what is dropped. Negative: 0 is returned
[[nodiscard]] constexpr std::int32_t min_ring_pages(std::int32_t window_tokens, std::int32_t group_tokens, std::int32_t page_size,
                                                    std::int32_t max_rollback = 0) noexcept {
  if (window_tokens < 1 || group_tokens < 1 || page_size < 1 || max_rollback < 0) return 0;
  const std::int64_t tokens = std::int64_t{window_tokens} + group_tokens + (max_rollback > 0 ? max_rollback - 1 : 0);
  const std::int64_t pages = (tokens + page_size - 1) / page_size;
  return pages < INT32_MAX ? static_cast<std::int32_t>(pages) : INT32_MAX;
}
/// Checks both tiers' descriptions and what joins them, on the host.
/// @errors those of validate(KvCacheDesc) with the tier named, and kInvalidSize, kUnsupportedFormat
[[nodiscard]] FP4PA_API Status validate(const TwoTierDesc& cache) noexcept;

/// New K or V rows: [num_tokens, num_kv_heads, head_dim], the last dimension contiguous, aligned to its element; strides in elements, 0 =
/// dense: a head stride of head_dim, a token stride of num_kv_heads head strides.
struct KvInput {
  const void* data = nullptr;
  DType dtype = DType::kBF16;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

/// Which back end runs, on which stream. A null name takes FP4PA_FORCE_BACKEND (read once), or else the best one available: memory
/// must be that back end's. On the CPU the calling thread rounds to nearest and does not flush subnormal floats (x86: FTZ and DAZ off),
/// which is how a thread starts: codes and results depend on it.
struct ExecDesc {
  const char* backend = nullptr;   ///< "cpu", "cuda", "hip", ... (not ""); see available_backends()
  void* stream = nullptr;          ///< cudaStream_t or hipStream_t; ignored by the CPU
  std::int32_t num_threads = 0;    ///< CPU threads, at most 4096; 0 = OpenMP's choice. 1 is the calling thread alone. With more, OpenMP's
                                   ///< runtime may allocate, and ends the process where it cannot or cannot start its threads
  /// GPUs: append, append_two_tier, gather and copy_pages read their slots, lengths and tables back, which waits for the stream, and
  /// refuse what the CPU always refuses. Not in a graph
  bool validate_device_data = false;
};

/// Writes token i of `k` and `v` to slot `slots[i]` (page slot / page_size, row slot % page_size), rotating K and quantising
/// on the way. Negative slots are skipped. Slots must be distinct, which is not checked. With V scaled along tokens, tokens come in runs that
/// start at a group boundary and hold whole groups; only the last group that the call writes in a page may be shorter (its
/// missing rows count as zeros and it cannot be extended later; of a page's runs that is checked where one follows the other). So V along tokens
/// without a recent tier is for what comes in whole groups, prompts; token by token it needs append_two_tier.
///
/// The CPU checks every slot before it writes anything. A GPU checks none unless `exec.validate_device_data` asks for it: a token whose
/// slot is past the pool is skipped, V of a token that begins inside a group, or follows a gap in one, is not stored although its K is
/// (single-token appends included), and the call returns kOk.
/// @param slots [num_tokens] int32 or int64, aligned to it, in the back end's memory
/// @errors validate(cache)'s, kNullPointer, kInvalidSize, kInvalidArgument (num_threads; validate_device_data in a capture, on CUDA),
///         kUnknownBackend, kBackendUnavailable, kDeviceError; on the CPU, and on a GPU with validate_device_data, kSlotOutOfRange,
///         kIncompleteGroup; with validate_device_data kInternal (no memory for the slots)
[[nodiscard]] FP4PA_API Status append(const KvCacheDesc& cache, const KvInput& k, const KvInput& v, const void* slots,
                                      IndexType slot_type, std::int64_t num_tokens, const ExecDesc& exec = {}) noexcept;

/// Appends to a two-tier cache. Sequence b receives tokens indptr[b] .. indptr[b+1]-1 of `k` and `v`; `seq_lens[b]` is its
/// length before the call (the caller adds the counts afterwards). Groups that leave the window are quantised from what the
/// recent tier holds (or would have held), and the ring is left with the last tokens it has room for, so that appending token by
/// token, in chunks or at once ends bit-identical in both tiers.
/// @pre the ring of a sequence holds its tokens quantised_tokens(seq_lens[b]) .. seq_lens[b] - 1. A sequence that begins with tokens of
///      a prefix cache has none of them in its ring: recompute window_tokens tokens behind P whole groups, write them with
///      append(recent) to their places in the ring, and continue from a length of P + window_tokens (docs/engine.md)
/// @param indptr      [batch + 1] int32, from 0, not decreasing, to at most num_tokens; rows behind its end are padding, and not stored. May be null where
///                    num_tokens is 0; the CPU looks at it there, too
/// @param seq_lens    [batch] int32, lengths before this append
/// @param old_table   [batch, old_table_stride] int32 page ids of the old tier, enough for the new length
/// @param recent_table [batch, ring_pages] int32 page ids of the recent tier
///
/// The CPU checks indptr, lengths and page ids before it writes anything. A GPU checks nothing unless `exec.validate_device_data` asks for
/// it, and returns kOk: rows outside num_tokens, pages past a sequence's row of old_table and page ids outside a pool are left out; a
/// negative length counts as 0.
/// @errors validate(cache)'s, kNullPointer, kInvalidSize, kInvalidArgument (num_threads; validate_device_data in a capture, on CUDA),
///         kUnknownBackend, kBackendUnavailable, kDeviceError; on the CPU, and on a GPU with validate_device_data, kInvalidIndptr,
///         kInvalidSize (a negative length), kLengthExceedsTable, kBlockIdOutOfRange; with validate_device_data kInternal (no memory for the
///         tables)
[[nodiscard]] FP4PA_API Status append_two_tier(const TwoTierDesc& cache, const KvInput& k, const KvInput& v,
                                               const std::int32_t* indptr, const std::int32_t* seq_lens,
                                               std::int32_t batch, std::int64_t num_tokens,
                                               const std::int32_t* old_table, std::int64_t old_table_stride,
                                               const std::int32_t* recent_table, const ExecDesc& exec = {}) noexcept;

/// Output of gather: [num_tokens, num_kv_heads, head_dim], alignment and strides as KvInput's.
struct KvOutput {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

/// Dequantises the tokens at `slots` into `k` and `v` (either may have null data; they may not overlap, which is not checked). K comes out as stored: rotated if the
/// cache is. A negative slot leaves its row untouched, and on a GPU one past the pool, too, unless `exec.validate_device_data` asks
/// for an error.
/// @errors as append, without kIncompleteGroup
[[nodiscard]] FP4PA_API Status gather(const KvCacheDesc& cache, const void* slots, IndexType slot_type,
                                      std::int64_t num_tokens, const KvOutput& k, const KvOutput& v,
                                      const ExecDesc& exec = {}) noexcept;

/// Copies whole pages (codes and scales) src[i] -> dst[i] inside a cache. A page may not be both a source and a destination,
/// nor a destination twice. The CPU checks this, and every page id, before it writes anything. A GPU checks nothing
/// unless `exec.validate_device_data` asks for it, and returns kOk: a copy with a page id outside the pool is left out.
/// @param src, dst [num_copies] int32, in the back end's memory; fewer than num_pages
/// @errors validate(cache)'s, kNullPointer, kInvalidSize, kInvalidArgument (num_threads; validate_device_data in a capture, on CUDA),
///         kUnknownBackend, kBackendUnavailable, kDeviceError; on the CPU, and on a GPU with validate_device_data, kBlockIdOutOfRange,
///         kInvalidArgument (a page that is a destination twice, or a source and a destination), kInternal (no memory to check the ids in)
[[nodiscard]] FP4PA_API Status copy_pages(const KvCacheDesc& cache, const std::int32_t* src, const std::int32_t* dst,
                                          std::int64_t num_copies, const ExecDesc& exec = {}) noexcept;

}  // namespace fp4pa
