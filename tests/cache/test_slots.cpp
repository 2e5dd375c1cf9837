// Slot mappings that must be refused: the status, a sentence that names the token and the slot, and not one byte
// written.
#include <doctest/doctest.h>

#include <string>

#include "fp4pa/status.hpp"
#include "tests/cache/pool.hpp"
#include "tests/cache/target.hpp"

using namespace fp4pa;

namespace {

bool says(const char* part) { return std::string(last_error_detail()).find(part) != std::string::npos; }

struct Refusal {
  std::vector<std::int64_t> slots;
  Status status;
  std::vector<const char*> words;
};

void check_refused(const test::Shape& shape, const Refusal& refusal) {
  test::Random random(5);
  const auto tokens = static_cast<std::int64_t>(refusal.slots.size());
  const test::Rows rows(DType::kBF16, tokens, shape.heads, shape.head_dim, random);
  for (const test::Target& target : test::kTargets) {
    CAPTURE(std::string(target.name));
    test::Pool pool(shape);
    const auto before = pool.snapshot();
    const api::SlotList list{refusal.slots.data(), IndexType::kInt64, tokens};
    CHECK(target.append(pool.cache, rows.input(), rows.input(), list, {}) == refusal.status);
    const std::string detail = last_error_detail();
    CAPTURE(detail);
    for (const char* word : refusal.words) CHECK(says(word));
    CHECK(pool.snapshot() == before);
  }
}

std::vector<std::int64_t> run(std::int64_t first, int count) {
  std::vector<std::int64_t> slots;
  for (int i = 0; i < count; ++i) slots.push_back(first + i);
  return slots;
}
std::vector<std::int64_t> joined(std::vector<std::int64_t> a, const std::vector<std::int64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// One page size at which a group does not fill the page, with two whole groups and a short one: rows 0-31, 32-63,
// 64-79.
test::Shape along_tokens() {
  test::Shape shape;
  shape.axis = VScaleAxis::kTokens;
  shape.page_size = 80;
  shape.num_pages = 3;
  return shape;
}

Status append_status(const test::Shape& shape, const std::vector<std::int64_t>& slots) {
  test::Random random(6);
  test::Pool pool(shape);
  const auto tokens = static_cast<std::int64_t>(slots.size());
  const test::Rows rows(DType::kBF16, tokens, shape.heads, shape.head_dim, random);
  return test::kTargets[0].append(pool.cache, rows.input(), rows.input(), {slots.data(), IndexType::kInt64, tokens},
                                  {});
}

}  // namespace

TEST_CASE("append: a slot past the pool is named, and nothing is written") {
  const test::Shape shape;  // 6 pages of 16
  check_refused(shape, {{0, 1, 96}, Status::kSlotOutOfRange, {"append", "token 2", "slot 96", "0 to 95"}});
  check_refused(shape, {{-1, std::int64_t{1} << 40}, Status::kSlotOutOfRange, {"token 1", "slot 1099511627776"}});
  CHECK(append_status(shape, {95}) == Status::kOk);
}

TEST_CASE("append: int32 slots are checked as well") {
  const test::Shape shape;
  test::Random random(5);
  const test::Rows rows(DType::kF32, 2, shape.heads, shape.head_dim, random);
  test::Pool pool(shape);
  const auto before = pool.snapshot();
  const std::int32_t slots[] = {4, 2147483647};
  for (const test::Target& target : test::kTargets) {
    CHECK(target.append(pool.cache, rows.input(), rows.input(), {slots, IndexType::kInt32, 2}, {}) ==
          Status::kSlotOutOfRange);
    CHECK(says("slot 2147483647"));
    CHECK(pool.snapshot() == before);
  }
}

TEST_CASE("gather: a slot past the pool is named, and nothing is written") {
  const test::Shape shape;
  test::Pool pool(shape);
  const std::int64_t slots[] = {3, 96};
  for (const test::Target& target : test::kTargets) {
    std::vector<float> out(2 * 2 * 64, 5.0f);
    const KvOutput output{out.data(), DType::kF32, 128, 64};
    CHECK(target.gather(pool.cache, {slots, IndexType::kInt64, 2}, output, output, {}) == Status::kSlotOutOfRange);
    CHECK(says("gather"));
    CHECK(says("slot 96"));
    CHECK(out == std::vector<float>(2 * 2 * 64, 5.0f));
  }
}

TEST_CASE("append, V along tokens: what is no group is refused") {
  const test::Shape shape = along_tokens();
  // Begins inside a group.
  check_refused(shape, {{5}, Status::kIncompleteGroup, {"token 0", "slot 5", "row 5", "group of 32"}});
  check_refused(shape, {joined(run(0, 32), run(40, 8)), Status::kIncompleteGroup, {"token 32", "slot 40"}});
  // A hole.
  check_refused(shape, {joined(run(0, 4), run(5, 3)), Status::kIncompleteGroup, {"token 4", "slot 5"}});
  // Goes on in the same page behind a group that is not whole, forwards and backwards, and twice the same group.
  check_refused(shape,
                {joined(run(0, 7), run(32, 32)), Status::kIncompleteGroup, {"token 6", "slot 6", "7 of its 32"}});
  check_refused(shape, {joined(run(32, 7), run(0, 32)), Status::kIncompleteGroup, {"token 6", "slot 38"}});
  check_refused(shape, {joined(run(0, 7), run(0, 7)), Status::kIncompleteGroup, {"token 6"}});
  // Descending.
  check_refused(shape, {{1, 0}, Status::kIncompleteGroup, {"token 0", "slot 1"}});
}

TEST_CASE("append, V along tokens: whole groups and short last ones are taken") {
  const test::Shape shape = along_tokens();
  CHECK(append_status(shape, run(0, 80)) == Status::kOk);
  CHECK(append_status(shape, run(32, 32)) == Status::kOk);
  CHECK(append_status(shape, run(0, 37)) == Status::kOk);                       // ragged end
  CHECK(append_status(shape, run(64, 16)) == Status::kOk);                      // the page's own short group
  CHECK(append_status(shape, run(64, 16 + 80)) == Status::kOk);                 // on into the next page
  CHECK(append_status(shape, joined(run(0, 37), run(80, 37))) == Status::kOk);  // two ragged sequences
  CHECK(append_status(shape, joined(run(64, 16), run(0, 64))) == Status::kOk);  // out of order, but whole
  CHECK(append_status(shape, {-1, 0, -7, 1, 2, -1, 3, -3}) == Status::kOk);     // padding inside a run
  CHECK(append_status(shape, {}) == Status::kOk);
  CHECK(append_status(shape, {-1, -1}) == Status::kOk);
}
