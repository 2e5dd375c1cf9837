// Row  of cuda/instances.hpp. Generated: one translation unit an instance, so that they compile side by side.
#include "cuda/attend_kernel.cuh"

FP4PA_INSTANTIATE_ATTEND()
