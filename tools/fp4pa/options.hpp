// Checks of options, refused in one form that names the value and what is allowed: "--m: 0; allowed: 1 or more". CLI11's own
// print the limits of a double.
#pragma once

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tools/fp4pa/command_line.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"

namespace fp4pa::tool {

/// Whole numbers from `least` to `most`.
template <class Int = int>
[[nodiscard]] Check integer_from(Int least, Int most = std::numeric_limits<Int>::max()) {
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
[[nodiscard]] inline Check thread_count() { return integer_from(0, kMostThreads); }

/// A file to write. An option that was taken for one by mistake ("--out --json") is refused.
/// @param or_stdout  "-" is stdout
[[nodiscard]] inline Check output_file(bool or_stdout = false) {
  const auto check = [=](const std::string& text) -> std::string {
    if (!text.empty() && (text.front() != '-' || (or_stdout && text == "-"))) return "";
    return "'" + text + "'; allowed: a file's name, not beginning with -" + (or_stdout ? "; or - alone for stdout" : "");
  };
  return {check, ""};
}

/// `option` was typed, and is not what the input already is: "--format mxfp4: the file's weight is nvfp4".
inline void refuse_contradiction(Command command, const char* option, const std::string& typed, const char* whose,
                                 const std::string& is) {
  if (!command.given(option) || typed == is) return;
  throw Failure(Exit::kUsage, std::string(option) + " " + typed + ": " + whose + " is " + is);
}

/// Options about a way of scaling are refused where none of the formats (by name) scales that way.
/// @param all  the formats that the command has, as names_of lists them: others are not offered
inline void refuse_idle_scale_options(Command command, const std::vector<std::string>& formats, const std::string& all) {
  const auto refuse = [&](const char* option, std::initializer_list<std::string_view> of) {
    const auto has = [&](const std::string& format) { return std::find(of.begin(), of.end(), format) != of.end(); };
    if (!command.given(option) || std::any_of(formats.begin(), formats.end(), has)) return;
    std::string asked, allowed;
    for (const std::string& format : formats) asked += (asked.empty() ? "" : ", ") + format;
    for (const std::string_view format : of) {
      if (all.find(format) != std::string::npos) allowed += (allowed.empty() ? "" : ", ") + std::string(format);
    }
    throw Failure(Exit::kUsage, std::string(option) + " has no part in format " + asked + "; allowed with: " + allowed);
  };
  refuse("--four-over-six", {"nvfp4"});
  refuse("--scale-mode", {"mxfp4", "mxfp8", "e8m0_per_token"});
}

}  // namespace fp4pa::tool
