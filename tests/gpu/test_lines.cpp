// Calls of many units whose lengths are far apart: on CUDA, workers put together themselves what the line divides (cuda/merge_last.cuh).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "api/attention_params.hpp"
#include "tests/gpu/backend_name.hpp"
#include "tests/gpu/graph.hpp"
#include "tests/gpu/on_device.hpp"

namespace {

using namespace fp4pa;
using gpu_test::bytes_of;
using gpu_test::kBound;
using gpu_test::must;
using gpu_test::OnDevice;

struct Kind {
  KvFormat format;
  std::int32_t head_dim, group_heads, most_queries, window;
};

/// More units than half the workers of any GPU here: an even cut would leave them whole.
constexpr std::int32_t kBatch = 300;

/// Short ones, some that have no query or no key, and a few that go over many workers.
std::vector<std::int32_t> lengths(int turn) {
  std::vector<std::int32_t> out;
  for (std::int32_t b = 0; b < kBatch; ++b) out.push_back(b % 97 == 5 ? 3000 + 400 * turn : (b * 37 + turn * 11) % 150);
  return out;
}

scene::Spec spec_of(const Kind& kind) {
  std::vector<scene::Sequence> sequences;
  for (std::int32_t b = 0; b < kBatch; ++b) {
    sequences.push_back({b % 31 == 3 ? 0 : b % 50 == 7 ? kind.most_queries : 1, b % 97 == 5 ? 4200 : 150, static_cast<std::uint64_t>(b)});
  }
  scene::Spec spec = gpu_test::spec_of(kind.format, sequences);
  spec.head_dim = kind.head_dim;
  spec.group_heads = kind.group_heads;
  spec.window = kind.window;
  return spec;
}

/// What a call has left in a workspace of zeros.
struct Left {
  std::int64_t marks;   // none
  std::int64_t states;  // of parts' rows

  explicit Left(const OnDevice& d) {
    const api::WorkspaceLayout layout = api::workspace_layout(d.config, d.choice.num_workers, d.choice.tile_rows);
    const std::int64_t slots = 2 * std::int64_t{d.choice.num_workers};
    marks = not_zero(d, layout.notes, slots);
    states = not_zero(d, layout.partial_state, slots * d.choice.tile_rows);
  }

 private:
  /// Words of 64 bits: a mark, or a row's maximum and sum.
  static std::int64_t not_zero(const OnDevice& d, std::size_t offset, std::int64_t count) {
    std::vector<std::uint64_t> words(static_cast<std::size_t>(count));
    must(cudaMemcpy(words.data(), static_cast<const std::uint8_t*>(d.args.workspace) + offset, 8 * words.size(), cudaMemcpyDeviceToHost),
         "workspace");
    return std::count_if(words.begin(), words.end(), [](std::uint64_t word) { return word != 0; });
  }
};

/// One after the other, in the same workspace. With a recent tier the ring holds only the tokens of the full length.
std::vector<int> turns_of(const Kind& kind) {
  if (kind.window != 0) return {3};
  return gpu_test::share() == 1 ? std::vector<int>{0, 3, 1} : std::vector<int>{0};
}

/// Calls with the lengths that are set: the same bits whatever the workspace holds, in replays and by themselves; a unit is divided, no mark
/// is left.
void check_calls(scene::Scene& s, OnDevice& d, gpu_test::Captured& graph) {
  std::vector<std::uint8_t> first;
  for (const int fill : {0x00, 0xff, 0x00}) {
    d.fill_workspace(fill);
    d.clear_output();
    graph.replay();
    if (fill == 0) {
      const Left left(d);
      CHECK(left.marks == 0);
      CHECK(left.states > 1);  // a unit was divided
    }
    d.mirror.bring_home();
    if (first.empty()) first = bytes_of(s);
    CHECK(bytes_of(s) == first);
  }
  // What a replay leaves in the workspace is there when the next one begins, and a call by itself has another mark.
  for (const bool replays : {true, false, true}) {
    d.clear_output();
    if (replays) {
      graph.replay();
    } else {
      REQUIRE(d.run(nullptr) == Status::kOk);
    }
    d.mirror.bring_home();
    CHECK(bytes_of(s) == first);
  }
  const scene::Scene::Error error = s.error();
  CHECK(error.o <= kBound);
  CHECK(error.lse <= 1e-3);
}

}  // namespace

TEST_CASE("many units of ragged lengths are one kernel, whose workers merge") {
  for (const Kind& kind : {Kind{KvFormat::kMxfp4, 128, 4, 1, 0}, Kind{KvFormat::kMxfp4, 128, 4, 2, 0}, Kind{KvFormat::kNvfp4, 128, 4, 1, 0},
                           Kind{KvFormat::kNvfp4, 128, 8, 1, 0}, Kind{KvFormat::kMxfp4, 64, 8, 1, 0}, Kind{KvFormat::kMxfp4, 96, 4, 2, 0},
                           Kind{KvFormat::kNvfp4, 256, 4, 2, 0}, Kind{KvFormat::kFp8E4m3, 128, 8, 1, 0}, Kind{KvFormat::kMxfp4, 128, 4, 1, 64}}) {
    CAPTURE(std::string(name_of(kind.format)));
    CAPTURE(kind.head_dim);
    CAPTURE(kind.group_heads);
    CAPTURE(kind.most_queries);
    CAPTURE(kind.window);
    scene::Scene s(spec_of(kind));
    OnDevice d(s);
    gpu_test::Captured graph([&](gpu_test::Stream stream) { return d.run(stream); });
    CHECK(graph.nodes() == 1);
    for (const int turn : turns_of(kind)) {
      CAPTURE(turn);
      if (kind.window == 0) d.set_lengths(lengths(turn));
      check_calls(s, d, graph);
    }
  }
}

TEST_CASE("workers that merge do all that a call may ask for") {
  struct Asked {
    const char* what;
    void (*spec)(scene::Spec&);
    void (*config)(AttentionConfig&);
  };
  constexpr auto kNoSpec = [](scene::Spec&) {};
  constexpr auto kNoConfig = [](AttentionConfig&) {};
  for (const Asked& asked :
       {Asked{"sinks, O in f16", [](scene::Spec& s) { s.o_dtype = DType::kF16; }, [](AttentionConfig& c) { c.sinks = true; }},
        Asked{"queries and O in f32, pages in one list",
              [](scene::Spec& s) { s.q_dtype = s.o_dtype = DType::kF32, s.table = TableKind::kCsr; }, kNoConfig},
        Asked{"a sliding window", kNoSpec, [](AttentionConfig& c) { c.sliding_window = 2000; }},
        Asked{"softcap and slopes", kNoSpec, [](AttentionConfig& c) { c.softcap = 20.0f, c.alibi = true; }},
        Asked{"all keys, V along tokens", [](scene::Spec& s) { s.v_axis = VScaleAxis::kTokens; }, [](AttentionConfig& c) { c.causal = false; }},
        Asked{"FP8 keys beside NVFP4 values", [](scene::Spec& s) { s.k = KvFormat::kFp8E4m3, s.v = KvFormat::kNvfp4; }, kNoConfig}}) {
    CAPTURE(std::string(asked.what));
    scene::Spec spec = spec_of({KvFormat::kMxfp4, 128, 4, 2, 0});
    asked.spec(spec);
    scene::Scene s(spec);
    asked.config(s.config);
    OnDevice d(s);
    gpu_test::Captured graph([&](gpu_test::Stream stream) { return d.run(stream); });
    CHECK(graph.nodes() == 1);
    d.set_lengths(lengths(0));
    check_calls(s, d, graph);
  }
}
