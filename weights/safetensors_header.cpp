// The header is read as it comes: what is wrong is refused on the spot, and nothing is kept that is no part of a tensor's
// description.
#include "weights/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weights/json_reader.hpp"

namespace fp4pa::safetensors {
namespace {

/// A header is an object of objects of arrays; one level more is for what other writers may add.
constexpr std::size_t kMaxDepth = 4;
/// Of an object below a tensor's entry, which the format gives three.
constexpr std::size_t kMaxNames = 64;
constexpr const char* kMetadataName = "__metadata__";

using Numbers = std::vector<std::int64_t>;

/// What the format wants at a place of the header.
enum class Place { kHeader, kMetadata, kText, kTensor, kDtype, kShape, kExtent, kOffsets, kOffset, kAnything };

[[nodiscard]] bool may_open(Place place, char bracket) {
  switch (place) {
    case Place::kHeader:
    case Place::kMetadata:
    case Place::kTensor: return bracket == '{';
    case Place::kShape:
    case Place::kOffsets: return bracket == '[';
    default: return place == Place::kAnything;
  }
}

[[nodiscard]] bool may_be(Place place, const JsonScalar& value) {
  switch (place) {
    case Place::kText:
    case Place::kDtype: return value.kind == JsonScalar::Kind::kString;
    case Place::kExtent:
    case Place::kOffset:
      return value.kind == JsonScalar::Kind::kUnsigned &&
             value.number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    default: return place == Place::kAnything;
  }
}

[[nodiscard]] std::string json_of(const JsonScalar& value) {
  const bool quoted = value.kind == JsonScalar::Kind::kString;
  const std::string text(value.text.substr(0, kMaxShown + 1));
  return quoted ? '"' + text + '"' : text;
}

class HeaderReader final : public JsonListener {
 public:
  explicit HeaderReader(std::span<const std::byte> buffer) : buffer_(buffer) {}

  void open(char bracket) override {
    if (level_ == kMaxDepth) throw Error("the header nests deeper than " + std::to_string(kMaxDepth) + " levels");
    if (!refused_ && !may_open(place(), bracket)) refused_ = Refused{level_, place(), {}};
    if (refused_) {
      quote({&bracket, 1});
    } else {
      begin(place());
    }
    names_[++level_].clear();
  }

  void close(char bracket) override {
    --level_;
    if (refused_) {
      quote({&bracket, 1});
      if (level_ == refused_->level) throw complaint(refused_->place, refused_->text);
    } else if (place() == Place::kOffsets && offsets_->size() != 2) {
      throw complaint(Place::kOffsets, text_of(*offsets_));
    } else if (place() == Place::kTensor) {
      contents_.tensors.push_back(tensor());
    }
  }

  void key(std::string_view name) override {
    check_new(name);
    if (refused_) {
      quote('"' + std::string(name.substr(0, kMaxShown)) + "\":");
    } else if (level_ == 1) {
      name_ = name;
    } else if (level_ == 2) {
      field_ = name;
    }
  }

  void scalar(const JsonScalar& value) override {
    if (refused_) return quote(json_of(value));
    if (!may_be(place(), value)) throw complaint(place(), json_of(value));
    switch (place()) {
      case Place::kText: contents_.metadata.emplace(field_, value.text); break;
      case Place::kDtype: dtype_ = value.text; break;
      case Place::kExtent:
        if (shape_->size() == kMaxRank) throw Error("tensor " + shown(name_) + ": shape has more than " + std::to_string(kMaxRank) + " extents");
        shape_->push_back(static_cast<std::int64_t>(value.number));
        break;
      case Place::kOffset:
        offsets_->push_back(static_cast<std::int64_t>(value.number));
        if (offsets_->size() > 2) throw complaint(Place::kOffsets, text_of(*offsets_));
        break;
      default: break;
    }
  }

  /// When all has been read.
  [[nodiscard]] Contents contents() {
    std::vector<std::string_view> names;
    for (const TensorView& tensor : contents_.tensors) names.emplace_back(tensor.name);
    std::sort(names.begin(), names.end());
    if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) throw has_twice(*twice);
    return std::move(contents_);
  }

 private:
  /// A value that is refused when it has ended, since the message shows it.
  struct Refused {
    std::size_t level;
    Place place;
    std::string text;
  };

  [[nodiscard]] bool in_metadata() const { return name_ == kMetadataName; }

  /// Where the next value would stand; not of what is inside a refused one.
  [[nodiscard]] Place place() const {
    switch (level_) {
      case 0: return Place::kHeader;
      case 1: return in_metadata() ? Place::kMetadata : Place::kTensor;
      case 2:
        if (in_metadata()) return Place::kText;
        if (field_ == "dtype") return Place::kDtype;
        if (field_ == "shape") return Place::kShape;
        return field_ == "data_offsets" ? Place::kOffsets : Place::kAnything;
      case 3:
        if (field_ == "shape") return Place::kExtent;
        return field_ == "data_offsets" ? Place::kOffset : Place::kAnything;
      default: return Place::kAnything;
    }
  }

  [[nodiscard]] Error complaint(Place place, const std::string& text) const {
    const std::string tensor = "tensor " + shown(name_);
    const char* const no_size = " is not an integer from 0 to 2^63 - 1";
    switch (place) {
      case Place::kMetadata: return Error(std::string(kMetadataName) + " is not an object but " + shown(text));
      case Place::kText: return Error(std::string(kMetadataName) + " entry " + shown(field_) + " is not a string but " + shown(text));
      case Place::kDtype: return Error(tensor + ": dtype " + shown(text) + " is not a string");
      case Place::kShape: return Error(tensor + ": shape " + shown(text) + " is not an array");
      case Place::kOffsets: return Error(tensor + ": data_offsets " + shown(text) + " is not a pair");
      case Place::kExtent: return Error(tensor + ": extent " + shown(text) + no_size);
      case Place::kOffset: return Error(tensor + ": data offset " + shown(text) + no_size);
      default: return Error(tensor + " is not an object but " + shown(text));
    }
  }

  [[nodiscard]] static Error has_twice(std::string_view name) { return Error("the header has the name " + shown(name) + " twice"); }

  /// The names of tensors are compared when all are known, and metadata's where they are kept.
  void check_new(std::string_view name) {
    if (level_ == 1) {
      if (name == kMetadataName && std::exchange(has_metadata_, true)) throw has_twice(name);
    } else if (level_ == 2 && in_metadata()) {
      if (contents_.metadata.contains(std::string(name))) throw has_twice(name);
    } else {
      std::vector<std::string>& names = names_[level_];
      if (std::find(names.begin(), names.end(), name) != names.end()) throw has_twice(name);
      if (names.size() == kMaxNames) throw Error("tensor " + shown(name_) + " has an object of more than " + std::to_string(kMaxNames) + " names");
      names.emplace_back(name);
    }
  }

  void begin(Place place) {
    if (place == Place::kTensor) {
      dtype_.reset();
      shape_.reset();
      offsets_.reset();
    } else if (place == Place::kShape) {
      shape_.emplace();
    } else if (place == Place::kOffsets) {
      offsets_.emplace();
    }
  }

  /// One more token of the value that is refused; its text ends where a message would cut it.
  void quote(std::string_view token) {
    std::string& text = refused_->text;
    const bool first = text.empty() || std::string_view("[{:").find(text.back()) != std::string_view::npos;
    if (!first && token != "]" && token != "}") text += ',';
    text += token;
    if (text.size() > kMaxShown) throw complaint(refused_->place, text);
  }

  /// The tensor whose entry has ended.
  [[nodiscard]] TensorView tensor() const {
    const std::string called = "tensor " + shown(name_);
    if (!dtype_) throw Error(called + " has no 'dtype'");
    if (!shape_) throw Error(called + " has no 'shape'");
    if (!offsets_) throw Error(called + " has no 'data_offsets'");
    // A checkpoint may hold, beside what is wanted, what this library has no use for: its dtype is refused where it is asked for.
    const std::size_t bytes_each = element_bytes(*dtype_);
    auto expected = static_cast<std::int64_t>(bytes_each != 0 ? bytes_each : 1);
    for (const std::int64_t extent : *shape_) {
      if (__builtin_mul_overflow(expected, extent, &expected)) {
        throw Error(called + ": shape " + text_of(*shape_) + " of " + shown(*dtype_) + " overflows 64 bits");
      }
    }
    const auto begin = static_cast<std::uint64_t>((*offsets_)[0]);
    const auto end = static_cast<std::uint64_t>((*offsets_)[1]);
    const std::string range = called + ": data_offsets " + text_of(*offsets_);
    if (begin > end || end > buffer_.size()) {
      throw Error(range + " are outside the buffer of " + std::to_string(buffer_.size()) + " bytes, or backwards");
    }
    if (bytes_each != 0 && end - begin != static_cast<std::uint64_t>(expected)) {
      throw Error(range + " hold " + std::to_string(end - begin) + " bytes, but shape " + text_of(*shape_) + " of " + *dtype_ + " takes " +
                  std::to_string(expected));
    }
    return {name_, *dtype_, *shape_, buffer_.subspan(begin, end - begin)};
  }

  std::span<const std::byte> buffer_;
  Contents contents_;
  bool has_metadata_ = false;
  std::size_t level_ = 0;    // brackets that are open
  std::string name_, field_;  // of the value at levels 1 and 2
  std::array<std::vector<std::string>, kMaxDepth + 1> names_;  // of the objects that are open, but for the outer two
  std::optional<std::string> dtype_;
  std::optional<Numbers> shape_, offsets_;
  std::optional<Refused> refused_;
};

}  // namespace

Contents read_header(std::string_view text, std::span<const std::byte> buffer) {
  if (text.empty() || text.front() != '{') {
    throw Error("the header does not start with '{' but with " + (text.empty() ? "nothing" : shown(text.substr(0, 1))));
  }
  HeaderReader reader(buffer);
  try {
    read_json(text, reader);
  } catch (const JsonError& e) {
    throw Error(std::string("the header is ") + e.what());
  }
  return reader.contents();
}

}  // namespace fp4pa::safetensors
