// The writer of safetensors.hpp. The header is padded with spaces so that the buffer starts 8-byte aligned, as the
// format's own writers do.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "weights/safetensors.hpp"

namespace fp4pa::safetensors {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& why) { throw Error(path.string() + ": cannot write: " + why); }

/// @param path  for messages
std::string header_of(const fs::path& path, const std::vector<TensorToWrite>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  // Ordered, so that the header lists tensors in the order of their bytes.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    std::uint64_t expected = element_bytes(tensor.dtype);
    for (std::int64_t extent : tensor.shape) expected *= static_cast<std::uint64_t>(extent);
    if (element_bytes(tensor.dtype) == 0 || expected != tensor.data.size()) {
      throw Error("cannot write tensor '" + tensor.name + "': " + std::to_string(tensor.data.size()) +
                  " bytes do not fit its shape and dtype " + tensor.dtype);
    }
    if (tensor.name == "__metadata__" || header.contains(tensor.name)) {
      throw Error("cannot write tensor '" + tensor.name + "': the name is taken");
    }
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& e) {  // a name or a text of the metadata is not UTF-8
    refuse(path, e.what());
  }
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
    if (std::fclose(std::exchange(file_, nullptr)) != 0) refuse(path_, std::generic_category().message(errno));
    std::error_code error;
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
