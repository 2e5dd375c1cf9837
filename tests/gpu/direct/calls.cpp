#include "tests/gpu/direct/calls.hpp"

#include <cstdio>
#include <cstdlib>
#include <random>

namespace fp4pa::direct_test {

std::vector<std::uint16_t> bf16_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& v : values) v = static_cast<std::uint16_t>((random() & 0x81ffu) | 0x3e00u);  // 2^-3 to 2 in magnitude
  return values;
}

std::vector<std::uint8_t> bytes_between(std::size_t count, int low, int high, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& b : bytes)
    b = static_cast<std::uint8_t>(low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)));
  return bytes;
}

void must_succeed(Status status, const char* what) {
  if (status == Status::kOk) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, status_name(status), last_error_detail());
  std::fflush(stderr);
  std::_Exit(3);
}

}  // namespace fp4pa::direct_test
