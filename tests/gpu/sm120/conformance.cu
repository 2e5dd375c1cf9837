// tests/conformance on SM120's instructions in software: as tests/conformance/device/sm120.cu, but for the tolerance. What is the
// model's own arithmetic has the model's bits.
#include "tests/gpu/sm120/kernels.hpp"

#include "backends/sm120/copies.hpp"
#include "tests/conformance/device/executor.hpp"
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

template <int kMatrices>
bool expands_as_mapped() {
  const auto numbers = trace_elements(8 * kMatrices, 16, 4, 16, 32, kMatrices, 8, run_movement<Expand<kMatrices>>);
  for (int lane = 0; lane < 32; ++lane) {
    for (int n = 0; n < 4 * kMatrices; ++n) {
      const auto x = sm120::expand_coord(lane, n / 4, n % 4);
      if (numbers[lane][n] != (x.matrix * 8 + x.row) * 16 + x.element) return false;
    }
  }
  return true;
}
template <int kMatrices>
bool transposes_as_mapped() {
  const auto numbers =
      trace_elements(16 * kMatrices, 16, 4, 16, 32, 2 * kMatrices, 8, run_movement<ExpandTrans<kMatrices>>);
  for (int lane = 0; lane < 32; ++lane) {
    for (int n = 0; n < 8 * kMatrices; ++n) {
      const auto x = sm120::expand_trans_coord(lane, n / 4, n % 4);
      if (numbers[lane][n] != (x.matrix * 16 + x.row) * 16 + x.element) return false;
    }
  }
  return true;
}

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
             expands_as_mapped<1>() && expands_as_mapped<2>() && expands_as_mapped<4>());
  report.add("ldmatrix.m16n16.trans expanding, x1 x2", transposes_as_mapped<1>() && transposes_as_mapped<2>());
  return report.status() == 0;
}
