// FP4 weights in safetensors files: the library's own, and those of checkpoints, which are taken as they are.
//
//   own       NAME.codes U8 [batch, N, row bytes], NAME.scales U8 [batch, bytes], NAME.global_scales F32 [batch] (NVFP4), and
//             the metadata "fp4pa.weight.NAME", a JSON object with format, scale_layout, rows, cols and batch
//   gpt-oss   NAME_blocks U8 [(experts,) N, groups, 16] and NAME_scales U8 [(experts,) N, groups]: MXFP4
//   ModelOpt  NAME.weight U8 [N, K/2], NAME.weight_scale F8_E4M3 [N, K/16] and NAME.weight_scale_2 F32 []: NVFP4
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4pa/gemm.hpp"
#include "tools/fp4pa/safetensors.hpp"

namespace fp4pa::tool {

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

/// Throws safetensors::Error.
void save_weight(const std::filesystem::path& path, const std::string& name, const HostWeight& weight);

/// The weight called `name`, in whichever of the three forms the file has it.
/// Throws safetensors::Error naming what is missing, or what does not fit.
[[nodiscard]] HostWeight load_weight(const safetensors::File& file, const std::string& name);

}  // namespace fp4pa::tool
