// Schedule, merge and validation against core's own functions called in one loop.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "api/attention_params.hpp"
#include "core/attention/merge_partials.hpp"
#include "core/attention/row_map.hpp"
#include "core/paging/plain_row.hpp"
#include "tests/attention/scene.hpp"
#include "tests/cache/random.hpp"
#include "tests/kernels/on_host.hpp"

namespace {

using namespace fp4pa;
using kernels_test::kLanes32;
using kernels_test::kLanes64;
using kernels_test::OnHost;

/// A scene planned for a few workers, without a back end.
struct Planned {
  explicit Planned(const scene::Spec& spec, std::int32_t workers, std::int32_t split_tokens = 0) : scene(spec) {
    scene.config.kv_split_tokens = split_tokens;
    choice.num_workers = workers;
    choice.tile_rows = 8;
    choice.workspace_bytes = api::workspace_layout(scene.config, workers, choice.tile_rows).total;
    workspace.assign(choice.workspace_bytes / 8 + 1, ~std::uint64_t{0});
    scene.args.workspace = workspace.data();
    scene.args.workspace_bytes = choice.workspace_bytes;
    params = api::make_params({scene.config, choice, scene.args});
    list = api::work_list(params);
  }
  scene::Scene scene;
  api::PlanChoice choice;
  std::vector<std::uint64_t> workspace;
  core::AttentionParams params;
  core::WorkList list;
};

scene::Spec spec_of(std::int32_t head_dim, std::vector<scene::Sequence> sequences) {
  scene::Spec spec;
  spec.head_dim = head_dim;
  spec.group_heads = 4;
  spec.sequences = std::move(sequences);
  return spec;
}

const std::vector<scene::Sequence> kMixed{{1, 700, 0}, {9, 300, 1}, {0, 50, 2}, {1, 64, 3}, {2, 1, 4}, {40, 1500, 5}};
const std::vector<scene::Sequence> kPrompts{{5000, 5100, 0}, {0, 10, 1}, {900, 1000, 2}};  // more row blocks than threads

std::vector<std::int64_t> prefixes(const Planned& p) {
  const std::int64_t* cost = p.list.partition.cost_prefix;
  std::vector<std::int64_t> all(cost, cost + p.list.batch + 1);
  if (p.list.partition.split_tiles != 0) {
    const std::int64_t* slots = p.list.partition.slot_prefix;
    all.insert(all.end(), slots, slots + p.list.batch + 1);
  }
  return all;
}

}  // namespace

TEST_CASE("the schedule's prefix sums are those of one loop") {
  std::vector<scene::Sequence> many;  // more sequences than the block has threads
  for (std::int32_t i = 0; i < 700; ++i) many.push_back({i % 5, i * 7 % 90 + 1, 0});
  for (const auto& sequences : {kMixed, kPrompts, many}) {
    for (const std::int32_t split : {0, 128}) {
      Planned p(spec_of(32, sequences), 5, split);
      core::fill_prefixes(p.list);
      const std::vector<std::int64_t> expected = prefixes(p);
      REQUIRE(p.list.total_cost() > 0);
      for (const OnHost* host : {&kLanes32, &kLanes64}) {
        std::memset(p.workspace.data(), 0xff, 8 * p.workspace.size());
        host->schedule(p.list);
        CHECK(prefixes(p) == expected);
      }
    }
  }
}

TEST_CASE("the schedule leaves each worker's start, and the note of what goes on after its piece") {
  std::vector<scene::Sequence> many;
  for (std::int32_t i = 0; i < 700; ++i) many.push_back({i % 5, i * 7 % 90 + 1, 0});
  int with_items = 0, with_notes = 0;
  for (const auto& sequences : {kMixed, kPrompts, many}) {
    for (const std::int32_t split : {0, 128}) {
      for (const std::int32_t workers : {5, 600}) {  // more than there are threads for
        Planned p(spec_of(32, sequences), workers, split);
        core::fill_prefixes(p.list);
        std::vector<core::WorkerStart> starts;
        std::vector<core::MergeNote> notes;
        for (std::int32_t w = 0; w < workers; ++w) {
          starts.push_back(core::worker_start(p.list, w));
          notes.push_back(split == 0 ? core::merge_note(p.list, w) : core::MergeNote{});
          with_items += starts.back().begin < starts.back().end ? 1 : 0;
          with_notes += notes.back().count > 1 ? 1 : 0;
        }
        for (const OnHost* host : {&kLanes32, &kLanes64}) {
          std::memset(p.workspace.data(), 0xff, 8 * p.workspace.size());
          host->schedule(p.list);
          for (std::int32_t w = 0; w < workers; ++w) {
            const core::WorkerStart& a = p.list.partition.starts[w];
            const core::WorkerStart& b = starts[static_cast<std::size_t>(w)];
            CHECK(std::tie(a.seq, a.block, a.kv_head, a.begin, a.end, a.block_begin, a.block_slot) ==
                  std::tie(b.seq, b.block, b.kv_head, b.begin, b.end, b.block_begin, b.block_slot));
            const core::MergeNote& c = p.list.partition.notes[w];
            const core::MergeNote& d = notes[static_cast<std::size_t>(w)];
            CHECK(std::tie(c.seq, c.block, c.kv_head, c.begin, c.first, c.last, c.count) ==
                  std::tie(d.seq, d.block, d.kv_head, d.begin, d.first, d.last, d.count));
          }
        }
      }
    }
  }
  CHECK(with_items > 100);
  CHECK(with_notes > 10);
}

TEST_CASE("a schedule serves every plan whose configuration is the same but for the caches' pointers and global scales") {
  for (const std::int32_t window : {0, 16}) {
    for (const std::int32_t split : {0, 128}) {
      scene::Spec spec = spec_of(64, kMixed);
      spec.k = spec.v = KvFormat::kFp8E4m3;
      spec.window = window;
      Planned first(spec, 5, split);
      spec.seed = 2;  // of the page ids
      Planned second(spec, 5, split);
      second.scene.config.cache.k.global_scale = 0.5f;
      second.scene.config.cache.v.global_scale = 3.0f;
      REQUIRE(second.choice.workspace_bytes == first.choice.workspace_bytes);
      const auto scheduled = [](Planned& p) {
        std::memset(p.workspace.data(), 0xff, 8 * p.workspace.size());
        p.params = api::make_params({p.scene.config, p.choice, p.scene.args});
        p.list = api::work_list(p.params);
        kLanes32.schedule(p.list);
        return p.workspace;
      };
      const std::vector<std::uint64_t> schedule = scheduled(first);
      CHECK(scheduled(second) == schedule);
      second.scene.config.sliding_window = 100;  // this layer needs a workspace of its own
      CHECK(scheduled(second) != schedule);
    }
  }
}

TEST_CASE("the merge writes the rows that one loop writes") {
  for (const std::int32_t head_dim : {32, 64, 96, 256}) {
    for (const std::int32_t split : {0, 128}) {
      CAPTURE(head_dim);
      CAPTURE(split);
      Planned p(spec_of(head_dim, kMixed), 7, split);
      core::fill_prefixes(p.list);
      // Partial states as an attention might leave them, some of them empty.
      test::Random random(static_cast<std::uint64_t>(head_dim + split));
      const api::WorkspaceLayout layout = api::workspace_layout(p.scene.config, 7, 8);
      const auto states = (layout.partial_output - layout.partial_state) / 8;
      const auto outputs = (layout.total - layout.partial_output) / 4;
      for (std::size_t i = 0; i < states; ++i) {
        const bool empty = i % 11 == 0;
        p.params.partial_state[2 * i] = empty ? -std::numeric_limits<float>::infinity() : 8.0f * random.value();
        p.params.partial_state[2 * i + 1] = empty ? 0.0f : 1.0f + static_cast<float>(random.uniform());
      }
      for (std::size_t i = 0; i < outputs; ++i) p.params.partial_output[i] = random.value();

      const auto results = [&](auto&& merge) {
        p.scene.reset_outputs();
        merge();
        std::vector<std::uint8_t> all(p.scene.o.data(), p.scene.o.data() + p.scene.o_bytes);
        const auto* lse = reinterpret_cast<const std::uint8_t*>(p.scene.lse.data());
        all.insert(all.end(), lse, lse + 4 * p.scene.lse.size());
        return all;
      };
      int rows_merged = 0;
      const auto expected = results([&] {
        for (std::int32_t worker = 0; worker < 7; ++worker) {
          core::for_each_merge(p.list, worker, [&](const core::MergeJob& job) {
            const core::RowMap rows(p.params, {job.unit.seq, job.unit.block, job.unit.kv_head, job.unit.tiles, -1});
            float row[256];
            for (std::int32_t r = 0; r < rows.num_rows; ++r, ++rows_merged) {
              const core::SoftmaxState keys = core::merged_state(p.params, p.list, job, r);
              core::merged_output(p.params, p.list, job, r, keys.max, 0, head_dim, 1, row);
              for (std::int32_t d = 0; d < head_dim; ++d) row[d] *= core::rescale(keys.max, keys.max) * keys.normaliser();
              const std::int64_t at = rows.token(r) * p.params.o.token_stride + rows.head(r) * p.params.o.head_stride;
              core::store_plain_row(row, head_dim, p.params.o.dtype,
                                    core::element_address(p.params.o.data, p.params.o.dtype, at));
              if (p.params.lse != nullptr) p.params.lse[rows.token(r) * p.params.num_q_heads + rows.head(r)] = keys.lse();
            }
          });
        }
      });
      REQUIRE(rows_merged > 0);
      CHECK(results([&] { kLanes32.merge(p.params, p.list); }) == expected);
      CHECK(results([&] { kLanes64.merge(p.params, p.list); }) == expected);
    }
  }
}

TEST_CASE("validation names the first offence of the lowest sequence") {
  for (const OnHost* host : {&kLanes32, &kLanes64}) {
    Planned p(spec_of(64, kMixed), 5);
    const auto check = [&] { return host->check(p.scene.config, p.scene.args, p.params); };
    CHECK(check() == Status::kOk);
    p.scene.config.max_q_tokens = p.scene.q_tokens() - 1;
    CHECK_REFUSED(check(), Status::kPlanMismatch, "qo_indptr ends at", "max_q_tokens");
    p.scene.config.max_q_tokens = p.scene.q_tokens();
    // Page tables are read only where the call reads keys: sequence 2 has no queries.
    const auto stride = static_cast<std::size_t>(p.scene.args.table_stride);
    p.scene.block_table[2 * stride] = 1 << 20;
    CHECK(check() == Status::kOk);
    p.scene.block_table[5 * stride] = 1 << 20;
    CHECK_REFUSED(check(), Status::kBlockIdOutOfRange, "block_table of sequence 5 names page 1048576 at position 0; allowed: 0 to");
    p.scene.block_table[3 * stride] = -7;
    CHECK_REFUSED(check(), Status::kBlockIdOutOfRange, "sequence 3", "-7");
    p.params.segments[0].table.row_stride = 1;
    CHECK_REFUSED(check(), Status::kLengthExceedsTable, "keys in the page table", "its row holds 1");
    p.params.segments[0].table.row_stride = p.scene.args.table_stride;
    p.scene.seq_lens[1] = p.scene.config.max_kv_len + 1;
    CHECK_REFUSED(check(), Status::kPlanMismatch, "seq_lens[1] is", "max_kv_len");
    p.scene.indptr[0] = 1;
    CHECK_REFUSED(check(), Status::kInvalidIndptr, "qo_indptr[0] is 1; allowed: 0");
  }
}

TEST_CASE("validation looks at kv_indptr before what it points to") {
  for (const OnHost* host : {&kLanes32, &kLanes64}) {
    scene::Spec spec = spec_of(64, kMixed);
    spec.table = TableKind::kCsr;
    Planned p(spec, 5);
    const auto check = [&] { return host->check(p.scene.config, p.scene.args, p.params); };
    CHECK(check() == Status::kOk);
    const std::vector<std::int32_t> good = p.scene.kv_indptr;
    p.scene.kv_indptr[0] = 3;
    CHECK_REFUSED(check(), Status::kInvalidIndptr, "kv_indptr[0] is 3; allowed: 0");
    p.scene.kv_indptr[0] = -5;
    CHECK_REFUSED(check(), Status::kInvalidIndptr, "kv_indptr[0] is -5; allowed: 0");
    p.scene.kv_indptr = good;
    p.scene.kv_indptr[2] = p.scene.kv_indptr[1] - 1;
    CHECK_REFUSED(check(), Status::kInvalidIndptr, "kv_indptr[2] is", "allowed: values that do not decrease");
  }
}
