#include "tests/isa/machine.hpp"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>

namespace isa {
namespace {

template <class T>
T read(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  T x;
  if (at + sizeof x > bytes.size()) throw std::runtime_error("the code object ends early");
  std::memcpy(&x, bytes.data() + at, sizeof x);
  return x;
}

/// The lines of a program's output.
std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> lines;
  // What was preloaded into this process is not for that one.
  FILE* pipe = popen(("unset LD_PRELOAD; " + command).c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  char* line = nullptr;
  std::size_t size = 0;
  while (getline(&line, &size, pipe) >= 0) lines.emplace_back(line);
  std::free(line);
  if (pclose(pipe) != 0) throw std::runtime_error(command + " failed");
  return lines;
}

Kernel descriptor(const std::vector<std::uint8_t>& image, std::uint64_t at, const std::string& name) {
  Kernel k{};
  k.lds_bytes = read<std::uint32_t>(image, at);
  const auto scratch = read<std::uint32_t>(image, at + 4);
  k.kernarg_bytes = read<std::uint32_t>(image, at + 8);
  k.entry = at + static_cast<std::uint64_t>(read<std::int64_t>(image, at + 16));
  const auto resources = read<std::uint32_t>(image, at + 52);
  const auto properties = read<std::uint16_t>(image, at + 56);
  const auto preload = read<std::uint16_t>(image, at + 58);
  k.user_registers = resources >> 1 & 31;
  for (int d = 0; d < 3; ++d) k.block_id[d] = (resources >> (7 + d) & 1) != 0;
  // Of what a kernel can ask for, only its arguments are given.
  constexpr std::uint16_t kArguments = 1 << 3;
  if (scratch != 0) throw std::runtime_error(name + " uses scratch memory");
  if ((properties & 0x7f) != kArguments || preload != 0) throw std::runtime_error(name + " asks for registers other than its arguments'");
  return k;
}

/// From the metadata, a list in which a kernel's symbol comes after its arguments.
void read_arguments(const std::vector<std::string>& notes, std::map<std::string, Kernel>& kernels) {
  std::vector<Kernel::Argument> arguments;
  Kernel::Argument next{};
  for (const std::string& line : notes) {
    const auto value = [&](const char* key) -> const char* {
      const std::size_t at = line.find(key);
      if (at == std::string::npos) return nullptr;
      const std::size_t from = line.find_first_not_of(' ', at + std::strlen(key));
      return line.c_str() + from;
    };
    if (const char* offset = value(".offset:")) next.offset = static_cast<std::uint32_t>(std::atoi(offset));
    if (const char* size = value(".size:")) next.bytes = static_cast<std::uint32_t>(std::atoi(size));
    if (const char* kind = value(".value_kind:")) {
      const std::string name(kind, std::strcspn(kind, " \n"));
      if (name != "by_value" && name != "global_buffer") throw std::runtime_error("a kernel has an argument of kind " + name);
      arguments.push_back(next);
    }
    if (const char* symbol = value(".symbol:")) {
      const std::string name(symbol, std::strcspn(symbol, " \n") - 3);  // without ".kd"
      kernels.at(name).arguments = std::move(arguments);
      arguments.clear();
    }
  }
}

}  // namespace

CodeObject::CodeObject(std::vector<std::uint8_t> elf) {
  const auto header = read<Elf64_Ehdr>(elf, 0);
  for (int p = 0; p < header.e_phnum; ++p) {
    const auto segment = read<Elf64_Phdr>(elf, header.e_phoff + static_cast<std::size_t>(p) * sizeof(Elf64_Phdr));
    if (segment.p_type != PT_LOAD) continue;
    image_.resize(std::max<std::size_t>(image_.size(), segment.p_vaddr + segment.p_memsz));
    std::memcpy(image_.data() + segment.p_vaddr, elf.data() + segment.p_offset, segment.p_filesz);
  }
  const auto base = reinterpret_cast<std::uint64_t>(image_.data());
  for (int n = 0; n < header.e_shnum; ++n) {
    const auto section = read<Elf64_Shdr>(elf, header.e_shoff + static_cast<std::size_t>(n) * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_SYMTAB) continue;
    const auto strings = read<Elf64_Shdr>(elf, header.e_shoff + section.sh_link * sizeof(Elf64_Shdr));
    for (std::size_t at = 0; at < section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read<Elf64_Sym>(elf, section.sh_offset + at);
      std::string name = reinterpret_cast<const char*>(elf.data() + strings.sh_offset + symbol.st_name);
      if (!name.ends_with(".kd")) continue;
      name.resize(name.size() - 3);
      Kernel k = descriptor(image_, symbol.st_value, name);
      k.entry += base;
      kernels_[name] = k;
    }
  }

  std::string file = std::filesystem::temp_directory_path() / "fp4pa_isa_XXXXXX";
  const int descriptor = mkstemp(file.data());
  if (descriptor < 0 || write(descriptor, elf.data(), elf.size()) != static_cast<ssize_t>(elf.size())) {
    throw std::runtime_error("cannot write a temporary file");
  }
  close(descriptor);
  const std::vector<std::string> notes = lines_of(std::string("'" FP4PA_READELF "' --notes '") + file + "'");
  const std::vector<std::string> lines = lines_of(std::string("'" FP4PA_OBJDUMP "' -d --mcpu=gfx950 '") + file + "'");
  unlink(file.c_str());
  read_arguments(notes, kernels_);
  // A planted fault: in kernels whose names begin so, instructions that begin so do nothing.
  const char* const omitted = std::getenv("FP4PA_ISA_OMIT");
  const char* const faulty = std::getenv("FP4PA_ISA_OMIT_IN");
  bool omits = false;
  std::string symbol;
  for (const std::string& line : lines) {
    if (const std::size_t name = line.find(" <"); name != std::string::npos && line.find(">:") != std::string::npos) {
      symbol = line.substr(name + 2, line.find(">:") - name - 2);
      omits = omitted != nullptr && (faulty == nullptr || symbol.starts_with(faulty));
    }
    if (line.empty() || line[0] != '\t' || line.find("//") == std::string::npos) continue;  // a name, or zeros left out
    Instruction i = parse(line);
    i.address += base;
    if (omits && i.text.starts_with(omitted)) i.handler = scalar_handler("s_nop");
    // Known or not, before anything runs: what a test does not reach is not found missing by a user.
    if (i.handler == nullptr && kernels_.contains(symbol)) throw std::runtime_error(symbol + " has an instruction that is not known: " + i.text);
    index_[i.address] = instructions_.size();
    instructions_.push_back(std::move(i));
  }
}

const Kernel& CodeObject::kernel(const std::string& name) const {
  const auto found = kernels_.find(name);
  if (found == kernels_.end()) throw std::runtime_error("no kernel " + name);
  return found->second;
}

const Instruction& CodeObject::at(std::uint64_t address) const {
  const auto found = index_.find(address);
  if (found == index_.end()) throw std::runtime_error("no instruction where the program counter points");
  return instructions_[found->second];
}

namespace {

void start(Wave& w, const Kernel& k, const Grid& grid, const std::uint32_t (&block)[3], const void* arguments, int number) {
  for (auto& r : w.vector) std::fill(std::begin(r), std::end(r), kPoison);
  std::fill(std::begin(w.scalar), std::end(w.scalar), kPoison);
  w.set_scalar64(0, reinterpret_cast<std::uint64_t>(arguments));
  std::uint32_t at = k.user_registers;
  for (int d = 0; d < 3; ++d) {
    if (k.block_id[d]) w.scalar[at++] = block[d];
  }
  const std::uint32_t threads = grid.threads[0];
  std::uint64_t exec = 0;
  for (int l = 0; l < kLanes; ++l) {
    const auto thread = static_cast<std::uint32_t>(kLanes * number + l);
    w.vector[0][l] = thread;
    if (thread < threads) exec |= std::uint64_t{1} << l;
  }
  w.set_scalar64(kExec, exec);
  w.pc = k.entry;
}

/// Up to the next barrier, or the end, or so many instructions. Returns how many that was.
std::uint64_t advance(Wave& w, const CodeObject& code, std::uint64_t most, Counts& counts) {
  const Instruction* i = &code.at(w.pc);
  for (std::uint64_t count = 1;; ++count) {
    ++counts.of[static_cast<int>(i->unit)];
    if (i->unit == Unit::kMatrix) ++counts.of_matrix[i->name];
    if (i->handler == nullptr) refuse(*i, "an instruction that is not known");
    try {
      i->handler(w, *i);
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(std::string(e.what()) + "\n  at " + i->text);
    }
    if (w.ended) return count;
    if (w.branched) {
      w.branched = false;
      i = &code.at(w.pc);
    } else {
      ++i;  // as they lie in the code object
      w.pc = i->address;
    }
    if (w.at_barrier || count == most) return count;
  }
}

/// Runs a block's waves by turns of random length, so that whoever counts on another one's pace without a barrier is found; the same
/// turns in every run.
/// @param most  instructions, beyond which a wave is taken to be in a loop without end
void take_turns(std::vector<std::unique_ptr<Wave>>& waves, const CodeObject& code, std::uint64_t most, Counts& counts) {
  constexpr std::uint64_t kLongestTurn = 512;
  std::minstd_rand random;
  std::vector<Wave*> ready;
  for (std::uint64_t done = 0;;) {
    ready.clear();
    bool running = false;
    for (const auto& w : waves) {
      running = running || !w->ended;
      if (!w->ended && !w->at_barrier) ready.push_back(w.get());
    }
    if (!running) return;
    if (ready.empty()) {
      for (const auto& w : waves) w->at_barrier = false;
      continue;
    }
    Wave& next = *ready[random() % ready.size()];
    done += advance(next, code, 1 + random() % kLongestTurn, counts);
    if (done > most) throw std::runtime_error("a loop without end\n  at " + code.at(next.pc).text);
  }
}

}  // namespace

Counts run(const CodeObject& code, const std::string& name, const Grid& grid, const void* arguments, const Memory& memory) {
  // What a block may take. The largest of CI's takes half a million, but a planted fault can turn the bound of a loop into poison.
  constexpr std::uint64_t kMostInstructions = std::uint64_t{1} << 26;
  Counts counts;
  const Kernel& k = code.kernel(name);
  if (grid.threads[1] != 1 || grid.threads[2] != 1) throw std::runtime_error("blocks of more than one dimension are not known");
  const int waves = static_cast<int>((grid.threads[0] + kLanes - 1) / kLanes);
  std::vector<std::unique_ptr<Wave>> wave(static_cast<std::size_t>(waves));
  for (std::uint32_t z = 0; z < grid.blocks[2]; ++z) {
    for (std::uint32_t y = 0; y < grid.blocks[1]; ++y) {
      for (std::uint32_t x = 0; x < grid.blocks[0]; ++x) {
        Block block{std::vector<std::uint8_t>(k.lds_bytes + grid.dynamic_lds, 0xba), &memory};
        const std::uint32_t id[3] = {x, y, z};
        for (int n = 0; n < waves; ++n) {
          auto& w = wave[static_cast<std::size_t>(n)];
          w = std::make_unique<Wave>();
          w->block = &block;
          start(*w, k, grid, id, arguments, n);
        }
        take_turns(wave, code, kMostInstructions, counts);
      }
    }
  }
  return counts;
}

}  // namespace isa
