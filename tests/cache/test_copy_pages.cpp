// copy_pages: the rows of a page arrive, and the bytes between rows - another tensor's, in interleaved pages - stay.
#include <doctest/doctest.h>

#include <string>

#include "fp4pa/status.hpp"
#include "tests/cache/pool.hpp"
#include "tests/cache/target.hpp"

using namespace fp4pa;

namespace {

void copy_tensor(std::vector<std::uint8_t>& image, const test::Pool& pool, const KvTensorDesc& t, std::int64_t src,
                 std::int64_t dst) {
  const test::Shape& s = pool.shape;
  for (int head = 0; head < s.heads; ++head) {
    for (int token = 0; token < s.page_size; ++token) {
      std::memcpy(image.data() + pool.code_offset(t, dst, token, head),
                  image.data() + pool.code_offset(t, src, token, head),
                  static_cast<std::size_t>(test::code_bytes(t.format, s.head_dim)));
      const auto scales = static_cast<std::size_t>(test::scale_bytes(t.format, t.scale_axis, s.head_dim));
      if (scales == 0) continue;
      std::memcpy(image.data() + pool.scale_offset(t, dst, token, head),
                  image.data() + pool.scale_offset(t, src, token, head), scales);
    }
  }
}

bool says(const char* part) { return std::string(last_error_detail()).find(part) != std::string::npos; }

}  // namespace

TEST_CASE("copy_pages: every layout, with the bytes between rows left alone") {
  struct Formats {
    KvFormat k, v;
    VScaleAxis axis;
  };
  const Formats formats[] = {{KvFormat::kMxfp4, KvFormat::kMxfp4, VScaleAxis::kHeadDim},
                             {KvFormat::kNvfp4, KvFormat::kNvfp4, VScaleAxis::kTokens},
                             {KvFormat::kE8m0PerToken, KvFormat::kMxfp4, VScaleAxis::kTokens},
                             {KvFormat::kBf16, KvFormat::kFp8E4m3, VScaleAxis::kHeadDim}};
  for (const Formats& f : formats) {
    for (const test::Layout layout :
         {test::Layout::kHnd, test::Layout::kNhd, test::Layout::kInterleaved, test::Layout::kGaps}) {
      for (const int page_size : {1, 3, 16, 40}) {
        for (const int heads : {1, 3}) {
          CAPTURE(std::string(name_of(f.k)));
          CAPTURE(std::string(name_of(f.v)));
          CAPTURE(std::string(test::name_of(layout)));
          CAPTURE(page_size);
          test::Shape shape;
          shape.k_format = f.k;
          shape.v_format = f.v;
          shape.axis = f.axis;
          shape.layout = layout;
          shape.page_size = page_size;
          shape.heads = heads;
          test::Pool pool(shape);
          test::Random random(11);
          for (std::size_t i = 0; i < pool.bytes(); ++i) pool.base()[i] = static_cast<std::uint8_t>(random.bits());

          const std::int32_t src[] = {4, 0, 4};
          const std::int32_t dst[] = {1, 5, 3};
          std::vector<std::uint8_t> image = pool.snapshot();
          for (int i = 0; i < 3; ++i) {
            copy_tensor(image, pool, pool.cache.k, src[i], dst[i]);
            copy_tensor(image, pool, pool.cache.v, src[i], dst[i]);
          }
          REQUIRE(cpu::copy_pages(pool.cache, src, dst, 3, {}) == Status::kOk);
          CHECK(pool.snapshot() == image);
        }
      }
    }
  }
}

TEST_CASE("copy_pages: ids outside the pool and pages in two roles are refused, and nothing is written") {
  test::Pool pool{test::Shape{}};
  test::Random random(12);
  for (std::size_t i = 0; i < pool.bytes(); ++i) pool.base()[i] = static_cast<std::uint8_t>(random.bits());
  const auto before = pool.snapshot();
  const auto refused = [&](std::vector<std::int32_t> src, std::vector<std::int32_t> dst, Status status,
                           const char* words) {
    CHECK(cpu::copy_pages(pool.cache, src.data(), dst.data(), static_cast<std::int64_t>(src.size()), {}) == status);
    CAPTURE(std::string(last_error_detail()));
    CHECK(says(words));
    CHECK(pool.snapshot() == before);
  };
  refused({0, 6}, {1, 2}, Status::kBlockIdOutOfRange, "src[1] = 6; allowed: 0 to 5");
  refused({0, 1}, {2, -1}, Status::kBlockIdOutOfRange, "dst[1] = -1");
  refused({0, 1}, {1, 2}, Status::kInvalidArgument, "page 1 is the source of copy 1");
  refused({3}, {3}, Status::kInvalidArgument, "page 3");
  refused({0, 1}, {2, 2}, Status::kInvalidArgument, "page 2 is a destination twice");
}
