// The dense calls' own steps on HIP.
#include "hip/words.hpp"

#include "kernels/dense.hpp"
