// The SM120 atoms and expanding matrix loads on a device of compute capability 12.x.
//
// A program of its own, not a doctest area: without such a device it says so and exits with 77.
//   nvcc -std=c++20 --expt-relaxed-constexpr -O2 "-gencode=arch=compute_120f,code=[sm_120f,sm_121f]" -I. -Iinclude
//   tests/conformance/device/sm120.cu
#include "backends/sm120/copies.hpp"
#include "backends/sm120/mma.hpp"
#include "tests/conformance/device/convert.hpp"
#include "tests/conformance/device/executor.hpp"
#include "tests/conformance/device/sm120_expand.hpp"
#include "tests/conformance/probe.hpp"

namespace fp4pa::conformance {
namespace {

template <int kMatrices>
struct Expand {
  static constexpr int kLanes = 32;
  __device__ static void run(std::uint32_t (&d)[4], const void* row) {
    std::uint32_t x[kMatrices];
    sm120::ldmatrix_expand(x, sm120::shared_address(row));
    for (int r = 0; r < kMatrices; ++r) d[r] = x[r];
  }
};

template <int kMatrices>
struct ExpandTrans {
  static constexpr int kLanes = 32;
  __device__ static void run(std::uint32_t (&d)[4], const void* row) {
    std::uint32_t x[2 * kMatrices];
    sm120::ldmatrix_expand_trans<kMatrices>(x, sm120::shared_address(row));
    for (int r = 0; r < 2 * kMatrices; ++r) d[r] = x[r];
  }
};

template <class Instruction>
void check_scaled(Report& report, const char* name) {
  check_instruction<Instruction>(report, name);
  DeviceExecutor<Instruction> executor;
  report.add(name, check_probe(executor));
}

}  // namespace
}  // namespace fp4pa::conformance

int main() {
  using namespace fp4pa;
  using namespace fp4pa::conformance;
  const std::string architecture = glue::architecture();
  if (architecture.empty() || architecture.substr(0, 5) != "sm_12") {
    std::printf(architecture.empty() ? "no device\n" : "no device of compute capability 12.x\n");
    return kSkipped;
  }
  Report report;
  check_scaled<sm120::MmaMxf8f6f4M16N8K32Instruction<core::E4M3, core::E2M1>>(report, "mxf8f6f4 e4m3 e2m1 1X");
  check_scaled<sm120::MmaMxf8f6f4M16N8K32Instruction<core::E2M1, core::E4M3>>(report, "mxf8f6f4 e2m1 e4m3 1X");
  check_scaled<sm120::MmaMxf8f6f4M16N8K32Instruction<core::E4M3, core::E4M3>>(report, "mxf8f6f4 e4m3 e4m3 1X");
  check_scaled<sm120::MmaMxf4M16N8K64Instruction>(report, "mxf4 2X ue8m0");
  check_scaled<sm120::MmaMxf4nvf4Ue4m3M16N8K64Instruction>(report, "mxf4nvf4 4X ue4m3");
  check_scaled<sm120::MmaMxf4nvf4Ue8m0M16N8K64Instruction>(report, "mxf4nvf4 2X ue8m0");
  report.add("ldmatrix.m8n16 expanding, x1 x2 x4",
             expands_as_mapped<1, Expand<1>>() && expands_as_mapped<2, Expand<2>>() && expands_as_mapped<4, Expand<4>>());
  report.add("ldmatrix.m16n16.trans expanding, x1 x2",
             transposes_as_mapped<1, ExpandTrans<1>>() && transposes_as_mapped<2, ExpandTrans<2>>());
  report.add("conversions to and from E2M1 and E4M3", converts_as_on_host());
  return report.status();
}
