// Memory that whoever reads past its end cannot read by mistake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#if defined(__unix__)
#include <sys/mman.h>
#include <unistd.h>
#else
#include <vector>
#endif

namespace test {

/// Bytes whose last one is followed by a page that may not be touched, where the system offers that: a read beyond the end is a
/// segmentation fault, in compiled code as on the emulator. Their number decides how the first one is aligned.
class Fenced {
 public:
  Fenced() = default;
  explicit Fenced(std::size_t bytes) : bytes_(bytes) {
#if defined(__unix__)
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes + page - 1) / page * page + page;
    void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::uint8_t*>(base);
    if (mprotect(base_ + mapped_ - page, page, PROT_NONE) != 0) throw std::bad_alloc();
    data_ = base_ + mapped_ - page - bytes;
#else
    storage_.resize(bytes);
    data_ = storage_.data();
#endif
  }
  ~Fenced() {
#if defined(__unix__)
    if (base_ != nullptr) munmap(base_, mapped_);
#endif
  }
  Fenced(Fenced&& other) noexcept { swap(other); }
  Fenced& operator=(Fenced&& other) noexcept {
    swap(other);
    return *this;
  }
  [[nodiscard]] std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  void swap(Fenced& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
#if defined(__unix__)
    std::swap(base_, other.base_);
    std::swap(mapped_, other.mapped_);
#else
    std::swap(storage_, other.storage_);
#endif
  }
  std::size_t bytes_ = 0;
  std::uint8_t* data_ = nullptr;
#if defined(__unix__)
  std::uint8_t* base_ = nullptr;
  std::size_t mapped_ = 0;
#else
  std::vector<std::uint8_t> storage_;
#endif
};

}  // namespace test
