// tests/conformance on SM120's instructions in software: as tests/conformance/device/sm120.cu, but for the tolerance. What is the
// model's own arithmetic has the model's bits.
#include "tests/gpu/sm120/kernels.hpp"

#include "backends/sm120/copies.hpp"
#include "tests/conformance/device/convert.hpp"
#include "tests/conformance/device/executor.hpp"
#include "tests/conformance/device/sm120_expand.hpp"
#include "tests/conformance/probe.hpp"
#include "tests/gpu/sm120/software_exec.hpp"

namespace fp4pa::conformance {
namespace {

template <class Atom>
void check_atom(Report& report, const char* name) {
  ComparedExecutor<gpu_test::SoftwareInstruction<Atom>> executor;
  report.add(name, check_all<Atom>(executor, name));
  if (executor.total == 0 || executor.different != 0) {
    report.add(name, std::to_string(executor.different) + " of " + std::to_string(executor.total) + " results are not the model's");
  }
  if constexpr (core::kIsScaled<Atom>) {
    DeviceExecutor<gpu_test::SoftwareInstruction<Atom>> device;
    report.add(name, check_probe(device));
  }
}

template <int kMatrices>
struct Expand {
  static constexpr int kLanes = 32;
  __device__ static void run(std::uint32_t (&d)[4], const std::uint8_t* row) {
    std::uint32_t x[kMatrices];
    gpu_test::ldmatrix_expand_in_software(x, row);
    for (int r = 0; r < kMatrices; ++r) d[r] = x[r];
  }
};
template <int kMatrices>
struct ExpandTrans {
  static constexpr int kLanes = 32;
  __device__ static void run(std::uint32_t (&d)[4], const std::uint8_t* row) {
    std::uint32_t x[2 * kMatrices];
    gpu_test::ldmatrix_expand_trans_in_software<kMatrices>(x, row);
    for (int r = 0; r < 2 * kMatrices; ++r) d[r] = x[r];
  }
};

}  // namespace
}  // namespace fp4pa::conformance

bool fp4pa::gpu_test::conforms() {
  using namespace fp4pa::conformance;
  Report report;
  check_atom<Sm80F16>(report, "f16, in software");
  check_atom<Sm80Bf16>(report, "bf16, in software");
  check_atom<Sm120Fp8Fp4>(report, "mxf8f6f4 e4m3 e2m1 1X, in software");
  check_atom<Sm120Fp4Fp8>(report, "mxf8f6f4 e2m1 e4m3 1X, in software");
  check_atom<Sm120Fp8Fp8>(report, "mxf8f6f4 e4m3 e4m3 1X, in software");
  check_atom<Sm120Mxf4>(report, "mxf4 2X ue8m0, in software");
  check_atom<Sm120Nvf4>(report, "mxf4nvf4 4X ue4m3, in software");
  check_atom<Sm120Nvf4Ue8m0>(report, "mxf4nvf4 2X ue8m0, in software");
  report.add("ldmatrix.m8n16 expanding, x1 x2 x4",
             expands_as_mapped<1, Expand<1>>() && expands_as_mapped<2, Expand<2>>() && expands_as_mapped<4, Expand<4>>());
  report.add("ldmatrix.m16n16.trans expanding, x1 x2",
             transposes_as_mapped<1, ExpandTrans<1>>() && transposes_as_mapped<2, ExpandTrans<2>>());
  report.add("conversions to and from E2M1 and E4M3", converts_as_on_host());
  return report.status() == 0;
}
