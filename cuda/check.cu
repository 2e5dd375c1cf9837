// Validation of lengths and tables on CUDA.
#include "cuda/words.cuh"

#include "kernels/check.hpp"
