// Both ways of running a product, compiled by one compiler without contraction.
#include "tests/gpu/sm120/gemm.hpp"

#include <cstring>
#include <random>

#include "backends/emulator/sm120_exec.hpp"
#include "backends/sm120/gemm.hpp"
#include "core/gemm/weight.hpp"
#include "tests/gpu/mirror.hpp"
#include "tests/gpu/sm120/software_exec.hpp"

namespace fp4pa::gpu_test {
namespace {

/// Memory that host and device share.
template <class T>
class Shared {
 public:
  explicit Shared(std::int64_t count) : count_(count) {
    void* memory = nullptr;
    must(cudaMallocManaged(&memory, static_cast<std::size_t>(count) * sizeof(T)), "allocating managed memory");
    data_ = static_cast<T*>(memory);
  }
  Shared(const Shared&) = delete;
  ~Shared() { cudaFree(data_); }
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::int64_t size() const { return count_; }

 private:
  std::int64_t count_;
  T* data_;
};

/// A matrix of any codes, with scales of about 1.
struct Operand {
  Operand(const GemmSpec& s, std::int32_t rows, std::uint32_t seed)
      : layout{s.nvfp4 ? BlockFormat::kNvfp4 : BlockFormat::kMxfp4, s.layout, rows, s.k},
        codes(s.batch * layout.code_bytes()),
        scales(s.batch * layout.scale_bytes()) {
    std::mt19937 random(seed);
    for (std::int64_t i = 0; i < codes.size(); ++i) codes.data()[i] = static_cast<std::uint8_t>(random());
    for (std::int64_t i = 0; i < scales.size(); ++i) {
      scales.data()[i] = static_cast<std::uint8_t>(s.nvfp4 ? 0x28 + random() % 32 : 123 + random() % 8);
    }
  }
  [[nodiscard]] core::GemmOperand operand() const {
    return {codes.data(), layout.code_row_bytes(), layout.code_bytes(), static_cast<std::int32_t>(layout.rows),
            scales.data(), layout.scale_bytes(), static_cast<std::int32_t>(layout.groups()), layout.scale_layout};
  }
  core::WeightLayout layout;
  Shared<std::uint8_t> codes, scales;
};

template <class Exec, bool kNvfp4, int kTiles>
using BlockOf = core::GemmBlock<sm120::GemmShim<kNvfp4, kTiles, Exec>>;

template <bool kNvfp4, int kTiles>
__global__ void __launch_bounds__(128) gemm_in_software(const __grid_constant__ core::GemmParams params) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  SoftwareExec exec(shared);
  BlockOf<SoftwareExec, kNvfp4, kTiles>(exec, params, static_cast<std::int32_t>(blockIdx.x), static_cast<std::int32_t>(blockIdx.y))
      .run();
}

template <bool kNvfp4, int kTiles>
GemmBothWays run(const GemmSpec& s) {
  using Shim = sm120::GemmShim<kNvfp4, kTiles, emulator::Sm120Exec>;
  using Block = core::GemmBlock<Shim>;
  const Operand w(s, s.n, 1);
  const Operand x(s, s.m, 2);
  const std::int64_t results = std::int64_t{s.batch} * s.m * s.n;
  const Shared<float> emulated(results), in_software(results), bias(s.n);
  for (std::int32_t i = 0; i < s.n; ++i) bias.data()[i] = 0.37f * static_cast<float>(i % 11);
  std::memset(emulated.data(), 0xff, static_cast<std::size_t>(results) * 4);
  std::memset(in_software.data(), 0xff, static_cast<std::size_t>(results) * 4);

  core::GemmParams p{};
  p.w = w.operand();
  p.x = x.operand();
  p.w_global = 0.3f;
  p.x_global = 0.7f;
  p.bias = bias.data();
  p.bias_dtype = p.out_dtype = DType::kF32;
  p.stages = (s.k + 127) / 128;
  p.row_tiles = (s.n + Block::kRows - 1) / Block::kRows;
  const int tiles = p.row_tiles * ((s.m + Block::kXRows - 1) / Block::kXRows);

  emulator::Findings findings;
  p.out = emulated.data();
  for (int block = 0; block < tiles * s.batch; ++block) {
    emulator::run_block<emulator::Sm120Exec>({emulator::Order::forwards(), &findings, nullptr}, block, Shim::kWarps, Block::kSharedBytes,
                                             [&](auto& exec) { Block(exec, p, block % tiles, block / tiles).run(); });
  }
  p.out = in_software.data();
  gemm_in_software<kNvfp4, kTiles><<<dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(s.batch)), 32 * Shim::kWarps,
                                     static_cast<std::size_t>(Block::kSharedBytes)>>>(p);
  must(cudaGetLastError(), "launching the product");
  must(cudaDeviceSynchronize(), "running the product");

  GemmBothWays both{findings.text(), 0, 0};
  for (std::int64_t i = 0; i < results; ++i) {
    const float value = emulated.data()[i];
    both.results += value == value && value != 0.0f ? 1 : 0;
    both.different += std::memcmp(&value, in_software.data() + i, 4) != 0 ? 1 : 0;
  }
  return both;
}

template <bool kNvfp4>
GemmBothWays run_tiles(const GemmSpec& s) {
  switch (s.x_tiles) {
    case 1: return run<kNvfp4, 1>(s);
    case 2: return run<kNvfp4, 2>(s);
    case 4: return run<kNvfp4, 4>(s);
    default: return run<kNvfp4, 8>(s);
  }
}

}  // namespace

GemmBothWays run_gemm(const GemmSpec& spec) { return spec.nvfp4 ? run_tiles<true>(spec) : run_tiles<false>(spec); }

}  // namespace fp4pa::gpu_test
