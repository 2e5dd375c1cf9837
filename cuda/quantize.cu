// quantize, dequantize and merge_states on CUDA.
#include "cuda/words.cuh"

#include "kernels/quantize.hpp"
