// The back end under test, as plan() knows it.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace fp4pa::gpu_test {
#if defined(FP4PA_TEST_HIP)
inline constexpr const char* kBackendName = "hip";
#else
inline constexpr const char* kBackendName = "cuda";
#endif
/// One in how many of the drawn configurations runs: FP4PA_TEST_SHARE, and without it all for CUDA. HIP's default is what a
/// simulator of the instruction set affords; whoever has the card asks for 1.
inline int share() {
#if defined(FP4PA_TEST_HIP)
  constexpr int kDefault = 64;
#else
  constexpr int kDefault = 1;
#endif
  const char* const text = std::getenv("FP4PA_TEST_SHARE");
  return text != nullptr ? std::max(1, std::atoi(text)) : kDefault;
}

}  // namespace fp4pa::gpu_test
