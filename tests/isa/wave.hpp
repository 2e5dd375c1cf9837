// The state of a wave of 64 lanes, and how operands are read and written.
//
// A load's registers hold a poison until the wave has waited for it, and the bytes of a load to LDS land at that wait: code that
// reads too early does not find what it looks for.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/isa/instruction.hpp"

namespace isa {

inline constexpr int kLanes = 64;
inline constexpr std::uint32_t kPoison = 0xffbadbadu;  // NaN as f32, f16 and bf16, and no address

using Lanes = std::uint32_t[kLanes];
using Lanes64 = std::uint64_t[kLanes];

/// Memory that a kernel may touch.
struct Memory {
  virtual ~Memory() = default;
  /// Throws unless all the bytes lie in one allocation.
  virtual void check(std::uint64_t address, std::size_t bytes, bool write) const = 0;
};

struct Block {
  std::vector<std::uint8_t> lds;
  const Memory* memory;
};

struct Wave {
  alignas(64) std::uint32_t vector[512][kLanes];
  std::uint32_t scalar[128];
  bool scc = false;
  std::uint64_t pc = 0;
  bool branched = false;
  bool ended = false;
  bool at_barrier = false;
  unsigned index_roles = 0;
  Block* block = nullptr;
  /// What completes at a wait: vector memory in order; LDS and scalar memory.
  std::deque<std::function<void()>> vector_memory;
  struct Local {
    std::function<void()> land;
    bool scalar_memory;
  };
  std::deque<Local> local;

  [[nodiscard]] std::uint64_t scalar64(int index) const {
    return scalar[index] | std::uint64_t{scalar[index + 1]} << 32;
  }
  void set_scalar64(int index, std::uint64_t x) {
    scalar[index] = static_cast<std::uint32_t>(x);
    scalar[index + 1] = static_cast<std::uint32_t>(x >> 32);
  }
  [[nodiscard]] std::uint64_t exec() const { return scalar64(kExec); }
  [[nodiscard]] bool active(int lane) const { return (exec() >> lane & 1) != 0; }

  void wait_vector(int left) {
    while (static_cast<int>(vector_memory.size()) > left) {
      vector_memory.front()();
      vector_memory.pop_front();
    }
  }
  /// Scalar memory comes back in any order: it has arrived only when nothing is left.
  void wait_local(int left) {
    if (left == 0) {
      for (const Local& l : local) l.land();
      local.clear();
      return;
    }
    int waiting = static_cast<int>(local.size());
    for (auto it = local.begin(); it != local.end() && waiting > left;) {
      if (it->scalar_memory) {
        ++it;
      } else {
        it->land();
        it = local.erase(it);
      }
      --waiting;
    }
  }
};

[[noreturn]] inline void refuse(const Instruction& i, const std::string& what) {
  throw std::runtime_error(what + ": " + i.text);
}

inline std::uint32_t modified(const Operand& o, std::uint32_t x, std::uint32_t sign = 0x80000000u) {
  if (o.absolute) x &= ~sign;
  if (o.negated) x ^= sign;
  return x;
}

inline std::uint32_t read_scalar(const Wave& w, const Operand& o) {
  return o.kind == OperandKind::kLiteral ? static_cast<std::uint32_t>(o.literal) : w.scalar[o.index];
}
inline std::uint64_t read_scalar64(const Wave& w, const Instruction& i, const Operand& o) {
  if (o.kind == OperandKind::kLiteral) return o.literal;
  if (o.count != 2) refuse(i, "a pair of scalar registers is expected");
  return w.scalar64(o.index);
}

inline std::uint32_t part_of(std::uint32_t x, Part part, bool sign) {
  const int p = static_cast<int>(part);
  if (part == Part::kDword) return x;
  if (p <= 4) {
    x = x >> (8 * (p - 1)) & 0xffu;
    return sign ? static_cast<std::uint32_t>(static_cast<std::int8_t>(x)) : x;
  }
  x = x >> (16 * (p - 5)) & 0xffffu;
  return sign ? static_cast<std::uint32_t>(static_cast<std::int16_t>(x)) : x;
}

/// Operand k of all lanes.
inline void fetch(const Wave& w, const Instruction& i, int k, Lanes& out) {
  const Operand& o = i.operand[static_cast<std::size_t>(k)];
  if (o.kind == OperandKind::kVector) {
    int index = o.index;
    if (k == 1 && (w.index_roles & 1) != 0) index += static_cast<int>(w.scalar[kM0] & 0xffu);
    std::memcpy(out, w.vector[index], sizeof out);
  } else {
    if (o.kind == OperandKind::kNone) refuse(i, "an operand is missing");
    const std::uint32_t x = read_scalar(w, o);
    for (std::uint32_t& lane : out) lane = x;
  }
  if ((k == 1 || k == 2) && i.part[k] != Part::kDword) {
    for (std::uint32_t& lane : out) lane = part_of(lane, i.part[k], o.sign_extended);
  }
  if (o.absolute || o.negated) {
    for (std::uint32_t& lane : out) lane = modified(o, lane, i.of_halves ? 0x8000u : 0x80000000u);
  }
}
inline void fetch64(const Wave& w, const Instruction& i, int k, Lanes64& out) {
  const Operand& o = i.operand[static_cast<std::size_t>(k)];
  if (o.kind == OperandKind::kVector) {
    if (o.count != 2) refuse(i, "a pair of vector registers is expected");
    for (int l = 0; l < kLanes; ++l) out[l] = w.vector[o.index][l] | std::uint64_t{w.vector[o.index + 1][l]} << 32;
  } else {
    const std::uint64_t x = read_scalar64(w, i, o);
    for (std::uint64_t& lane : out) lane = x;
  }
}

/// Writes operand 0 in the active lanes.
inline void store(Wave& w, const Instruction& i, const Lanes& x) {
  const Operand& o = i.operand[0];
  if (o.kind != OperandKind::kVector) refuse(i, "the destination is no vector register");
  int index = o.index;
  if ((w.index_roles & 8) != 0) index += static_cast<int>(w.scalar[kM0] & 0xffu);
  const std::uint64_t exec = w.exec();
  std::uint32_t* const to = w.vector[index];
  if (exec == ~std::uint64_t{0} && i.part[0] == Part::kDword) {
    std::memcpy(to, x, sizeof x);
    return;
  }
  for (int l = 0; l < kLanes; ++l) {
    std::uint32_t y = x[l];
    if (i.part[0] != Part::kDword) {  // the rest becomes zeros
      const int p = static_cast<int>(i.part[0]);
      y = p <= 4 ? (y & 0xffu) << (8 * (p - 1)) : (y & 0xffffu) << (16 * (p - 5));
    }
    to[l] = (exec >> l & 1) != 0 ? y : to[l];
  }
}
inline void store64(Wave& w, const Instruction& i, const Lanes64& x) {
  const Operand& o = i.operand[0];
  if (o.kind != OperandKind::kVector || o.count != 2) refuse(i, "the destination is no pair of vector registers");
  for (int l = 0; l < kLanes; ++l) {
    if (!w.active(l)) continue;
    w.vector[o.index][l] = static_cast<std::uint32_t>(x[l]);
    w.vector[o.index + 1][l] = static_cast<std::uint32_t>(x[l] >> 32);
  }
}
/// A mask into operand k, of the active lanes.
inline void store_mask(Wave& w, const Instruction& i, int k, std::uint64_t mask) {
  const Operand& o = i.operand[static_cast<std::size_t>(k)];
  if (o.kind != OperandKind::kScalar || o.count != 2) refuse(i, "the mask is no pair of scalar registers");
  w.set_scalar64(o.index, mask & w.exec());
}

inline float as_float(std::uint32_t x) { return std::bit_cast<float>(x); }
inline std::uint32_t as_bits(float x) { return std::bit_cast<std::uint32_t>(x); }

}  // namespace isa
