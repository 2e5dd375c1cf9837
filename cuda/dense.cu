// The dense calls' own steps on CUDA.
#include "cuda/words.cuh"

#include "kernels/dense.hpp"
