// append_two_tier on CUDA.
#include "cuda/words.cuh"

#include "kernels/cache_two_tier.hpp"
