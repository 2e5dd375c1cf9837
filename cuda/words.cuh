// The words of kernels/, for nvcc. hip/words.hpp has the same, but for those of lanes that find_start.hpp alone speaks.
#pragma once

#include <cuda_runtime_api.h>

#include "backends/sm80/convert.hpp"
#include "cuda/dependency.cuh"
#include "cuda/device.hpp"

#define FP4PA_DEVICE __device__
#define FP4PA_INLINE __forceinline__
#define FP4PA_SHARED __shared__
#define FP4PA_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
/// An array of `n` that is a thread's own, in a function whose blocks have `threads` threads.
#define FP4PA_OWN_ARRAY(type, name, n, threads) type name[n]
/// The head of a kernel with blocks of `threads` threads and one argument, by value.
#define FP4PA_KERNEL(name, threads, ...) \
  __global__ void __launch_bounds__(threads) name(const __grid_constant__ __VA_ARGS__)
/// The same with registers for so many blocks on a multiprocessor; 0: as many as the compiler sees fit.
#define FP4PA_KERNEL_OF_BLOCKS(name, threads, blocks, ...) \
  __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ __VA_ARGS__)
/// The same for a kernel of one block, which has a multiprocessor's registers to itself.
#define FP4PA_KERNEL_OF_ONE_BLOCK(name, threads, ...) \
  __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ __VA_ARGS__)

namespace fp4pa::cuda {

/// Threads that run together, between which sync_warp() is enough.
inline constexpr int kLanes = 32;
/// A pointer may point to shared memory or to global, and costs the same.
inline constexpr bool kFlatPointers = true;
/// Blocks of a grid in x, at most.
inline constexpr std::int64_t kMostBlocks = 0x7fffffff;

[[nodiscard]] __device__ inline int thread_id() { return static_cast<int>(threadIdx.x); }
[[nodiscard]] __device__ inline int block_id() { return static_cast<int>(blockIdx.x); }
[[nodiscard]] __device__ inline int block_id_y() { return static_cast<int>(blockIdx.y); }
/// Of all threads of the grid.
__device__ inline void atomic_max(std::uint32_t* at, std::uint32_t value) { atomicMax(at, value); }
__device__ inline void sync_warp() { __syncwarp(); }
/// p, which is not worked out again where it is used.
[[nodiscard]] __device__ inline std::uint8_t* kept(std::uint8_t* p) {
  asm volatile("" : "+l"(p));
  return p;
}
__device__ inline void sync_block() { __syncthreads(); }

/// `value` of the lane whose number differs by `mask`; all lanes of a warp call it.
[[nodiscard]] __device__ inline std::uint32_t shuffle_xor(std::uint32_t value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

/// `value` of the lane `lanes` before this one; the first ones get their own.
[[nodiscard]] __device__ inline std::uint32_t shuffle_up(std::uint32_t value, int lanes) {
  return __shfl_up_sync(0xffffffffu, value, lanes);
}
/// `value` of lane `lane`, which all name.
[[nodiscard]] __device__ inline std::uint32_t shuffle_from(std::uint32_t value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
[[nodiscard]] __device__ inline std::uint32_t sum_of_lanes(std::uint32_t value) { return __reduce_add_sync(0xffffffffu, value); }
[[nodiscard]] __device__ inline std::uint32_t largest_of_lanes(std::uint32_t value) { return __reduce_max_sync(0xffffffffu, value); }
/// The first lane of which `condition` holds, -1 if there is none.
[[nodiscard]] __device__ inline int first_lane_where(bool condition) {
  return __ffs(static_cast<int>(__ballot_sync(0xffffffffu, condition))) - 1;
}

using sm80::pack_bf16;
using sm80::pack_f16;
/// The two f16 of a word.
__device__ inline void unpack_f16(std::uint32_t word, float* low, float* high) {
  asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}" : "=f"(*low), "=f"(*high) : "r"(word));
}
/// What core/formats/e2m1_pairs.hpp asks of a device that has it.
struct Bf16Pairs {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static constexpr bool kThere = true;
#else
  static constexpr bool kThere = false;
#endif
#define FP4PA_PAIRS_OF_TWO(name, instruction)                                                     \
  [[nodiscard]] __device__ static std::uint32_t name(std::uint32_t a, std::uint32_t b) {          \
    std::uint32_t out;                                                                            \
    asm(instruction ".bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));                          \
    return out;                                                                                   \
  }
  FP4PA_PAIRS_OF_TWO(mul, "mul.rn")
  FP4PA_PAIRS_OF_TWO(sub, "sub.rn")
  FP4PA_PAIRS_OF_TWO(max_magnitude, "max.NaN.xorsign.abs")
  FP4PA_PAIRS_OF_TWO(min_magnitude, "min.xorsign.abs")
#undef FP4PA_PAIRS_OF_TWO
  [[nodiscard]] __device__ static std::uint32_t fma(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    std::uint32_t out;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
  }
  [[nodiscard]] __device__ static std::uint32_t max_halves(std::uint32_t a, std::uint32_t b) { return sm80::max_halves(a, b); }
  [[nodiscard]] __device__ static std::uint32_t select(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
    return sm80::select_bits(mask, a, b);
  }
  /// Byte n is the one of (a, b), of bytes 0 to 7, that nibble n of `selectors` says; above 16 bits they are ignored.
  [[nodiscard]] __device__ static std::uint32_t bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
    return __byte_perm(a, b, selectors);
  }
};
/// The upper halves of two f32, that of `low` below.
[[nodiscard]] __device__ inline std::uint32_t upper_halves(float low, float high) {
  return __byte_perm(core::float_bits(low), core::float_bits(high), 0x7632);
}
/// |x|, which costs nothing where it is multiplied.
[[nodiscard]] __device__ inline float magnitude(float x) { return fabsf(x); }
/// The larger magnitude, NaN if one is; `most` has no sign.
[[nodiscard]] __device__ inline float larger_magnitude(float most, float x) {
  float out;
  asm("{.reg .f32 m; abs.f32 m, %2; max.NaN.f32 %0, %1, m;}" : "=f"(out) : "f"(most), "f"(x));
  return out;
}
/// 1 / x for a normal x, to 22 bits.
[[nodiscard]] __device__ inline float near_reciprocal(float x) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
/// E4M3 codes of four values and back, the first in the lowest byte: as core's E4M3.
[[nodiscard]] __device__ inline std::uint32_t pack_e4m3(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t out;
  asm("{.reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; "
      "mov.b32 %0, {low, high};}"
      : "=r"(out)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return out;
#else
  using core::E4M3;
  return std::uint32_t{E4M3::encode(a)} | std::uint32_t{E4M3::encode(b)} << 8 | std::uint32_t{E4M3::encode(c)} << 16 |
         std::uint32_t{E4M3::encode(d)} << 24;
#endif
}
__device__ inline void unpack_e4m3(std::uint32_t codes, float* out) {
  unpack_f16(sm80::e4m3_to_f16(codes), out, out + 1);
  unpack_f16(sm80::e4m3_to_f16(codes >> 16), out + 2, out + 3);
}

[[nodiscard]] inline dim3 grid(std::int64_t blocks, std::int64_t blocks_y = 1) {
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(blocks_y)};
}

template <class Args>
[[nodiscard]] Error launch(void (*kernel)(Args), dim3 blocks, int threads, std::size_t shared_bytes, Stream stream,
                           const Args& args) noexcept {
  void* arguments[] = {const_cast<Args*>(&args)};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), blocks, dim3(static_cast<unsigned>(threads)), arguments,
                          shared_bytes, stream);
}
/// @param stream  as callers hand it over
/// @param doing   for the error message: "launching append"
template <class Args>
[[nodiscard]] Status launch(void (*kernel)(Args), dim3 blocks, int threads, std::size_t shared_bytes, void* stream,
                            const Args& args, const char* doing) noexcept {
  return check(launch(kernel, blocks, threads, shared_bytes, static_cast<Stream>(stream), args), doing);
}

/// The same behind a kernel of the call that allows dependents: this one may begin while that one ends, of whose results it reads nothing. It
/// waits for it before it ends, for the sake of what comes next.
template <class Args>
[[nodiscard]] Status launch_beside(void (*kernel)(Args), dim3 blocks, int threads, void* stream, const Args& args,
                                   const char* doing) noexcept {
  DeviceProperties device{};
  if (const Status s = current_device(&device); s != Status::kOk) return s;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<Stream>(stream);
  config.attrs = &attribute;
  config.numAttrs = device.compute_capability >= 90 ? 1 : 0;
  void* arguments[] = {const_cast<Args*>(&args)};
  return check(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments), doing);
}

[[nodiscard]] inline Status clear(void* data, std::size_t bytes, void* stream, const char* doing) noexcept {
  return check(cudaMemsetAsync(data, 0, bytes, static_cast<Stream>(stream)), doing);
}

}  // namespace fp4pa::cuda
