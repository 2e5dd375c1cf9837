// The writer of safetensors.hpp. The header is padded with spaces so that the buffer starts 8-byte aligned, as the
// format's own writers do.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "api/utf8.hpp"
#include "weights/safetensors.hpp"

namespace fp4pa::safetensors {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& why) { throw Error(path.string() + ": cannot write: " + why); }

/// `text` as a JSON string. Throws Error where it is not UTF-8.
/// @param path  for messages
std::string quoted(const fs::path& path, std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = api::utf8_bytes(text.substr(i));
    const auto c = static_cast<unsigned char>(text[i]);
    if (bytes == 0) refuse(path, shown(text) + " is not UTF-8 at byte " + std::to_string(i));
    if (c == '"' || c == '\\') {
      (out += '\\') += text[i];
    } else if (c < 0x20) {
      constexpr char kDigits[] = "0123456789abcdef";
      ((out += "\\u00") += kDigits[c >> 4]) += kDigits[c & 15];
    } else {
      out += text.substr(i, bytes);
    }
    i += bytes;
  }
  return out += '"';
}

/// "{" and its members, with commas between them.
class JsonObject {
 public:
  /// @param value  JSON
  void add(const std::string& quoted_name, const std::string& value) { text_ += (text_.size() == 1 ? "" : ",") + quoted_name + ':' + value; }
  [[nodiscard]] std::string text() const { return text_ + '}'; }

 private:
  std::string text_ = "{";
};

/// The header lists tensors in the order of their bytes.
/// @param path  for messages
std::string header_of(const fs::path& path, const std::vector<TensorToWrite>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  JsonObject header;
  if (!metadata.empty()) {
    JsonObject entries;
    for (const auto& [key, value] : metadata) entries.add(quoted(path, key), quoted(path, value));
    header.add("\"__metadata__\"", entries.text());
  }
  std::set<std::string_view> names{"__metadata__"};
  std::int64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    std::uint64_t expected = element_bytes(tensor.dtype);
    for (std::int64_t extent : tensor.shape) expected *= static_cast<std::uint64_t>(extent);
    if (element_bytes(tensor.dtype) == 0 || expected != tensor.data.size()) {
      throw Error("cannot write tensor '" + tensor.name + "': " + std::to_string(tensor.data.size()) +
                  " bytes do not fit its shape and dtype " + tensor.dtype);
    }
    if (tensor.shape.size() > kMaxRank) throw Error("cannot write tensor '" + tensor.name + "': its shape has more than " + std::to_string(kMaxRank) + " extents");
    if (!names.insert(tensor.name).second) throw Error("cannot write tensor '" + tensor.name + "': the name is taken");
    const std::int64_t end = offset + static_cast<std::int64_t>(tensor.data.size());
    JsonObject entry;
    entry.add("\"dtype\"", quoted(path, tensor.dtype));
    entry.add("\"shape\"", text_of(tensor.shape));
    entry.add("\"data_offsets\"", text_of(std::array{offset, end}));
    header.add(quoted(path, tensor.name), entry.text());
    offset = end;
  }
  std::string text = header.text();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

/// The file that `path` stands for behind symbolic links, whether or not it exists.
fs::path target_of(const fs::path& path) {
  constexpr int kMaxLinks = 40;  // Linux's own limit
  std::error_code error;
  // A pipe or a device would be replaced by a file.
  if (const fs::file_status status = fs::status(path, error); fs::exists(status) && !fs::is_regular_file(status)) {
    refuse(path, "not a regular file; allowed: a regular file, or a name that is free");
  }
  fs::path target = path;
  for (int links = 0; fs::is_symlink(fs::symlink_status(target, error)); ++links) {
    if (links == kMaxLinks) refuse(path, "more than " + std::to_string(kMaxLinks) + " symbolic links");
    const fs::path next = fs::read_symlink(target, error);
    if (error) refuse(path, error.message());
    target = target.parent_path() / next;
  }
  return target;
}

/// A new file beside `target` that takes its place when it is complete, and goes away otherwise.
class Partial {
 public:
  /// @param path  for messages
  Partial(fs::path path, fs::path target) : path_(std::move(path)), target_(std::move(target)) {
    static std::atomic<unsigned> counter{0};
    do {
      partial_ = target_.parent_path() / ("fp4pa-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".partial");
      file_ = std::fopen(partial_.c_str(), "wbxe");  // x: a name that nobody has, be it another process's on a shared disk
    } while (file_ == nullptr && errno == EEXIST);
    if (file_ == nullptr) refuse(path_, std::generic_category().message(errno));
  }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;
  ~Partial() {
    if (file_ != nullptr) std::fclose(file_);
    if (!partial_.empty()) std::remove(partial_.c_str());
  }

  void append(const void* bytes, std::size_t size) {
    if (size == 0) return;  // an empty tensor may have no memory
    if (std::fwrite(bytes, 1, size, file_) != size) refuse(path_, std::generic_category().message(errno));
  }
  void complete() {
    // On the disk before it takes another file's place: what a power cut leaves is one of the two, and not an empty one.
    // (EINVAL: a file system that knows no such thing.)
    if (std::fflush(file_) != 0 || (::fsync(::fileno(file_)) != 0 && errno != EINVAL)) {
      refuse(path_, std::generic_category().message(errno));
    }
    if (std::fclose(std::exchange(file_, nullptr)) != 0) refuse(path_, std::generic_category().message(errno));
    std::error_code error;
    if (const fs::file_status before = fs::status(target_, error); fs::exists(before)) {
      fs::permissions(partial_, before.permissions(), error);  // whoever closed a file to others wants what replaces it closed, too
      if (error) refuse(path_, error.message());
    }
    fs::rename(partial_, target_, error);
    if (error) refuse(path_, error.message());
    partial_.clear();
  }

 private:
  fs::path path_, target_;
  std::string partial_;
  std::FILE* file_ = nullptr;
};

}  // namespace

void write(const fs::path& path, const std::vector<TensorToWrite>& tensors, const std::map<std::string, std::string>& metadata) {
  const std::string header = header_of(path, tensors, metadata);
  Partial file(path, target_of(path));
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i));
  file.append(length, sizeof length);
  file.append(header.data(), header.size());
  for (const TensorToWrite& tensor : tensors) file.append(tensor.data.data(), tensor.data.size());
  file.complete();
}

}  // namespace fp4pa::safetensors
