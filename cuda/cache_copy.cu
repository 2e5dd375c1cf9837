// copy_pages on CUDA.
#include "cuda/words.cuh"

#include "kernels/cache_copy.hpp"
