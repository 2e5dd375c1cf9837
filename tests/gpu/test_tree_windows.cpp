// Trees under a sliding window, as engines of models with windowed layers draft: any format, one tier and two, of few rows and of many.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/attention/scene.hpp"
#include "tests/gpu/backend_name.hpp"
#include "tests/gpu/bounds.hpp"

namespace {

using namespace fp4pa;

struct Formats {
  KvFormat k, v;
  double o;  ///< bound: 8e-3 where an operand is bf16, as of test_grid.cpp
};

void check(const scene::Spec& spec, std::int32_t window, double bound) {
  scene::Scene s(spec);
  s.config.backend = gpu_test::kBackendName;
  s.config.tree_mask = true;
  s.config.sliding_window = window;
  for (const int planned_for : {4, 1000}) {  // blocks that share units, or a schedule (CUDA)
    s.config.max_batch = planned_for;
    CAPTURE(planned_for);
    s.reset_outputs();
    REQUIRE(s.run() == Status::kOk);
    const scene::Scene::Error error = s.error();
    const gpu_test::Bounds bounds = gpu_test::bounds_of(s.config, bound);
    CHECK(error.o <= bounds.o);
    CHECK(error.lse <= bounds.lse);
  }
}

}  // namespace

TEST_CASE("trees under a sliding window agree with the double-precision reference") {
  for (const Formats& formats : {Formats{KvFormat::kMxfp4, KvFormat::kMxfp4, 8e-3}, Formats{KvFormat::kNvfp4, KvFormat::kNvfp4, 2e-3},
                                 Formats{KvFormat::kFp8E4m3, KvFormat::kNvfp4, 2e-3}}) {
    for (const std::int32_t tier : {0, 16}) {
      for (const bool many : {false, true}) {
        const std::int32_t queries = many ? 40 : 3;
        scene::Spec spec;
        spec.k = formats.k;
        spec.v = formats.v;
        spec.head_dim = many == (tier == 0) ? 128 : 64;
        spec.window = tier;
        // The first begins within its window, the second is one query, the third's window ends in the middle of it.
        spec.sequences.resize(3);
        spec.sequences[0] = {queries, 60, 0};
        spec.sequences[1] = {1, 170, 1};
        spec.sequences[2] = {queries, 300, 2};
        CAPTURE(std::string(name_of(formats.k)));
        CAPTURE(std::string(name_of(formats.v)));
        CAPTURE(tier);
        CAPTURE(queries);
        check(spec, many ? 128 : 40, tier != 0 ? 8e-3 : formats.o);
      }
    }
  }
}
