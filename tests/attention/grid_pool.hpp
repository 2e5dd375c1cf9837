// Pages of the grid: random codes and scales where tokens live, poison everywhere else.
//
// Bytes are written here one token at a time and not through append, so that attention is tested on every code and
// scale and not only on those that the quantiser happens to produce, and so that an error in append cannot hide one in
// attention.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "fp4pa/cache.hpp"
#include "tests/attention/fenced.hpp"
#include "tests/attention/grid_case.hpp"
#include "tests/cache/random.hpp"

namespace grid {

/// Memory aligned to 256 bytes and not one byte longer than asked for, so that a sanitizer sees an overrun.
class Memory {
 public:
  Memory() = default;
  Memory(std::size_t bytes, std::uint8_t fill);
  [[nodiscard]] std::uint8_t* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::unique_ptr<std::uint8_t, Free> data_;
};

class Pool {
 public:
  Pool() = default;
  /// Pages for `desc` (formats, sizes and page count set) in the layout, all bytes `poison`.
  Pool(const fp4pa::KvCacheDesc& desc, Layout layout, GlobalScale global_scale, std::uint8_t poison,
       test::Random& random);
  Pool(Pool&&) = default;
  Pool& operator=(Pool&&) = default;

  [[nodiscard]] const fp4pa::KvCacheDesc& desc() const { return desc_; }
  /// Gives the token at (page, row) random K and V for every head.
  void write_token(std::int64_t page, std::int32_t row, test::Random& random);

 private:
  void write_tensor_row(const fp4pa::KvTensorDesc& tensor, std::int64_t page, std::int32_t row, std::int32_t head,
                        test::Random& random);
  /// Memory of `bytes`, all `poison`, as the i-th of the pool's arrays.
  std::uint8_t* place(int i, std::int64_t bytes, std::uint8_t poison);
  fp4pa::KvCacheDesc desc_;
  std::array<test::Fenced, 4> arrays_;  // K's codes and scales, V's; interleaved pages are one
  std::vector<float> k_scales_, v_scales_;  // global scales behind pointers
};

/// A random element of `dtype`, magnitude around 1, written to `to`.
void write_plain(void* to, fp4pa::DType dtype, test::Random& random);

}  // namespace grid
