// A key's scales as little-endian words: from anywhere in global memory, from where they are aligned, and from copies of them.
#pragma once

#include <cstdint>

#include "core/paging/tensor_view.hpp"
#include "core/simt/page_runs.hpp"

namespace fp4pa::core {

/// Words of `bytes` bytes at any address, loaded whole where `aligned`.
template <int kWords, class E>
FP4PA_FN void load_scale_words(E& exec, const std::uint8_t* from, int bytes, bool aligned, std::uint32_t (&words)[kWords]) {
  FP4PA_UNROLL
  for (int w = 0; w < kWords; ++w) {
    words[w] = 0;
    if (4 * w >= bytes) continue;
    if (aligned) {
      words[w] = exec.template load_global<std::uint32_t>(from + 4 * w);
    } else {
      FP4PA_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (4 * w + i < bytes) {
          words[w] |= std::uint32_t{exec.template load_global<std::uint8_t>(from + 4 * w + i)} << (8 * i);
        }
      }
    }
  }
}

/// Whether all scale rows of a tensor begin on words and are whole words long.
[[nodiscard]] FP4PA_FN bool scales_are_words(const TensorView& view, int bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.scales);
  return ((address | view.scale_page_stride | view.scale_token_stride | view.scale_head_stride | bytes) & 3) == 0;
}

/// A key's scales in loads as wide as their alignment, see scales_are_aligned; zeros where the key is not there.
template <int kBytes, class E, int kWords>
FP4PA_FN void load_words(E& exec, const std::uint8_t* from, bool there, std::uint32_t (&words)[kWords]) {
  FP4PA_UNROLL
  for (int w = 0; w < kWords; ++w) words[w] = 0;
  if (!there) return;
  if constexpr (kBytes == 1) {
    words[0] = exec.template load_global<std::uint8_t>(from);
  } else if constexpr (kBytes == 2) {
    words[0] = exec.template load_global<std::uint16_t>(from);
  } else {
    FP4PA_UNROLL
    for (int w = 0; w < kWords; ++w) words[w] = exec.template load_global<std::uint32_t>(from + 4 * w);
  }
}

/// The same from shared memory, of words that were copied; of two bytes those in half `half` of their word.
template <int kBytes, class E, class Lane, int kWords>
FP4PA_FN void load_copied_words(E& exec, Lane lane, std::uint32_t from, int half, std::uint32_t (&words)[kWords]) {
  if constexpr (kBytes == 2) {
    words[0] = exec.template load_shared<std::uint16_t>(lane, from + 2 * half);
  } else {
    FP4PA_UNROLL
    for (int w = 0; w < (kBytes + 3) / 4; ++w) words[w] = exec.template load_shared<std::uint32_t>(lane, from + 4 * w);
  }
}

}  // namespace fp4pa::core
