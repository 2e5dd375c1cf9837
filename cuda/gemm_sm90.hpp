// Products on compute capability 9.0 by kernels of its own: which one, and how its blocks divide the work.
#pragma once

#include "api/backend.hpp"
#include "backends/sm90/gemm_few_params.hpp"
#include "backends/sm90/gemm_many_params.hpp"
#include "cuda/device.hpp"

namespace fp4pa::cuda {

/// @param bf16  X is, else it is f16
/// @param m     rows of X, up to 16
[[nodiscard]] const void* gemm_few_function(bool nvfp4, bool bf16, std::int64_t m, sm90::FewForm form) noexcept;
/// Of plain products with up to kFewPairedX rows of X.
/// @param tiles  sixteens of rows of W of a warp
/// @return  null: there is none of so many
[[nodiscard]] const void* gemm_few_tiles_function(bool nvfp4, bool bf16, int tiles) noexcept;
/// @return  null: there is none for so many rows of X
[[nodiscard]] const void* gemm_many_function(const sm90::ManyLayout& layout) noexcept;

/// Whether rows of X are whole 16-byte pieces, which kernels can copy where they lie.
[[nodiscard]] inline bool has_whole_pieces(const LinearArgs& a) noexcept {
  return a.weight.cols % 8 == 0 && reinterpret_cast<std::uintptr_t>(a.x) % 16 == 0;
}

struct Sm90Division {
  const void* function;  // null: the kernels of sm_80 serve
  bool few;              // for up to 16 rows of X
  bool bf16;             // X is multiplied as it lies, in bf16; else in f16, as it lies or prepared
  std::int32_t x_rows;   // of a block
  std::int32_t row_groups;  // few: of a warp's rows of W
  std::int32_t tiles = sm90::kFewTiles;  // few: sixteens of a warp's rows of W
  std::int32_t w_rows;   // many: of a block
  std::int32_t row_tiles, m_tiles, stages, block_stages, splits;
  int threads, shared_bytes;

  /// Stages to `splits` blocks, as many to each but for the last.
  /// @return  false: so there are fewer such blocks
  bool divide_stages() noexcept {
    block_stages = (stages + splits - 1) / splits;
    return (stages + block_stages - 1) / block_stages == splits;
  }
};
[[nodiscard]] Status divide_sm90(const LinearArgs& args, const DeviceProperties& device, Sm90Division* out) noexcept;

/// Back to back with what was launched before (programmatic dependent launch).
/// @param params  complete but for stages, splits and tiles; X's columns are in their order
/// @param early   W may be read before what was launched before has ended
[[nodiscard]] Status launch_sm90(const Sm90Division& division, const sm80::GemmParams& params, bool early, std::int64_t batch,
                                 cudaStream_t stream) noexcept;

}  // namespace fp4pa::cuda
