#include "tests/isa/instruction.hpp"

#include <bit>
#include <cctype>
#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace isa {
namespace {

[[noreturn]] void fail(const std::string& what, std::string_view line) {
  throw std::runtime_error(what + " in: " + std::string(line));
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

/// Splits at `separator` outside of brackets.
std::vector<std::string_view> split(std::string_view s, char separator) {
  std::vector<std::string_view> out;
  int depth = 0;
  std::size_t from = 0;
  for (std::size_t i = 0; i <= s.size(); ++i) {
    if (i < s.size() && (s[i] == '[' || s[i] == '(')) ++depth;
    if (i < s.size() && (s[i] == ']' || s[i] == ')')) --depth;
    if (i == s.size() || (s[i] == separator && depth == 0)) {
      const std::string_view piece = trim(s.substr(from, i - from));
      if (!piece.empty()) out.push_back(piece);
      from = i + 1;
    }
  }
  return out;
}

long number(std::string_view s) { return std::strtol(std::string(s).c_str(), nullptr, 0); }

bool take(std::string_view& s, std::string_view prefix) {
  if (!s.starts_with(prefix)) return false;
  s.remove_prefix(prefix.size());
  return true;
}

Operand operand(std::string_view s, std::string_view line) {
  Operand o;
  if (s == "off") {
    o.kind = OperandKind::kOff;
    return o;
  }
  if (take(s, "sext(")) {
    o.sign_extended = true;
    s.remove_suffix(1);
  }
  if (s.size() > 1 && s[0] == '-' && (s[1] == 'v' || s[1] == 's' || s[1] == '|')) {
    o.negated = true;
    s.remove_prefix(1);
  }
  if (s.size() > 1 && s[0] == '|') {
    o.absolute = true;
    s = s.substr(1, s.size() - 2);
  }
  const auto scalar = [&](int index, int count) {
    o.kind = OperandKind::kScalar;
    o.index = index;
    o.count = count;
    return o;
  };
  if (s == "vcc") return scalar(kVcc, 2);
  if (s == "vcc_lo") return scalar(kVcc, 1);
  if (s == "vcc_hi") return scalar(kVcc + 1, 1);
  if (s == "exec") return scalar(kExec, 2);
  if (s == "exec_lo") return scalar(kExec, 1);
  if (s == "exec_hi") return scalar(kExec + 1, 1);
  if (s == "m0") return scalar(kM0, 1);
  if (s.size() > 1 && (s[0] == 'v' || s[0] == 's' || s[0] == 'a') && (std::isdigit(static_cast<unsigned char>(s[1])) || s[1] == '[')) {
    o.kind = s[0] == 's' ? OperandKind::kScalar : OperandKind::kVector;
    if (s[1] == '[') {
      const std::size_t colon = s.find(':');
      o.index = static_cast<int>(number(s.substr(2, colon - 2)));
      o.count = static_cast<int>(number(s.substr(colon + 1))) - o.index + 1;
    } else {
      o.index = static_cast<int>(number(s.substr(1)));
    }
    if (s[0] == 'a') o.index += 256;
    return o;
  }
  if (take(s, "lit(")) s.remove_suffix(1);
  if (s.empty() || !(std::isdigit(static_cast<unsigned char>(s[0])) || s[0] == '-')) fail("unknown operand " + std::string(s), line);
  o.kind = OperandKind::kLiteral;
  if (s.find('.') != std::string_view::npos) {
    o.literal = std::bit_cast<std::uint32_t>(std::strtof(std::string(s).c_str(), nullptr));
  } else {
    o.literal = static_cast<std::uint64_t>(std::strtoll(std::string(s).c_str(), nullptr, 0));
  }
  return o;
}

Part part(std::string_view s, std::string_view line) {
  static constexpr std::string_view kNames[] = {"DWORD", "BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1"};
  for (int i = 0; i < 7; ++i) {
    if (s == kNames[i]) return static_cast<Part>(i);
  }
  fail("unknown part", line);
}

/// "[0,1,0]" to bits, the first the lowest.
unsigned bits(std::string_view s) {
  unsigned out = 0;
  int at = 0;
  for (const char c : s) {
    if (c == '0' || c == '1') out |= static_cast<unsigned>(c - '0') << at++;
  }
  return out;
}

void modifier(Instruction& i, std::string_view s, std::string_view line) {
  if (take(s, "offset:")) i.offset = static_cast<int>(number(s));
  else if (take(s, "offset0:")) i.offset0 = static_cast<int>(number(s));
  else if (take(s, "offset1:")) i.offset1 = static_cast<int>(number(s));
  else if (take(s, "cbsz:")) i.format_a = static_cast<int>(number(s));
  else if (take(s, "blgp:")) i.format_b = static_cast<int>(number(s));
  else if (take(s, "bitop3:")) i.table = static_cast<std::uint32_t>(number(s));
  else if (take(s, "op_sel:")) i.op_sel = bits(s);
  else if (take(s, "op_sel_hi:")) i.op_sel_hi = bits(s);
  else if (take(s, "dst_sel:")) i.part[0] = part(s, line);
  else if (take(s, "src0_sel:")) i.part[1] = part(s, line);
  else if (take(s, "src1_sel:")) i.part[2] = part(s, line);
  else if (s == "dst_unused:UNUSED_PAD") return;  // zeros, the only way that occurs
  else if (take(s, "vmcnt(")) i.vmcnt = static_cast<int>(number(s));
  else if (take(s, "lgkmcnt(")) i.lgkmcnt = static_cast<int>(number(s));
  else if (s == "gpr_idx(SRC0)") i.index_roles = 1;
  else if (s == "gpr_idx(DST)") i.index_roles = 8;
  else if (s == "lds" || s == "offen" || s == "idxen") return;  // the handler asks the text
  else if (s == "nt") return;                                     // how caches are to treat it
  else fail("unknown modifier " + std::string(s), line);
}

Unit unit_of(std::string_view name) {
  if (name.starts_with("s_")) return Unit::kScalar;
  if (name.starts_with("v_mfma")) return Unit::kMatrix;
  if (name.starts_with("v_")) return Unit::kVector;
  return name.starts_with("ds_") ? Unit::kLds : Unit::kMemory;
}

}  // namespace

Instruction parse(std::string_view line) {
  Instruction i;
  const std::size_t comment = line.find("//");
  if (comment == std::string_view::npos) fail("no address", line);
  i.address = std::strtoull(std::string(line.substr(comment + 2)).c_str(), nullptr, 16);
  std::string_view body = trim(line.substr(0, comment));
  i.text = body;
  const std::size_t space = body.find(' ');
  std::string_view name = body.substr(0, space);
  for (const std::string_view suffix : {"_e32", "_e64", "_sdwa"}) {
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  }
  i.name = name;
  i.unit = unit_of(name);
  i.of_halves = name.ends_with("_f16") && name.starts_with("v_cvt_");
  if (space != std::string_view::npos) {
    for (const std::string_view piece : split(body.substr(space), ',')) {
      for (const std::string_view word : split(piece, ' ')) {
        const bool is_modifier = (std::isalpha(static_cast<unsigned char>(word[0])) && word.find_first_of(":(") != std::string_view::npos &&
                                  word.find('[') == std::string_view::npos && !word.starts_with("sext(") && !word.starts_with("lit(")) ||
                                 word.starts_with("op_sel") || word == "lds" || word == "offen" || word == "idxen" || word == "nt";
        if (is_modifier) {
          modifier(i, word, line);
        } else {
          if (i.num_operands == static_cast<int>(i.operand.size())) fail("too many operands", line);
          i.operand[static_cast<std::size_t>(i.num_operands++)] = operand(word, line);
        }
      }
    }
  }
  for (const auto& find : {scalar_handler, vector_handler, memory_handler, matrix_handler}) {
    if (i.handler == nullptr) i.handler = find(i.name);
  }
  return i;
}

}  // namespace isa
