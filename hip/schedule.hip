// Prefix sums of the schedule on HIP.
#include "hip/words.hpp"

#include "kernels/schedule.hpp"
