// Counts what this program allocates, and makes an allocation fail.
//
// The C library's functions are the program's own here (counting.cpp), so that what the library, the standard libraries and
// OpenMP's runtime ask for goes through them, operator new included.
#pragma once

namespace allocations {

/// Allocations that exist.
[[nodiscard]] long live() noexcept;

/// While it exists, the allocations of the thread that made it are counted, and some of them fail.
class Watch {
 public:
  enum class Fail { kOne, kAllFrom };
  Watch() noexcept : Watch(0, Fail::kOne) {}
  /// @param fail_at  the first one that fails; 1 is the next
  Watch(long fail_at, Fail fail) noexcept;
  ~Watch();
  Watch(const Watch&) = delete;
  [[nodiscard]] long count() const noexcept;
};

}  // namespace allocations
