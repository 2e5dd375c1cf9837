#include "tests/gpu/lanes_backend.hpp"

#include <array>
#include <cstdlib>
#include <thread>
#include <vector>

#include "api/attention_params.hpp"
#include "backends/cpu/attention.hpp"
#include "backends/sm80/shims.hpp"
#include "core/attention/merge_partials.hpp"
#include "core/paging/plain_row.hpp"
#include "cuda/instances.hpp"
#include "tests/gpu/host_exec.hpp"

namespace fp4pa {
namespace {

using gpu_test::HostBlock;
using gpu_test::HostExec;

using Run = void (*)(const core::AttentionParams&, const core::WorkList&, const core::SharedLayout&, int warps);

template <int kIndex>
void run_instance(const core::AttentionParams& p, const core::WorkList& list, const core::SharedLayout& layout, int warps) {
  constexpr core::SimtConfig kConfig = simt::kInstances[kIndex];
  using B = core::SimtTileBackend<sm80::ShimFor<kConfig, HostExec>>;
  static_assert(core::TileBackend<B>);
  for (int worker = 0; worker < list.partition.num_workers; ++worker) {
    HostBlock block(warps, static_cast<std::size_t>(layout.bytes));
    std::vector<std::thread> threads;
    for (int w = 0; w < warps; ++w) {
      threads.emplace_back([&, w] {
        HostExec exec(block, w, w % 2 != 0);
        core::for_each_item(list, worker, [&](const core::WorkItem& item) {
          const core::RowMap rows(p, item);
          B backend(exec, p, rows, layout);
          core::attend(backend, p, item);
        });
      });
    }
    for (std::thread& t : threads) t.join();
  }
}

template <int... kIndex>
constexpr std::array<Run, sizeof...(kIndex)> table(std::integer_sequence<int, kIndex...>) {
  return {run_instance<kIndex>...};
}
constexpr auto kRun = table(std::make_integer_sequence<int, simt::kNumInstances>());

void merge(const core::AttentionParams& p, const core::WorkList& list) {
  for (int worker = 0; worker < list.partition.num_workers; ++worker) {
    core::for_each_merge(list, worker, [&](const core::MergeJob& job) {
      const core::RowMap rows(p, {job.unit.seq, job.unit.block, job.unit.kv_head, job.unit.tiles, -1});
      float row[256];
      for (std::int32_t r = 0; r < rows.num_rows; ++r) {
        const core::SoftmaxState keys = core::merged_state(p, list, job, r);
        core::SoftmaxState state = keys;
        if (p.sinks != nullptr) state = state.with_sink(p.sinks[rows.head(r)] * core::kLog2E);
        core::merged_output(p, list, job, r, keys.max, 0, p.head_dim, 1, row);
        const float scale = core::rescale(keys.max, state.max) * state.normaliser();
        for (std::int32_t d = 0; d < p.head_dim; ++d) row[d] *= scale;
        const std::int64_t at = rows.token(r) * p.o.token_stride + rows.head(r) * p.o.head_stride;
        core::store_plain_row(row, p.head_dim, p.o.dtype, core::element_address(p.o.data, p.o.dtype, at));
        if (p.lse != nullptr) p.lse[rows.token(r) * p.num_q_heads + rows.head(r)] = state.lse();
      }
    });
  }
}

int forced_instance() {
  const char* text = std::getenv("FP4PA_LANES_INSTANCE");
  return text != nullptr ? std::atoi(text) : -1;
}

bool available(const char** detail) noexcept {
  *detail = "sm_80 lane by lane";
  return true;
}
Status plan(const AttentionConfig& config, api::PlanChoice* choice) noexcept {
  choice->variant = simt::select_instance(config);
  const int forced = forced_instance();
  if (forced >= 0 && simt::serves(simt::kInstances[forced], config)) choice->variant = forced;
  choice->num_workers = 5;
  choice->tile_rows = simt::rows_of(simt::kInstances[choice->variant]);
  choice->workspace_bytes = api::workspace_layout(config, choice->num_workers, choice->tile_rows).total;
  return Status::kOk;
}
Status run(const api::RunRequest& request) noexcept {
  if (const Status s = cpu::check_lengths_and_tables(request); s != Status::kOk) return s;
  const core::AttentionParams p = api::make_params(request);
  const core::WorkList list = api::work_list(p);
  core::fill_prefixes(list);
  if (list.total_cost() == 0) return Status::kOk;
  const core::SimtConfig& i = simt::kInstances[request.choice.variant];
  const core::SharedLayout layout = simt::shared_layout_of(i, request.config, i.warps);
  kRun[static_cast<std::size_t>(request.choice.variant)](p, list, layout, i.warps);
  merge(p, list);
  return Status::kOk;
}

}  // namespace

namespace api {
const Backend kLanesBackend{"cuda", available, plan, run, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
}
}  // namespace fp4pa
