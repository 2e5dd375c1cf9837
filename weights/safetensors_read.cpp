// The reader of safetensors.hpp. The order of the checks is the order of trust: length, grammar, entries, tiling.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <tuple>

#include "weights/safetensors.hpp"

namespace fp4pa::safetensors {

std::string shown(std::string_view text) {
  std::string out = "'";
  for (char c : text.substr(0, 80)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out + (text.size() > 80 ? "...'" : "'");
}

namespace {

using nlohmann::json;

struct DtypeSize {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<DtypeSize, 16> kDtypes{{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"F8_E4M3", 1},
                                             {"F8_E5M2", 1},
                                             {"F8_E8M0", 1},
                                             {"I16", 2},
                                             {"U16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I32", 4},
                                             {"U32", 4},
                                             {"F32", 4},
                                             {"I64", 8},
                                             {"U64", 8},
                                             {"F64", 8}}};

/// A header is an object of objects of arrays; anything deeper is no header and only costs memory.
constexpr int kMaxJsonDepth = 4;

std::uint64_t header_length(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) {
    throw Error("truncated: " + std::to_string(bytes.size()) + " bytes, but the header length alone takes 8");
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  if (length > kMaxHeaderBytes) {
    throw Error("header length " + std::to_string(length) + " exceeds the format's limit of " +
                std::to_string(kMaxHeaderBytes));
  }
  if (length > bytes.size() - 8) {
    throw Error("truncated: header length " + std::to_string(length) + ", but only " +
                std::to_string(bytes.size() - 8) + " bytes follow it");
  }
  return length;
}

/// JSON with duplicate keys and deep nesting refused (nlohmann keeps the last of two equal keys silently).
json parse_header(std::string_view text) {
  if (text.empty() || text.front() != '{') {
    throw Error("the header does not start with '{' but with " + (text.empty() ? "nothing" : shown(text.substr(0, 1))));
  }
  // nlohmann's lexer takes a zero byte for the end of its input and would not look at what follows.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    throw Error("the header is not valid JSON: zero byte at " + std::to_string(zero));
  }
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxJsonDepth) throw Error("the header nests deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw Error("the header has the name " + shown(parsed.get<std::string>()) + " twice");
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& e) {
    throw Error(std::string("the header is not valid JSON: ") + e.what());
  }
}

const json& field(const json& entry, const std::string& tensor, const char* name) {
  const auto found = entry.find(name);
  if (found == entry.end()) throw Error("tensor " + shown(tensor) + " has no " + shown(name));
  return *found;
}

/// A non-negative integer that fits 63 bits.
std::int64_t size_value(const json& value, const std::string& tensor, const char* what) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw Error("tensor " + shown(tensor) + ": " + what + " " + shown(value.dump()) +
                " is not an integer from 0 to 2^63 - 1");
  }
  return value.get<std::int64_t>();
}

std::map<std::string, std::string> parse_metadata(const json& value) {
  if (!value.is_object()) throw Error("__metadata__ is not an object but " + shown(value.dump()));
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      throw Error("__metadata__ entry " + shown(key) + " is not a string but " + shown(text.dump()));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

TensorView parse_tensor(const std::string& name, const json& entry, std::span<const std::byte> buffer) {
  if (!entry.is_object()) throw Error("tensor " + shown(name) + " is not an object but " + shown(entry.dump()));
  TensorView tensor;
  tensor.name = name;

  const json& dtype = field(entry, name, "dtype");
  if (!dtype.is_string()) throw Error("tensor " + shown(name) + ": dtype " + shown(dtype.dump()) + " is not a string");
  tensor.dtype = dtype.get<std::string>();
  // A checkpoint may hold, beside what is wanted, what this library has no use for: its dtype is refused where it is asked for.
  const std::size_t bytes_each = element_bytes(tensor.dtype);

  const json& shape = field(entry, name, "shape");
  if (!shape.is_array()) throw Error("tensor " + shown(name) + ": shape " + shown(shape.dump()) + " is not an array");
  auto expected = static_cast<std::int64_t>(bytes_each != 0 ? bytes_each : 1);
  for (const json& extent : shape) {
    tensor.shape.push_back(size_value(extent, name, "extent"));
    if (__builtin_mul_overflow(expected, tensor.shape.back(), &expected)) {
      throw Error("tensor " + shown(name) + ": shape " + shown(shape.dump()) + " of " + tensor.dtype +
                  " overflows 64 bits");
    }
  }

  const json& offsets = field(entry, name, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    throw Error("tensor " + shown(name) + ": data_offsets " + shown(offsets.dump()) + " is not a pair");
  }
  const auto begin = static_cast<std::uint64_t>(size_value(offsets[0], name, "data offset"));
  const auto end = static_cast<std::uint64_t>(size_value(offsets[1], name, "data offset"));
  if (begin > end || end > buffer.size()) {
    throw Error("tensor " + shown(name) + ": data_offsets " + offsets.dump() + " are outside the buffer of " +
                std::to_string(buffer.size()) + " bytes, or backwards");
  }
  if (bytes_each != 0 && end - begin != static_cast<std::uint64_t>(expected)) {
    throw Error("tensor " + shown(name) + ": data_offsets " + offsets.dump() + " hold " + std::to_string(end - begin) +
                " bytes, but shape " + shape.dump() + " of " + tensor.dtype + " takes " + std::to_string(expected));
  }
  tensor.data = buffer.subspan(begin, end - begin);
  return tensor;
}

/// The ranges, sorted, must follow one another from the first byte of the buffer to its last.
void check_tiling(std::vector<TensorView>& tensors, std::span<const std::byte> buffer) {
  const auto begin_of = [&](const TensorView& t) { return static_cast<std::size_t>(t.data.data() - buffer.data()); };
  std::sort(tensors.begin(), tensors.end(), [&](const TensorView& a, const TensorView& b) {
    return std::tuple(begin_of(a), a.data.size(), std::string_view(a.name)) <
           std::tuple(begin_of(b), b.data.size(), std::string_view(b.name));
  });
  std::size_t covered = 0;
  for (const TensorView& tensor : tensors) {
    const std::size_t begin = begin_of(tensor);
    if (begin != covered) {
      throw Error("tensor " + shown(tensor.name) + " starts at byte " + std::to_string(begin) + " of the buffer, " +
                  (begin < covered ? "inside another tensor that ends at " : "after a hole that starts at ") +
                  std::to_string(covered));
    }
    covered += tensor.data.size();
  }
  if (covered != buffer.size()) {
    throw Error("the tensors cover " + std::to_string(covered) + " of the buffer's " + std::to_string(buffer.size()) +
                " bytes");
  }
}

}  // namespace

std::size_t element_bytes(std::string_view dtype) noexcept {
  for (const DtypeSize& known : kDtypes) {
    if (known.name == dtype) return known.bytes;
  }
  return 0;
}

std::string known_dtypes() {
  std::string names;
  for (const DtypeSize& known : kDtypes) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

std::int64_t TensorView::elements() const noexcept {
  std::int64_t n = 1;
  for (std::int64_t extent : shape) n *= extent;  // checked while parsing
  return n;
}

Contents parse(std::span<const std::byte> bytes) {
  const std::uint64_t length = header_length(bytes);
  const auto buffer = bytes.subspan(8 + length);
  const json header = parse_header({reinterpret_cast<const char*>(bytes.data()) + 8, length});
  Contents contents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      contents.metadata = parse_metadata(entry);
    } else {
      contents.tensors.push_back(parse_tensor(name, entry, buffer));
    }
  }
  check_tiling(contents.tensors, buffer);
  return contents;
}

File::File(const std::filesystem::path& path)
    : path_(path), file_([&] {
        try {
          return MappedFile(path);
        } catch (const std::system_error& e) {
          throw Error(path.string() + ": " + e.what());
        }
      }()) {
  try {
    contents_ = parse(file_.bytes());
  } catch (const Error& e) {
    throw Error(path.string() + ": " + e.what());
  }
}

const TensorView& File::at(const std::string& name) const {
  std::string existing;
  for (const TensorView& tensor : tensors()) {
    if (tensor.name == name) {
      if (element_bytes(tensor.dtype) != 0) return tensor;
      throw Error(path_.string() + ": tensor " + shown(name) + ": unknown dtype " + shown(tensor.dtype) + "; known are " + known_dtypes());
    }
    existing += (existing.empty() ? "" : ", ") + shown(tensor.name);
  }
  throw Error(path_.string() + ": no tensor " + shown(name) + "; it holds " + (existing.empty() ? "none" : existing));
}

}  // namespace fp4pa::safetensors
