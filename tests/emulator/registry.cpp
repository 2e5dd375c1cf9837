// The library's table of back ends with the emulated one in the place of "cuda". It is linked before the library, so that the
// library's own is not.
#include "tests/emulator/emulated_backend.hpp"

#define FP4PA_HAVE_CUDA
#define kCudaBackend kEmulatedBackend
#include "api/registry.cpp"
