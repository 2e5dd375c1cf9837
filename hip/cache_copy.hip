// copy_pages on HIP.
#include "hip/words.hpp"

#include "kernels/cache_copy.hpp"
