#include "tests/allocations/counting.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

std::atomic<long> live_count{0};

struct Watched {
  bool on = false;
  bool all_from = false;
  long fail_at = 0;
  long count = 0;
};
// Of the thread's static storage: nothing is allocated for it where a thread first allocates.
thread_local constinit Watched watched;

bool refused() noexcept {
  if (!watched.on) return false;
  const long n = ++watched.count;
  if (n != watched.fail_at && !(watched.all_from && watched.fail_at != 0 && n > watched.fail_at)) return false;
  errno = ENOMEM;
  return true;
}

void* counted(void* p) noexcept {
  if (p != nullptr) live_count.fetch_add(1, std::memory_order_relaxed);
  return p;
}

}  // namespace

extern "C" {

void* malloc(std::size_t size) { return refused() ? nullptr : counted(__libc_malloc(size)); }
void* calloc(std::size_t n, std::size_t size) { return refused() ? nullptr : counted(__libc_calloc(n, size)); }
void* memalign(std::size_t alignment, std::size_t size) { return refused() ? nullptr : counted(__libc_memalign(alignment, size)); }
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  void* const p = memalign(alignment, size);
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}
void* realloc(void* old, std::size_t size) {
  if (refused()) return nullptr;
  void* const p = __libc_realloc(old, size);
  if (old == nullptr) return counted(p);
  if (size == 0 && p == nullptr) live_count.fetch_sub(1, std::memory_order_relaxed);
  return p;
}
void free(void* p) {
  if (p != nullptr) live_count.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(p);
}

}  // extern "C"

namespace allocations {

long live() noexcept { return live_count.load(std::memory_order_relaxed); }

Watch::Watch(long fail_at, Fail fail) noexcept { watched = {true, fail == Fail::kAllFrom, fail_at, 0}; }
Watch::~Watch() { watched.on = false; }
long Watch::count() const noexcept { return watched.count; }

}  // namespace allocations
