#include "tests/gpu/sm120/backend.hpp"

#include <future>
#include <vector>

#include "api/attention_params.hpp"
#include "api/error.hpp"
#include "backends/cpu/attention.hpp"
#include "core/attention/merge_items.hpp"
#include "cuda/variants.hpp"
#include "tests/gpu/mirror.hpp"
#include "tests/gpu/sm120/kernels.hpp"

namespace fp4pa {
namespace gpu_test {

Sm120Setup sm120_setup;

namespace {

constexpr int kWorkers = 9;  // blocks of a grid: few, so that some have several items; and units are divided

/// Warps of an emulated block hand their turn on from thread to thread: blocks may as well run side by side.
void emulate(const core::AttentionParams& p, const core::WorkList& list, const core::SharedLayout& layout) {
  const emulator::Watch watch{emulator::Order::forwards(), &sm120_setup.findings, nullptr};
  std::vector<std::future<void>> blocks;
  for (int worker = 0; worker < list.partition.num_workers; ++worker) {
    blocks.push_back(std::async(std::launch::async, [&, worker] {
      emulate_block(sm120_setup.instance, p, list, layout, worker, watch);
    }));
  }
  for (auto& block : blocks) block.get();
}

bool available(const char** detail) noexcept {
  *detail = "SM120 without SM120";
  return true;
}
Status plan(const AttentionConfig& config, api::PlanChoice* choice) noexcept {
  const core::SimtConfig& shape = sm120::kInstances[sm120_setup.instance];
  if (!simt::serves(shape, config)) return api::fail(Status::kBackendUnavailable, "instance %d does not serve this", sm120_setup.instance);
  choice->variant = simt::kNumInstances + sm120_setup.instance;
  choice->num_workers = kWorkers;
  choice->tile_rows = simt::rows_of(shape);
  choice->workspace_bytes = api::workspace_layout(config, choice->num_workers, choice->tile_rows).total;
  return Status::kOk;
}
Status run(const api::RunRequest& request) noexcept {
  if (const Status s = cpu::check_lengths_and_tables(request); s != Status::kOk) return s;
  const core::AttentionParams p = api::make_params(request);
  const core::WorkList list = api::work_list(p);
  core::fill_prefixes(list);
  if (list.total_cost() == 0) return Status::kOk;
  for (int worker = 0; worker < list.partition.num_workers; ++worker) {
    list.partition.starts[worker] = core::worker_start(list, worker);  // as the schedule's kernel leaves them
  }
  const int warps = cuda::shape_of(request.choice.variant).warps;
  const core::SharedLayout layout = cuda::shared_layout_of(request.choice.variant, request.config, warps);
  if (sm120_setup.where == Sm120Setup::Where::kEmulator) {
    emulate(p, list, layout);
  } else {
    Mirror mirror;
    add(mirror, request.config, request.args);
    const AttentionConfig config = moved(mirror, request.config);
    const AttentionArgs args = moved(mirror, request.args);
    const core::AttentionParams on_device = api::make_params({config, request.choice, args});
    launch(sm120_setup.instance, on_device, api::work_list(on_device), layout);
    mirror.bring_home();
  }
  // The merge on the host for both: what it computes is not SM120's.
  for (int worker = 0; worker < list.partition.num_workers; ++worker) core::merge_items(p, list, worker);
  return Status::kOk;
}

}  // namespace
}  // namespace gpu_test

namespace api {
extern const Backend kSm120Backend;
const Backend kSm120Backend{.name = "cuda",
                            .available = gpu_test::available,
                            .plan = gpu_test::plan,
                            .run = gpu_test::run,
                            .append = nullptr,
                            .append_two_tier = nullptr,
                            .gather = nullptr,
                            .copy_pages = nullptr,
                            .quantize = nullptr,
                            .dequantize = nullptr,
                            .merge_states = nullptr,
                            .dense = nullptr};
}
}  // namespace fp4pa

// The library's table of back ends with this one in the place of "cuda". It is linked before the library, so that the library's
// own is not.
#define FP4PA_HAVE_CUDA
#define kCudaBackend kSm120Backend
#include "api/registry.cpp"
