// The kernels that CUDA and HIP share, run by the host: bytes as the CPU's, whatever the width of a warp and the order of its
// threads.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
