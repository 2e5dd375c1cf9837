// The boundaries on which a workspace and its parts lie.
#pragma once

#include <cstddef>

namespace fp4pa::api {

/// In bytes, of a workspace and of each part of one.
inline constexpr std::size_t kWorkspaceAlignment = 256;

/// Bytes of a part, up to the next one's boundary.
template <class Integer>
[[nodiscard]] constexpr Integer workspace_part(Integer bytes) noexcept {
  constexpr auto kStep = static_cast<Integer>(kWorkspaceAlignment);
  return (bytes + kStep - 1) / kStep * kStep;
}

}  // namespace fp4pa::api
