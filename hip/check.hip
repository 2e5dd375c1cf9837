// Validation of lengths and tables on HIP.
#include "hip/words.hpp"

#include "kernels/check.hpp"
