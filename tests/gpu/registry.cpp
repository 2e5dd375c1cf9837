// The library's table of back ends with the mirrored one in the place of the one under test. It is linked before the library, so
// that the library's own is not.
#include "api/backend.hpp"

#include "tests/gpu/mirror.hpp"

#if defined(FP4PA_TEST_HIP)
#define FP4PA_HAVE_HIP
#define kHipBackend kMirroredBackend
#else
#define FP4PA_HAVE_CUDA
#define kCudaBackend kMirroredBackend
#endif
#include "api/registry.cpp"
