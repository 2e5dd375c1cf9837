// The words of kernels/, for clang compiling HIP. cuda/words.cuh has the same.
//
// Only the runtime's API header is needed, not HIP's device headers and libraries: what a kernel asks of a wave are compiler
// builtins. No kernel reads the launch's dimensions, so that none needs the hidden arguments that hold them.
#pragma once

// clang-format off
#include <cstdlib>  // before HIP's header, which reaches <new> in clang's wrapper and leaves malloc to others
// clang-format on
#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include <bit>

#include "core/formats/elements.hpp"
#include "core/formats/half.hpp"
#include "hip/device.hpp"

#define FP4PA_DEVICE __attribute__((device))
#define FP4PA_SHARED __attribute__((shared))
#define FP4PA_DYNAMIC_SHARED(type, name) extern FP4PA_SHARED __attribute__((aligned(128))) type name[]
/// An array of `n` that is a thread's own, in a function whose blocks have `threads` threads: in LDS, because a register cannot be
/// indexed by a variable, and scratch memory is far. An element more keeps threads at the same one in different banks.
#define FP4PA_OWN_ARRAY(type, name, n, threads)                            \
  FP4PA_SHARED type name##_of_threads[threads][(n) + 4 / sizeof(type)];    \
  type* const name = name##_of_threads[thread_id()]
/// The head of a kernel with blocks of `threads` threads and one argument, by value.
#define FP4PA_KERNEL(name, threads, ...) \
  __attribute__((global, visibility("hidden"), amdgpu_flat_work_group_size(threads, threads))) void name(const __VA_ARGS__)
#define FP4PA_KERNEL_OF_ONE_BLOCK FP4PA_KERNEL
#define FP4PA_KERNEL_OF_BLOCKS(name, threads, blocks, ...) FP4PA_KERNEL(name, threads, __VA_ARGS__)

namespace fp4pa::hip {

/// Threads that run together, between which sync_warp() is enough: a wave of CDNA.
inline constexpr int kLanes = 64;
/// A pointer to LDS is no pointer to memory: one that may be either takes flat instructions, which these kernels do without.
inline constexpr bool kFlatPointers = false;
/// Blocks of a grid in x, of up to 1024 threads, at most: a grid's threads are counted in 32 bits.
inline constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 22) - 1;

[[nodiscard]] FP4PA_DEVICE inline int thread_id() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
[[nodiscard]] FP4PA_DEVICE inline int block_id() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }
[[nodiscard]] FP4PA_DEVICE inline int block_id_y() { return static_cast<int>(__builtin_amdgcn_workgroup_id_y()); }
/// Of all threads of the grid.
FP4PA_DEVICE inline void atomic_max(std::uint32_t* at, std::uint32_t value) {
  __hip_atomic_fetch_max(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

/// A wave's accesses to LDS are executed in order; what is left is to keep the compiler from moving them.
FP4PA_DEVICE inline void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
/// p. Out of the compiler's sight it would point to LDS or memory, and take flat instructions.
[[nodiscard]] FP4PA_DEVICE inline std::uint8_t* kept(std::uint8_t* p) { return p; }
FP4PA_DEVICE inline void sync_block() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/// `value` of the lane whose number differs by `mask`; all lanes of a wave call it.
[[nodiscard]] FP4PA_DEVICE inline std::uint32_t shuffle_xor(std::uint32_t value, int mask) {
  const int lane = static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)));
  return static_cast<std::uint32_t>(__builtin_amdgcn_ds_bpermute(4 * (lane ^ mask), static_cast<int>(value)));
}

/// Kept from the compiler's sight: it would otherwise round a product and its conversion to f16 in one step (v_fma_mixlo_f16), which is
/// not what every other device does.
[[nodiscard]] FP4PA_DEVICE inline float rounded(float x) {
#if defined(__HIP_DEVICE_COMPILE__)
  asm("" : "+v"(x));
#endif
  return x;
}
[[nodiscard]] FP4PA_DEVICE inline std::uint32_t pack_f16(float low, float high) {
  low = rounded(low);
  high = rounded(high);
  return std::uint32_t{std::bit_cast<std::uint16_t>(static_cast<_Float16>(low))} |
         std::uint32_t{std::bit_cast<std::uint16_t>(static_cast<_Float16>(high))} << 16;
}
[[nodiscard]] FP4PA_DEVICE inline std::uint32_t pack_bf16(float low, float high) {
  return std::uint32_t{core::f32_to_bf16(low)} | std::uint32_t{core::f32_to_bf16(high)} << 16;
}
/// The two f16 of a word.
FP4PA_DEVICE inline void unpack_f16(std::uint32_t word, float* low, float* high) {
  *low = static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(word)));
  *high = static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(word >> 16)));
}
/// No arithmetic on pairs of bfloat16: that is not defined, what asks for it is compiled for other devices.
struct Bf16Pairs {
  static constexpr bool kThere = false;
  FP4PA_DEVICE static std::uint32_t mul(std::uint32_t a, std::uint32_t b);
  FP4PA_DEVICE static std::uint32_t sub(std::uint32_t a, std::uint32_t b);
  FP4PA_DEVICE static std::uint32_t fma(std::uint32_t a, std::uint32_t b, std::uint32_t c);
  FP4PA_DEVICE static std::uint32_t max_magnitude(std::uint32_t a, std::uint32_t b);
  FP4PA_DEVICE static std::uint32_t min_magnitude(std::uint32_t a, std::uint32_t b);
  FP4PA_DEVICE static std::uint32_t max_halves(std::uint32_t a, std::uint32_t b);
  FP4PA_DEVICE static std::uint32_t select(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
    return (a & mask) | (b & ~mask);
  }
  FP4PA_DEVICE static std::uint32_t bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
    const std::uint32_t two = (selectors & 0x07u) | (selectors & 0x70u) << 4;
    const std::uint32_t upper_two = (selectors & 0x0700u) << 8 | (selectors & 0x7000u) << 12;
    return __builtin_amdgcn_perm(b, a, two | upper_two);
  }
};
/// The upper halves of two f32, that of `low` below.
[[nodiscard]] FP4PA_DEVICE inline std::uint32_t upper_halves(float low, float high) {
  return core::float_bits(low) >> 16 | (core::float_bits(high) & 0xffff0000u);
}
/// |x|, which costs nothing where it is multiplied.
[[nodiscard]] FP4PA_DEVICE inline float magnitude(float x) { return __builtin_fabsf(x); }
/// The larger magnitude, NaN if one is; `most` has no sign.
[[nodiscard]] FP4PA_DEVICE inline float larger_magnitude(float most, float x) {
  const std::uint32_t a = core::float_bits(most);
  const std::uint32_t b = core::magnitude_bits(x);
  return core::float_from_bits(a > b ? a : b);
}
/// 1 / x for a normal x, to 22 bits.
[[nodiscard]] FP4PA_DEVICE inline float near_reciprocal(float x) { return 1.0f / x; }
/// E4M3 codes of four values and back, the first in the lowest byte: as core's E4M3. gfx950's conversion does not saturate.
[[nodiscard]] FP4PA_DEVICE inline std::uint32_t pack_e4m3(float a, float b, float c, float d) {
  using core::E4M3;
  return std::uint32_t{E4M3::encode(a)} | std::uint32_t{E4M3::encode(b)} << 8 | std::uint32_t{E4M3::encode(c)} << 16 |
         std::uint32_t{E4M3::encode(d)} << 24;
}
FP4PA_DEVICE inline void unpack_e4m3(std::uint32_t codes, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = core::E4M3::decode(static_cast<std::uint8_t>(codes >> (8 * i)));
}

/// The next kernel begins when this one has ended.
FP4PA_DEVICE inline void allow_dependents() {}
FP4PA_DEVICE inline void wait_for_previous() {}

[[nodiscard]] inline dim3 grid(std::int64_t blocks, std::int64_t blocks_y = 1) {
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(blocks_y), 1};
}

template <class Args>
[[nodiscard]] Error launch(void (*kernel)(Args), dim3 blocks, int threads, std::size_t shared_bytes, Stream stream,
                           const Args& args) noexcept {
  void* arguments[] = {const_cast<Args*>(&args)};
  return hipLaunchKernel(reinterpret_cast<const void*>(kernel), blocks, grid(threads), arguments, shared_bytes, stream);
}
/// @param stream  as callers hand it over
/// @param doing   for the error message: "launching append"
template <class Args>
[[nodiscard]] Status launch(void (*kernel)(Args), dim3 blocks, int threads, std::size_t shared_bytes, void* stream,
                            const Args& args, const char* doing) noexcept {
  return check(launch(kernel, blocks, threads, shared_bytes, static_cast<Stream>(stream), args), doing);
}

template <class Args>
[[nodiscard]] Status launch_beside(void (*kernel)(Args), dim3 blocks, int threads, void* stream, const Args& args,
                                   const char* doing) noexcept {
  return launch(kernel, blocks, threads, 0, stream, args, doing);
}

[[nodiscard]] inline Status clear(void* data, std::size_t bytes, void* stream, const char* doing) noexcept {
  return check(clear_on(static_cast<Stream>(stream), data, bytes), doing);
}

}  // namespace fp4pa::hip
