// quantize, dequantize and merge_states on CUDA.
#include "cuda/words.cuh"

#include "kernels/merge_states.hpp"
#include "kernels/quantize.hpp"
