// What a GPU's planning refuses, in the same words for every vendor.
#pragma once

#include <cstdio>

#include "api/backend.hpp"
#include "api/error.hpp"
#include "fp4pa/attention.hpp"

namespace fp4pa::FP4PA_GPU {

/// A plan made for another kind of device: its workers and its kernel would not be this one's.
/// @param name  (architecture, char (&text)[40]) writes "compute capability 9.0", "gfx942"
template <class Name>
[[nodiscard]] Status check_device(const api::PlannedDevice& planned, const api::PlannedDevice& current, Name&& name) noexcept {
  if (planned == current) return Status::kOk;
  char of_plan[40];
  char of_device[40];
  name(planned.architecture, of_plan);
  name(current.architecture, of_device);
  return api::fail(Status::kPlanMismatch,
                   "the current device has %s, %d multiprocessors and %d bytes of shared memory a block; the plan is for %s, %d and %d",
                   of_device, current.multiprocessors, current.shared_bytes, of_plan, planned.multiprocessors, planned.shared_bytes);
}

/// Native kernels were asked for, and there are none for these formats.
/// @param device  "compute capability 9.0", "gfx942"
inline Status refuse_native(const AttentionConfig& c, const char* device) noexcept {
  return api::fail(Status::kUnsupportedFormat,
                   "matrix_path is native, and %s has no such kernel for %s keys with %s values scaled along %s at head_dim %d%s; "
                   "allowed: auto, decode",
                   device, name_of(c.cache.k.format), name_of(c.cache.v.format), name_of(c.cache.v.scale_axis), c.cache.head_dim,
                   c.two_tier ? " with a recent tier" : "");
}

inline Status refuse_formats(const AttentionConfig& c) noexcept {
  return api::fail(Status::kUnsupportedFormat, "no kernel of this build reads %s keys with %s values at head_dim %d",
                   name_of(c.cache.k.format), name_of(c.cache.v.format), c.cache.head_dim);
}

/// @param bytes, most  of shared memory that a block needs, and may have
inline Status refuse_shared_bytes(const AttentionConfig& c, int bytes, int most) noexcept {
  return api::fail(Status::kUnsupportedHeadDim,
                   "head_dim %d with %s keys and %s values%s needs %d bytes of shared memory a block; allowed: at most %d, which "
                   "the device has",
                   c.cache.head_dim, name_of(c.cache.k.format), name_of(c.cache.v.format), c.two_tier ? " and a recent tier" : "",
                   bytes, most);
}

}  // namespace fp4pa::FP4PA_GPU
