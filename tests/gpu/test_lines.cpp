// Calls of many units whose lengths are far apart: on CUDA, workers put together themselves what the line divides (cuda/merge_last.cuh).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "api/attention_params.hpp"
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

/// Marks that a call has left in its workspace.
std::int64_t marks_left(const OnDevice& d) {
  const api::WorkspaceLayout layout = api::workspace_layout(d.config, d.choice.num_workers, d.choice.tile_rows);
  std::vector<std::uint64_t> marks(2 * static_cast<std::size_t>(d.choice.num_workers));
  must(cudaMemcpy(marks.data(), static_cast<const std::uint8_t*>(d.args.workspace) + layout.notes, 8 * marks.size(), cudaMemcpyDeviceToHost),
       "marks");
  return std::count_if(marks.begin(), marks.end(), [](std::uint64_t mark) { return mark != 0; });
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
    // With a recent tier the ring holds only the tokens of the full length.
    for (const int turn : kind.window != 0 ? std::vector<int>{3} : std::vector<int>{0, 3, 1}) {
      CAPTURE(turn);
      if (kind.window == 0) d.set_lengths(lengths(turn));
      std::vector<std::uint8_t> first;
      for (const int fill : {0x00, 0xff, 0x00}) {
        d.fill_workspace(fill);
        d.clear_output();
        graph.replay();
        if (fill == 0) CHECK(marks_left(d) == 0);
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
  }
}
