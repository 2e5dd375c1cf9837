// The library's table of back ends with the host's lanes in the place of "cuda"; see registry.cpp.
#include "tests/gpu/lanes_backend.hpp"

#define FP4PA_HAVE_CUDA
#define kCudaBackend kLanesBackend
#include "api/registry.cpp"
