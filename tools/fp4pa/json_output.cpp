// JSON to stdout or to a file, and text to a file; a file is written completely or reported.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/exit_codes.hpp"

namespace fp4pa::tool {

namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& document, int indent) {
  return document.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string as_utf8(const std::string& text) { return Json::parse(text_of(text, -1)).get<std::string>(); }

void print_json(const Json& document) { std::printf("%s\n", text_of(document, 2).c_str()); }

void write_json(const std::string& path, const Json& document) { write_text(path, text_of(document, 2) + '\n'); }

void write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) throw Failure(Exit::kInputFile, path + ": cannot write");
}

}  // namespace fp4pa::tool
