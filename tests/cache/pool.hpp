// A cache in memory of its own, poisoned, in any layout, and the means to say what it must hold.
//
// Tests compare whole memories: the bytes an operation should write are put into a copy by the oracle, at addresses
// formed here from the layout, and everything else must still be poison. That finds a wrong byte, and also a byte too
// many.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "fp4pa/cache.hpp"
#include "tests/cache/oracle.hpp"
#include "tests/cache/random.hpp"

namespace test {

inline constexpr std::uint8_t kPoison = 0xa5;

enum class Layout { kHnd, kNhd, kInterleaved, kGaps };

inline const char* name_of(Layout layout) {
  switch (layout) {
    case Layout::kHnd: return "HND";
    case Layout::kNhd: return "NHD";
    case Layout::kInterleaved: return "interleaved";
    case Layout::kGaps: return "gaps";
  }
  return "";
}

struct Shape {
  fp4pa::KvFormat k_format = fp4pa::KvFormat::kMxfp4;
  fp4pa::KvFormat v_format = fp4pa::KvFormat::kMxfp4;
  fp4pa::VScaleAxis axis = fp4pa::VScaleAxis::kHeadDim;
  Layout layout = Layout::kHnd;
  int heads = 2;
  int head_dim = 64;
  int page_size = 16;
  int num_pages = 6;
  fp4pa::Rotation rotation = fp4pa::Rotation::kNone;
  fp4pa::ScaleMode mode = fp4pa::ScaleMode::kFloor;
  fp4pa::Nvfp4Scale nvfp4 = fp4pa::Nvfp4Scale::kAmaxOver6;
  bool per_head_globals = false;
};

inline std::int64_t code_bytes(fp4pa::KvFormat format, int head_dim) {
  switch (format) {
    case fp4pa::KvFormat::kBf16:
    case fp4pa::KvFormat::kF16: return 2 * head_dim;
    case fp4pa::KvFormat::kFp8E4m3:
    case fp4pa::KvFormat::kMxfp8: return head_dim;
    default: return head_dim / 2;
  }
}
inline int token_group(fp4pa::KvFormat format, fp4pa::VScaleAxis axis) {
  if (axis == fp4pa::VScaleAxis::kHeadDim) return 1;
  return format == fp4pa::KvFormat::kMxfp4 ? 32 : format == fp4pa::KvFormat::kNvfp4 ? 16 : 1;
}
inline std::int64_t scale_bytes(fp4pa::KvFormat format, fp4pa::VScaleAxis axis, int head_dim) {
  switch (format) {
    case fp4pa::KvFormat::kMxfp4: return axis == fp4pa::VScaleAxis::kTokens ? head_dim : head_dim / 32;
    case fp4pa::KvFormat::kNvfp4: return axis == fp4pa::VScaleAxis::kTokens ? head_dim : head_dim / 16;
    case fp4pa::KvFormat::kE8m0PerToken: return 1;
    case fp4pa::KvFormat::kMxfp8: return head_dim / 32;
    default: return 0;
  }
}

class Pool {
 public:
  explicit Pool(const Shape& s) : shape(s) {
    cache.num_kv_heads = s.heads;
    cache.head_dim = s.head_dim;
    cache.page_size = s.page_size;
    cache.num_pages = s.num_pages;
    cache.rotation = s.rotation;
    cache.scale_mode = s.mode;
    cache.nvfp4_scale = s.nvfp4;
    cache.k.format = s.k_format;
    cache.v.format = s.v_format;
    cache.v.scale_axis = s.axis;

    // Where each of the four arrays begins in a page (interleaved) or in memory (the others).
    std::int64_t at = kGuard;
    std::int64_t offsets[4];
    Part parts[4] = {part(cache.k, false), part(cache.k, true), part(cache.v, false), part(cache.v, true)};
    for (int i = 0; i < 4; ++i) {
      offsets[i] = at;
      at += rounded(s.layout == Layout::kInterleaved ? parts[i].page : parts[i].page * s.num_pages) + kGuard;
    }
    const bool interleaved = s.layout == Layout::kInterleaved;
    const std::int64_t page_stride = interleaved ? rounded(at) : 0;
    bytes_ = static_cast<std::size_t>(interleaved ? page_stride * s.num_pages + kGuard : at);
    storage_.assign(bytes_ + 16, kPoison);
    base_ = storage_.data() + (16 - reinterpret_cast<std::uintptr_t>(storage_.data()) % 16) % 16;

    const auto place = [&](fp4pa::KvTensorDesc& t, int codes, int scales) {
      t.data = base_ + offsets[codes];
      t.page_stride_bytes = interleaved ? page_stride : parts[codes].page;
      t.token_stride_bytes = parts[codes].token;
      t.head_stride_bytes = parts[codes].head;
      if (parts[scales].row == 0) return;
      t.scales = base_ + offsets[scales];
      t.scale_page_stride_bytes = interleaved ? page_stride : parts[scales].page;
      t.scale_token_stride_bytes = parts[scales].token;
      t.scale_head_stride_bytes = parts[scales].head;
    };
    place(cache.k, 0, 1);
    place(cache.v, 2, 3);

    // Multipliers that are no powers of two, so that a forgotten one shows.
    for (int h = 0; h < s.heads; ++h) {
      k_globals.push_back(0.037f * static_cast<float>(s.per_head_globals ? h + 1 : 1));
      v_globals.push_back(0.051f * static_cast<float>(s.per_head_globals ? h + 2 : 1));
    }
    set_globals(cache.k, k_globals);
    set_globals(cache.v, v_globals);
  }
  Pool(const Pool&) = delete;

  [[nodiscard]] std::vector<std::uint8_t> snapshot() const { return {base_, base_ + bytes_}; }
  [[nodiscard]] std::uint8_t* base() { return base_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  /// Offset from base() of a row, formed independently of the library.
  [[nodiscard]] std::size_t code_offset(const fp4pa::KvTensorDesc& t, std::int64_t page, int token, int head) const {
    const auto start = static_cast<std::int64_t>(static_cast<std::uint8_t*>(t.data) - base_);
    return static_cast<std::size_t>(start + page * t.page_stride_bytes + token * t.token_stride_bytes +
                                    head * t.head_stride_bytes);
  }
  [[nodiscard]] std::size_t scale_offset(const fp4pa::KvTensorDesc& t, std::int64_t page, int token, int head) const {
    const auto start = static_cast<std::int64_t>(static_cast<std::uint8_t*>(t.scales) - base_);
    const int row = token / token_group(t.format, t.scale_axis);
    return static_cast<std::size_t>(start + page * t.scale_page_stride_bytes + row * t.scale_token_stride_bytes +
                                    head * t.scale_head_stride_bytes);
  }
  [[nodiscard]] float global(const fp4pa::KvTensorDesc& t, int head) const {
    if (!scaled_globally(t.format)) return 1.0f;
    return (&t == &cache.k ? k_globals : v_globals)[static_cast<std::size_t>(head)];
  }

  Shape shape;
  fp4pa::KvCacheDesc cache;
  std::vector<float> k_globals, v_globals;

 private:
  static constexpr std::int64_t kGuard = 48;
  struct Part {
    std::int64_t row, token, head, page;
  };
  static std::int64_t rounded(std::int64_t n) { return (n + 15) / 16 * 16; }
  static bool scaled_globally(fp4pa::KvFormat f) {
    return f == fp4pa::KvFormat::kNvfp4 || f == fp4pa::KvFormat::kFp8E4m3;
  }

  Part part(const fp4pa::KvTensorDesc& t, bool scales) const {
    const int group = scales ? token_group(t.format, t.scale_axis) : 1;
    const std::int64_t rows = (shape.page_size + group - 1) / group;
    const std::int64_t row =
        scales ? scale_bytes(t.format, t.scale_axis, shape.head_dim) : code_bytes(t.format, shape.head_dim);
    std::int64_t pitch = row;
    if (shape.layout == Layout::kGaps) pitch = scales ? row + 3 : row + 16;
    Part p{row, pitch, pitch, 0};
    if (shape.layout == Layout::kNhd || shape.layout == Layout::kGaps) {
      p.token = pitch * shape.heads;
    } else {
      p.head = pitch * rows;
    }
    p.page = pitch * rows * shape.heads;
    if (!scales) p.page = rounded(p.page);
    return p;
  }

  void set_globals(fp4pa::KvTensorDesc& t, const std::vector<float>& globals) {
    if (!scaled_globally(t.format)) return;
    if (shape.per_head_globals) {
      t.global_scale_ptr = globals.data();
      t.global_scale_per_head = true;
    } else {
      t.global_scale = globals[0];
    }
  }

  std::vector<std::uint8_t> storage_;
  std::uint8_t* base_ = nullptr;
  std::size_t bytes_ = 0;
};

/// New rows [tokens, heads, head_dim] of a plain dtype with padded strides, and their exact values.
class Rows {
 public:
  Rows(fp4pa::DType dtype, std::int64_t tokens, int heads, int head_dim, Random& random)
      : dtype_(dtype), head_dim_(head_dim) {
    head_stride_ = head_dim + 8;
    token_stride_ = heads * head_stride_ + 24;
    const auto elements = static_cast<std::size_t>(tokens * token_stride_);
    storage_.resize(elements * static_cast<std::size_t>(fp4pa::size_of(dtype)));
    values_.resize(elements);
    for (std::size_t i = 0; i < elements; ++i) {
      const float x = random.value();
      if (dtype == fp4pa::DType::kF32) {
        values_[i] = x;
        std::memcpy(storage_.data() + i * 4, &x, 4);
        continue;
      }
      const oracle::Float& half = dtype == fp4pa::DType::kF16 ? oracle::kF16 : oracle::kBf16;
      const auto code = static_cast<std::uint16_t>(half.nearest(x));
      values_[i] = static_cast<float>(half.value(code));
      std::memcpy(storage_.data() + i * 2, &code, 2);
    }
  }

  [[nodiscard]] fp4pa::KvInput input(std::int64_t first_token = 0) const {
    const std::int64_t offset = first_token * token_stride_ * fp4pa::size_of(dtype_);
    return {storage_.data() + offset, dtype_, token_stride_, head_stride_};
  }
  [[nodiscard]] std::vector<float> row(std::int64_t token, int head) const {
    const auto first = values_.begin() + token * token_stride_ + head * head_stride_;
    return {first, first + head_dim_};
  }

 private:
  fp4pa::DType dtype_;
  int head_dim_;
  std::int64_t token_stride_, head_stride_;
  std::vector<std::uint8_t> storage_;
  std::vector<float> values_;
};

}  // namespace test
