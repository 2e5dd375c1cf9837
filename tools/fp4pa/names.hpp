// Words of the command line for the library's enumerations, in the spelling of name_of.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4pa/quantize.hpp"
#include "fp4pa/types.hpp"
#include "tools/fp4pa/exit_codes.hpp"

namespace fp4pa::tool {

inline constexpr KvFormat kAllFormats[] = {KvFormat::kMxfp4,   KvFormat::kNvfp4, KvFormat::kE8m0PerToken,
                                           KvFormat::kFp8E4m3, KvFormat::kBf16,  KvFormat::kF16,
                                           KvFormat::kMxfp8};
inline constexpr VScaleAxis kAllScaleAxes[] = {VScaleAxis::kHeadDim, VScaleAxis::kTokens};
inline constexpr ScaleMode kAllScaleModes[] = {ScaleMode::kFloor, ScaleMode::kCeil, ScaleMode::kRceil,
                                               ScaleMode::kEven};
inline constexpr BlockFormat kAllBlockFormats[] = {BlockFormat::kMxfp4, BlockFormat::kNvfp4, BlockFormat::kMxfp8};
inline constexpr BlockFormat kWeightFormats[] = {BlockFormat::kMxfp4, BlockFormat::kNvfp4};
inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
inline constexpr ScaleLayout kAllScaleLayouts[] = {ScaleLayout::kLinear, ScaleLayout::kBlocked};

/// "mxfp4, nvfp4": of errors and of help.
template <class Enum>
[[nodiscard]] std::string names_of(std::span<const Enum> all) {
  std::string names;
  for (const Enum value : all) names += (names.empty() ? "" : ", ") + std::string(name_of(value));
  return names;
}
[[nodiscard]] inline std::string format_names() { return names_of<KvFormat>(kAllFormats); }
[[nodiscard]] inline std::string dtype_names() { return names_of<DType>(kAllDTypes); }

/// The enumerator of `all` whose name is `text`; otherwise a usage failure that lists the allowed set.
/// @param also  what the caller takes besides, behind a comma
template <class Enum>
[[nodiscard]] Enum parse_name(std::string_view text, std::span<const Enum> all, const char* what, const char* also = "") {
  for (const Enum value : all) {
    if (text == name_of(value)) return value;
  }
  throw Failure(Exit::kUsage, std::string("unknown ") + what + " '" + std::string(text) + "'; allowed: " + names_of(all) + also);
}

[[nodiscard]] inline KvFormat parse_format(std::string_view text) {
  return parse_name<KvFormat>(text, kAllFormats, "KV format");
}

/// The axis that V's scales lie along. Formats that scale V one way only take no part in it.
[[nodiscard]] inline VScaleAxis parse_v_scale_axis(std::string_view text, KvFormat v) {
  const auto axis = parse_name<VScaleAxis>(text, kAllScaleAxes, "V scale axis");
  return v == KvFormat::kMxfp4 || v == KvFormat::kNvfp4 ? axis : VScaleAxis::kHeadDim;
}

/// "linear", or "blocked" for short.
[[nodiscard]] inline ScaleLayout parse_scale_layout(std::string_view text) {
  if (text == "blocked") return ScaleLayout::kBlocked;
  return parse_name<ScaleLayout>(text, kAllScaleLayouts, "scale layout", ", blocked");
}

/// The rotation of `block` elements; 0 is none.
[[nodiscard]] inline Rotation parse_rotation(int block) {
  switch (block) {
    case 0:
    case 16:
    case 32:
    case 64:
    case 128:
      return static_cast<Rotation>(block);
    default:
      throw Failure(Exit::kUsage, "unknown rotation " + std::to_string(block) + "; allowed: 0, 16, 32, 64, 128");
  }
}

/// "a,b,c" in pieces; empty pieces are a usage failure.
[[nodiscard]] inline std::vector<std::string> split_list(const std::string& text, const char* option) {
  std::vector<std::string> pieces;
  std::size_t start = 0;
  while (true) {
    const std::size_t comma = text.find(',', start);
    pieces.push_back(text.substr(start, comma == std::string::npos ? comma : comma - start));
    if (pieces.back().empty()) throw Failure(Exit::kUsage, std::string(option) + " '" + text + "' has an empty entry");
    if (comma == std::string::npos) return pieces;
    start = comma + 1;
  }
}

/// "1 or more", or "1 to 4096". What is too large for the type is told where the type ends.
template <class Int>
[[nodiscard]] std::string range_text(Int least, Int most, bool with_end = false) {
  const bool open = most == std::numeric_limits<Int>::max() && !with_end;
  return std::to_string(least) + (open ? " or more" : " to " + std::to_string(most));
}

/// Of the library's calls; more would end in the runtime of OpenMP, without a message.
inline constexpr int kMostThreads = 4096;

/// "16,64" or "1K,128K" (of 1024) as integers from `least` to `most`.
[[nodiscard]] inline std::vector<int> split_integers(const std::string& text, const char* option, int least = 1,
                                                     int most = std::numeric_limits<int>::max()) {
  std::vector<int> values;
  for (const std::string& piece : split_list(text, option)) {
    std::size_t used = 0;
    long long value = 0;
    try {
      value = std::stoll(piece, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used != 0 && used + 1 == piece.size() && piece.back() == 'K' && value >= 0 && value <= (1 << 20)) {
      value *= 1024;
      ++used;
    }
    if (used == 0 || used != piece.size()) {
      throw Failure(Exit::kUsage, std::string(option) + ": '" + piece + "' is not a " +
                                      (least == 1 ? "positive integer" : "integer from " + std::to_string(least) + " on") +
                                      " (a K behind it is 1024)");
    }
    if (value < least || value > most) {
      throw Failure(Exit::kUsage, std::string(option) + ": " + piece + "; allowed: " + range_text(least, most, value > most));
    }
    values.push_back(static_cast<int>(value));
  }
  return values;
}

}  // namespace fp4pa::tool
