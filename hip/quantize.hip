// quantize, dequantize and merge_states on HIP.
#include "hip/words.hpp"

#include "kernels/merge_states.hpp"
#include "kernels/quantize.hpp"
