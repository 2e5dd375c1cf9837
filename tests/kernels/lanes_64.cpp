// kernels/ with warps of 64 lanes.
#define FP4PA_GPU lanes_64
#define FP4PA_TEST_LANES 64
#define FP4PA_TEST_TURN kBackwards
#define FP4PA_TEST_NAME "64 lanes"
#define FP4PA_TEST_TABLE kLanes64
#include "tests/kernels/all.hpp"
