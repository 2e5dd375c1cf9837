// The driver around the kernel body: schedule, one OpenMP thread per worker, merge.
#include "backends/cpu/attention.hpp"

#include <omp.h>

#include "api/attention_params.hpp"
#include "api/error.hpp"
#include "backends/cpu/cache_threads.hpp"
#include "backends/cpu/tile_backend.hpp"
#include "core/attention/body.hpp"
#include "core/attention/merge_items.hpp"

namespace fp4pa::cpu {
namespace {

template <std::int32_t kSegments>
void attend_items(const TileOps& ops, const core::AttentionParams& p, const core::WorkList& list, std::int32_t worker,
                  TileScratch& scratch) {
  core::for_each_item(list, worker, [&](const core::WorkItem& item) {
    const core::RowMap rows(p, item);
    TileBackend<kSegments> backend(ops, p, rows, scratch);
    core::attend(backend, p, item);
  });
}

}  // namespace

Status plan(const AttentionConfig& config, api::PlanChoice* choice) noexcept {
  if (config.matrix_path == MatrixPath::kNative) {
    return api::fail(Status::kUnsupportedFormat, "matrix_path is native, and CPUs have no FP4 matrix cores; allowed: auto, decode");
  }
  choice->num_workers = config.num_threads > 0 ? config.num_threads : omp_get_max_threads();
  choice->tile_rows = kMaxRows;
  choice->variant = config.two_tier ? 2 : 1;
  choice->workspace_bytes = api::workspace_layout(config, choice->num_workers, choice->tile_rows).total;
  return Status::kOk;
}

Status run(const TileOps& ops, const api::RunRequest& request) noexcept {
  FP4PA_RETURN_IF_FAILED(check_lengths_and_tables(request));
  const core::AttentionParams p = api::make_params(request);
  const core::WorkList list = api::work_list(p);
  core::fill_prefixes(list);
  if (list.total_cost() == 0) return Status::kOk;

  const std::int32_t workers = request.choice.num_workers;
  on_threads(workers, [&](const Team& team) {
    // OpenMP may grant fewer threads than asked for; the partition is the plan's, so they share its workers.
    TileScratch scratch;
    for (std::int32_t worker = team.thread; worker < workers; worker += team.size) {
      if (p.num_segments == 1) {
        attend_items<1>(ops, p, list, worker, scratch);
      } else {
        attend_items<2>(ops, p, list, worker, scratch);
      }
    }
    team.barrier();
    for (std::int32_t worker = team.thread; worker < workers; worker += team.size) core::merge_items(p, list, worker);
  });
  return Status::kOk;
}

}  // namespace fp4pa::cpu
