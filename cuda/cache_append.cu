// append and gather on CUDA.
#include "cuda/words.cuh"

#include "kernels/cache_append.hpp"
