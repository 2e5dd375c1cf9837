// Scenes on the device, for calls of the back end itself: with real streams, on memory that stays there between calls.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/attention/scene.hpp"
#include "tests/gpu/mirror.hpp"

namespace fp4pa::gpu_test {

struct OnDevice {
  explicit OnDevice(scene::Scene& s) : scene(s) {
    REQUIRE(kBackend.plan(s.config, &choice) == Status::kOk);
    workspace.assign(choice.workspace_bytes + 256, 0xff);
    s.args.workspace = workspace.data() + (256 - reinterpret_cast<std::uintptr_t>(workspace.data()) % 256);
    s.args.workspace_bytes = choice.workspace_bytes;
    add(mirror, s.config, s.args);
    config = moved(mirror, s.config);
    args = moved(mirror, s.args);
  }
  Status run(Stream stream) {
    args.stream = stream;
    return kBackend.run({config, choice, args});
  }
  void set_lengths(const std::vector<std::int32_t>& lengths) {
    scene.seq_lens = lengths;
    must(RUNTIME(Memcpy)(const_cast<std::int32_t*>(args.seq_lens), lengths.data(), 4 * lengths.size(), RUNTIME(MemcpyHostToDevice)),
         "lengths");
  }
  void clear_output() { must(RUNTIME(Memset)(args.o, 0xff, static_cast<std::size_t>(scene.o_bytes)), "clearing the output"); }
  void fill_workspace(int byte) { must(RUNTIME(Memset)(args.workspace, byte, choice.workspace_bytes), "filling the workspace"); }

  scene::Scene& scene;
  Mirror mirror;
  api::PlanChoice choice;
  std::vector<std::uint8_t> workspace;
  AttentionConfig config;
  AttentionArgs args;
};

inline scene::Spec spec_of(KvFormat format, std::vector<scene::Sequence> sequences) {
  scene::Spec spec;
  spec.k = spec.v = format;
  spec.head_dim = 128;
  spec.kv_heads = 2;
  spec.group_heads = 4;
  spec.page_size = 64;
  spec.q_dtype = spec.o_dtype = DType::kBF16;
  spec.sequences = std::move(sequences);
  return spec;
}

/// Sequences of a plan: those of the call, in few enough units for CUDA to share them out in clusters; so many that its blocks find
/// their places themselves; or so many that there is a schedule.
inline constexpr std::int32_t kMaxBatches[] = {3, 300, 1000};

/// O in bf16 rounds by 2^-9; the operands' own error comes on top.
inline constexpr double kBound = 8e-3 + 4e-3;

/// O and LSE.
inline std::vector<std::uint8_t> bytes_of(scene::Scene& s) {
  std::vector<std::uint8_t> all(s.o.data(), s.o.data() + s.o_bytes);
  const auto* lse = reinterpret_cast<const std::uint8_t*>(s.lse.data());
  all.insert(all.end(), lse, lse + 4 * s.lse.size());
  return all;
}

}  // namespace fp4pa::gpu_test
