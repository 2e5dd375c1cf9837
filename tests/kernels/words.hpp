// The words of kernels/ on the host: as cuda/words.cuh and hip/words.hpp, with the threads of fibers.hpp. Who includes it says
// what the namespace is, how wide a warp is, and in which order threads take their turns.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "api/backend.hpp"
#include "core/formats/elements.hpp"
#include "core/formats/half.hpp"
#include "core/macros.hpp"
#include "tests/formats/bf16_pairs.hpp"
#include "tests/kernels/fibers.hpp"

#if !defined(FP4PA_GPU) || !defined(FP4PA_TEST_LANES) || !defined(FP4PA_TEST_TURN)
#error "define FP4PA_GPU, FP4PA_TEST_LANES and FP4PA_TEST_TURN"
#endif

#define FP4PA_DEVICE
#define FP4PA_INLINE inline
#define FP4PA_SHARED static
#define FP4PA_OWN_ARRAY(type, name, n, threads) type name[n]
#define FP4PA_DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(dynamic_shared.data())
#define FP4PA_KERNEL(name, threads, ...) void name(const __VA_ARGS__)
#define FP4PA_KERNEL_OF_ONE_BLOCK FP4PA_KERNEL
#define FP4PA_KERNEL_OF_BLOCKS(name, threads, blocks, ...) FP4PA_KERNEL(name, threads, __VA_ARGS__)

namespace fp4pa::FP4PA_GPU {

using Error = int;
using Stream = void*;

inline constexpr int kLanes = FP4PA_TEST_LANES;
inline constexpr bool kFlatPointers = true;
inline constexpr std::int64_t kMostBlocks = 5;  // so few that what passes a grid is met

struct Grid {
  int x, y;
};
inline Grid current_block;
inline std::vector<std::uint64_t> dynamic_shared;

inline int thread_id() { return kernels_test::thread_id(); }
inline int block_id() { return current_block.x; }
inline int block_id_y() { return current_block.y; }
inline void atomic_max(std::uint32_t* at, std::uint32_t value) { *at = value > *at ? value : *at; }
inline void sync_warp() { kernels_test::sync_warp(); }
inline void sync_block() { kernels_test::sync_block(); }
inline std::uint8_t* kept(std::uint8_t* p) { return p; }

/// f(what the lanes of this thread's warp hand in).
template <class F>
std::uint32_t with_lanes(std::uint32_t value, F&& f) {
  static std::uint32_t of_thread[1024];
  of_thread[thread_id()] = value;
  sync_warp();
  const std::uint32_t result = f(of_thread + thread_id() / kLanes * kLanes);
  sync_warp();
  return result;
}
inline std::uint32_t shuffle_xor(std::uint32_t value, int mask) {
  return with_lanes(value, [mask](const std::uint32_t* lanes) { return lanes[thread_id() % kLanes ^ mask]; });
}
inline std::uint32_t shuffle_up(std::uint32_t value, int up) {
  return with_lanes(value, [up](const std::uint32_t* lanes) {
    const int lane = thread_id() % kLanes;
    return lanes[lane < up ? lane : lane - up];
  });
}
inline std::uint32_t shuffle_from(std::uint32_t value, int lane) {
  return with_lanes(value, [lane](const std::uint32_t* lanes) { return lanes[lane]; });
}
inline std::uint32_t sum_of_lanes(std::uint32_t value) {
  return with_lanes(value, [](const std::uint32_t* lanes) { return std::accumulate(lanes, lanes + kLanes, std::uint32_t{0}); });
}
inline std::uint32_t largest_of_lanes(std::uint32_t value) {
  return with_lanes(value, [](const std::uint32_t* lanes) { return *std::max_element(lanes, lanes + kLanes); });
}
inline int first_lane_where(bool condition) {
  return static_cast<int>(with_lanes(condition ? 1 : 0, [](const std::uint32_t* lanes) {
    const std::uint32_t* const first = std::find(lanes, lanes + kLanes, 1u);
    return first == lanes + kLanes ? ~std::uint32_t{0} : static_cast<std::uint32_t>(first - lanes);
  }));
}
inline std::uint32_t pack_f16(float low, float high) {
  return std::uint32_t{core::f32_to_f16(low)} | std::uint32_t{core::f32_to_f16(high)} << 16;
}
inline std::uint32_t pack_bf16(float low, float high) {
  return std::uint32_t{core::f32_to_bf16(low)} | std::uint32_t{core::f32_to_bf16(high)} << 16;
}
inline void unpack_f16(std::uint32_t word, float* low, float* high) {
  *low = core::f16_to_f32(static_cast<std::uint16_t>(word));
  *high = core::f16_to_f32(static_cast<std::uint16_t>(word >> 16));
}
struct Bf16Pairs : tests::Bf16Pairs {
  static constexpr bool kThere = FP4PA_TEST_LANES == 32;  // with one width of a warp and without with the other
};
inline std::uint32_t upper_halves(float low, float high) {
  return core::float_bits(low) >> 16 | (core::float_bits(high) & 0xffff0000u);
}
inline float magnitude(float x) { return std::fabs(x); }
inline float larger_magnitude(float most, float x) {
  const std::uint32_t a = core::float_bits(most);
  const std::uint32_t b = core::magnitude_bits(x);
  return core::float_from_bits(a > b ? a : b);
}
/// As wrong as a device's may be.
inline float near_reciprocal(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(1.0f / x) + (FP4PA_TEST_LANES == 32 ? 2u : -2u));
}
inline std::uint32_t pack_e4m3(float a, float b, float c, float d) {
  using core::E4M3;
  return std::uint32_t{E4M3::encode(a)} | std::uint32_t{E4M3::encode(b)} << 8 | std::uint32_t{E4M3::encode(c)} << 16 |
         std::uint32_t{E4M3::encode(d)} << 24;
}
inline void unpack_e4m3(std::uint32_t codes, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = core::E4M3::decode(static_cast<std::uint8_t>(codes >> (8 * i)));
}

inline void allow_dependents() {}
inline void wait_for_previous() {}

inline Grid grid(std::int64_t blocks, std::int64_t blocks_y = 1) {
  return {static_cast<int>(blocks), static_cast<int>(blocks_y)};
}
inline Status check(Error, const char*) noexcept { return Status::kOk; }

template <class Args>
Error launch(void (*kernel)(Args), Grid blocks, int threads, std::size_t shared_bytes, Stream, const Args& args) noexcept {
  for (current_block.y = 0; current_block.y < blocks.y; ++current_block.y) {
    for (current_block.x = 0; current_block.x < blocks.x; ++current_block.x) {
      dynamic_shared.assign((shared_bytes + 7) / 8, ~std::uint64_t{0});  // NaN to floats
      kernels_test::run_block(threads, kLanes, kernels_test::Turn::FP4PA_TEST_TURN, [&] { kernel(args); });
    }
  }
  return 0;
}
template <class Args>
Status launch(void (*kernel)(Args), Grid blocks, int threads, std::size_t shared_bytes, void* stream, const Args& args,
              const char* doing) noexcept {
  return check(launch(kernel, blocks, threads, shared_bytes, stream, args), doing);
}
template <class Args>
Status launch_beside(void (*kernel)(Args), Grid blocks, int threads, void* stream, const Args& args, const char* doing) noexcept {
  return launch(kernel, blocks, threads, 0, stream, args, doing);
}
inline Status clear(void* data, std::size_t bytes, void*, const char*) noexcept {
  std::memset(data, 0, bytes);
  return Status::kOk;
}

/// A small device: every kernel's loop over blocks goes round more than once.
struct DeviceProperties {
  int multiprocessors;
};
inline Status current_device(DeviceProperties* out) noexcept {
  out->multiprocessors = 1;
  return Status::kOk;
}

}  // namespace fp4pa::FP4PA_GPU
