// The public calls on weights in files: what weights/ throws becomes a Status, and its vectors the caller's memory.
#include <cstring>
#include <exception>

#include "api/error.hpp"
#include "api/gemm_params.hpp"
#include "api/validate.hpp"
#include "fp4pa/gemm.hpp"
#include "weights/host_weight.hpp"

namespace fp4pa {
namespace {

[[nodiscard]] Status validate_names(const char* path, const char* name) noexcept {
  if (path == nullptr) return api::fail(Status::kNullPointer, "path is null");
  return name == nullptr ? api::fail(Status::kNullPointer, "name is null") : Status::kOk;
}

/// f(), which may throw.
template <class F>
[[nodiscard]] Status caught(F&& f) noexcept {
  try {
    return f();
  } catch (const safetensors::Error& e) {
    return api::fail(Status::kFileError, "%s", e.what());
  } catch (const std::exception& e) {
    return api::fail(Status::kFileError, "no memory for the weight: %s", e.what());
  }
}

}  // namespace

Status fp4_find_weight(const char* path, const char* name, Fp4Weight* weight) noexcept {
  if (const Status s = validate_names(path, name); s != Status::kOk) return s;
  if (weight == nullptr) return api::fail(Status::kNullPointer, "weight is null");
  return caught([&] {
    *weight = weights::load_weight(safetensors::File(path), name).shape;
    return Status::kOk;
  });
}

Status fp4_load_weight(const char* path, const char* name, void* codes, void* scales, float* global_scales, Fp4Weight* weight) noexcept {
  if (const Status s = validate_names(path, name); s != Status::kOk) return s;
  if (weight == nullptr) return api::fail(Status::kNullPointer, "weight is null");
  if (const Status s = api::validate_pointer("codes", codes, 16); s != Status::kOk) return s;
  if (const Status s = api::validate_pointer("scales", scales, 4); s != Status::kOk) return s;
  return caught([&] {
    const weights::HostWeight w = weights::load_weight(safetensors::File(path), name);
    Fp4Weight loaded = w.shape;
    loaded.codes = codes;
    loaded.scales = scales;
    if (!w.global_scales.empty()) {
      if (const Status s = api::validate_pointer("global_scales", global_scales, 4); s != Status::kOk) return s;
      std::memcpy(global_scales, w.global_scales.data(), w.global_scales.size() * sizeof(float));
      loaded.global_scale_ptr = global_scales;
    }
    std::memcpy(codes, w.codes.data(), w.codes.size());
    std::memcpy(scales, w.scales.data(), w.scales.size());
    *weight = loaded;
    return Status::kOk;
  });
}

Status fp4_save_weight(const char* path, const char* name, const Fp4Weight& weight) noexcept {
  if (const Status s = validate_names(path, name); s != Status::kOk) return s;
  if (const Status s = api::validate_weight(weight); s != Status::kOk) return s;
  return caught([&] {
    const auto copy = [](const void* from, std::size_t bytes) {
      const auto* const first = static_cast<const std::byte*>(from);
      return std::vector<std::byte>(first, first + bytes);
    };
    weights::HostWeight w;
    w.shape = weight;
    w.codes = copy(weight.codes, fp4_weight_code_bytes(weight.format, weight.rows, weight.cols, weight.batch));
    w.scales = copy(weight.scales, fp4_weight_scale_bytes(weight.format, weight.scale_layout, weight.rows, weight.cols, weight.batch));
    if (weight.format == BlockFormat::kNvfp4) {
      w.global_scales.assign(static_cast<std::size_t>(weight.batch), weight.global_scale);
      if (weight.global_scale_ptr != nullptr) {
        std::memcpy(w.global_scales.data(), weight.global_scale_ptr, w.global_scales.size() * sizeof(float));
      }
    }
    weights::save_weight(path, name, w);
    return Status::kOk;
  });
}

}  // namespace fp4pa
