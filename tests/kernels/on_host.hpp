// The kernels of kernels/ on the host, with warps of 32 lanes as CUDA's and of 64 as HIP's.
#pragma once

#include "api/backend.hpp"
#include "api/gemm_params.hpp"
#include "core/attention/params.hpp"
#include "core/schedule/work.hpp"

namespace fp4pa::kernels_test {

/// What a warp finds of a worker without a schedule.
struct Found {
  core::WorkerStart start;
  core::MergeNote note;
  bool even;
  core::MergeNote left[2];  // of its slots, where the cut is no even one
};

struct OnHost {
  /// The cache operations and quantize_weight; no plan and no run.
  api::Backend backend;
  // The launches around the attention's.
  void (*schedule)(const core::WorkList& list);
  Found (*find)(const core::WorkList& list, std::int32_t worker);
  void (*merge)(const core::AttentionParams& params, const core::WorkList& list);
  Status (*prepare_x)(const LinearArgs& args, const api::PreparedX& to, const ExecDesc& exec) noexcept;
  Status (*split_x)(const LinearArgs& args, const api::SplitX& to, const ExecDesc& exec) noexcept;
  /// The Status that validation would end with, kOk or what it found.
  Status (*check)(const AttentionConfig& config, const AttentionArgs& args, const core::AttentionParams& params);
};

extern const OnHost kLanes32;
extern const OnHost kLanes64;

}  // namespace fp4pa::kernels_test
