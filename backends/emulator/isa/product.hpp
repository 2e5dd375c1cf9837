// What the models of matrix instructions have in common of their arithmetic, which is most of the emulator's time: compiled once,
// with optimisation.
#pragma once

#include <cstdint>

namespace fp4pa::emulator::isa {

/// Where a code begins.
struct Place {
  int lane;
  int reg;
  int bit;
};

/// values[i] = what the code at at[i] stands for.
/// @param words   [lane][register]
/// @param table   values of all codes of `width` bits
void decode(int count, const Place* at, const std::uint32_t* words, int registers, int width, const double* table, double* values);

/// Eight codes of 16 bits, low bytes first.
/// @param stride  from value to value
void decode_chunk(const std::uint8_t (&chunk)[16], const double* table, double* values, int stride);

/// sums[m][n] = the products a[m][k] b[k][n], added up for rising k.
/// @param columns  a multiple of 8
/// @param stride   of a's rows, in elements
void multiply(int rows, int columns, int depth, const double* a, int stride, const double* b, double* sums);

/// 16 rows of sums to (or onto) the registers of their lanes, eight columns after eight.
/// @param registers  [lane], four for eight columns
void add_rows(int columns, const Place (&at)[16][8], const double* sums, bool accumulate, float* const* registers);

}  // namespace fp4pa::emulator::isa
