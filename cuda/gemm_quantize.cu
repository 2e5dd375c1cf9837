// What surrounds the matrix products, on CUDA.
#include "cuda/words.cuh"

#include "cuda/dependency.cuh"
#include "kernels/gemm_quantize.hpp"
