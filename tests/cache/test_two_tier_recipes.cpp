// The recipes of docs/engine.md for sequences in two tiers that do not begin empty: a hit in a prefix cache, and a fork.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fp4pa/cache.hpp"
#include "tests/cache/pool.hpp"

using namespace fp4pa;

namespace {

constexpr int kWindow = 32, kGroup = 32, kOldPage = 64, kRecentPage = 16, kHeads = 2, kHeadDim = 32;
constexpr int kRow = kHeads * kHeadDim;
constexpr int kRing = min_ring_pages(kWindow, kGroup, kRecentPage);

test::Shape shape_of(KvFormat format, int page_size, int pages) {
  test::Shape shape;
  shape.k_format = shape.v_format = format;
  shape.heads = kHeads;
  shape.head_dim = kHeadDim;
  shape.page_size = page_size;
  shape.num_pages = pages;
  shape.rotation = Rotation::kHadamard32;
  if (format == KvFormat::kMxfp4) shape.axis = VScaleAxis::kTokens;
  return shape;
}

/// Tokens 0 .. shared - 1 of every sequence of a seed are the same.
std::vector<float> tokens_of(std::uint64_t seed, int shared, int total) {
  test::Random common(1), own(seed);
  std::vector<float> x(static_cast<std::size_t>(total * kRow));
  for (int i = 0; i < total * kRow; ++i) x[static_cast<std::size_t>(i)] = i < shared * kRow ? common.value() : own.value();
  return x;
}
KvInput input_of(const std::vector<float>& x, int first) {
  KvInput input;
  input.data = x.data() + first * kRow;
  input.dtype = DType::kF32;
  return input;
}

struct Sequence {
  std::vector<std::int32_t> old_pages, ring;
};

struct Engine {
  explicit Engine(const char* backend) { exec.backend = backend; }

  [[nodiscard]] TwoTierDesc tiers() const {
    TwoTierDesc desc;
    desc.old_tier = old_pool.cache;
    desc.recent = recent_pool.cache;
    desc.window_tokens = kWindow;
    desc.group_tokens = kGroup;
    desc.ring_pages = kRing;
    return desc;
  }
  void append_tokens(const Sequence& s, const std::vector<float>& x, int from, int to) {
    const std::int32_t indptr[] = {0, to - from};
    const std::int32_t length = from;
    REQUIRE(append_two_tier(tiers(), input_of(x, from), input_of(x, from), indptr, &length, 1, to - from, s.old_pages.data(),
                            static_cast<std::int64_t>(s.old_pages.size()), s.ring.data(), exec) == Status::kOk);
  }
  static std::int64_t ring_slot(const Sequence& s, int t) {
    return std::int64_t{s.ring[static_cast<std::size_t>(t / kRecentPage % kRing)]} * kRecentPage + t % kRecentPage;
  }
  /// K and V of a sequence of `length` tokens.
  [[nodiscard]] std::vector<float> read(const Sequence& s, int length) const {
    const int quantised = quantised_tokens(length, kWindow, kGroup);
    std::vector<std::int64_t> old_slots, ring_slots;
    for (int t = 0; t < quantised; ++t) {
      old_slots.push_back(std::int64_t{s.old_pages[static_cast<std::size_t>(t / kOldPage)]} * kOldPage + t % kOldPage);
    }
    for (int t = quantised; t < length; ++t) ring_slots.push_back(ring_slot(s, t));
    std::vector<float> found(static_cast<std::size_t>(2 * length * kRow));
    float* const k = found.data();
    float* const v = k + length * kRow;
    REQUIRE(gather(old_pool.cache, old_slots.data(), IndexType::kInt64, quantised, {k}, {v}, exec) == Status::kOk);
    REQUIRE(gather(recent_pool.cache, ring_slots.data(), IndexType::kInt64, length - quantised, {k + quantised * kRow},
                   {v + quantised * kRow}, exec) == Status::kOk);
    return found;
  }

  test::Pool old_pool{shape_of(KvFormat::kMxfp4, kOldPage, 16)};
  test::Pool recent_pool{shape_of(KvFormat::kBf16, kRecentPage, 3 * kRing)};
  ExecDesc exec;
};

std::vector<std::int32_t> ring_of(int number) {
  std::vector<std::int32_t> pages;
  for (int i = 0; i < kRing; ++i) pages.push_back((kRing - 1 - i) * 3 + number);
  return pages;
}

/// What a sequence of these tokens reads that never shared anything.
std::vector<float> alone(const char* backend, const std::vector<float>& x, int length) {
  Engine e(backend);
  const Sequence s{{0, 1, 2, 3, 4}, ring_of(0)};
  e.append_tokens(s, x, 0, length);
  return e.read(s, length);
}

}  // namespace

TEST_CASE("recipe: a hit in a prefix cache recomputes a window") {
  constexpr int kHit = 2 * kOldPage;
  for (const char* backend : {"cpu", "cpu-scalar"}) {
    CAPTURE(std::string(backend));
    Engine e(backend);
    const std::vector<float> first = tokens_of(11, kHit, 250), second = tokens_of(12, kHit, 250);
    const Sequence owner{{0, 1, 2, 3}, ring_of(0)};
    e.append_tokens(owner, first, 0, 230);

    const Sequence s{{0, 1, 9, 8}, ring_of(1)};  // the owner's first two pages
    std::vector<std::int64_t> slots;
    for (int t = kHit; t < kHit + kWindow; ++t) slots.push_back(Engine::ring_slot(s, t));
    REQUIRE(append(e.recent_pool.cache, input_of(second, kHit), input_of(second, kHit), slots.data(), IndexType::kInt64, kWindow,
                   e.exec) == Status::kOk);
    int length = kHit + kWindow;
    CHECK(e.read(s, length) == alone(backend, second, length));
    for (const int to : {length + 1, length + 40, 250}) {
      e.append_tokens(s, second, length, to);
      length = to;
      CHECK(e.read(s, length) == alone(backend, second, length));
    }
    CHECK(e.read(owner, 230) == alone(backend, first, 230));
  }
}

TEST_CASE("recipe: a fork shares the old tier's full pages and copies the rest") {
  constexpr int kForked = 2 * kOldPage + kGroup + kWindow + 5;  // two full pages, half of one, 37 tokens in the ring
  for (const char* backend : {"cpu", "cpu-scalar"}) {
    CAPTURE(std::string(backend));
    Engine e(backend);
    const std::vector<float> first = tokens_of(11, kForked, 260), second = tokens_of(12, kForked, 260);
    const Sequence parent{{0, 1, 2, 3}, ring_of(0)};
    e.append_tokens(parent, first, 0, kForked);

    const Sequence child{{0, 1, 9, 8}, ring_of(2)};
    const std::int32_t full = quantised_tokens(kForked, kWindow, kGroup) / kOldPage;
    REQUIRE(copy_pages(e.old_pool.cache, &parent.old_pages[static_cast<std::size_t>(full)],
                       &child.old_pages[static_cast<std::size_t>(full)], 1, e.exec) == Status::kOk);
    REQUIRE(copy_pages(e.recent_pool.cache, parent.ring.data(), child.ring.data(), kRing, e.exec) == Status::kOk);
    e.append_tokens(parent, first, kForked, 260);
    e.append_tokens(child, second, kForked, kForked + 30);
    e.append_tokens(child, second, kForked + 30, 255);
    CHECK(e.read(parent, 260) == alone(backend, first, 260));
    CHECK(e.read(child, 255) == alone(backend, second, 255));
  }
}
