// The subcommands; each adds itself to the application and runs as its callback. They end by returning or by Failure.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace fp4pa::tool {

void add_info(CLI::App& app);
void add_attend(CLI::App& app);
void add_quantize(CLI::App& app);
void add_gemm(CLI::App& app);
void add_bench(CLI::App& app);

/// JSON takes UTF-8 alone, and a file's name may be any bytes: those that are no UTF-8 become U+FFFD.
[[nodiscard]] std::string as_utf8(const std::string& text);
/// Prints one JSON document to stdout, its texts as as_utf8 has them.
void print_json(const nlohmann::ordered_json& document);
/// Writes it to `path`.
void write_json(const std::string& path, const nlohmann::ordered_json& document);
void write_text(const std::string& path, const std::string& text);

}  // namespace fp4pa::tool
