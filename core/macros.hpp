// The only macros of libfp4pa: where a function may run, and whether a loop is unrolled.
//
// Everything in core/ is compiled three times over: by the host compiler, by nvcc and by clang for HIP. A function
// marked FP4PA_FN may be called on either side. No other header in core/ asks which compiler it is in.
#pragma once

#if defined(__CUDACC__)
#define FP4PA_FN __host__ __device__ __forceinline__
#elif defined(__HIP__)
// Spelled as attributes, so that code objects build without HIP's headers too.
#define FP4PA_FN __attribute__((host, device, always_inline)) inline
#else
#define FP4PA_FN inline
#endif

#if defined(__CUDACC__) || defined(__clang__)
#define FP4PA_UNROLL _Pragma("unroll")
#define FP4PA_NO_UNROLL _Pragma("unroll 1")
#else
#define FP4PA_UNROLL
#define FP4PA_NO_UNROLL
#endif
