// append_two_tier on HIP.
#include "hip/words.hpp"

#include "kernels/cache_two_tier.hpp"
