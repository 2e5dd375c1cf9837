// An instruction of gfx950 as the disassembler prints it, taken apart.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace isa {

struct Wave;
struct Instruction;
using Handler = void (*)(Wave&, const Instruction&);

/// Scalar registers that have names are numbered as they are encoded.
inline constexpr int kVcc = 106;
inline constexpr int kM0 = 124;
inline constexpr int kExec = 126;

enum class OperandKind : std::uint8_t { kNone, kScalar, kVector, kLiteral, kOff };

struct Operand {
  OperandKind kind = OperandKind::kNone;
  int index = 0;  // of the first register; accumulation registers follow the 256 vector registers
  int count = 1;  // registers
  std::uint64_t literal = 0;
  bool negated = false;
  bool absolute = false;
  bool sign_extended = false;  // SDWA
};

/// What SDWA takes of a register, or writes.
enum class Part : std::uint8_t { kDword, kByte0, kByte1, kByte2, kByte3, kWord0, kWord1 };

/// What issues an instruction.
enum class Unit : std::uint8_t { kScalar, kVector, kMatrix, kLds, kMemory };
inline constexpr int kUnits = 5;

struct Instruction {
  std::string text;
  std::string name;  // without the suffixes _e32, _e64 and _sdwa
  bool of_halves = false;  // whether what it reads are f16, whose sign is bit 15
  std::uint64_t address = 0;
  std::array<Operand, 6> operand;
  int num_operands = 0;
  Handler handler = nullptr;
  Unit unit = Unit::kScalar;
  int offset = 0;  // memory
  int offset0 = 0;
  int offset1 = 0;
  int format_a = 0;  // cbsz
  int format_b = 0;  // blgp
  std::uint32_t table = 0;  // bitop3
  unsigned op_sel = 0;      // bits
  unsigned op_sel_hi = 7;
  Part part[3] = {Part::kDword, Part::kDword, Part::kDword};  // of the destination and two sources
  int vmcnt = 63;
  int lgkmcnt = 15;
  unsigned index_roles = 0;  // s_set_gpr_idx_on: 1 the first source, 8 the destination
};

/// @param line  "mnemonic operands // address: words"
/// Throws std::runtime_error for anything it does not know.
[[nodiscard]] Instruction parse(std::string_view line);

/// The handler of a name, or null.
[[nodiscard]] Handler scalar_handler(const std::string& name);
[[nodiscard]] Handler vector_handler(const std::string& name);
[[nodiscard]] Handler memory_handler(const std::string& name);
[[nodiscard]] Handler matrix_handler(const std::string& name);

}  // namespace isa
