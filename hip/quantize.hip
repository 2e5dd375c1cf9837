// quantize, dequantize and merge_states on HIP.
#include "hip/words.hpp"

#include "kernels/quantize.hpp"
