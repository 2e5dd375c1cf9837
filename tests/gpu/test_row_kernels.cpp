// What test_runtime.cpp asks of decode, asked of the kernels of more query rows: graphs that replay with other lengths, equal bits
// whatever memory held, and a sequence's bits that do not depend on its batch (docs/cuda.md, "Which kernel serves a call").
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "cuda/variants.hpp"
#include "tests/gpu/graph.hpp"
#include "tests/gpu/on_device.hpp"

namespace {

using namespace fp4pa;
using gpu_test::bytes_of;
using gpu_test::kBound;
using gpu_test::kMaxBatches;
using gpu_test::OnDevice;
using gpu_test::spec_of;

/// Query tokens of a sequence, with the four heads of spec_of(), and whose they are on compute capability 9.0.
struct Queries {
  std::int32_t tokens;
  const char* kernel;
  int rows;  // of its tiles
  bool wgmma;
};
constexpr Queries kQueries[] = {{4, "9 to 16 rows", 16, false},
                                {7, "17 to 32 rows", 32, false},
                                {8, "17 to 32 rows, all of them", 32, false},
                                {9, "prefill_64, a little more than half of its rows", 64, true},
                                {16, "prefill_64", 64, true},
                                {17, "prefill, a little more than half of its rows", 128, true},
                                {40, "prefill, in two passes", 128, true}};
constexpr KvFormat kFormats[] = {KvFormat::kMxfp4, KvFormat::kBf16};

void check_kernel(const OnDevice& d, const Queries& q) {
  if (d.choice.device.architecture != 90) return;  // elsewhere others serve; what is promised is the same
  const core::SimtConfig& shape = cuda::shape_of(d.choice.variant);
  CHECK(cuda::is_sm90(d.choice.variant) == q.wgmma);
  CHECK(shape.query_is_a == !q.wgmma);
  CHECK(d.choice.tile_rows == q.rows);
}

/// f(queries, format), with both in the messages of what fails.
template <class F>
void for_all(F&& f) {
  for (const KvFormat format : kFormats) {
    for (const Queries& q : kQueries) {
      CAPTURE(std::string(name_of(format)));
      CAPTURE(q.tokens);
      CAPTURE(std::string(q.kernel));
      f(q, format);
    }
  }
}

}  // namespace

TEST_CASE("kernels of more rows: a captured graph replays with other lengths") {
  for_all([](const Queries& q, KvFormat format) {
    for (const std::int32_t max_batch : kMaxBatches) {
      CAPTURE(max_batch);
      const std::int32_t n = q.tokens;
      scene::Scene s(spec_of(format, {{n, 2500, 0}, {n, 1000, 1}, {n, 129, 2}}));
      s.config.max_batch = max_batch;
      OnDevice d(s);
      check_kernel(d, q);
      gpu_test::Captured graph([&](gpu_test::Stream stream) { return d.run(stream); });
      std::vector<std::uint8_t> before;
      for (const std::vector<std::int32_t>& lengths :
           {std::vector<std::int32_t>{2500, 1000, 129}, {n, 1000, 128}, {2499, n + 1, 64}}) {
        CAPTURE(lengths[1]);
        d.set_lengths(lengths);
        d.fill_workspace(0xff);
        d.clear_output();
        graph.replay();
        d.mirror.bring_home();
        const std::vector<std::uint8_t> replayed = bytes_of(s);
        CHECK(replayed != before);
        before = replayed;
        const scene::Scene::Error error = s.error();
        CHECK(error.o <= kBound);
        CHECK(error.lse <= 1e-3);
        // As a call that was not captured.
        d.clear_output();
        REQUIRE(d.run(nullptr) == Status::kOk);
        d.mirror.bring_home();
        CHECK(bytes_of(s) == replayed);
      }
    }
  });
}

TEST_CASE("kernels of more rows: the same call gives the same bits, whatever the workspace held") {
  for_all([](const Queries& q, KvFormat format) {
    for (const std::int32_t max_batch : kMaxBatches) {
      CAPTURE(max_batch);
      scene::Scene s(spec_of(format, {{q.tokens, 2100, 0}, {q.tokens / 2, 777, 1}, {1, 64, 2}}));
      s.config.max_batch = max_batch;
      OnDevice d(s);
      check_kernel(d, q);
      std::vector<std::uint8_t> first;
      for (const int fill : {0xff, 0x00, 0x7f, 0xff}) {
        d.fill_workspace(fill);
        d.clear_output();
        REQUIRE(d.run(nullptr) == Status::kOk);
        d.mirror.bring_home();
        if (first.empty()) first = bytes_of(s);
        CHECK(bytes_of(s) == first);
      }
      CHECK(s.error().o <= kBound);
    }
  });
}

TEST_CASE("kernels of more rows: batch_invariant, a sequence alone and in a batch") {
  for_all([](const Queries& q, KvFormat format) {
    const std::vector<scene::Sequence> batch = {{q.tokens, 3000, 0}, {2, 300, 1}, {q.tokens - 1, 1024, 2}, {1, 2049, 3}};
    const auto invariant = [&](const std::vector<scene::Sequence>& sequences) {
      auto s = std::make_unique<scene::Scene>(spec_of(format, sequences));
      s->config.batch_invariant = true;
      s->config.max_q_len = q.tokens;  // the plan's, not the call's: it chooses the kernel
      s->config.max_kv_len = 3000;
      OnDevice d(*s);
      check_kernel(d, q);
      REQUIRE(d.run(nullptr) == Status::kOk);
      d.mirror.bring_home();
      return s;
    };
    const auto together = invariant(batch);
    CHECK(together->error().o <= kBound);
    for (std::size_t b = 0; b < batch.size(); ++b) {
      CAPTURE(b);
      CHECK(together->bits_of(static_cast<std::int32_t>(b)) == invariant({batch[b]})->bits_of(0));
    }
  });
}
