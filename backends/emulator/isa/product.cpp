// See product.hpp.
#include "backends/emulator/isa/product.hpp"

#include <cstring>

namespace fp4pa::emulator::isa {

void decode(int count, const Place* at, const std::uint32_t* words, int registers, int width, const double* table, double* values) {
  const std::uint32_t mask = (1u << width) - 1u;
  for (int i = 0; i < count; ++i) values[i] = table[(words[at[i].lane * registers + at[i].reg] >> at[i].bit) & mask];
}

void decode_chunk(const std::uint8_t (&chunk)[16], const double* table, double* values, int stride) {
  for (int i = 0; i < 8; ++i) values[i * stride] = table[chunk[2 * i] | static_cast<std::uint32_t>(chunk[2 * i + 1]) << 8];
}

void multiply(int rows, int columns, int depth, const double* a, int stride, const double* b, double* sums) {
  // What every processor has registers for; of wider vectors g++ 12 keeps the sums in memory.
  using Pair = double __attribute__((vector_size(16)));
  const auto pair = [](const double* from) {
    Pair x;
    std::memcpy(&x, from, sizeof(x));
    return x;
  };
  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < columns; n += 8) {
      Pair sum0 = {}, sum1 = {}, sum2 = {}, sum3 = {};
      for (int k = 0; k < depth; ++k) {
        const double x = a[m * stride + k];
        const double* row = &b[k * columns + n];
        sum0 += x * pair(row);
        sum1 += x * pair(row + 2);
        sum2 += x * pair(row + 4);
        sum3 += x * pair(row + 6);
      }
      double* out = &sums[m * columns + n];
      std::memcpy(out, &sum0, sizeof(Pair));
      std::memcpy(out + 2, &sum1, sizeof(Pair));
      std::memcpy(out + 4, &sum2, sizeof(Pair));
      std::memcpy(out + 6, &sum3, sizeof(Pair));
    }
  }
}

void add_rows(int columns, const Place (&at)[16][8], const double* sums, bool accumulate, float* const* registers) {
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < columns; ++n) {
      const Place& p = at[m][n % 8];
      float& out = registers[p.lane][n / 8 * 4 + p.reg];
      out = static_cast<float>((accumulate ? static_cast<double>(out) : 0.0) + sums[m * columns + n]);
    }
  }
}

}  // namespace fp4pa::emulator::isa
