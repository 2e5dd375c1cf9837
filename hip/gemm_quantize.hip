// What surrounds the matrix products, on HIP.
#include "hip/words.hpp"

#include "kernels/gemm_quantize.hpp"
#include "kernels/gemm_terms.hpp"
