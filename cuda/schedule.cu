// Prefix sums of the schedule on CUDA.
#include "cuda/dependency.cuh"
#include "cuda/words.cuh"

#include "kernels/schedule.hpp"
