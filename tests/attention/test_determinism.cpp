// Same inputs, same plan: the same bits. With batch_invariant also the same bits alone, in any batch and over any
// number of workers.
#include <doctest/doctest.h>
#include <omp.h>

#include <vector>

#include "tests/attention/scene.hpp"

using namespace fp4pa;
using scene::Scene;
using scene::Spec;

namespace {

std::vector<std::uint8_t> all_bits(Scene& s) {
  s.reset_outputs();
  const Status status = s.run();
  INFO(std::string(last_error_detail()));
  REQUIRE(status == Status::kOk);
  std::vector<std::uint8_t> bits;
  for (std::int32_t b = 0; b < s.args.batch; ++b) {
    const std::vector<std::uint8_t> more = s.bits_of(b);
    bits.insert(bits.end(), more.begin(), more.end());
  }
  return bits;
}

/// Long and short, decode and prefill, so that balanced cuts fall everywhere.
Spec mixed() {
  Spec spec;
  spec.sequences = {{1, 900, 0}, {30, 300, 1}, {1, 5, 2}, {0, 77, 3}, {4, 64, 4}, {1, 2000, 5}};
  return spec;
}

scene::Sequence drawn(test::Random& random, std::uint64_t number) {
  return {1 + (random.below(4) == 0 ? random.below(40) : random.below(3)),
          random.below(random.below(3) == 0 ? 1500 : 200), number};
}

}  // namespace

TEST_SUITE_BEGIN("paths");

TEST_CASE("split KV and merge: repeated calls give the same bits, whatever the workspace held") {
  for (const std::int32_t threads : {1, 2, 3, 16, 61}) {
    for (const std::int32_t split : {0, 64, 256}) {
      Scene s(mixed());
      s.config.num_threads = threads;
      s.config.kv_split_tokens = split;
      s.config.sinks = split == 64;
      const std::vector<std::uint8_t> first = all_bits(s);
      for (int i = 0; i < 4; ++i) CHECK(all_bits(s) == first);  // the workspace now holds the last call's states
      INFO("threads ", threads, " split ", split);
      CHECK(s.error().o <= 3e-4);
    }
  }
}

TEST_CASE("a run with fewer threads than planned shares out the plan's workers: the same bits") {
  for (const std::int32_t split : {0, 64}) {
    Scene s(mixed());
    s.config.num_threads = 6;
    s.config.kv_split_tokens = split;
    const std::vector<std::uint8_t> wanted = all_bits(s);
    // Inside a parallel region with nesting off, the run gets one thread.
    omp_set_max_active_levels(1);
    std::vector<std::uint8_t> nested;
    std::int32_t threads_inside = 0;
#pragma omp parallel num_threads(2)
    {
#pragma omp single
      {
        nested = all_bits(s);
#pragma omp parallel num_threads(6)
        {
#pragma omp single
          threads_inside = omp_get_num_threads();
        }
      }
    }
    CHECK(threads_inside == 1);  // else this tested nothing
    CHECK(nested == wanted);
  }
}

TEST_CASE("batch_invariant: a sequence has the same bits alone and in any batch, over any number of workers") {
  test::Random random(21);
  int compared = 0;
  for (int round = 0; round < 12; ++round) {
    Spec spec;
    spec.k = round % 2 == 0 ? KvFormat::kMxfp4 : KvFormat::kBf16;
    spec.window = round % 3 == 0 ? 32 : 0;
    const std::int32_t split = round % 4 < 2 ? 0 : 64;  // 0: the default of batch_invariant
    const scene::Sequence subject = round < 2 ? scene::Sequence{1, 5000, 99} : drawn(random, 99);
    spec.sequences = {subject};
    Scene alone(spec);
    alone.config.batch_invariant = true;
    alone.config.kv_split_tokens = split;
    alone.config.num_threads = 1;
    const std::vector<std::uint8_t> wanted = all_bits(alone);

    for (int i = 0; i < 4; ++i) {
      spec.sequences.clear();
      const int others = 1 + random.below(5);
      const int at = random.below(others + 1);
      for (int b = 0; b <= others; ++b) {
        spec.sequences.push_back(b == at ? subject : drawn(random, 100 + random.bits() % 1000));
      }
      spec.seed = 10 + static_cast<std::uint64_t>(i);  // other pages
      Scene batch(spec);
      batch.config.batch_invariant = true;
      batch.config.kv_split_tokens = split;
      batch.config.num_threads = 1 + random.below(7);
      (void)all_bits(batch);
      INFO("round ", round, " batch ", i, " subject ", subject.q_len, "/", subject.kv_len);
      CHECK(batch.bits_of(at) == wanted);
      ++compared;
    }
  }
  CHECK(compared == 48);
}

TEST_CASE("without batch_invariant the cuts do depend on the batch: the test above is not vacuous") {
  Spec spec;
  spec.sequences = {{1, 5000, 99}};
  Scene alone(spec);
  alone.config.num_threads = 4;
  const std::vector<std::uint8_t> wanted = all_bits(alone);
  spec.sequences = {{1, 5000, 99}, {1, 3000, 7}};
  Scene batch(spec);
  batch.config.num_threads = 4;
  (void)all_bits(batch);
  CHECK(batch.bits_of(0) != wanted);
}

TEST_SUITE_END();
