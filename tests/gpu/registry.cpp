// The library's table of back ends with the mirrored "cuda" in the place of the real one. It is linked before the library, so
// that the library's own is not.
#include "api/backend.hpp"

#include "tests/gpu/mirror.hpp"

#define FP4PA_HAVE_CUDA
#define kCudaBackend kMirroredCudaBackend
#include "api/registry.cpp"
