// The back end under test, as plan() knows it.
#pragma once

namespace fp4pa::gpu_test {
#if defined(FP4PA_TEST_HIP)
inline constexpr const char* kBackendName = "hip";
#else
inline constexpr const char* kBackendName = "cuda";
#endif
}  // namespace fp4pa::gpu_test
