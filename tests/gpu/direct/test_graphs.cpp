// Graphs of whole public calls: captured once, replayed with other operands, bit for bit what a direct call makes of them.
#include <doctest/doctest.h>

#include "fp4pa/fp4pa.hpp"
#include "tests/gpu/direct/calls.hpp"
#include "tests/gpu/graph.hpp"

namespace {

using namespace fp4pa;
using namespace fp4pa::direct_test;

void check(const std::vector<NamedCall>& calls) {
  REQUIRE(!calls.empty());
  for (const NamedCall& named : calls) {
    CAPTURE(named.name);
    const std::unique_ptr<Call> call = named.make();
    call->fill(100);
    gpu_test::Captured graph([&](cudaStream_t stream) { return call->enqueue(stream); });
    const OwnStream stream;
    std::vector<std::uint8_t> before;
    for (const std::uint32_t seed : {100u, 207u, 311u}) {
      CAPTURE(seed);
      call->fill(seed);
      call->clear();
      const std::vector<std::uint8_t> untouched = call->results();
      graph.replay();
      const std::vector<std::uint8_t> replayed = call->results();
      CHECK(replayed != untouched);
      CHECK(replayed != before);
      before = replayed;

      call->clear();
      REQUIRE(call->enqueue(stream.get()) == Status::kOk);
      stream.wait();
      CHECK(call->results() == replayed);
    }
  }
}

}  // namespace

TEST_CASE("graphs: attention, append and gather replay with other operands") { check(cache_calls()); }
TEST_CASE("graphs: append to two tiers, copies of pages, merging and quantising replay with other operands") { check(memory_calls()); }
TEST_CASE("graphs: dense and MXFP8 attention replay with other operands") { check(dense_calls()); }
TEST_CASE("graphs: fp4_linear replays with other operands") { check(linear_calls()); }
