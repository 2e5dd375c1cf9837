// The reader of safetensors.hpp. The order of the checks is the order of trust: length, header, tiling.
#include <algorithm>
#include <array>
#include <system_error>
#include <tuple>

#include "weights/safetensors_header.hpp"

namespace fp4pa::safetensors {

std::string shown(std::string_view text) {
  std::string out = "'";
  for (char c : text.substr(0, kMaxShown)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out + (text.size() > kMaxShown ? "...'" : "'");
}

std::string text_of(std::span<const std::int64_t> numbers) {
  std::string text = "[";
  for (const std::int64_t n : numbers) (text += text.size() == 1 ? "" : ",") += std::to_string(n);
  return text += ']';
}

namespace {

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
  Contents contents = read_header({reinterpret_cast<const char*>(bytes.data()) + 8, length}, buffer);
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

const TensorView* File::find(std::string_view name) const noexcept {
  const auto found = std::find_if(tensors().begin(), tensors().end(), [&](const TensorView& tensor) { return tensor.name == name; });
  return found == tensors().end() ? nullptr : &*found;
}

const TensorView& File::at(const std::string& name) const {
  const TensorView* const tensor = find(name);
  if (tensor == nullptr) throw Error(path_.string() + ": no tensor " + shown(name) + "; it holds " + names());
  if (element_bytes(tensor->dtype) == 0) {
    throw Error(path_.string() + ": tensor " + shown(name) + ": unknown dtype " + shown(tensor->dtype) + "; known are " + known_dtypes());
  }
  return *tensor;
}

std::string File::names() const {
  constexpr std::size_t kMaxNames = 100;
  std::string names;
  for (std::size_t i = 0; i < std::min(tensors().size(), kMaxNames); ++i) names += (i == 0 ? "" : ", ") + shown(tensors()[i].name);
  if (names.empty()) return "none";
  return tensors().size() <= kMaxNames ? names : names + " and " + std::to_string(tensors().size() - kMaxNames) + " more";
}

}  // namespace fp4pa::safetensors
