// core/formats on a CUDA device against the same headers compiled for the host: every bit must agree, NaN payloads
// aside.
//
// A program of its own, not a doctest area: it needs nvcc and a device, and says so when there is none (exit code 77). Its target is
// fp4pa_test_gpu_formats (tests/gpu/CMakeLists.txt).
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/formats/formats.hpp"

using namespace fp4pa::core;
using fp4pa::Nvfp4Scale;
using fp4pa::ScaleMode;

namespace {

int failures = 0;

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void expect(bool ok, const char* what) {
  std::printf("%-32s %s\n", what, ok ? "equal" : "DIFFERENT");
  if (!ok) ++failures;
}

// --- all floats, through a sum that depends on every (pattern, code) pair and on no order ----------------------------

struct F16 {
  FP4PA_FN static constexpr std::uint32_t encode(float x) { return f32_to_f16(x); }
};
struct Bf16 {
  FP4PA_FN static constexpr std::uint32_t encode(float x) { return f32_to_bf16(x); }
};

template <class Element>
FP4PA_FN std::uint64_t pair_hash(std::uint32_t bits) {
  const std::uint64_t code = Element::encode(float_from_bits(bits));
  std::uint64_t z = (static_cast<std::uint64_t>(bits) << 16 | code) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 31)) * 0xbf58476d1ce4e5b9u;
  return z ^ (z >> 29);
}

constexpr std::uint32_t kChunk = 1u << 20;

template <class Element>
__global__ void hash_chunks(unsigned long long* sums) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = threadIdx.x; i < kChunk; i += blockDim.x) sum += pair_hash<Element>(blockIdx.x * kChunk + i);
  atomicAdd(&sums[blockIdx.x], static_cast<unsigned long long>(sum));
}

template <class Element>
void compare_all_floats(const char* name) {
  constexpr int kChunks = 4096;
  unsigned long long* device = nullptr;
  check_cuda(cudaMalloc(&device, kChunks * sizeof *device), "cudaMalloc");
  check_cuda(cudaMemset(device, 0, kChunks * sizeof *device), "cudaMemset");
  hash_chunks<Element><<<kChunks, 256>>>(device);
  check_cuda(cudaGetLastError(), "launch");
  std::vector<unsigned long long> expected(kChunks), sums(kChunks);
#pragma omp parallel for
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < kChunk; ++i)
      sum += pair_hash<Element>(static_cast<std::uint32_t>(chunk) * kChunk + i);
    expected[static_cast<std::size_t>(chunk)] = sum;
  }
  check_cuda(cudaMemcpy(sums.data(), device, kChunks * sizeof *device, cudaMemcpyDeviceToHost), "cudaMemcpy");
  check_cuda(cudaFree(device), "cudaFree");
  expect(sums == expected, name);
}

// --- CUDA's headers, on the host
// ---------------------------------------------------------------------------------------

void compare_with_cuda_headers() {
  std::int64_t wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
  for (std::int64_t bits = 0; bits < std::int64_t{1} << 32; bits += 13) {
    const float x = float_from_bits(static_cast<std::uint32_t>(bits));
    wrong += __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest) != E2M1::encode(x);
    wrong += __nv_cvt_float_to_fp6(x, __NV_E2M3, cudaRoundNearest) != E2M3::encode(x);
    wrong += __nv_cvt_float_to_fp6(x, __NV_E3M2, cudaRoundNearest) != E3M2::encode(x);
    wrong += __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3) != E4M3::encode(x);
    wrong += __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2) != E5M2::encode(x);
  }
  expect(wrong == 0, "cuda_fp4/6/8.h, 1 in 13 floats");
}

// --- blocks ----------------------------------------------------------------------------------------------------------

constexpr int kN = 128;
constexpr int kFloats = 6 * kN;
constexpr int kBytes = 4 * (kN / 2 + 1) + 4 * (32 + 1) + 4 * (8 + 1);

struct Result {
  std::uint8_t bytes[kBytes];
  float floats[kFloats];
};

/// Everything that has arithmetic in it, on one vector of 128.
FP4PA_FN void exercise(const float* x, Result& result) {
  std::uint8_t* bytes = result.bytes;
  float* floats = result.floats;
  for (int mode = 0; mode < 4; ++mode) {
    const std::uint8_t scale = encode_e2m1_e8m0(x, kN, static_cast<ScaleMode>(mode), bytes);
    if (mode == 0) decode_e2m1_e8m0(bytes, kN, scale, floats);
    bytes[kN / 2] = scale;
    bytes += kN / 2 + 1;
    bytes[32] = encode_mxfp8(x, 32, static_cast<ScaleMode>(mode), bytes);
    if (mode == 0) decode_mxfp8(bytes, 32, bytes[32], floats + kN);
    bytes += 33;
  }
  for (int i = 0; i < 4; ++i) {
    const float global = i < 2 ? 0.0123f : 0x1p-7f;
    bytes[8] = encode_nvfp4(x, global, static_cast<Nvfp4Scale>(i % 2), bytes);
    if (i == 1) decode_nvfp4(bytes, bytes[8], global, floats + kN + 32);
    bytes += 9;
  }
  float* rotated = floats + 2 * kN;
  for (int block = 16; block <= 128; block *= 2, rotated += kN) {
    for (int i = 0; i < kN; ++i) rotated[i] = x[i];
    hadamard(rotated, kN, block);
  }
}

__global__ void exercise_all(const float* x, Result* results, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) exercise(x + static_cast<std::int64_t>(i) * kN, results[i]);
}

std::vector<float> make_inputs(int count) {
  std::vector<float> x;
  std::uint64_t state = 1;
  const auto next = [&state] {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return static_cast<std::uint32_t>(z >> 32);
  };
  for (int vector = 0; vector < count; ++vector) {
    const std::uint32_t base = vector % 3 == 0 ? next() % 250 : 110 + next() % 20;  // exponent; 0 makes subnormals
    const std::uint32_t mantissa_mask = vector % 2 == 0 ? 0x7fffffu : 0x700000u;    // few bits make ties
    for (int i = 0; i < kN; ++i) {
      const std::uint32_t exponent = base + next() % 5;
      x.push_back(float_from_bits((next() & 0x80000000u) | exponent << 23 | (next() & mantissa_mask)));
    }
    if (vector % 64 == 5) x[x.size() - 1 - next() % kN] = float_from_bits(kFloatInfBits | (next() & 0x80000000u));
    if (vector % 64 == 6) x[x.size() - 1 - next() % kN] = float_from_bits(kFloatNanBits | (next() & 0x80000000u));
  }
  return x;
}

bool same_floats(const float* a, const float* b, int n) {
  for (int i = 0; i < n; ++i) {
    const bool both_nan = magnitude_bits(a[i]) > kFloatInfBits && magnitude_bits(b[i]) > kFloatInfBits;
    if (!both_nan && float_bits(a[i]) != float_bits(b[i])) return false;
  }
  return true;
}

void compare_blocks() {
  constexpr int kCount = 1 << 16;
  const std::vector<float> x = make_inputs(kCount);
  std::vector<Result> results(kCount), expected(kCount);
  float* device_x = nullptr;
  Result* device_results = nullptr;
  check_cuda(cudaMalloc(&device_x, x.size() * sizeof(float)), "cudaMalloc");
  check_cuda(cudaMalloc(&device_results, kCount * sizeof(Result)), "cudaMalloc");
  check_cuda(cudaMemset(device_results, 0, kCount * sizeof(Result)), "cudaMemset");
  check_cuda(cudaMemcpy(device_x, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  exercise_all<<<kCount / 64, 64>>>(device_x, device_results, kCount);
  check_cuda(cudaGetLastError(), "launch");
  check_cuda(cudaMemcpy(results.data(), device_results, kCount * sizeof(Result), cudaMemcpyDeviceToHost), "cudaMemcpy");
  check_cuda(cudaFree(device_x), "cudaFree");
  check_cuda(cudaFree(device_results), "cudaFree");
#pragma omp parallel for
  for (int i = 0; i < kCount; ++i)
    exercise(x.data() + static_cast<std::size_t>(i) * kN, expected[static_cast<std::size_t>(i)]);
  bool bytes = true, floats = true;
  for (std::size_t i = 0; i < kCount; ++i) {
    for (int j = 0; j < kBytes; ++j) bytes = bytes && results[i].bytes[j] == expected[i].bytes[j];
    floats = floats && same_floats(results[i].floats, expected[i].floats, kFloats);
  }
  expect(bytes, "blocks: codes and scales");
  expect(floats, "blocks: values, rotations");
}

}  // namespace

int main() {
  compare_with_cuda_headers();
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device: the device was not compared\n");
    return failures == 0 ? 77 : 1;
  }
  compare_all_floats<E2M1>("E2M1, all floats");
  compare_all_floats<E4M3>("E4M3, all floats");
  compare_all_floats<E5M2>("E5M2, all floats");
  compare_all_floats<E2M3>("E2M3, all floats");
  compare_all_floats<E3M2>("E3M2, all floats");
  compare_all_floats<E4M3Fnuz>("E4M3Fnuz, all floats");
  compare_all_floats<UE4M3>("UE4M3, all floats");
  compare_all_floats<E8M0>("E8M0, all floats");
  compare_all_floats<F16>("f16, all floats");
  compare_all_floats<Bf16>("bf16, all floats");
  compare_blocks();
  return failures == 0 ? 0 : 1;
}
