// Merging of partial states on CUDA.
#include "cuda/words.cuh"

#include "kernels/merge.hpp"
