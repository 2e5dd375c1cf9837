// append and gather on HIP.
#include "hip/words.hpp"

#include "kernels/cache_append.hpp"
