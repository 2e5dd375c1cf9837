// FP4PA_API marks what the shared library exports; everything else in it is hidden. Plain preprocessor: C includes it too.
#pragma once

#if defined(__GNUC__)
#define FP4PA_API __attribute__((visibility("default")))
#else
#define FP4PA_API
#endif
