// Prefix sums of the schedule on CUDA.
#include "cuda/words.cuh"

#include "kernels/schedule.hpp"
