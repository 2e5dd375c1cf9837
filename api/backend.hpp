// What a back end hands to the library: a name and a table of functions. The public functions validate their arguments,
// pick a table and call through it; a null entry is reported as kBackendUnavailable with the entry's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "api/dense_ops.hpp"
#include "fp4pa/attention.hpp"
#include "fp4pa/backends.hpp"
#include "fp4pa/cache.hpp"
#include "fp4pa/gemm.hpp"
#include "fp4pa/quantize.hpp"

namespace fp4pa::api {

/// What a GPU's plan takes for granted about the device; all 0 on a CPU.
struct PlannedDevice {
  std::int32_t architecture = 0;  ///< as DeviceProperties has it
  std::int32_t multiprocessors = 0;
  std::int32_t shared_bytes = 0;  ///< that a block may ask for
  [[nodiscard]] bool operator==(const PlannedDevice&) const = default;
};

/// What a back end decides about a plan.
struct PlanChoice {
  std::int32_t num_workers = 0;  ///< processors the work is divided over
  std::int32_t tile_rows = 0;    ///< packed query rows (query token x head of the group) of one work item
  std::int32_t variant = 0;      ///< which instance; the back end's own numbering
  std::size_t workspace_bytes = 0;
  PlannedDevice device{};
};

/// Everything `run` of a back end receives. Where there are `q_scales`, args.q are E4M3 codes; see decodes_aside.
struct RunRequest {
  const AttentionConfig& config;
  const PlanChoice& choice;
  const AttentionArgs& args;
  core::QueryScales q_scales{};
};

/// A slot list of either width.
struct SlotList {
  const void* data;
  IndexType type;
  std::int64_t size;
};

struct TwoTierAppend {
  const TwoTierDesc& cache;
  const KvInput& k;
  const KvInput& v;
  const std::int32_t* indptr;
  const std::int32_t* seq_lens;
  std::int32_t batch;
  std::int64_t num_tokens;
  const std::int32_t* old_table;
  std::int64_t old_table_stride;
  const std::int32_t* recent_table;
};

struct MergeRequest {
  const void *oa, *ob;
  const float *lse_a, *lse_b;
  void* o;
  float* lse;
  DType dtype;
  std::int64_t rows;
  std::int32_t head_dim;
};

/// Arguments of fp4_quantize_weight.
struct WeightRequest {
  const QuantizeConfig& config;
  const void* w;
  DType dtype;
  std::int64_t rows, cols, batch;
  void* codes;
  void* scales;
  float* global_scales;
};

struct Backend {
  const char* name;
  /// Whether it can run here; *detail (static storage) names the device, or says why not.
  bool (*available)(const char** detail) noexcept;
  Status (*plan)(const AttentionConfig&, PlanChoice*) noexcept;
  Status (*run)(const RunRequest&) noexcept;
  Status (*append)(const KvCacheDesc&, const KvInput& k, const KvInput& v, const SlotList&, const ExecDesc&) noexcept;
  Status (*append_two_tier)(const TwoTierAppend&, const ExecDesc&) noexcept;
  Status (*gather)(const KvCacheDesc&, const SlotList&, const KvOutput& k, const KvOutput& v, const ExecDesc&) noexcept;
  Status (*copy_pages)(const KvCacheDesc&, const std::int32_t* src, const std::int32_t* dst, std::int64_t n,
                       const ExecDesc&) noexcept;
  Status (*quantize)(const QuantizeConfig&, const void* x, DType, std::int64_t rows, std::int64_t cols, void* codes,
                     void* scales, const ExecDesc&) noexcept;
  Status (*dequantize)(const QuantizeConfig&, const void* codes, const void* scales, std::int64_t rows,
                       std::int64_t cols, void* y, DType, const ExecDesc&) noexcept;
  Status (*merge_states)(const MergeRequest&, const ExecDesc&) noexcept;
  const DenseOps* dense = nullptr;  ///< null: no dense calls
  Status (*quantize_weight)(const WeightRequest&, const ExecDesc&) noexcept = nullptr;
  Status (*linear_workspace)(const LinearArgs&, const ExecDesc&, std::size_t* bytes) noexcept = nullptr;
  Status (*linear)(const LinearArgs&, const ExecDesc&) noexcept = nullptr;
  /// Whether keys enter the matrix core as they lie in the cache; null: never.
  bool (*native)(std::int32_t variant) noexcept = nullptr;
  /// Whether warps that do nothing else decode a variant's tiles, so that decoding one again costs little, and, for MXFP8 keys,
  /// which take queries of codes and scales too; null: never.
  bool (*decodes_aside)(std::int32_t variant) noexcept = nullptr;
  /// A variant in words, for the log; null: there is one alone.
  void (*describe)(std::int32_t variant, char* text, std::size_t size) noexcept = nullptr;
  /// Copies what a kernel in the stream's order would read to the host, and has done so at return; null where memory is the host's.
  /// @errors kDeviceError, kInvalidArgument in a capture (where it is known)
  Status (*read_back)(void* to_host, const void* from, std::size_t bytes, void* stream) noexcept = nullptr;
};

/// The back ends of this build, best first; a constexpr table in registry.cpp.
[[nodiscard]] std::span<const Backend* const> backends() noexcept;

/// The back end called `name`; null means FP4PA_FORCE_BACKEND, which is read once, else the first available one.
/// @errors kUnknownBackend (names the allowed set), kBackendUnavailable
[[nodiscard]] Status find_backend(const char* name, const Backend** out, std::int32_t* index = nullptr) noexcept;
/// The same with `forced` for the variable; null or "": it is not set.
[[nodiscard]] Status find_backend_or(const char* name, const char* forced, const Backend** out, std::int32_t* index = nullptr) noexcept;

// Defined by the back ends' own folders; registry.cpp lists those that were built.
extern const Backend kCpuBackend;        // backends/cpu
extern const Backend kCpuScalarBackend;  // backends/cpu, Highway's emulated target, to compare with
extern const Backend kCudaBackend;       // cuda/
extern const Backend kHipBackend;        // hip/

}  // namespace fp4pa::api
