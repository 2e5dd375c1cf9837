// Calls of the public functions on the current device's memory, each with operands that follow from a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fp4pa/status.hpp"
#include "tests/gpu/direct/device_memory.hpp"

namespace fp4pa::direct_test {

class Call {
 public:
  virtual ~Call() = default;
  /// Operands of a seed, in the place of those before. Waits.
  virtual void fill(std::uint32_t seed) = 0;
  /// The call itself.
  virtual Status enqueue(cudaStream_t stream) = 0;
  /// Outputs and workspace as before the first call. Waits.
  virtual void clear() = 0;
  /// All that the call writes but its workspace. Waits.
  [[nodiscard]] virtual std::vector<std::uint8_t> results() const = 0;
};

struct NamedCall {
  std::string name;
  std::function<std::unique_ptr<Call>()> make;  ///< on the current device
  /// Whether devices of a kind give the same bits. Products are divided by how many clusters a device runs at once, which depends
  /// on which of its multiprocessors are there; their results are bf16.
  bool same_everywhere = true;
};

/// Paged attention by kernels of few and of many rows, and append with a gather behind it.
[[nodiscard]] std::vector<NamedCall> cache_calls();
/// Append to two tiers, copies of pages, merging of states, tensors quantised and back.
[[nodiscard]] std::vector<NamedCall> memory_calls();
/// Dense attention and MXFP8 attention, with plans that are made here and hold on every device of this kind.
[[nodiscard]] std::vector<NamedCall> dense_calls();
/// fp4_linear, from one row of X to many.
[[nodiscard]] std::vector<NamedCall> linear_calls();

/// Operands: bf16 about 1 in magnitude, or bytes of which any are allowed.
[[nodiscard]] std::vector<std::uint16_t> bf16_values(std::size_t count, std::uint32_t seed);
[[nodiscard]] std::vector<std::uint8_t> bytes_between(std::size_t count, int low, int high, std::uint32_t seed);

/// A library call that must not fail: what a test is made of, not what it tests.
void must_succeed(Status status, const char* what);

}  // namespace fp4pa::direct_test
