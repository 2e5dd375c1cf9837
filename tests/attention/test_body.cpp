// THE kernel body on a back end that is nothing but its words: whatever is wrong here is wrong on every device.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "api/attention_params.hpp"
#include "core/attention/body.hpp"
#include "core/attention/merge_partials.hpp"
#include "core/schedule/even.hpp"
#include "tests/attention/book_backend.hpp"
#include "tests/attention/scene.hpp"

using namespace fp4pa;
using scene::Scene;
using scene::Spec;

namespace {

constexpr std::int32_t kTileRows = 16;

/// A scene planned for `workers` workers, its workspace full of NaN.
struct Planned {
  Planned(Scene& s, std::int32_t workers) {
    const api::WorkspaceLayout layout = api::workspace_layout(s.config, workers, kTileRows);
    s.workspace = grid::Memory(layout.total, 0xFF);
    s.args.workspace = s.workspace.data();
    s.args.workspace_bytes = layout.total;
    const api::PlanChoice choice{workers, kTileRows, 0, layout.total};
    p = api::make_params({s.config, choice, s.args});
    list = api::work_list(p);
  }
  core::AttentionParams p;
  core::WorkList list;
};

template <std::int32_t kSegments, std::int32_t kTileKeys>
void attend_by_the_book(Scene& s, const core::AttentionParams& p, const core::WorkItem& item) {
  book::Book contents{&s.config, &s.args, reference::dequantize(s.config, s.args, item.seq, item.kv_head)};
  book::BookBackend<kSegments, kTileKeys> backend(p, contents);
  core::attend(backend, p, item);
  CHECK(backend.stored());
  CHECK(contents.lse_stored == (p.lse != nullptr && item.partial_slot < 0));
}

/// Row r of a divided unit, from the state of its keys and f(maximum, row of floats), which adds up its parts' outputs.
template <class F>
void store_merged(const core::AttentionParams& p, const core::RowMap& rows, std::int32_t r, const core::SoftmaxState& keys, F&& sum_up) {
  core::SoftmaxState state = keys;
  if (p.sinks != nullptr) state = state.with_sink(p.sinks[rows.head(r)] * core::kLog2E);
  std::vector<float> row(static_cast<std::size_t>(p.head_dim));
  sum_up(keys.max, row.data());
  const float scale = core::rescale(keys.max, state.max) * state.normaliser();
  auto* const o = static_cast<float*>(p.o.data) + rows.token(r) * p.o.token_stride + rows.head(r) * p.o.head_stride;
  for (std::size_t d = 0; d < row.size(); ++d) o[d] = row[d] * scale;
  if (p.lse != nullptr) p.lse[rows.token(r) * p.num_q_heads + rows.head(r)] = state.lse();
}

/// Runs a scene through the body and the merge, with `workers` workers one after another.
template <std::int32_t kSegments, std::int32_t kTileKeys>
void run_by_the_book(Scene& s, std::int32_t workers) {
  const Planned planned(s, workers);
  const core::AttentionParams& p = planned.p;
  const core::WorkList& list = planned.list;
  core::fill_prefixes(list);
  if (list.total_cost() == 0) return;
  for (std::int32_t worker = 0; worker < workers; ++worker) {
    core::for_each_item(list, worker,
                        [&](const core::WorkItem& item) { attend_by_the_book<kSegments, kTileKeys>(s, p, item); });
  }
  for (std::int32_t worker = 0; worker < workers; ++worker) {
    core::for_each_merge(list, worker, [&](const core::MergeJob& job) {
      const core::RowMap rows(p, {job.unit.seq, job.unit.block, job.unit.kv_head, job.unit.tiles, -1});
      for (std::int32_t r = 0; r < rows.num_rows; ++r) {
        store_merged(p, rows, r, core::merged_state(p, list, job, r), [&](float max, float* row) {
          core::merged_output(p, list, job, r, max, 0, p.head_dim, 1, row);
        });
      }
    });
  }
}

/// The same under an even cut, merged by the notes, as a GPU's blocks find them.
/// @return divided units
template <std::int32_t kSegments, std::int32_t kTileKeys>
int run_evenly(Scene& s, std::int32_t workers) {
  Planned planned(s, workers);
  const core::AttentionParams& p = planned.p;
  core::WorkList& list = planned.list;
  const std::int32_t units = list.batch * list.num_kv_heads;
  const core::EvenCut cut = core::EvenCut::of(units, workers);
  list.partition.even = core::Divisor::of(static_cast<std::uint32_t>(cut.parts));
  list.partition.even_rounds = cut.rounds;
  for (std::int32_t worker = 0; worker < workers; ++worker) {
    core::EvenWalk walk(worker);
    core::WorkItem item{};
    while (walk.next(list, item)) attend_by_the_book<kSegments, kTileKeys>(s, p, item);
  }
  int divided = 0;
  for (std::int32_t worker = 0; worker < workers; ++worker) {
    const core::MergeNote note = core::even_note(list, worker);
    if (note.count < 2 || note.begin != worker) continue;
    ++divided;
    const core::RowMap rows(p, {note.seq, note.block, note.kv_head, {0, 0}, -1});
    // As cuda/merge_share.cuh finds the parts.
    const auto slot = [&](std::int32_t part) { return 2 * (note.first + part) + (note.first + part == note.begin ? 1 : 0); };
    for (std::int32_t r = 0; r < rows.num_rows; ++r) {
      const auto at = [&](std::int32_t part) { return std::int64_t{slot(part)} * kTileRows + r; };
      core::SoftmaxState keys;
      for (std::int32_t i = 0; i < note.count; ++i) {
        keys = core::SoftmaxState::merge(keys, {p.partial_state[2 * at(i)], p.partial_state[2 * at(i) + 1]});
      }
      store_merged(p, rows, r, keys, [&](float max, float* row) {
        for (std::int32_t i = 0; i < note.count; ++i) {
          const float weight = core::rescale(p.partial_state[2 * at(i)], max);
          for (std::int32_t d = 0; d < p.head_dim; ++d) row[d] += weight * p.partial_output[at(i) * p.head_dim + d];
        }
      });
    }
  }
  return divided;
}

void check_close(Scene& s, const char* what) {
  const Scene::Error error = s.error();
  INFO(std::string(what));
  CHECK(error.o <= 2e-6);
  CHECK(error.lse <= 5e-6);
}

Spec mixed_batch() {
  Spec spec;
  spec.head_dim = 32;
  spec.group_heads = 3;
  // Decode, several queries, a prefill, nothing to see, more queries than keys, no queries.
  spec.sequences = {{1, 200, 0}, {5, 70, 1}, {33, 33, 2}, {2, 0, 3}, {9, 4, 4}, {0, 50, 5}};
  return spec;
}

}  // namespace

static_assert(core::TileBackend<book::BookBackend<1, 64>>);
static_assert(core::TileBackend<book::BookBackend<2, 16>>);

TEST_CASE("body: an even cut of decodes, in one round and in several") {
  Spec spec;
  spec.head_dim = 32;
  spec.group_heads = 3;
  spec.sequences = {{1, 700, 0}, {2, 650, 1}, {1, 64, 2}, {0, 50, 3}, {3, 0, 4}, {5, 701, 5}};
  int divided = 0;
  for (const std::int32_t window : {0, 64}) {
    spec.window = window;
    spec.group_tokens = 64;
    for (const std::int32_t workers : {1, 5, 30, 200}) {
      Scene s(spec);
      s.config.sinks = workers % 2 == 0;
      CAPTURE(window);
      CAPTURE(workers);
      divided += window == 0 ? run_evenly<1, 64>(s, workers) : run_evenly<2, 16>(s, workers);
      const Scene::Error error = s.error();
      CHECK(error.o <= 2e-6);
      CHECK(error.lse <= 5e-6);
    }
  }
  CHECK(divided > 20);
}

TEST_CASE("body: every mask, one segment, tiles of 64 keys and of others") {
  Scene s(mixed_batch());
  SUBCASE("causal") {}
  SUBCASE("no mask") { s.config.causal = false; }
  SUBCASE("sliding window 1") { s.config.sliding_window = 1; }
  SUBCASE("sliding window 67") { s.config.sliding_window = 67; }
  SUBCASE("tree") { s.config.tree_mask = true; }
  SUBCASE("tree under a sliding window") {
    s.config.tree_mask = true;
    s.config.sliding_window = 64;
  }
  SUBCASE("sinks") { s.config.sinks = true; }
  SUBCASE("softcap") { s.config.softcap = 2.0f; }
  SUBCASE("ALiBi") { s.config.alibi = true; }
  SUBCASE("all at once") {
    s.config.sinks = s.config.alibi = true;
    s.config.softcap = 3.0f;
    s.config.sliding_window = 40;
  }
  SUBCASE("fixed splits") { s.config.kv_split_tokens = 64; }
  SUBCASE("fixed splits with sinks and a window") {
    s.config.kv_split_tokens = 64;
    s.config.sinks = true;
    s.config.sliding_window = 130;
  }
  for (const std::int32_t workers : {1, 3, 17}) {
    INFO("workers ", workers);
    s.reset_outputs();
    run_by_the_book<1, 64>(s, workers);
    check_close(s, "tiles of 64 keys");
    s.reset_outputs();
    run_by_the_book<1, 16>(s, workers);
    check_close(s, "tiles of 16 keys");
    s.reset_outputs();
    run_by_the_book<1, 7>(s, workers);  // a tile need not divide the schedule's 64 keys
    check_close(s, "tiles of 7 keys");
  }
}

TEST_CASE("body: two segments, every length around the window and the groups") {
  for (std::int32_t length = 0; length <= 130; ++length) {
    Spec spec;
    spec.head_dim = 32;
    spec.kv_heads = 1;
    spec.window = 20;
    spec.group_tokens = 8;
    spec.sequences = {{1, length, 7}, {4, length, 8}};
    Scene s(spec);
    INFO("length ", length);
    run_by_the_book<2, 64>(s, 2);
    check_close(s, "tiles of 64 keys");
    s.config.sliding_window = 33;
    run_by_the_book<2, 16>(s, 2);
    check_close(s, "a sliding window across both tiers");
  }
}

TEST_CASE("body: without lse nothing is stored there") {
  Scene s(mixed_batch());
  s.args.lse = nullptr;
  run_by_the_book<1, 64>(s, 2);
  for (const float x : s.lse) {
    CHECK(std::bit_cast<std::uint32_t>(x) == 0x5A5A5A5Au);
  }
}
