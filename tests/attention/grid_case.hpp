// One configuration of the attention grid: everything that may vary, as a value drawn from a seed.
//
// Drawing (rather than nesting loops) keeps 2000 and more configurations affordable while every pair of choices occurs;
// the seed is printed with a failure and gives the same configuration on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp4pa/attention.hpp"

namespace grid {

enum class Layout { kHnd, kNhd, kInterleavedHnd, kInterleavedNhd, kPadded };
enum class GlobalScale { kOne, kValue, kPointer, kPerHead };

struct Case {
  std::uint64_t seed = 0;
  const char* backend = "cpu";
  fp4pa::MatrixPath matrix_path = fp4pa::MatrixPath::kAuto;

  fp4pa::KvFormat k = fp4pa::KvFormat::kMxfp4, v = fp4pa::KvFormat::kMxfp4;
  fp4pa::VScaleAxis v_axis = fp4pa::VScaleAxis::kHeadDim;
  fp4pa::Rotation rotation = fp4pa::Rotation::kNone;
  GlobalScale global_scale = GlobalScale::kOne;
  Layout layout = Layout::kHnd;
  std::int32_t head_dim = 128, kv_heads = 1, group_heads = 1, page_size = 16;

  std::int32_t window = 0, group_tokens = 0, recent_page_size = 0;  // window 0: one tier
  fp4pa::KvFormat recent_k = fp4pa::KvFormat::kBf16, recent_v = fp4pa::KvFormat::kBf16;

  fp4pa::DType q_dtype = fp4pa::DType::kF32, o_dtype = fp4pa::DType::kF32;
  bool strided = false;  // gaps between rows of Q and O, heads outermost
  fp4pa::TableKind table = fp4pa::TableKind::kBlockTable;

  bool causal = true, sinks = false, alibi = false, tree = false;
  std::int32_t sliding_window = 0;
  float softcap = 0.0f, sm_scale = 0.0f;
  bool batch_invariant = false;
  std::int32_t split_tokens = 0, threads = 1;

  std::int32_t max_batch = 0;    // of the plan; 0: as many as there are
  std::int32_t spare_pages = 2;  // of each pool, in no table: all poison

  std::vector<std::int32_t> q_lens, kv_lens;
};

/// The configuration of a seed.
[[nodiscard]] Case draw(std::uint64_t seed);
/// All of it in one line, for a failure.
[[nodiscard]] std::string describe(const Case& c);

}  // namespace grid
