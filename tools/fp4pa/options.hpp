// Checks of options, refused in one form that names the value and what is allowed: "--m: 0; allowed: 1 or more". CLI11's own
// print the limits of a double.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <string>
#include <system_error>

#include "tools/fp4pa/names.hpp"

namespace fp4pa::tool {

/// Whole numbers from `least` to `most`.
template <class Int = int>
[[nodiscard]] CLI::Validator integer_from(Int least, Int most = std::numeric_limits<Int>::max()) {
  const auto check = [=](const std::string& text) -> std::string {
    Int value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc{} && rest == end && value >= least && value <= most) return "";
    return text + "; allowed: " + range_text<Int>(least, most, error == std::errc::result_out_of_range);
  };
  return {check, range_text<Int>(least, most)};
}

/// --threads of one call.
[[nodiscard]] inline CLI::Validator thread_count() { return integer_from(0, kMostThreads); }

/// A file to write. An option that was taken for one by mistake ("--out --json") is refused.
/// @param or_stdout  "-" is stdout
[[nodiscard]] inline CLI::Validator output_file(bool or_stdout = false) {
  const auto check = [=](const std::string& text) -> std::string {
    if (!text.empty() && (text.front() != '-' || (or_stdout && text == "-"))) return "";
    return "'" + text + "'; allowed: a file's name, not beginning with -" + (or_stdout ? "; or - alone for stdout" : "");
  };
  return {check, ""};
}

}  // namespace fp4pa::tool
