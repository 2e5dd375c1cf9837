// Everything in kernels/, in the words and the namespace of who includes it, as the table FP4PA_TEST_TABLE.
#include "tests/kernels/words.hpp"

#include "kernels/cache_append.hpp"
#include "kernels/cache_copy.hpp"
#include "kernels/cache_two_tier.hpp"
#include "kernels/check.hpp"
#include "kernels/dense.hpp"
#include "kernels/find_start.hpp"
#include "kernels/finding.hpp"
#include "kernels/gemm_quantize.hpp"
#include "kernels/gemm_terms.hpp"
#include "kernels/merge.hpp"
#include "kernels/merge_states.hpp"
#include "kernels/quantize.hpp"
#include "kernels/schedule.hpp"
#include "tests/kernels/on_host.hpp"

namespace fp4pa::FP4PA_GPU {

struct FindArgs {
  core::WorkList list;
  std::int32_t worker;
  kernels_test::Found* found;
};
/// A warp, of which each lane finds the same: any of them tells.
FP4PA_KERNEL(find, kLanes, FindArgs args) {
  const FoundStart start = find_start(args.list, args.worker);
  const core::MergeNote note = find_note(args.list, args.worker);
  if (thread_id() != args.worker % kLanes) return;
  *args.found = {start.start, note, start.even, {}};
  if (start.even) return;
  core::ItemWalk walk(args.list, args.worker, start.start);
  core::WorkItem item{};
  while (walk.next(args.list, item)) {
  }
  for (int side = 0; side < 2; ++side) args.found->left[side] = find_left(args.list, args.worker, side, start, walk.at());
}

}  // namespace fp4pa::FP4PA_GPU

namespace fp4pa::kernels_test {
namespace gpu = FP4PA_GPU;

constexpr api::DenseOps kDenseOps{gpu::fill_dense_tables, gpu::expand_mxfp8, gpu::centre_keys, gpu::restore_lse};

const OnHost FP4PA_TEST_TABLE{
    .backend = {.name = FP4PA_TEST_NAME,
                .available = nullptr,
                .plan = nullptr,
                .run = nullptr,
                .append = gpu::append,
                .append_two_tier = gpu::append_two_tier,
                .gather = gpu::gather,
                .copy_pages = gpu::copy_pages,
                .quantize = gpu::quantize,
                .dequantize = gpu::dequantize,
                .merge_states = gpu::merge_states,
                .dense = &kDenseOps,
                .quantize_weight = gpu::quantize_weight},
    .schedule = [](const core::WorkList& list) { gpu::launch_schedule(list, nullptr); },
    .find =
        [](const core::WorkList& list, std::int32_t worker) {
          Found found{};
          gpu::launch(gpu::find, gpu::grid(1), gpu::kLanes, 0, nullptr, gpu::FindArgs{list, worker, &found});
          return found;
        },
    .merge = [](const core::AttentionParams& params,
                const core::WorkList& list) { gpu::launch_merge({params, list, {}, {}}, nullptr); },
    .prepare_x = gpu::prepare_x,
    .split_x = gpu::split_x,
    .check =
        [](const AttentionConfig& c, const AttentionArgs& a, const core::AttentionParams& params) {
          gpu::Finding found{gpu::Wrong::kNothing, -1, -1, -1};
          gpu::launch_check(params, gpu::limits_of(c, a), &found, nullptr);
          return gpu::status_of(found, c);
        },
};

}  // namespace fp4pa::kernels_test
