// The sm_80 atoms, and the 16-bit matrix loads that the models describe, on a CUDA device of compute capability 8.0 or
// more.
//
// A program of its own, not a doctest area: without a device it says so and exits with 77.
//   nvcc -std=c++20 --expt-relaxed-constexpr -O2 -arch=native -I. -Iinclude tests/conformance/device/sm80.cu
#include "backends/emulator/isa/ldmatrix.hpp"
#include "backends/sm80/mma.hpp"
#include "tests/conformance/device/executor.hpp"

namespace fp4pa::conformance {
namespace {

template <bool kTrans>
struct LoadMatrices {
  static constexpr int kLanes = 32;
  __device__ static void run(std::uint32_t (&d)[4], const void* row) {
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    if constexpr (kTrans) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                   : "r"(address));
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                   : "r"(address));
    }
  }
};

/// ldmatrix and then movmatrix, so that the same harness serves.
struct LoadAndTranspose {
  static constexpr int kLanes = 32;
  __device__ static void run(std::uint32_t (&d)[4], const void* row) {
    LoadMatrices<false>::run(d, row);
    for (int r = 0; r < 4; ++r) asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(d[r]));
  }
};

void check_matrix_loads(Report& report) {
  Movement m;
  std::mt19937 random(5);
  for (int i = 0; i < 512; ++i) m.memory.push_back(static_cast<std::uint8_t>(random()));
  for (std::uint32_t i = 0; i < 64; ++i) m.address[i] = 16 * (i * 7 % 32);
  const auto read = [&m](int, std::uint32_t address, int bytes, std::uint8_t* out) {
    std::memcpy(out, m.memory.data() + address, static_cast<std::size_t>(bytes));
  };
  for (const bool trans : {false, true}) {
    Moved model{};
    emulator::isa::ldmatrix_m8n8(4, trans, m.address, read, model.d);
    const Moved device = trans ? run_movement<LoadMatrices<true>>(m) : run_movement<LoadMatrices<false>>(m);
    report.add(trans ? "ldmatrix.x4.trans" : "ldmatrix.x4", std::memcmp(model.d, device.d, 32 * 16) == 0);
    if (!trans) continue;
    const Moved moved = run_movement<LoadAndTranspose>(m);
    report.add("movmatrix", std::memcmp(model.d, moved.d, 32 * 16) == 0);
  }
}

}  // namespace
}  // namespace fp4pa::conformance

int main() {
  using namespace fp4pa;
  const std::string architecture = conformance::glue::architecture();
  if (architecture.empty()) {
    std::printf("no device\n");
    return conformance::kSkipped;
  }
  conformance::Report report;
  conformance::check_instruction<sm80::MmaM16N8K16Instruction<core::F16>>(report, "mma.m16n8k16 f16");
  conformance::check_instruction<sm80::MmaM16N8K16Instruction<core::BF16>>(report, "mma.m16n8k16 bf16");
  conformance::check_matrix_loads(report);
  return report.status();
}
