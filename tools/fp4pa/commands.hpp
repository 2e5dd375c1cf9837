// The subcommands; each adds itself to the application and runs as its callback. They end by returning or by Failure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/fp4pa/command_line.hpp"

namespace fp4pa::tool {

void add_info(Command app);
void add_attend(Command app);
void add_quantize(Command app);
void add_gemm(Command app);
void add_bench(Command app);

/// JSON takes UTF-8 alone, and a file's name may be any bytes: those that are no UTF-8 become U+FFFD.
[[nodiscard]] std::string as_utf8(const std::string& text);
/// Prints one JSON document to stdout, its texts as as_utf8 has them.
void print_json(const nlohmann::ordered_json& document);
/// Writes it to `path`.
void write_json(const std::string& path, const nlohmann::ordered_json& document);
void write_text(const std::string& path, const std::string& text);

}  // namespace fp4pa::tool
