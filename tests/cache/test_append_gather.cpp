// append and gather against the oracle: every format, page size, layout, input type and scale axis.
//
// Each case appends ragged sequences to shuffled pages, with padding tokens (negative slots) in between, and then
// compares the whole memory with the oracle's image; then gathers everything back, in another order, into each dtype.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "tests/cache/expect.hpp"
#include "tests/cache/target.hpp"

using namespace fp4pa;

namespace {

constexpr KvFormat kFormats[] = {KvFormat::kMxfp4,   KvFormat::kNvfp4, KvFormat::kE8m0PerToken,
                                 KvFormat::kFp8E4m3, KvFormat::kBf16,  KvFormat::kF16, KvFormat::kMxfp8};
constexpr int kPageSizes[] = {1, 3, 16, 32, 64, 1024};
constexpr test::Layout kLayouts[] = {test::Layout::kHnd, test::Layout::kNhd, test::Layout::kInterleaved,
                                     test::Layout::kGaps};
constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Sequences in shuffled pages: whole pages, then a ragged one. Returns slots with -1 (or another negative) mixed in.
std::vector<std::int64_t> make_slots(const test::Shape& s, test::Random& random) {
  std::vector<std::int64_t> pages(static_cast<std::size_t>(s.num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  for (std::size_t i = pages.size(); i > 1; --i)
    std::swap(pages[i - 1], pages[static_cast<std::size_t>(random.below(static_cast<int>(i)))]);
  pages.resize(pages.size() - 1);  // one page stays unused
  std::vector<std::int64_t> slots;
  const auto pad = [&] {
    for (int n = random.below(4) - 1; n > 0; --n) slots.push_back(-1 - random.below(1 << 20));
  };
  for (std::size_t p = 0; p < pages.size(); ++p) {
    const bool ragged = p % 2 == 1;
    const int rows = ragged ? 1 + random.below(s.page_size) : s.page_size;
    for (int r = 0; r < rows; ++r) {
      pad();
      slots.push_back(pages[p] * s.page_size + r);
    }
  }
  pad();
  return slots;
}

// What `append` must leave behind.
test::Image expected_image(const test::Pool& pool, const test::Rows& k, const test::Rows& v,
                           const std::vector<std::int64_t>& slots, test::Image image) {
  const test::Shape& s = pool.shape;
  const int group = test::token_group(s.v_format, s.axis);
  for (int head = 0; head < s.heads; ++head) {
    std::vector<std::vector<float>> rows;
    std::int64_t group_page = 0;
    int group_row = 0;
    const auto flush = [&] {
      if (!rows.empty()) test::expect_group(image, pool, group_page, group_row, head, rows);
      rows.clear();
    };
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] < 0) continue;
      const std::int64_t page = slots[i] / s.page_size;
      const int row = static_cast<int>(slots[i] % s.page_size);
      const auto token = static_cast<std::int64_t>(i);
      test::expect_row(image, pool, pool.cache.k, page, row, head, test::rotated(k.row(token, head), s.rotation));
      if (s.axis == VScaleAxis::kHeadDim) {
        test::expect_row(image, pool, pool.cache.v, page, row, head, v.row(token, head));
        continue;
      }
      if (row % group == 0) {
        flush();
        group_page = page;
        group_row = row;
      }
      rows.push_back(v.row(token, head));
    }
    flush();
  }
  return image;
}

float as_stored(float x, DType dtype) {
  if (dtype == DType::kF32) return x;
  const oracle::Float& half = dtype == DType::kF16 ? oracle::kF16 : oracle::kBf16;
  // The formats' largest values pass f16's range only with global scales that these tests do not use.
  return static_cast<float>(half.value(half.nearest(x)));
}

float load(const std::vector<std::uint8_t>& data, DType dtype, std::size_t index) {
  if (dtype == DType::kF32) {
    float x = 0;
    std::memcpy(&x, data.data() + 4 * index, 4);
    return x;
  }
  std::uint16_t code = 0;
  std::memcpy(&code, data.data() + 2 * index, 2);
  return static_cast<float>((dtype == DType::kF16 ? oracle::kF16 : oracle::kBf16).value(code));
}

void check_gather(const test::Target& target, const test::Pool& pool, std::vector<std::int64_t> slots, DType dtype,
                  const test::Image& image, test::Random& random) {
  const test::Shape& s = pool.shape;
  for (std::size_t i = slots.size(); i > 1; --i)
    std::swap(slots[i - 1], slots[static_cast<std::size_t>(random.below(static_cast<int>(i)))]);
  const std::int64_t head_stride = s.head_dim + 4;
  const std::int64_t token_stride = s.heads * head_stride + 12;
  const auto bytes = slots.size() * static_cast<std::size_t>(token_stride * size_of(dtype));
  std::vector<std::uint8_t> k(bytes, test::kPoison);
  std::vector<std::uint8_t> v(bytes, test::kPoison);
  const api::SlotList list{slots.data(), IndexType::kInt64, static_cast<std::int64_t>(slots.size())};
  REQUIRE(target.gather(pool.cache, list, {k.data(), dtype, token_stride, head_stride},
                        {v.data(), dtype, token_stride, head_stride}, {}) == Status::kOk);

  long long wrong = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    for (std::int64_t column = 0; column < token_stride; ++column) {
      const auto index = i * static_cast<std::size_t>(token_stride) + static_cast<std::size_t>(column);
      const auto head = static_cast<int>(column / head_stride);
      const auto element = static_cast<int>(column % head_stride);
      if (slots[i] < 0 || head >= s.heads || element >= s.head_dim) {
        // Rows of negative slots, and what lies between rows.
        const auto size = static_cast<std::size_t>(size_of(dtype));
        for (std::size_t b = 0; b < size; ++b) {
          wrong += k[index * size + b] != test::kPoison;
          wrong += v[index * size + b] != test::kPoison;
        }
        continue;
      }
      const std::int64_t page = slots[i] / s.page_size;
      const int row = static_cast<int>(slots[i] % s.page_size);
      const float want_k = as_stored(test::expect_value(image, pool, pool.cache.k, page, row, head, element), dtype);
      const float want_v = as_stored(test::expect_value(image, pool, pool.cache.v, page, row, head, element), dtype);
      wrong += load(k, dtype, index) != want_k;
      wrong += load(v, dtype, index) != want_v;
    }
  }
  CHECK(wrong == 0);
}

void run_case(const test::Shape& shape, DType dtype, std::uint64_t seed) {
  if (!test::is_run(seed)) return;
  CAPTURE(std::string(name_of(shape.k_format)));
  CAPTURE(std::string(name_of(shape.v_format)));
  CAPTURE(std::string(name_of(shape.axis)));
  CAPTURE(std::string(test::name_of(shape.layout)));
  CAPTURE(shape.page_size);
  CAPTURE(shape.head_dim);
  CAPTURE(std::string(name_of(dtype)));
  CAPTURE(static_cast<int>(shape.rotation));
  CAPTURE(seed);
  test::Image first;
  for (const test::Target& target : test::kTargets) {
    CAPTURE(std::string(target.name));
    test::Random random(seed);
    test::Pool pool(shape);
    const std::vector<std::int64_t> slots = make_slots(shape, random);
    const auto tokens = static_cast<std::int64_t>(slots.size());
    const test::Rows k(dtype, tokens, shape.heads, shape.head_dim, random);
    const test::Rows v(dtype, tokens, shape.heads, shape.head_dim, random);
    // Half of the cases use int32 slots; values below -2^20 do not occur.
    const std::vector<std::int32_t> narrow(slots.begin(), slots.end());
    const bool use_narrow = seed % 2 == 0;
    const api::SlotList list{use_narrow ? static_cast<const void*>(narrow.data()) : slots.data(),
                             use_narrow ? IndexType::kInt32 : IndexType::kInt64, tokens};
    // The oracle is slow: once per case, for both targets.
    if (first.empty()) first = expected_image(pool, k, v, slots, pool.snapshot());
    ExecDesc exec;
    exec.num_threads = 1 + static_cast<int>(seed % 3);
    REQUIRE(target.append(pool.cache, k.input(), v.input(), list, exec) == Status::kOk);
    CHECK(pool.snapshot() == first);
    check_gather(target, pool, slots, kDTypes[seed % 3], first, random);
  }
}

int pages_for(int page_size) { return page_size >= 1024 ? 3 : page_size >= 32 ? 4 : 9; }

}  // namespace

TEST_CASE("append and gather: every format, page size, layout and dtype") {
  std::uint64_t seed = 1;
  for (const KvFormat format : kFormats) {
    for (const int page_size : kPageSizes) {
      for (const test::Layout layout : kLayouts) {
        test::Shape shape;
        shape.k_format = format;
        shape.v_format = format;
        shape.layout = layout;
        shape.page_size = page_size;
        shape.num_pages = pages_for(page_size);
        shape.head_dim = page_size >= 1024 ? 32 : 96;
        shape.heads = page_size >= 1024 ? 1 : 3;
        shape.rotation = seed % 2 == 0 ? Rotation::kHadamard32 : Rotation::kNone;
        shape.per_head_globals = seed % 4 == 3;
        run_case(shape, kDTypes[seed % 3], seed);
        ++seed;
      }
    }
  }
}

TEST_CASE("append and gather: V scaled along tokens") {
  std::uint64_t seed = 10001;
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    for (const int page_size : {1, 3, 16, 24, 32, 40, 64, 1024}) {
      for (const test::Layout layout : kLayouts) {
        test::Shape shape;
        shape.k_format = seed % 3 == 0 ? KvFormat::kE8m0PerToken : format;
        shape.v_format = format;
        shape.axis = VScaleAxis::kTokens;
        shape.layout = layout;
        shape.page_size = page_size;
        shape.num_pages = pages_for(page_size);
        shape.head_dim = page_size >= 1024 ? 32 : 64;
        shape.nvfp4 = seed % 2 == 0 ? Nvfp4Scale::kFourOverSix : Nvfp4Scale::kAmaxOver6;
        shape.per_head_globals = seed % 4 == 1;
        run_case(shape, kDTypes[seed % 3], seed);
        ++seed;
      }
    }
  }
}

TEST_CASE("append and gather: K and V in different formats, every head_dim") {
  std::uint64_t seed = 20001;
  for (const KvFormat k_format : kFormats) {
    for (const KvFormat v_format : kFormats) {
      test::Shape shape;
      shape.k_format = k_format;
      shape.v_format = v_format;
      shape.layout = kLayouts[seed % 4];
      shape.head_dim = 32 * (1 + static_cast<int>(seed % 8));
      shape.num_pages = 3;
      run_case(shape, kDTypes[(seed / 4) % 3], seed);
      ++seed;
    }
  }
}

TEST_CASE("append and gather: every rotation and scale rule") {
  std::uint64_t seed = 30001;
  for (const Rotation rotation :
       {Rotation::kHadamard16, Rotation::kHadamard32, Rotation::kHadamard64, Rotation::kHadamard128}) {
    for (const ScaleMode mode : {ScaleMode::kFloor, ScaleMode::kCeil, ScaleMode::kRceil, ScaleMode::kEven}) {
      for (const Nvfp4Scale nvfp4 : {Nvfp4Scale::kAmaxOver6, Nvfp4Scale::kFourOverSix}) {
        test::Shape shape;
        shape.rotation = rotation;
        shape.mode = mode;
        shape.nvfp4 = nvfp4;
        shape.head_dim = 256;
        shape.num_pages = 2;
        shape.k_format = seed % 2 == 0 ? KvFormat::kNvfp4 : KvFormat::kMxfp4;
        shape.v_format = seed % 2 == 0 ? KvFormat::kE8m0PerToken : KvFormat::kNvfp4;
        run_case(shape, DType::kBF16, seed);
        ++seed;
      }
    }
  }
}

TEST_CASE("rotation is the orthonormal Hadamard matrix, block by block") {
  test::Random random(7);
  for (const int block : {16, 32, 64, 128}) {
    std::vector<float> x(256);
    for (float& v : x) v = random.value();
    const std::vector<float> y = test::rotated(x, static_cast<Rotation>(block));
    for (int i = 0; i < 256; ++i) {
      double want = 0.0;
      double size = 0.0;
      for (int j = 0; j < block; ++j) {
        const double term = x[static_cast<std::size_t>(i / block * block + j)] / std::sqrt(static_cast<double>(block));
        want += __builtin_popcount(static_cast<unsigned>(i % block & j)) % 2 == 0 ? term : -term;
        size += std::fabs(term);
      }
      CHECK(std::fabs(y[static_cast<std::size_t>(i)] - want) <= 1e-6 * size);
    }
  }
}

TEST_CASE("gather: one of K and V") {
  test::Shape shape;
  shape.k_format = KvFormat::kBf16;
  shape.v_format = KvFormat::kMxfp4;
  test::Random random(3);
  test::Pool pool(shape);
  const test::Rows rows(DType::kF32, 4, shape.heads, shape.head_dim, random);
  const std::int32_t slots[] = {3, 0, 17, 40};
  const api::SlotList list{slots, IndexType::kInt32, 4};
  for (const test::Target& target : test::kTargets) {
    REQUIRE(target.append(pool.cache, rows.input(), rows.input(), list, {}) == Status::kOk);
    std::vector<float> out(4 * 2 * 64, -77.0f);
    REQUIRE(target.gather(pool.cache, list, {out.data(), DType::kF32, 128, 64}, {}, {}) == Status::kOk);
    CHECK(out[0] == static_cast<float>(oracle::kBf16.value(oracle::kBf16.nearest(rows.row(0, 0)[0]))));
    CHECK(std::count(out.begin(), out.end(), -77.0f) == 0);
    const std::vector<float> k_only = out;
    REQUIRE(target.gather(pool.cache, list, {}, {out.data(), DType::kF32, 128, 64}, {}) == Status::kOk);
    CHECK(out != k_only);
  }
}
