// A status that nobody looks at: every function that can fail is [[nodiscard]], and warnings are errors in our own builds.
#include "fp4pa/cache.hpp"

void append_and_hope(const fp4pa::KvCacheDesc& cache) {
#ifdef FP4PA_COMPILE_OK
  (void)fp4pa::validate(cache);
#else
  fp4pa::validate(cache);
#endif
}
