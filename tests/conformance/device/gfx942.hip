// The gfx942 atoms on an MI300.
//
// A program of its own, not a doctest area: without such a device it says so and exits with 77.
//   hipcc -std=c++20 -O2 --offload-arch=gfx942 -I. -Iinclude tests/conformance/device/gfx942.hip
#include "backends/gfx942/mma.hpp"
#include "tests/conformance/device/executor.hpp"

int main() {
  using namespace fp4pa;
  using namespace fp4pa::conformance;
  const std::string architecture = glue::architecture();
  if (architecture != "gfx942") {
    std::printf(architecture.empty() ? "no device\n" : "no gfx942 device\n");
    return kSkipped;
  }
  Report report;
  check_instruction<gfx942::MfmaF32_16x16x32_Fp8Fp8_Instruction>(report, "mfma 16x16x32 fp8 fp8");
  check_instruction<gfx942::MfmaF32_16x16x16_F16_Instruction>(report, "mfma 16x16x16 f16");
  check_instruction<gfx942::MfmaF32_16x16x16_Bf16_Instruction>(report, "mfma 16x16x16 bf16");
  return report.status();
}
