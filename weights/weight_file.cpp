// The public calls on weights in files: what weights/ throws becomes a Status.
#include <cstring>
#include <exception>
#include <new>

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

/// f(), which may throw; `path` is the file's that it works on.
template <class F>
[[nodiscard]] Status caught(const char* path, F&& f) noexcept {
  try {
    return f();
  } catch (const safetensors::Error& e) {
    return api::fail(Status::kFileError, "%s", e.what());
  } catch (const std::bad_alloc& e) {
    return api::fail(Status::kFileError, "no memory for the weight: %s", e.what());
  } catch (const std::exception& e) {
    return api::fail(Status::kFileError, "%s: %s", path, e.what());
  }
}

/// Between describing a weight and loading it, a file can be replaced by another.
[[nodiscard]] Status validate_as_described(const char* path, const char* name, const Fp4Weight& described, const Fp4Weight& found) noexcept {
  const bool same = described.format == found.format && described.scale_layout == found.scale_layout && described.rows == found.rows &&
                    described.cols == found.cols && described.batch == found.batch;
  if (described.rows == 0 || same) return Status::kOk;
  const auto number = [](std::int64_t n) { return static_cast<long long>(n); };
  return api::fail(Status::kFileError, "%s: weight '%s' is %s, scales %s, [%lld, %lld, %lld]; allowed: as *weight has it, %s, scales %s, [%lld, %lld, %lld]",
                   path, name, name_of(found.format), name_of(found.scale_layout), number(found.batch), number(found.rows), number(found.cols),
                   name_of(described.format), name_of(described.scale_layout), number(described.batch), number(described.rows),
                   number(described.cols));
}

}  // namespace

Status fp4_find_weight(const char* path, const char* name, Fp4Weight* weight) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_names(path, name));
  if (weight == nullptr) return api::fail(Status::kNullPointer, "weight is null");
  return caught(path, [&] {
    *weight = weights::find_weight(safetensors::File(path), name).shape;
    return Status::kOk;
  });
}

Status fp4_load_weight(const char* path, const char* name, void* codes, void* scales, float* global_scales, Fp4Weight* weight) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_names(path, name));
  if (weight == nullptr) return api::fail(Status::kNullPointer, "weight is null");
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("codes", codes, 16));
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("scales", scales, 4));
  return caught(path, [&] {
    const safetensors::File file(path);
    const weights::FileWeight w = weights::find_weight(file, name);
    FP4PA_RETURN_IF_FAILED(validate_as_described(path, name, *weight, w.shape));
    Fp4Weight loaded = w.shape;
    loaded.codes = codes;
    loaded.scales = scales;
    if (!w.global_scales.empty()) {
      FP4PA_RETURN_IF_FAILED(api::validate_pointer("global_scales", global_scales, 4));
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
  FP4PA_RETURN_IF_FAILED(validate_names(path, name));
  FP4PA_RETURN_IF_FAILED(api::validate_host_weight(weight));
  return caught(path, [&] {
    weights::save_weight(path, name, weight);
    return Status::kOk;
  });
}

}  // namespace fp4pa
