// Memory and a clock for whichever device a back end runs on.
//
// `attend` and `bench` are written against this, so that a GPU adds one implementation and no second copy of either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fp4pa/types.hpp"

namespace fp4pa::tool {

/// What a buffer is filled with. Every pattern is valid data for its format: finite, and of unit size or so.
enum class Fill {
  kBytes,       ///< any byte: E2M1 codes
  kE8m0Scales,  ///< 2^-2 to 2^1
  kE4m3Scales,  ///< 2^-1 to nearly 2
  kE4m3,        ///< FP8 elements below 2
  kBf16,        ///< +-0.5 to 2
  kF16,         ///< +-0.5 to 2
  kF32,         ///< +-0.5 to 2
};
/// Elements of a plain tensor.
[[nodiscard]] constexpr Fill fill_of(DType dtype) noexcept {
  return dtype == DType::kF32 ? Fill::kF32 : dtype == DType::kF16 ? Fill::kF16 : Fill::kBf16;
}

/// Memory of a device, released when it goes away.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, std::size_t bytes, std::function<void()> release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Buffer() {
    if (release_) release_();
  }
  [[nodiscard]] void* data() const noexcept { return data_; }
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(data_);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::function<void()> release_;
};

struct Bandwidth {
  double best_gbs = 0.0;  ///< 10^9 bytes per second
  double median_gbs = 0.0;
  std::size_t buffer_bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  /// Name for reports: the processor or card.
  [[nodiscard]] virtual std::string name() const = 0;
  /// At least 256-byte aligned, contents unspecified.
  [[nodiscard]] virtual Buffer allocate(std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from_host, std::size_t bytes) = 0;
  virtual void download(void* to_host, const void* from, std::size_t bytes) = 0;
  /// Fills in parallel; the same seed gives the same bytes whatever the number of threads.
  virtual void fill(const Buffer& buffer, Fill pattern, std::uint64_t seed) = 0;
  /// Displaces what the caches hold, so that the next run reads memory.
  virtual void evict_caches() = 0;
  /// Time of one execution of `work`, which may be asynchronous on the device's default stream.
  [[nodiscard]] virtual double seconds(const std::function<void()>& work) = 0;
  /// The read bandwidth that this device reaches with `threads` (ignored where there are none to choose).
  [[nodiscard]] virtual Bandwidth read_bandwidth(int threads, int repeats) = 0;
  /// Whether a number of threads can be chosen.
  [[nodiscard]] virtual bool has_threads() const = 0;
  /// Whether what is enqueued can be recorded.
  [[nodiscard]] virtual bool has_graphs() const = 0;
  /// Records what `work` enqueues on the stream that it is given; a call of the result enqueues all of it again, on the default
  /// stream. Empty where the device has no graphs.
  [[nodiscard]] virtual std::function<void()> recorded(const std::function<void(void* stream)>& work) = 0;
};

/// Memory of `device` with a copy of the host's `bytes`.
[[nodiscard]] Buffer uploaded(Device& device, const void* from_host, std::size_t bytes);
template <class T>
[[nodiscard]] Buffer uploaded(Device& device, const std::vector<T>& from_host) {
  return uploaded(device, from_host.data(), from_host.size() * sizeof(T));
}
/// What `from` holds, on the host.
template <class T>
[[nodiscard]] std::vector<T> downloaded(Device& device, const Buffer& from) {
  std::vector<T> here(from.bytes() / sizeof(T));
  device.download(here.data(), from.data(), here.size() * sizeof(T));
  return here;
}

/// The back end of calls that name this one ("": the default one). Failure when it is unknown or unavailable.
[[nodiscard]] std::string backend_in_use(const std::string& name);
/// The device that it runs on.
[[nodiscard]] std::unique_ptr<Device> make_device(const std::string& backend);

}  // namespace fp4pa::tool
