// Kernels of a code object, run block by block and wave by wave.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/isa/wave.hpp"

namespace isa {

/// From the kernel descriptor (LLVM AMDGPU usage, "Kernel Descriptor").
struct Kernel {
  std::uint64_t entry;  // where it begins, in the loaded image
  std::uint32_t kernarg_bytes;
  std::uint32_t lds_bytes;  // static
  std::uint32_t user_registers;
  bool block_id[3];
  struct Argument {
    std::uint32_t offset, bytes;
  };
  std::vector<Argument> arguments;
};

class CodeObject {
 public:
  /// @param elf  a code object for gfx950; it is read by the programs FP4PA_OBJDUMP and FP4PA_READELF
  explicit CodeObject(std::vector<std::uint8_t> elf);
  [[nodiscard]] const Kernel& kernel(const std::string& name) const;
  [[nodiscard]] const Instruction& at(std::uint64_t address) const;
  /// The loaded image, which a kernel may read.
  [[nodiscard]] const std::vector<std::uint8_t>& image() const { return image_; }

 private:
  std::vector<std::uint8_t> image_;
  std::map<std::string, Kernel> kernels_;
  std::vector<Instruction> instructions_;
  std::unordered_map<std::uint64_t, std::size_t> index_;
};

struct Grid {
  std::uint32_t blocks[3];
  std::uint32_t threads[3];
  std::uint32_t dynamic_lds;
};

/// Instructions, of all waves, by what issues them, and the matrix core's by name: they differ in how long they take.
struct Counts {
  std::uint64_t of[kUnits] = {};
  std::map<std::string, std::uint64_t> of_matrix;
  Counts& operator+=(const Counts& other) {
    for (int u = 0; u < kUnits; ++u) of[u] += other.of[u];
    for (const auto& [name, count] : other.of_matrix) of_matrix[name] += count;
    return *this;
  }
  [[nodiscard]] std::uint64_t operator[](Unit u) const { return of[static_cast<int>(u)]; }
};

/// Runs a kernel to its end. Throws std::runtime_error for what it does not know, and for an access outside of memory.
/// @param arguments  as they lie in memory
Counts run(const CodeObject& code, const std::string& kernel, const Grid& grid, const void* arguments,
           const Memory& memory);

}  // namespace isa
