// A file mapped read-only, unmapped when it goes away.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

namespace fp4pa::safetensors {

class MappedFile {
 public:
  /// Throws std::system_error when the file cannot be opened, is no regular file, or cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace fp4pa::safetensors
