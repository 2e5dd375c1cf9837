// Memory and streams of the current device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/gpu/mirror.hpp"

namespace fp4pa::direct_test {

using gpu_test::must;

/// An array on the device that was current when it was made.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count = 0, int byte = 0xff) : count_(count) {
    if (count == 0) return;
    void* memory = nullptr;
    must(cudaMalloc(&memory, bytes()), "allocating a buffer");
    data_ = static_cast<T*>(memory);
    fill(byte);
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) { upload(values); }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) cudaFree(data_);
  }

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }
  // These wait, for what other streams do as well: cudaMemset on the device's own memory does not wait by itself.
  void fill(int byte) {
    if (count_ == 0) return;
    must(cudaMemset(data_, byte, bytes()), "filling a buffer");
    must(cudaDeviceSynchronize(), "filling a buffer");
  }
  void upload(const std::vector<T>& values) {
    must(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), "writing a buffer");
    must(cudaDeviceSynchronize(), "writing a buffer");
  }
  /// Behind its other bytes.
  void append_to(std::vector<std::uint8_t>& all) const {
    if (count_ == 0) return;
    const std::size_t before = all.size();
    all.resize(before + bytes());
    must(cudaMemcpy(all.data() + before, data_, bytes(), cudaMemcpyDeviceToHost), "reading a buffer");
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

class OwnStream {
 public:
  OwnStream() { must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream"); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void wait() const { must(cudaStreamSynchronize(stream_), "waiting for a stream"); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace fp4pa::direct_test
