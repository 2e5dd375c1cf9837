#include "api/validate_page_copies.hpp"

#include <algorithm>
#include <memory>
#include <new>

#include "api/error.hpp"
#include "api/read_back.hpp"

namespace fp4pa::api {
namespace {

Status check_disjoint(const std::int32_t* src, const std::int32_t* dst, std::int64_t n) {
  const std::unique_ptr<std::int32_t[]> sorted(new (std::nothrow) std::int32_t[static_cast<std::size_t>(n)]);
  if (sorted == nullptr) {
    return fail(Status::kInternal, "copy_pages: no memory to sort %lld page ids", static_cast<long long>(n));
  }
  std::int32_t* const end = sorted.get() + n;
  std::copy(dst, dst + n, sorted.get());
  std::sort(sorted.get(), end);
  if (const std::int32_t* twice = std::adjacent_find(sorted.get(), end); twice != end) {
    return fail(Status::kInvalidArgument,
                     "copy_pages: page %d is a destination twice; allowed: distinct destinations", *twice);
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::binary_search(sorted.get(), end, src[i])) {
      return fail(
          Status::kInvalidArgument,
          "copy_pages: page %d is the source of copy %lld and a destination; allowed: one of the two", src[i],
          static_cast<long long>(i));
    }
  }
  return Status::kOk;
}

Status check_page(const char* name, const std::int32_t* ids, std::int64_t i, std::int64_t num_pages) {
  if (ids[i] >= 0 && ids[i] < num_pages) return Status::kOk;
  return fail(Status::kBlockIdOutOfRange, "copy_pages: %s[%lld] = %d; allowed: 0 to %lld", name,
                   static_cast<long long>(i), ids[i], static_cast<long long>(num_pages - 1));
}

}  // namespace

Status check_page_copies(const KvCacheDesc& cache, const std::int32_t* src, const std::int32_t* dst,
                         std::int64_t num_copies) noexcept {
  for (std::int64_t i = 0; i < num_copies; ++i) {
    FP4PA_RETURN_IF_FAILED(check_page("src", src, i, cache.num_pages));
    FP4PA_RETURN_IF_FAILED(check_page("dst", dst, i, cache.num_pages));
  }
  return check_disjoint(src, dst, num_copies);
}

Status check_device_page_copies(const Backend& backend, const KvCacheDesc& cache, const std::int32_t* src, const std::int32_t* dst,
                                std::int64_t num_copies, void* stream) noexcept {
  std::unique_ptr<std::int32_t[]> from, to;
  FP4PA_RETURN_IF_FAILED(read_back(backend, "copy_pages", "sources", src, num_copies, stream, from));
  FP4PA_RETURN_IF_FAILED(read_back(backend, "copy_pages", "destinations", dst, num_copies, stream, to));
  return check_page_copies(cache, from.get(), to.get(), num_copies);
}

}  // namespace fp4pa::api
