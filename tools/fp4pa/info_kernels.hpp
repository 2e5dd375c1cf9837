// `fp4pa info --kernels`: what the compiled kernels are made of, by the table that the gates check.
#pragma once

namespace fp4pa::tool {

/// perf/isa_gates.json: {architecture: {instance: {numbers, "reason"}}}.
extern const char* const kIsaGates;

/// Prints it, as a table for each architecture or as it is.
void print_kernels(bool json);

}  // namespace fp4pa::tool
