// Running the back end under test on calls whose memory is the host's: everything a call reads or writes is copied to the device,
// the call is made there, and what it may have written is copied back.
//
// That lets tests that were written for the CPU, poison and gaps and all, run unchanged on the GPU. Memory is mirrored by
// address range; ranges that touch become one, so that interleaved pages keep their strides, and every byte between
// rows comes back as the device left it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "api/backend.hpp"
#include "tests/gpu/runtime.hpp"

namespace fp4pa::gpu_test {

/// Ends the program with the runtime's text: nothing after it would mean anything.
void must(Error error, const char* what);

class Mirror {
 public:
  Mirror() = default;
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;
  ~Mirror();

  /// Announces `bytes` at `host`; null is left alone. All ranges come before the first device().
  void add(const void* host, std::int64_t bytes);
  /// Where a host address lies on the device.
  template <class T>
  [[nodiscard]] T* device(T* host) {
    return reinterpret_cast<T*>(translate(reinterpret_cast<std::uintptr_t>(host)));
  }
  /// Copies everything back.
  void bring_home();

 private:
  struct Range {
    std::uintptr_t begin, end;
    std::uint8_t* device;    // of `begin`; addresses keep their alignment to 256
    std::uint8_t* own;       // the allocation, if it is this range's alone
    std::size_t at;          // in the shared allocation
  };
  void place();
  [[nodiscard]] std::uintptr_t translate(std::uintptr_t host);
  std::vector<Range> ranges_;
  std::vector<std::uint8_t> staging_;  // of the shared allocation
  bool placed_ = false;
};

/// Bytes from the first to the last of `row` bytes for each page, token and head, by their strides.
[[nodiscard]] std::int64_t span(std::int64_t pages, std::int64_t page_stride, std::int64_t tokens, std::int64_t token_stride,
                                std::int64_t heads, std::int64_t head_stride, std::int64_t row);

/// Announces the memory of a cache's description, and moves its pointers.
void add(Mirror& mirror, const KvCacheDesc& cache);
[[nodiscard]] KvCacheDesc moved(Mirror& mirror, KvCacheDesc cache);
/// The same for the arguments of a run; `workspace_bytes` of workspace.
/// @param q_scales  as api::RunRequest has them
void add(Mirror& mirror, const AttentionConfig& config, const AttentionArgs& args, const core::QueryScales& q_scales = {});
[[nodiscard]] AttentionConfig moved(Mirror& mirror, AttentionConfig config);
[[nodiscard]] AttentionArgs moved(Mirror& mirror, AttentionArgs args);

}  // namespace fp4pa::gpu_test

namespace fp4pa::api {
/// The back end under test, on the host's memory.
extern const Backend kMirroredBackend;
}  // namespace fp4pa::api
