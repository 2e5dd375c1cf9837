// kernels/ with warps of 32 lanes.
#define FP4PA_GPU lanes_32
#define FP4PA_TEST_LANES 32
#define FP4PA_TEST_TURN kForwards
#define FP4PA_TEST_NAME "32 lanes"
#define FP4PA_TEST_TABLE kLanes32
#include "tests/kernels/all.hpp"
