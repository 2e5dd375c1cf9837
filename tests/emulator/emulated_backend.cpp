#include "tests/emulator/emulated_backend.hpp"

#include <Kokkos_Core.hpp>

#include "api/attention_params.hpp"
#include "api/error.hpp"
#include "backends/cpu/attention.hpp"
#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/dense.hpp"
#include "backends/cpu/gemm.hpp"
#include "core/attention/merge_items.hpp"
#include "tests/emulator/emulated_gemm.hpp"
#include "tests/emulator/sm80_instances.hpp"

namespace fp4pa {
namespace emulator_test {

namespace {

emulator::Findings at_large;  // of calls that nobody watches

}  // namespace

Setup current{&kSm80, {emulator::Order::forwards(), &at_large, nullptr}};

namespace {

/// Blocks in the order of the watch, as many at a time as Kokkos has threads.
void run_grid(RunBlock run_block, const core::AttentionParams& p, const core::WorkList& list,
              const core::SharedLayout& layout, const emulator::Watch& watch) {
  const int workers = list.partition.num_workers;
  const std::vector<int> blocks = emulator::sequence(watch.order, workers, ~std::uint64_t{0});
  Kokkos::parallel_for("grid",
                       Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace, Kokkos::Schedule<Kokkos::Dynamic>>(0, workers),
                       [&](int i) { run_block(p, list, layout, blocks[static_cast<std::size_t>(i)], watch); });
  Kokkos::fence();
}

bool available(const char** detail) noexcept {
  *detail = current.emulation != nullptr ? current.emulation->name : "emulated";
  return true;
}
Status plan(const AttentionConfig& config, api::PlanChoice* choice) noexcept {
  const Emulation& e = *current.emulation;
  choice->variant = e.select(config);
  if (current.instance >= 0 && e.serves(current.instance, config)) choice->variant = current.instance;
  if (choice->variant < 0 || e.run_block[choice->variant] == nullptr) {
    return api::fail(Status::kBackendUnavailable, "%s has no instance for this configuration", e.name);
  }
  if (config.matrix_path == MatrixPath::kNative && !e.native(choice->variant)) {
    return api::fail(Status::kUnsupportedFormat, "matrix_path is native, and %s has no such kernel; allowed: auto, decode", e.name);
  }
  current.planned = choice->variant;
  choice->num_workers = current.workers;
  choice->tile_rows = e.tile_rows(choice->variant);
  choice->workspace_bytes = api::workspace_layout(config, choice->num_workers, choice->tile_rows).total;
  return Status::kOk;
}
/// As the emulation says of its instances.
bool native(std::int32_t variant) noexcept { return current.emulation->native(variant); }
bool decodes_aside(std::int32_t variant) noexcept { return current.emulation->config(variant).producers > 0; }
Status run(const api::RunRequest& request) noexcept {
  if (const Status s = cpu::check_lengths_and_tables(request); s != Status::kOk) return s;
  const core::AttentionParams p = api::make_params(request);
  const core::WorkList list = api::work_list(p);
  core::fill_prefixes(list);
  if (list.total_cost() == 0) return Status::kOk;
  const Emulation& e = *current.emulation;
  const int i = request.choice.variant;
  run_grid(e.run_block[i], p, list, e.layout(i, request.config), current.watch);
  if (!at_large.empty()) {
    const std::string text = at_large.text();
    at_large.clear();
    return api::fail(Status::kInternal, "the emulator objects: %s", text.c_str());
  }
  for (int worker = 0; worker < list.partition.num_workers; ++worker) core::merge_items(p, list, worker);
  return Status::kOk;
}

}  // namespace
}  // namespace emulator_test

namespace api {
/// What surrounds the attention of a dense call is the CPU's.
const Backend kEmulatedBackend{.name = "cuda",
                               .available = emulator_test::available,
                               .plan = emulator_test::plan,
                               .run = emulator_test::run,
                               .append = cpu::append,
                               .append_two_tier = nullptr,
                               .gather = nullptr,
                               .copy_pages = nullptr,
                               .quantize = nullptr,
                               .dequantize = nullptr,
                               .merge_states = nullptr,
                               .dense = &cpu::kDenseOps,
                               .quantize_weight = cpu::quantize_weight,
                               .linear_workspace = emulator_test::gemm_workspace,
                               .linear = emulator_test::gemm,
                               .native = emulator_test::native,
                               .decodes_aside = emulator_test::decodes_aside};
}
}  // namespace fp4pa
