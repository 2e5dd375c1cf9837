// Several devices at once, a thread for each: what one device makes of a call is what each of its kind makes of it.
#include <doctest/doctest.h>

#include <atomic>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/formats/half.hpp"
#include "fp4pa/fp4pa.hpp"
#include "reference/metrics.hpp"
#include "tests/gpu/direct/calls.hpp"
#include "tests/gpu/graph.hpp"

namespace {

using namespace fp4pa;
using namespace fp4pa::direct_test;

constexpr std::uint32_t kSeeds[] = {41, 42, 43};
constexpr int kRounds = 4;

/// What makes results comparable bit for bit: how work is cut follows from it.
struct Kind {
  int major = 0, minor = 0, multiprocessors = 0, shared_bytes = 0;
  [[nodiscard]] bool operator==(const Kind&) const = default;
};
Kind kind_of(int device) {
  Kind k;
  for (const auto& [value, attribute] : {std::pair{&k.major, cudaDevAttrComputeCapabilityMajor},
                                         {&k.minor, cudaDevAttrComputeCapabilityMinor},
                                         {&k.multiprocessors, cudaDevAttrMultiProcessorCount},
                                         {&k.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin}}) {
    must(cudaDeviceGetAttribute(value, attribute, device), "asking for a device's properties");
  }
  return k;
}

std::vector<NamedCall> all_calls() {
  std::vector<NamedCall> calls = cache_calls();
  for (const auto& more : {memory_calls(), dense_calls(), linear_calls()}) calls.insert(calls.end(), more.begin(), more.end());
  return calls;
}

using Results = std::vector<std::vector<std::uint8_t>>;  // one for each call and seed

/// Every call with every seed on the current device, `rounds` times.
/// @param each  (round, which, results)
/// @return  what went wrong
template <class Each>
std::string run_all(const std::vector<NamedCall>& calls, int rounds, Each&& each) {
  const OwnStream stream;
  std::vector<std::unique_ptr<Call>> made;
  for (const NamedCall& named : calls) made.push_back(named.make());
  for (int round = 0; round < rounds; ++round) {
    std::size_t which = 0;
    for (const std::uint32_t seed : kSeeds) {
      for (std::size_t i = 0; i < calls.size(); ++i, ++which) {
        made[i]->fill(seed);
        made[i]->clear();
        if (made[i]->enqueue(stream.get()) != Status::kOk) return calls[i].name + ": " + last_error_detail();
        stream.wait();
        each(round, which, made[i]->results());
      }
    }
  }
  return "";
}

/// Of a device with nobody beside it.
Results alone(const std::vector<NamedCall>& calls, int device) {
  must(cudaSetDevice(device), "choosing a device");
  Results results;
  REQUIRE(run_all(calls, 1, [&](int, std::size_t, std::vector<std::uint8_t> r) { results.push_back(std::move(r)); }) == "");
  REQUIRE(results.size() == calls.size() * std::size(kSeeds));
  return results;
}

struct Outcome {
  std::string failure;             // of the first call that did not run
  Results first;                   // round's results
  int repeats = 0, different = 0;  // of the rounds after it
};

/// The device's part, beside all others.
void beside_others(const std::vector<NamedCall>& calls, int device, std::atomic<int>& waiting, Outcome& outcome) {
  must(cudaSetDevice(device), "choosing a device");
  must(cudaFree(nullptr), "waking a device");
  waiting.fetch_sub(1);
  while (waiting.load() > 0) std::this_thread::yield();  // so that the first calls on all devices come together
  outcome.failure = run_all(calls, kRounds, [&](int round, std::size_t which, std::vector<std::uint8_t> results) {
    if (round == 0) {
      outcome.first.push_back(std::move(results));
      return;
    }
    ++outcome.repeats;
    if (results != outcome.first[which]) ++outcome.different;
  });
  int current = -1;
  must(cudaGetDevice(&current), "asking for the device");
  if (current != device) outcome.failure += " the current device has changed";
}

/// Of values in bf16.
double relative_distance(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  reference::Difference d;
  for (std::size_t i = 0; i + 1 < a.size(); i += 2) {
    const auto value = [i](const std::vector<std::uint8_t>& x) {
      return core::bf16_to_f32(static_cast<std::uint16_t>(x[i] | x[i + 1] << 8));
    };
    d.add(value(a), value(b));
  }
  return a.size() == b.size() ? d.relative() : 1.0;
}

}  // namespace

TEST_CASE("devices: a device's first call may be captured") {
  int count = 0;
  must(cudaGetDeviceCount(&count), "counting devices");
  if (count < 2 || !(kind_of(1) == kind_of(0))) {
    MESSAGE("not run: this takes two devices of a kind");
    return;
  }
  must(cudaSetDevice(0), "choosing a device");
  const std::vector<NamedCall> calls = dense_calls();  // with device 0's plans
  must(cudaSetDevice(1), "choosing a device");
  for (const NamedCall& named : calls) {
    CAPTURE(named.name);
    const std::unique_ptr<Call> call = named.make();
    call->fill(kSeeds[0]);
    call->clear();
    const OwnStream other;
    gpu_test::Captured graph([&](cudaStream_t stream) { return call->enqueue(stream); });
    graph.replay();
    const std::vector<std::uint8_t> replayed = call->results();
    call->clear();
    REQUIRE(call->enqueue(other.get()) == Status::kOk);
    other.wait();
    CHECK(call->results() == replayed);
  }
  must(cudaSetDevice(0), "choosing a device");
}

TEST_CASE("devices: a thread for each, all at once, and the first device's results from every one") {
  int count = 0;
  must(cudaGetDeviceCount(&count), "counting devices");
  std::vector<int> devices;
  for (int device = 0; device < count; ++device) {
    if (kind_of(device) == kind_of(0)) {
      devices.push_back(device);
    } else {
      MESSAGE("device " << device << " is left out: it is of another kind than device 0");
    }
  }
  if (devices.size() < 2) {
    MESSAGE("not run: this takes two devices of a kind, and there is " << devices.size());
    return;
  }
  must(cudaSetDevice(0), "choosing a device");
  const std::vector<NamedCall> calls = all_calls();  // plans of dense calls are device 0's; others are made by each thread
  const Results expected = alone(calls, 0);
  for (std::size_t i = calls.size(); i < expected.size(); ++i) CHECK(expected[i] != expected[i - calls.size()]);

  std::vector<Outcome> outcomes(devices.size());
  std::atomic<int> waiting{static_cast<int>(devices.size())};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    threads.emplace_back([&, i] { beside_others(calls, devices[i], waiting, outcomes[i]); });
  }
  for (std::thread& thread : threads) thread.join();

  for (std::size_t i = 0; i < devices.size(); ++i) {
    CAPTURE(devices[i]);
    CHECK(outcomes[i].failure == "");
    REQUIRE(outcomes[i].first.size() == expected.size());
    CHECK(outcomes[i].repeats == (kRounds - 1) * static_cast<int>(expected.size()));
    CHECK(outcomes[i].different == 0);
    const Results again = i == 0 ? expected : alone(calls, devices[i]);
    int other_bits = 0;
    for (std::size_t which = 0; which < expected.size(); ++which) {
      const NamedCall& call = calls[which % calls.size()];
      CAPTURE(call.name);
      CHECK(outcomes[i].first[which] == again[which]);
      if (call.same_everywhere) {
        CHECK(outcomes[i].first[which] == expected[which]);
      } else {
        CHECK(relative_distance(outcomes[i].first[which], expected[which]) <= 0x1p-8);
        other_bits += outcomes[i].first[which] != expected[which] ? 1 : 0;
      }
    }
    MESSAGE("device " << devices[i] << ": " << expected.size() << " results, " << other_bits
                      << " products with other bits than device 0's");
  }
  must(cudaSetDevice(0), "choosing a device");
}
