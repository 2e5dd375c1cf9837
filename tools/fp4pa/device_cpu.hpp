// The host as a device.
#pragma once

#include <memory>

#include "tools/fp4pa/device.hpp"

namespace fp4pa::tool {

[[nodiscard]] std::unique_ptr<Device> make_cpu_device();

/// Reads [data, data + bytes) with `threads` threads, each over its own contiguous part, and returns a value that
/// depends on every word so that no read can be left out. `bytes` is a multiple of 64.
[[nodiscard]] std::uint64_t sum_words(const void* data, std::size_t bytes, int threads);

}  // namespace fp4pa::tool
