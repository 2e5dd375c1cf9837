#include "tests/emulator/emulated_gemm.hpp"

#include <Kokkos_Core.hpp>
#include <cinttypes>

#include "api/error.hpp"
#include "api/gemm_params.hpp"
#include "backends/cpu/gemm.hpp"

namespace fp4pa::emulator_test {

GemmSetup current_gemm;

namespace {

constexpr std::int64_t kStage = 128;

[[nodiscard]] std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

Status gemm_workspace(const LinearArgs& args, const ExecDesc&, std::size_t* bytes) noexcept {
  *bytes = static_cast<std::size_t>(api::QuantisedX::of(args).bytes);
  return Status::kOk;
}

Status gemm(const LinearArgs& a, const ExecDesc& exec) noexcept {
  const EmulatedGemm* const kernel = current_gemm.kernel;
  if (kernel == nullptr || kernel->format != a.weight.format || a.activations != ActivationForm::kFp4) {
    return api::fail(Status::kBackendUnavailable, "no emulated kernel was chosen for %s, %s", name_of(a.weight.format),
                     name_of(a.activations));
  }
  const api::QuantisedX x = api::QuantisedX::of(a);
  if (const Status s = cpu::quantize_weight(x.request(a), exec); s != Status::kOk) return s;
  core::GemmParams p = api::gemm_params(a);
  x.put_into(a, &p);
  p.stages = static_cast<std::int32_t>(ceil_div(a.weight.cols, kStage));
  p.row_tiles = static_cast<std::int32_t>(ceil_div(a.weight.rows, kernel->rows));
  const auto tiles = static_cast<int>(p.row_tiles * ceil_div(a.m, kernel->x_rows));
  const int blocks = tiles * static_cast<int>(a.batch);
  const std::vector<int> order = emulator::sequence(current_gemm.watch.order, blocks, 1);
  Kokkos::parallel_for("gemm",
                       Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace, Kokkos::Schedule<Kokkos::Dynamic>>(0, blocks),
                       [&](int i) {
                         const int block = order[static_cast<std::size_t>(i)];
                         kernel->run_block(p, block % tiles, block / tiles, block, current_gemm.watch);
                       });
  Kokkos::fence();
  return Status::kOk;
}

}  // namespace fp4pa::emulator_test
