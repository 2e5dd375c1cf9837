// FP4 weights in safetensors files: the library's own form, and those of checkpoints, which are taken as they are (fp4pa/gemm.hpp has them).
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "fp4pa/gemm.hpp"
#include "weights/safetensors.hpp"

namespace fp4pa::weights {

/// A weight in the host's memory.
struct HostWeight {
  HostWeight() = default;
  HostWeight(HostWeight&&) = default;
  HostWeight& operator=(HostWeight&&) = default;

  /// The description, with pointers into this object.
  [[nodiscard]] Fp4Weight view() const noexcept;

  Fp4Weight shape;  ///< pointers unset
  // Allocations are aligned to 16 bytes, as the library wants codes; a file's own bytes are not.
  std::vector<std::byte> codes, scales;
  std::vector<float> global_scales;  ///< [batch]; empty for MXFP4
};

/// A weight where it lies in a file: codes and scales are the file's bytes, at any address.
struct FileWeight {
  Fp4Weight shape;  ///< pointers unset
  std::span<const std::byte> codes, scales;
  std::vector<float> global_scales;  ///< [batch]; empty for MXFP4
};

/// @param weight  in the host's memory
/// Throws safetensors::Error.
void save_weight(const std::filesystem::path& path, const std::string& name, const Fp4Weight& weight);

/// The weight called `name`, in whichever of the three forms the file has it; the file must outlive the result.
/// Throws safetensors::Error naming what is missing, or what does not fit.
[[nodiscard]] FileWeight find_weight(const safetensors::File& file, const std::string& name);
/// A copy of it.
[[nodiscard]] HostWeight load_weight(const safetensors::File& file, const std::string& name);

}  // namespace fp4pa::weights
