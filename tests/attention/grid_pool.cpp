// See grid_pool.hpp.
#include "tests/attention/grid_pool.hpp"

#include <cstring>
#include <new>

namespace grid {
namespace {

using fp4pa::KvFormat;
using fp4pa::KvTensorDesc;

constexpr std::int64_t kPad = 48;  // between rows, heads and pages of Layout::kPadded

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// Strides with gaps at every level: head inside token inside page.
void pad_strides(KvTensorDesc& tensor, const fp4pa::KvCacheDesc& cache) {
  const std::int64_t row = fp4pa::kv_data_bytes(tensor.format, cache.head_dim);
  tensor.head_stride_bytes = round_up(row, 16) + kPad;
  tensor.token_stride_bytes = tensor.head_stride_bytes * cache.num_kv_heads + kPad;
  tensor.page_stride_bytes = tensor.token_stride_bytes * cache.page_size + kPad;
  const std::int64_t scales = fp4pa::kv_scale_bytes(tensor.format, tensor.scale_axis, cache.head_dim);
  if (scales == 0) return;
  // Scales have no alignment: odd strides must work.
  tensor.scale_head_stride_bytes = scales + 1;
  tensor.scale_token_stride_bytes = tensor.scale_head_stride_bytes * cache.num_kv_heads + 3;
  tensor.scale_page_stride_bytes = tensor.scale_token_stride_bytes * cache.page_size + 5;
}

/// Bytes that the tensor's codes or scales span, from its strides.
std::int64_t data_span(const KvTensorDesc& tensor, const fp4pa::KvCacheDesc& cache) {
  return round_up(tensor.page_stride_bytes * cache.num_pages, 16);
}
std::int64_t scale_span(const KvTensorDesc& tensor, const fp4pa::KvCacheDesc& cache) {
  return round_up(tensor.scale_page_stride_bytes * cache.num_pages, 16);
}

/// A finite code of one byte: any pair of E2M1, or an E4M3 of at most 2^3 with all subnormals among them.
std::uint8_t random_code(KvFormat format, test::Random& random) {
  const auto byte = static_cast<std::uint8_t>(random.bits());
  if (format != KvFormat::kFp8E4m3 && format != KvFormat::kMxfp8) return byte;
  const int exponent = static_cast<int>(random.bits() % 11);
  return static_cast<std::uint8_t>((byte & 0x87) | exponent << 3);
}

/// A scale between 1/8 and 2; every second of NVFP4 with the sign bit, which UE4M3 does not look at.
std::uint8_t random_scale(KvFormat format, test::Random& random) {
  const auto bits = static_cast<int>(random.bits() & 0xFF);
  return static_cast<std::uint8_t>(format == KvFormat::kNvfp4 ? (bits & 0x80) | (0x20 + bits % 0x20) : 124 + bits % 5);
}

bool has_global_scale(KvFormat format) { return format == KvFormat::kNvfp4 || format == KvFormat::kFp8E4m3; }

void set_global_scale(KvTensorDesc& tensor, GlobalScale kind, std::vector<float>& storage, std::int32_t heads,
                      test::Random& random) {
  if (!has_global_scale(tensor.format) || kind == GlobalScale::kOne) return;
  for (std::int32_t h = 0; h < heads; ++h) storage.push_back(0.25f + static_cast<float>(random.uniform()));
  if (kind == GlobalScale::kValue) {
    tensor.global_scale = storage[0];
    return;
  }
  tensor.global_scale_ptr = storage.data();
  tensor.global_scale_per_head = kind == GlobalScale::kPerHead;
}

}  // namespace

Memory::Memory(std::size_t bytes, std::uint8_t fill) {
  void* data = nullptr;
  if (::posix_memalign(&data, 256, bytes == 0 ? 1 : bytes) != 0) throw std::bad_alloc();
  std::memset(data, fill, bytes);
  data_.reset(static_cast<std::uint8_t*>(data));
}

void write_plain(void* to, fp4pa::DType dtype, test::Random& random) {
  const std::uint64_t bits = random.bits();
  const std::uint64_t exponent_step = bits >> 40 & 3;  // 2^-3 to 2^0
  if (dtype == fp4pa::DType::kF32) {
    const auto word = static_cast<std::uint32_t>((bits & 0x807FFFFF) | (124 + exponent_step) << 23);
    std::memcpy(to, &word, 4);
    return;
  }
  const auto word = dtype == fp4pa::DType::kBF16
                        ? static_cast<std::uint16_t>((bits & 0x807F) | (124 + exponent_step) << 7)
                        : static_cast<std::uint16_t>((bits & 0x83FF) | (12 + exponent_step) << 10);
  std::memcpy(to, &word, 2);
}

Pool::Pool(const fp4pa::KvCacheDesc& desc, Layout layout, GlobalScale global_scale, std::uint8_t poison,
           test::Random& random)
    : desc_(desc) {
  if (layout == Layout::kInterleavedHnd || layout == Layout::kInterleavedNhd) {
    const auto order = layout == Layout::kInterleavedHnd ? fp4pa::PageOrder::kHnd : fp4pa::PageOrder::kNhd;
    alignas(16) static char base[16];
    const std::int64_t page_bytes = fp4pa::set_interleaved_pages(desc_, order, base);
    (void)fp4pa::set_interleaved_pages(desc_, order, place(0, page_bytes * desc_.num_pages, poison));
  } else {
    if (layout == Layout::kPadded) {
      pad_strides(desc_.k, desc_);
      pad_strides(desc_.v, desc_);
    } else {
      fp4pa::set_dense_strides(desc_, layout == Layout::kHnd ? fp4pa::PageOrder::kHnd : fp4pa::PageOrder::kNhd);
    }
    const int odd = layout == Layout::kPadded ? 1 : 0;  // fits into the last page's padding
    const auto scales = [&](int i, const KvTensorDesc& tensor) {
      const std::int64_t bytes = scale_span(tensor, desc_);
      return bytes == 0 ? nullptr : place(i, bytes, poison) + odd;
    };
    desc_.k.data = place(0, data_span(desc_.k, desc_), poison);
    desc_.k.scales = scales(1, desc_.k);
    desc_.v.data = place(2, data_span(desc_.v, desc_), poison);
    desc_.v.scales = scales(3, desc_.v);
  }
  set_global_scale(desc_.k, global_scale, k_scales_, desc_.num_kv_heads, random);
  set_global_scale(desc_.v, global_scale, v_scales_, desc_.num_kv_heads, random);
}

std::uint8_t* Pool::place(int i, std::int64_t bytes, std::uint8_t poison) {
  test::Fenced& array = arrays_[static_cast<std::size_t>(i)] = test::Fenced(static_cast<std::size_t>(bytes));
  std::memset(array.data(), poison, array.size());
  return array.data();
}

void Pool::write_tensor_row(const KvTensorDesc& tensor, std::int64_t page, std::int32_t row, std::int32_t head,
                            test::Random& random) {
  auto* codes = static_cast<std::uint8_t*>(tensor.data) + page * tensor.page_stride_bytes +
                row * tensor.token_stride_bytes + head * tensor.head_stride_bytes;
  if (tensor.format == KvFormat::kBf16 || tensor.format == KvFormat::kF16) {
    const auto dtype = tensor.format == KvFormat::kBf16 ? fp4pa::DType::kBF16 : fp4pa::DType::kF16;
    for (std::int32_t d = 0; d < desc_.head_dim; ++d) write_plain(codes + 2 * d, dtype, random);
    return;
  }
  const std::int64_t code_bytes = fp4pa::kv_data_bytes(tensor.format, desc_.head_dim);
  for (std::int64_t i = 0; i < code_bytes; ++i) codes[i] = random_code(tensor.format, random);

  const std::int64_t scale_bytes = fp4pa::kv_scale_bytes(tensor.format, tensor.scale_axis, desc_.head_dim);
  const std::int32_t group = fp4pa::kv_token_group(tensor.format, tensor.scale_axis);
  if (row % group != 0) return;  // along tokens: the group's first token brings the scales
  auto* scales = static_cast<std::uint8_t*>(tensor.scales) + page * tensor.scale_page_stride_bytes +
                 row / group * tensor.scale_token_stride_bytes + head * tensor.scale_head_stride_bytes;
  for (std::int64_t i = 0; i < scale_bytes; ++i) scales[i] = random_scale(tensor.format, random);
}

void Pool::write_token(std::int64_t page, std::int32_t row, test::Random& random) {
  for (std::int32_t head = 0; head < desc_.num_kv_heads; ++head) {
    write_tensor_row(desc_.k, page, row, head, random);
    write_tensor_row(desc_.v, page, row, head, random);
  }
}

}  // namespace grid
