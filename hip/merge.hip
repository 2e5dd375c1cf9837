// Merging of partial states on HIP.
#include "hip/words.hpp"

#include "kernels/merge.hpp"
