// One decode or prefill to be timed: a cache of random codes on a device, its tables, and the call that reads it.
//
// Codes and scales are random bytes, not appended tokens: attention takes the same time whatever they say, and filling
// gigabytes through append does not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fp4pa/attention.hpp"
#include "tools/fp4pa/device.hpp"
#include "tools/fp4pa/paged_cache.hpp"

namespace fp4pa::tool {

struct DecodeSpec {
  std::string format;  ///< "mxfp4", or "fp8_e4m3+nvfp4" for a K and a V that differ
  KvFormat k = KvFormat::kMxfp4, v = KvFormat::kMxfp4;
  VScaleAxis v_scale_axis = VScaleAxis::kHeadDim;
  PageLayout page_order = PageLayout::kHnd;
  DType dtype = DType::kBF16;  ///< of Q and O
  int batch = 1, heads = 1, kv_heads = 1, head_dim = 128, page_size = 64;
  int kv_len = 1;          ///< keys of each sequence, or of the longest with `ragged`
  bool ragged = false;     ///< lengths log-uniform from 1 to kv_len
  int q_len = 1;           ///< query tokens of each sequence
  int rotation = 0;        ///< Hadamard block
  int window = 0;          ///< newest tokens in bf16
  int sliding_window = 0;  ///< keys that a query sees; 0 = all
  int splits = 0;          ///< tokens of forced splits
  bool causal = true, in_order = false;
  bool same_lengths = false;  ///< calls behind the first use its schedule, as the layers of a model may
  int layers = 1;             ///< calls of a run, each on a cache of its own; those behind the first use its schedule
};

/// The lengths of a spec's sequences: the same ones in every run.
[[nodiscard]] std::vector<std::int32_t> lengths_of(const DecodeSpec& spec);

class DecodeCase {
 public:
  /// @param backend  null for the library's choice; must outlive the case
  DecodeCase(Device& device, const DecodeSpec& spec, const char* backend);
  DecodeCase(const DecodeCase&) = delete;
  DecodeCase& operator=(const DecodeCase&) = delete;
  /// Plans for `threads` and returns the calls, to be made on a stream.
  [[nodiscard]] std::function<void(void* stream)> prepare(Device& device, int threads);
  /// Codes and scales of the tokens that some query sees, each once.
  [[nodiscard]] double bytes() const;
  /// Of both products over the (query, key) pairs that are visible; a multiplication and an addition are two.
  [[nodiscard]] double operations() const;
  /// Keys over all sequences.
  [[nodiscard]] double tokens() const;
  [[nodiscard]] const AttentionPlan& plan() const { return plans_.front(); }

 private:
  void add_tables(Device& device, const DecodeSpec& spec);
  void describe_recent_tier(const DecodeSpec& spec, const KvCacheDesc& desc);
  [[nodiscard]] const KvCacheDesc& cache() const { return caches_.front().desc(); }
  std::vector<std::int32_t> lengths_;
  std::vector<PagedCache> caches_, recent_;  // of the layers
  AttentionConfig config_;
  AttentionArgs args_;
  std::vector<AttentionPlan> plans_;
  Buffer table_, recent_table_, q_, o_, lse_, indptr_, lens_, workspace_;
  bool same_lengths_ = false;
};

}  // namespace fp4pa::tool
