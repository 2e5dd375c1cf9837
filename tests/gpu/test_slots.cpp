// Slots that tests/cache/test_slots.cpp has the CPU refuse: a GPU does not see them before it writes. Those outside the pool are
// passed over as negative ones are, and of what is no group no other page is touched.
#include <doctest/doctest.h>

#include <string>

#include "backends/cpu/cache_ops.hpp"
#include "tests/cache/pool.hpp"
#include "tests/cache/target.hpp"

using namespace fp4pa;

namespace {

using Slots = std::vector<std::int64_t>;

constexpr KvFormat kFormats[] = {KvFormat::kMxfp4, KvFormat::kNvfp4,   KvFormat::kE8m0PerToken,
                                 KvFormat::kMxfp8, KvFormat::kFp8E4m3, KvFormat::kBf16};
constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

/// A layout in which what lies behind the last page of one array is another array.
test::Shape shape_of(KvFormat format, VScaleAxis axis = VScaleAxis::kHeadDim) {
  test::Shape shape;
  shape.k_format = shape.v_format = format;
  shape.axis = axis;
  shape.page_size = axis == VScaleAxis::kTokens ? 80 : 16;  // two whole groups of 32 and a short one
  shape.num_pages = 3;
  return shape;
}
std::int64_t limit_of(const test::Shape& shape) { return std::int64_t{shape.num_pages} * shape.page_size; }

Slots run(std::int64_t first, std::int64_t count) {
  Slots slots;
  for (std::int64_t i = 0; i < count; ++i) slots.push_back(first + i);
  return slots;
}
Slots joined(std::initializer_list<Slots> parts) {
  Slots all;
  for (const Slots& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
/// With padding in the place of slots outside of the pool.
Slots inside(Slots slots, std::int64_t limit) {
  for (std::int64_t& slot : slots) slot = slot < limit ? slot : -1;
  return slots;
}

struct Tokens {
  Tokens(const test::Shape& shape, DType dtype, std::size_t count) : Tokens(shape, dtype, count, test::Random(5)) {}
  Tokens(const test::Shape& shape, DType dtype, std::size_t count, test::Random random)
      : k(dtype, static_cast<std::int64_t>(count), shape.heads, shape.head_dim, random),
        v(dtype, static_cast<std::int64_t>(count), shape.heads, shape.head_dim, random) {}
  test::Rows k, v;
};

/// Rows at 16-byte addresses and others have kernels of their own.
enum class Rows { kAligned, kOneElementOff };

KvInput moved(KvInput input, Rows rows) {
  if (rows == Rows::kOneElementOff) input.data = static_cast<const std::uint8_t*>(input.data) + size_of(input.dtype);
  return input;
}

/// A target's pool after an append, byte for byte that of the CPU after an append to the slots inside.
void check_append_of(Rows rows, const test::Target& target, const test::Shape& shape, DType dtype, const Slots& slots,
                     IndexType type) {
  const Tokens tokens(shape, dtype, slots.size());
  const auto count = static_cast<std::int64_t>(slots.size());
  const Slots kept = inside(slots, limit_of(shape));
  const KvInput k = moved(tokens.k.input(), rows);
  const KvInput v = moved(tokens.v.input(), rows);
  test::Pool expected(shape);
  const std::vector<std::uint8_t> before = expected.snapshot();
  REQUIRE(cpu::append(expected.cache, k, v, {kept.data(), IndexType::kInt64, count}, {}) == Status::kOk);
  CHECK(expected.snapshot() != before);

  test::Pool pool(shape);
  const std::vector<std::int32_t> narrow(slots.begin(), slots.end());
  const void* const data = type == IndexType::kInt32 ? static_cast<const void*>(narrow.data()) : slots.data();
  REQUIRE(target.append(pool.cache, k, v, {data, type, count}, {}) == Status::kOk);
  CHECK(pool.snapshot() == expected.snapshot());
}
void check_append(const test::Target& target, const test::Shape& shape, DType dtype, const Slots& slots,
                  IndexType type = IndexType::kInt64) {
  for (const Rows rows : {Rows::kAligned, Rows::kOneElementOff}) {
    CAPTURE(static_cast<int>(rows));
    check_append_of(rows, target, shape, dtype, slots, type);
  }
}

}  // namespace

TEST_CASE("slots on a GPU: append passes over those past the pool, and writes the others") {
  std::uint64_t seed = 0;
  for (const KvFormat format : kFormats) {
    for (const DType dtype : kDTypes) {
      if (!test::is_run(seed++)) continue;
      CAPTURE(std::string(name_of(format)));
      CAPTURE(std::string(name_of(dtype)));
      const test::Shape shape = shape_of(format);
      const std::int64_t limit = limit_of(shape);
      for (const test::Target& target : test::kTargets) {
        CAPTURE(std::string(target.name));
        // The page behind the pool; slots whose lower words, or products with what a row takes, lead back into it.
        check_append(target, shape, dtype,
                     joined({run(16, 5),
                             run(limit, 16),
                             {std::int64_t{1} << 32},
                             run(30, 4),
                             {(std::int64_t{1} << 40) + 3, INT64_MAX, 0, -1, 47}}));
        check_append(target, shape, dtype, joined({run(16, 5), run(limit, 16), {INT32_MAX, 1 << 28, 0, -7, 47}}),
                     IndexType::kInt32);
      }
    }
  }
}

TEST_CASE("slots on a GPU: append of V along tokens passes over groups past the pool") {
  std::uint64_t seed = 0;
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    for (const DType dtype : kDTypes) {
      if (!test::is_run(seed++)) continue;
      CAPTURE(std::string(name_of(format)));
      CAPTURE(std::string(name_of(dtype)));
      const test::Shape shape = shape_of(format, VScaleAxis::kTokens);
      const std::int64_t limit = limit_of(shape);
      for (const test::Target& target : test::kTargets) {
        CAPTURE(std::string(target.name));
        check_append(target, shape, dtype, joined({run(80, 80), run(limit, 80), run(0, 64)}));
        check_append(target, shape, dtype, joined({run(limit + 80, 32), run(std::int64_t{1} << 32, 32), run(160, 37)}));
      }
    }
  }
}

TEST_CASE("slots on a GPU: whole groups and short last ones give the CPU's bytes") {
  std::uint64_t seed = 0;
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    const test::Shape shape = shape_of(format, VScaleAxis::kTokens);
    for (const Slots& slots :
         {run(0, 80), run(32, 32), run(0, 37), run(64, 16), run(64, 16 + 80), joined({run(0, 37), run(80, 37)}),
          joined({run(64, 16), run(0, 64)}), Slots{-1, 0, -7, 1, 2, -1, 3, -3}}) {
      for (const DType dtype : kDTypes) {
        if (!test::is_run(seed++)) continue;
        CAPTURE(std::string(name_of(format)));
        CAPTURE(std::string(name_of(dtype)));
        CAPTURE(slots.size());
        CAPTURE(slots.front());
        for (const test::Target& target : test::kTargets) {
          CAPTURE(std::string(target.name));
          check_append(target, shape, dtype, slots);
        }
      }
    }
  }
}

TEST_CASE("slots on a GPU: of what is no group no other page is touched") {
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    const test::Shape shape = shape_of(format, VScaleAxis::kTokens);
    // All in page 1: begun inside a group, with a hole, a group cut short, descending.
    for (const Slots& slots : {Slots{85}, joined({run(80, 4), run(85, 3)}), joined({run(80, 7), run(112, 32)}), Slots{81, 80}}) {
      for (const test::Target& target : test::kTargets) {
        CAPTURE(std::string(target.name));
        CAPTURE(slots.size());
        const Tokens tokens(shape, DType::kBF16, slots.size());
        test::Pool pool(shape);
        std::vector<std::uint8_t> image = pool.snapshot();
        const api::SlotList list{slots.data(), IndexType::kInt64, static_cast<std::int64_t>(slots.size())};
        REQUIRE(target.append(pool.cache, tokens.k.input(), tokens.v.input(), list, {}) == Status::kOk);
        const std::vector<std::uint8_t> after = pool.snapshot();
        CHECK(after != image);  // K has no groups
        for (const KvTensorDesc* t : {&pool.cache.k, &pool.cache.v}) {
          const auto forget = [&](std::size_t begin, std::int64_t bytes) {
            const auto first = static_cast<std::ptrdiff_t>(begin);
            std::copy(after.begin() + first, after.begin() + first + bytes, image.begin() + first);
          };
          forget(pool.code_offset(*t, 1, 0, 0), t->page_stride_bytes);
          forget(pool.scale_offset(*t, 1, 0, 0), t->scale_page_stride_bytes);
        }
        CHECK(after == image);
      }
    }
  }
}

TEST_CASE("slots on a GPU: gather leaves the rows of slots past the pool as they are") {
  std::uint64_t seed = 0;
  for (const KvFormat format : kFormats) {
    for (const DType dtype : kDTypes) {
      if (!test::is_run(seed++)) continue;
      CAPTURE(std::string(name_of(format)));
      CAPTURE(std::string(name_of(dtype)));
      const test::Shape shape = shape_of(format);
      const std::int64_t limit = limit_of(shape);
      test::Pool pool(shape);
      const Tokens tokens(shape, DType::kBF16, static_cast<std::size_t>(limit));
      const Slots all = run(0, limit);
      REQUIRE(cpu::append(pool.cache, tokens.k.input(), tokens.v.input(), {all.data(), IndexType::kInt64, limit}, {}) ==
              Status::kOk);

      const Slots slots = joined({{3, limit, 47, std::int64_t{1} << 32, INT64_MAX, 0, -1, limit + 15, 20}});
      const Slots kept = inside(slots, limit);
      const auto count = static_cast<std::int64_t>(slots.size());
      const auto gathered = [&](const auto& gather, const Slots& of, Rows rows) {
        const std::int64_t row = std::int64_t{shape.heads} * shape.head_dim + (rows == Rows::kOneElementOff ? 1 : 0);
        std::vector<std::uint8_t> k(static_cast<std::size_t>(count * row * size_of(dtype)), test::kPoison), v = k;
        REQUIRE(gather(pool.cache, api::SlotList{of.data(), IndexType::kInt64, count},
                       KvOutput{k.data(), dtype, row, shape.head_dim}, KvOutput{v.data(), dtype, row, shape.head_dim},
                       ExecDesc{}) == Status::kOk);
        k.insert(k.end(), v.begin(), v.end());
        return k;
      };
      for (const Rows rows : {Rows::kAligned, Rows::kOneElementOff}) {
        CAPTURE(static_cast<int>(rows));
        const std::vector<std::uint8_t> expected = gathered(cpu::gather, kept, rows);
        CHECK(expected != std::vector<std::uint8_t>(expected.size(), test::kPoison));
        for (const test::Target& target : test::kTargets) {
          CAPTURE(std::string(target.name));
          CHECK(gathered(target.gather, slots, rows) == expected);
        }
      }
    }
  }
}
