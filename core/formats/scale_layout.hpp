// Where a scale factor lies in the 128x4 layout of block-scaled GEMMs.
//
// The tensor core of SM100 and later reads the scales of 128 rows by 4 groups as one atom of 512 bytes: 32 lanes' worth
// of 16 bytes, each of them 4 rows (32 apart) by 4 groups. Atoms follow one another along the groups, then along
// the rows. Rows are padded to 128 and groups to 4.
//   (row, group) -> ((row/128) * ceil(G/4) + group/4) * 512 + (row%32) * 16 + ((row%128)/32) * 4 + group%4
// Source: cuBLASLt, "1D block scaling factors layout"; CUTLASS Sm1xxBlockScaledConfig; torchao to_blocked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::core {

inline constexpr std::int64_t kScaleAtomRows = 128;
inline constexpr std::int64_t kScaleAtomGroups = 4;

/// @param row         0-based row of the tensor
/// @param group       0-based group along the row
/// @param num_groups  groups in a row, before padding
/// @return            offset in bytes (one per scale)
FP4PA_FN constexpr std::size_t blocked_scale_offset(std::int64_t row, std::int64_t group, std::int64_t num_groups) {
  const std::int64_t atoms_per_row = (num_groups + kScaleAtomGroups - 1) / kScaleAtomGroups;
  const std::int64_t atom = row / kScaleAtomRows * atoms_per_row + group / kScaleAtomGroups;
  const std::int64_t within = row % 32 * 16 + row % kScaleAtomRows / 32 * 4 + group % kScaleAtomGroups;
  return static_cast<std::size_t>(atom * (kScaleAtomRows * kScaleAtomGroups) + within);
}

/// The same for a tensor of less than 2^31 scales, whose rows and groups need 32 bits: what a GPU divides without ado.
FP4PA_FN constexpr std::int64_t blocked_scale_offset_32(std::uint32_t row, std::uint32_t group, std::uint32_t num_groups) {
  const std::uint32_t atoms_per_row = (num_groups + 3) / 4;
  const std::int64_t atom = std::int64_t{row / 128} * atoms_per_row + group / 4;
  return atom * 512 + (row % 32 * 16 + row % 128 / 32 * 4 + group % 4);
}

/// Bytes of the whole layout, padding included.
FP4PA_FN constexpr std::size_t blocked_scale_size(std::int64_t rows, std::int64_t groups) {
  const std::int64_t row_atoms = (rows + kScaleAtomRows - 1) / kScaleAtomRows;
  const std::int64_t group_atoms = (groups + kScaleAtomGroups - 1) / kScaleAtomGroups;
  return static_cast<std::size_t>(row_atoms * group_atoms * kScaleAtomRows * kScaleAtomGroups);
}

}  // namespace fp4pa::core
