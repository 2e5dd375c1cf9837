// JSON to stdout or to a file, and text to a file; a file is written completely or reported.
#include <cstdio>
#include <fstream>

#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/exit_codes.hpp"

namespace fp4pa::tool {

void print_json(const nlohmann::ordered_json& document) { std::printf("%s\n", document.dump(2).c_str()); }

void write_json(const std::string& path, const nlohmann::ordered_json& document) {
  write_text(path, document.dump(2) + '\n');
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) throw Failure(Exit::kInputFile, path + ": cannot write");
}

}  // namespace fp4pa::tool
