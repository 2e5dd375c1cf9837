// The only macros of core/: where a function may run, whether a loop is unrolled, and whose mathematics it calls.
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

// A function of <cmath> by its C name; see core/math.hpp, which alone uses these. A program may bring its own, for results with
// the same bits on the host and on a device (tests/gpu).
#if defined(FP4PA_MATH)
#define FP4PA_DEVICE_HAS_LIBM 0
#elif defined(__HIP__)
#define FP4PA_DEVICE_HAS_LIBM 0
#define FP4PA_MATH(function) __builtin_##function
#else
#define FP4PA_DEVICE_HAS_LIBM 1
#define FP4PA_MATH(function) ::function
#endif

// A count of 64 bits; core/math.hpp, which alone uses it, has one of its own where there is none. std::popcount is no device
// function: nvcc takes it, and makes nothing of it. Of AMD's v_bcnt_u32_b32 the open emulator of the ISA loses the addend.
#if defined(__CUDA_ARCH__)
#define FP4PA_POPCOUNT(x) __popcll(x)
#elif !defined(__AMDGCN__)
#define FP4PA_POPCOUNT(x) std::popcount(x)
#endif
