// The workspace a plan asks for holds everything that any call within the plan's maxima can write.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "api/attention_params.hpp"
#include "core/schedule/work.hpp"
#include "tests/cache/random.hpp"

using namespace fp4pa;

namespace {

struct Maxima {
  std::int32_t batch, q_tokens, q_len, kv_len;
};

/// A batch within the maxima, often at them.
struct Call {
  std::vector<std::int32_t> indptr{0}, kv_lens;
  Call(const Maxima& m, test::Random& random) {
    const std::int32_t batch = random.below(3) == 0 ? 1 + random.below(m.batch) : m.batch;
    std::int32_t left = m.q_tokens;
    for (std::int32_t b = 0; b < batch; ++b) {
      const std::int32_t most = std::min(left, m.q_len);
      const std::int32_t q = random.below(3) == 0   ? random.below(most + 1)
                             : random.below(2) == 0 ? most
                                                    : std::min(most, 1);
      left -= q;
      indptr.push_back(indptr.back() + q);
      kv_lens.push_back(random.below(3) == 0 ? random.below(m.kv_len + 1)
                                             : m.kv_len - random.below(std::min(65, m.kv_len + 1)));
    }
  }
};

}  // namespace

TEST_CASE("workspace_layout: parts in order, aligned, disjoint, and the last one inside the total") {
  test::Random random(31);
  std::int64_t fixed_slots_used = 0;
  double tightest = 1e9;
  for (int i = 0; i < 1500; ++i) {
    AttentionConfig c;
    c.cache.head_dim = 32 * (1 + random.below(8));
    c.cache.num_kv_heads = 1 + random.below(4);
    const std::int32_t group = 1 + random.below(9);
    c.num_q_heads = c.cache.num_kv_heads * group;
    Maxima m{1 + random.below(9), 1 + random.below(random.below(2) == 0 ? 12 : 400), 0,
             random.below(random.below(2) == 0 ? 300 : 4000)};
    m.q_len = 1 + random.below(m.q_tokens);
    c.max_batch = m.batch;
    c.max_q_tokens = m.q_tokens;
    c.max_q_len = m.q_len;
    c.max_kv_len = m.kv_len;
    c.causal = random.below(2) == 0;
    c.sliding_window = c.causal && random.below(3) == 0 ? 1 + random.below(500) : 0;
    c.batch_invariant = random.below(3) == 0;
    c.kv_split_tokens = random.below(2) == 0 ? 0 : 64 * (1 + random.below(5));
    const std::int32_t workers = 1 + random.below(random.below(2) == 0 ? 4 : 200);
    const std::int32_t tile_rows = random.below(2) == 0 ? 16 : 64;

    const api::WorkspaceLayout layout = api::workspace_layout(c, workers, tile_rows);
    const auto prefix_bytes = sizeof(std::int64_t) * (static_cast<std::size_t>(m.batch) + 1);
    CHECK(layout.cost_prefix == 0);
    CHECK(layout.slot_prefix >= layout.cost_prefix + prefix_bytes);
    CHECK(layout.partial_state >= layout.slot_prefix + prefix_bytes);
    CHECK(layout.partial_output >= layout.partial_state);
    for (const std::size_t at : {layout.slot_prefix, layout.partial_state, layout.partial_output, layout.total})
      CHECK(at % 256 == 0);
    const std::size_t state_room =
        (layout.partial_output - layout.partial_state) / (2 * sizeof(float) * static_cast<std::size_t>(tile_rows));
    const std::size_t output_room =
        (layout.total - layout.partial_output) /
        (sizeof(float) * static_cast<std::size_t>(c.cache.head_dim) * static_cast<std::size_t>(tile_rows));

    const Call call(m, random);
    std::vector<std::int64_t> cost(call.kv_lens.size() + 1), slots(call.kv_lens.size() + 1);
    const core::WorkList list{{workers, tile_rows, api::split_tiles(c), cost.data(), slots.data()},
                              call.indptr.data(),
                              call.kv_lens.data(),
                              static_cast<std::int32_t>(call.kv_lens.size()),
                              c.cache.num_kv_heads,
                              group,
                              c.sliding_window,
                              c.causal};
    for (std::int32_t b = 0; b < list.batch; ++b) {
      const core::SequenceCost sum = core::sequence_cost(list.shape(b), list.partition, list.num_kv_heads);
      cost[static_cast<std::size_t>(b) + 1] = cost[static_cast<std::size_t>(b)] + sum.cost;
      slots[static_cast<std::size_t>(b) + 1] = slots[static_cast<std::size_t>(b)] + sum.slots;
    }
    std::int64_t largest = -1;
    for (std::int32_t worker = 0; worker < workers; ++worker) {
      core::for_each_item(list, worker,
                          [&](const core::WorkItem& item) { largest = std::max(largest, item.partial_slot); });
    }
    INFO("case ", i, " slot ", largest, " room ", state_room, " and ", output_room);
    CHECK(largest < static_cast<std::int64_t>(state_room));
    CHECK(largest < static_cast<std::int64_t>(output_room));
    if (list.partition.split_tiles != 0 && largest >= 0) {
      ++fixed_slots_used;
      tightest = std::min(tightest, static_cast<double>(output_room) / static_cast<double>(largest + 1));
    }
  }
  CHECK(fixed_slots_used > 200);
  CHECK(tightest < 1.5);  // some call comes close to what was reserved: the bound is not a wild one
}

TEST_CASE("workspace_layout: nothing but the prefix sums where no sequence can be cut") {
  AttentionConfig c;
  c.cache.head_dim = 128;
  c.cache.num_kv_heads = 8;
  c.num_q_heads = 32;
  c.max_batch = 4;
  c.max_q_tokens = 4;
  c.max_q_len = 1;
  c.max_kv_len = 2048;
  c.batch_invariant = true;  // pieces of 2048 keys
  const api::WorkspaceLayout none = api::workspace_layout(c, 16, 16);
  CHECK(none.total == none.partial_state);
  c.max_kv_len = 2049;
  CHECK(api::workspace_layout(c, 16, 16).total > none.total);
}
