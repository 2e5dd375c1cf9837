// run() refuses what does not fit its plan, and what it finds in the lengths and tables before it writes a byte: O and
// LSE are poisoned before every refused call and compared after it.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "api/validate_attention.hpp"
#include "tests/attention/scene.hpp"

using namespace fp4pa;
using scene::Scene;
using scene::Spec;

namespace {

Spec two_sequences() {
  Spec spec;
  spec.sequences = {{1, 40, 0}, {2, 17, 1}};
  return spec;
}

/// Plans a good scene, spoils the call and runs it.
void check_refused(const Spec& spec, const std::function<void(Scene&)>& spoil, Status status,
                   std::initializer_list<const char*> pieces) {
  Scene s(spec);
  REQUIRE(s.run() == Status::kOk);  // so that what is refused below is refused for the one reason
  CHECK(!s.outputs_untouched());
  s.reset_outputs();
  AttentionPlan made;
  REQUIRE(plan(s.config, &made) == Status::kOk);
  spoil(s);
  const Status refused = fp4pa::run(made, s.args);
  const std::string detail = last_error_detail();
  INFO(std::string(status_name(refused)), ": ", detail);
  CHECK(refused == status);
  CHECK(scene::detail_has(pieces));
  CHECK(s.outputs_untouched());
}

void check_refused(const std::function<void(Scene&)>& spoil, Status status, std::initializer_list<const char*> pieces) {
  check_refused(two_sequences(), spoil, status, pieces);
}

template <class T>
T* shifted(T* pointer, std::ptrdiff_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(pointer) + bytes);
}

}  // namespace

TEST_CASE("run: an empty plan") {
  Scene s(two_sequences());
  CHECK_REFUSED(fp4pa::run(AttentionPlan(), s.args), Status::kPlanMismatch, "empty", "fp4pa::plan");
  CHECK(s.outputs_untouched());
}

TEST_CASE("run: null pointers, each by name") {
  check_refused([](Scene& s) { s.args.q = nullptr; }, Status::kNullPointer, {"q is null"});
  check_refused([](Scene& s) { s.args.o = nullptr; }, Status::kNullPointer, {"o is null"});
  check_refused([](Scene& s) { s.args.qo_indptr = nullptr; }, Status::kNullPointer, {"qo_indptr is null"});
  check_refused([](Scene& s) { s.args.seq_lens = nullptr; }, Status::kNullPointer, {"seq_lens is null"});
  check_refused([](Scene& s) { s.args.block_table = nullptr; }, Status::kNullPointer, {"block_table is null"});
  check_refused([](Scene& s) { s.args.workspace = nullptr; }, Status::kNullPointer, {"workspace is null"});
  Spec csr = two_sequences();
  csr.table = TableKind::kCsr;
  check_refused(csr, [](Scene& s) { s.args.kv_indptr = nullptr; }, Status::kNullPointer, {"kv_indptr is null"});
  check_refused(csr, [](Scene& s) { s.args.kv_indices = nullptr; }, Status::kNullPointer, {"kv_indices is null"});
  Spec tiers = two_sequences();
  tiers.window = 16;
  check_refused(tiers, [](Scene& s) { s.args.recent_table = nullptr; }, Status::kNullPointer, {"recent_table is null"});
}

TEST_CASE("run: a recent table that the plan does not read") {
  check_refused([](Scene& s) { s.args.recent_table = s.args.block_table; }, Status::kInvalidArgument, {"recent_table", "two_tier is 0"});
}

TEST_CASE("run: tensors without elements may be null") {
  for (const TableKind table : {TableKind::kBlockTable, TableKind::kCsr}) {
    for (const std::int32_t window : {0, 16}) {
      Spec spec = two_sequences();
      spec.table = table;
      spec.window = window;
      spec.sequences = {{1, 0, 0}, {2, 0, 1}};
      const auto without_tables = [](Scene& s) {
        s.args.block_table = s.args.kv_indptr = s.args.kv_indices = s.args.recent_table = nullptr;
        s.args.table_stride = 0;
      };
      {  // no keys: O is 0 and LSE -inf
        Scene s(spec);
        without_tables(s);
        REQUIRE(s.run() == Status::kOk);
        for (std::int32_t token = 0; token < s.q_tokens(); ++token) {
          for (std::int32_t head = 0; head < s.q_heads(); ++head) {
            CHECK(s.o_row(token, head) == std::vector<double>(64, 0.0));
            CHECK(s.lse_of(token, head) == -std::numeric_limits<float>::infinity());
          }
        }
      }
      spec.sequences = {{0, 40, 0}, {2, 0, 1}};  // no query has a key, although there are both
      {
        Scene s(spec);
        without_tables(s);
        CHECK(s.run() == Status::kOk);
      }
      spec.sequences = {{0, 40, 0}, {0, 17, 1}};  // no queries: keys are not read
      Scene s(spec);
      s.config.tree_mask = true;
      without_tables(s);
      s.args.q = s.args.o = nullptr;
      s.args.lse = nullptr;
      s.args.tree_mask = nullptr;
      CHECK(s.run() == Status::kOk);
      // An indptr that comes back to 0 has queries all the same.
      s.indptr[1] = 1;
      CHECK_REFUSED(s.run(), Status::kNullPointer, "q is null");
    }
  }
}

TEST_CASE("run: null sinks, slopes or tree where the plan reads them, and only there") {
  for (int which = 0; which < 3; ++which) {
    Scene s(two_sequences());
    (which == 0 ? s.config.sinks : which == 1 ? s.config.alibi : s.config.tree_mask) = true;
    REQUIRE(s.run() == Status::kOk);
    s.reset_outputs();
    s.args.sinks = nullptr;
    s.args.alibi_slopes = nullptr;
    s.args.tree_mask = nullptr;
    CHECK_REFUSED(s.run(), Status::kNullPointer,
                  which == 0   ? "sinks is null"
                  : which == 1 ? "alibi_slopes is null"
                               : "tree_mask is null");
    CHECK(s.outputs_untouched());
  }
  Scene s(two_sequences());
  s.args.sinks = s.args.alibi_slopes = nullptr;
  s.args.tree_mask = nullptr;
  CHECK(s.run() == Status::kOk);
}

TEST_CASE("run: misaligned pointers, each with its alignment") {
  check_refused([](Scene& s) { s.args.q = shifted(s.args.q, 8); }, Status::kMisalignedPointer, {"q is 0x", "16"});
  check_refused([](Scene& s) { s.args.o = shifted(s.args.o, 4); }, Status::kMisalignedPointer, {"o is 0x", "16"});
  check_refused([](Scene& s) { s.args.lse = shifted(s.args.lse, 2); }, Status::kMisalignedPointer, {"lse is 0x", "4"});
  check_refused([](Scene& s) { s.args.qo_indptr = shifted(s.args.qo_indptr, 1); }, Status::kMisalignedPointer,
                {"qo_indptr is 0x", "4"});
  check_refused([](Scene& s) { s.args.seq_lens = shifted(s.args.seq_lens, 2); }, Status::kMisalignedPointer,
                {"seq_lens is 0x", "4"});
  check_refused([](Scene& s) { s.args.block_table = shifted(s.args.block_table, 1); }, Status::kMisalignedPointer,
                {"block_table is 0x", "4"});
  check_refused([](Scene& s) { s.args.workspace = shifted(s.args.workspace, 128); }, Status::kMisalignedPointer,
                {"workspace is 0x", "256"});
}

TEST_CASE("run: batch outside the plan") {
  check_refused([](Scene& s) { s.args.batch = -1; }, Status::kPlanMismatch,
                {"batch is -1", "0 to the plan's max_batch 2"});
  check_refused([](Scene& s) { s.args.batch = 3; }, Status::kPlanMismatch, {"batch is 3", "max_batch 2"});
}

TEST_CASE("run: an empty batch is no work and needs no pointers") {
  Scene s(two_sequences());
  AttentionPlan made;
  REQUIRE(plan(s.config, &made) == Status::kOk);
  CHECK(fp4pa::run(made, AttentionArgs{}) == Status::kOk);
  CHECK(s.outputs_untouched());
}

TEST_CASE("run: strides of Q and O that overlap, are negative or too short") {
  check_refused([](Scene& s) { s.args.q_head_stride = 63; }, Status::kInvalidStrides,
                {"q has", "63", "64 elements", "overlap"});
  check_refused([](Scene& s) { s.args.q_token_stride = 64; }, Status::kInvalidStrides, {"q has", "token stride 64"});
  check_refused([](Scene& s) { s.args.o_head_stride = -64; }, Status::kInvalidStrides, {"o has", "-64"});
  check_refused([](Scene& s) { s.args.o_token_stride = -256; }, Status::kInvalidStrides, {"o has", "-256"});
  check_refused([](Scene& s) { s.args.o_token_stride = 255; }, Status::kInvalidStrides, {"o has", "255"});
  check_refused(
      [](Scene& s) {
        s.args.o_token_stride = 64;
        s.args.o_head_stride = 128;  // two heads fit between, three tokens do not
      },
      Status::kInvalidStrides, {"o has", "128", "beyond 2 query tokens", "the call has 3"});
}

TEST_CASE("run: heads outside of tokens, as close as the call's tokens allow, in a plan of many more") {
  Scene s(two_sequences());
  REQUIRE(s.run() == Status::kOk);
  const std::int32_t tokens = s.q_tokens();
  std::vector<std::vector<double>> expected;
  for (std::int32_t t = 0; t < tokens; ++t) {
    for (std::int32_t h = 0; h < s.q_heads(); ++h) expected.push_back(s.o_row(t, h));
  }
  s.config.max_q_tokens = 100 * tokens;
  // The same Q, [heads, tokens, head_dim].
  const auto size = static_cast<std::size_t>(s.spec.head_dim * size_of(s.spec.q_dtype));
  const auto at = [size](void* base, std::int32_t row) { return static_cast<std::uint8_t*>(base) + static_cast<std::size_t>(row) * size; };
  grid::Memory q(size * expected.size(), 0);
  for (std::int32_t t = 0; t < tokens; ++t) {
    for (std::int32_t h = 0; h < s.q_heads(); ++h) std::memcpy(at(q.data(), h * tokens + t), at(s.q.data(), t * s.q_heads() + h), size);
  }
  s.args.q = q.data();
  s.args.q_token_stride = s.args.o_token_stride = s.spec.head_dim;
  s.args.q_head_stride = s.args.o_head_stride = std::int64_t{tokens} * s.spec.head_dim;
  s.args.workspace = nullptr;  // of this plan
  s.reset_outputs();
  REQUIRE(s.run() == Status::kOk);
  const auto* const o = static_cast<const float*>(s.args.o);
  for (std::int32_t t = 0; t < tokens; ++t) {
    for (std::int32_t h = 0; h < s.q_heads(); ++h) {
      const float* const row = o + (h * tokens + t) * s.spec.head_dim;
      CHECK(std::vector<double>(row, row + s.spec.head_dim) == expected[static_cast<std::size_t>(t * s.q_heads() + h)]);
    }
  }
}

TEST_CASE("run: a token stride of 0 stands for the heads' strides one after another") {
  Scene s(two_sequences());
  REQUIRE(s.run() == Status::kOk);
  const std::vector<float> lse = s.lse;
  std::vector<std::vector<double>> expected;
  for (std::int32_t t = 0; t < s.q_tokens(); ++t) {
    for (std::int32_t h = 0; h < s.q_heads(); ++h) expected.push_back(s.o_row(t, h));
  }
  // Rows of Q within wider ones, as [tokens, heads, 3, head_dim] has them, and of O with a gap behind each.
  const std::int64_t dim = s.spec.head_dim, q_head = 3 * dim, o_head = dim + 8;
  const auto bytes = [&](std::int64_t row) { return expected.size() * static_cast<std::size_t>(row) * sizeof(float); };
  grid::Memory q(bytes(q_head), 0xFF), o(bytes(o_head), scene::kUnwritten);
  for (std::size_t row = 0; row < expected.size(); ++row) {
    const auto row_bytes = static_cast<std::size_t>(dim) * sizeof(float);
    std::memcpy(q.data() + row * 3 * row_bytes, s.q.data() + row * row_bytes, row_bytes);
  }
  s.args.q = q.data();
  s.args.o = o.data();
  s.args.q_head_stride = q_head;
  s.args.o_head_stride = o_head;
  s.reset_outputs();
  REQUIRE(s.run() == Status::kOk);
  const auto* const rows = static_cast<const float*>(s.args.o);
  for (std::size_t row = 0; row < expected.size(); ++row) {
    const float* const first = rows + row * static_cast<std::size_t>(o_head);
    CHECK(std::vector<double>(first, first + dim) == expected[row]);
  }
  CHECK(s.lse == lse);
}

TEST_CASE("run: strides of Q and O that leave the address space") {
  // Checked without running: a back end that is handed such a stride can only crash.
  Scene s(two_sequences());
  AttentionPlan made;
  REQUIRE(plan(s.config, &made) == Status::kOk);
  grid::Memory workspace(made.workspace_bytes(), 0);
  s.args.workspace = workspace.data();
  s.args.workspace_bytes = made.workspace_bytes();
  REQUIRE(api::validate(made.config(), made.workspace_bytes(), s.args) == Status::kOk);
  constexpr std::int64_t kFar = std::int64_t{1} << 62;
  const auto validate = [&] { return api::validate(made.config(), made.workspace_bytes(), s.args); };
  s.args.q_token_stride = kFar;
  CHECK_REFUSED(validate(), Status::kInvalidStrides, "q has", "4611686018427387904");
  s.args.q_token_stride = 0;
  s.args.o_head_stride = kFar;
  CHECK_REFUSED(validate(), Status::kInvalidStrides, "o has", "4611686018427387904");
  s.args.o_head_stride = std::numeric_limits<std::int64_t>::min();
  CHECK_REFUSED(validate(), Status::kInvalidStrides, "o has", "-9223372036854775808");
}

TEST_CASE("run: a workspace that is a byte too small") {
  check_refused([](Scene& s) { --s.args.workspace_bytes; }, Status::kWorkspaceTooSmall,
                {"workspace_bytes is", "at least"});
  check_refused([](Scene& s) { s.args.workspace_bytes = 0; }, Status::kWorkspaceTooSmall, {"workspace_bytes is 0"});
}

TEST_CASE("run: a table stride that is not positive") {
  check_refused([](Scene& s) { s.args.table_stride = 0; }, Status::kInvalidSize, {"table_stride is 0", "positive"});
  check_refused([](Scene& s) { s.args.table_stride = -3; }, Status::kInvalidSize, {"table_stride is -3"});
}

TEST_CASE("run: a table stride whose rows leave the address space") {
  // In bytes it wraps to 0, and sequence 1 would be read from sequence 0's row.
  check_refused([](Scene& s) { s.args.table_stride = std::int64_t{1} << 62; }, Status::kInvalidSize,
                {"table_stride is 4611686018427387904", "over 2 rows", "allowed with batch 2", "up to 288230376151711744"});
  Spec one = two_sequences();
  one.sequences.resize(1);
  Scene s(one);
  s.args.table_stride = std::int64_t{1} << 62;  // of one row it says nothing
  CHECK(s.run() == Status::kOk);
}

TEST_CASE("run: qo_indptr that does not start at 0, decreases, or leaves the plan") {
  check_refused([](Scene& s) { s.indptr[0] = 1; }, Status::kInvalidIndptr, {"qo_indptr[0] is 1", "0"});
  check_refused([](Scene& s) { s.indptr[2] = 0; }, Status::kInvalidIndptr, {"qo_indptr[2] is 0 after 1", "decrease"});
  check_refused([](Scene& s) { s.indptr[2] = 4; }, Status::kPlanMismatch,
                {"sequence 1", "3 query tokens", "up to the plan's max_q_len 2"});
  check_refused(
      [](Scene& s) {
        s.indptr[1] = 2;
        s.indptr[2] = 4;
      },
      Status::kPlanMismatch, {"4 query tokens", "up to the plan's max_q_tokens 3"});
  check_refused([](Scene& s) { s.indptr[1] = std::numeric_limits<std::int32_t>::min(); }, Status::kInvalidIndptr,
                {"qo_indptr[1]"});
}

TEST_CASE("run: lengths that are negative or leave the plan") {
  check_refused([](Scene& s) { s.seq_lens[0] = -1; }, Status::kPlanMismatch, {"seq_lens[0] is -1", "max_kv_len 40"});
  check_refused([](Scene& s) { s.seq_lens[1] = 41; }, Status::kPlanMismatch, {"seq_lens[1] is 41", "max_kv_len 40"});
}

TEST_CASE("run: a sequence longer than its row of the table") {
  check_refused([](Scene& s) { s.args.table_stride = 2; }, Status::kLengthExceedsTable,
                {"sequence 0", "40 keys", "3 pages of 16", "2"});
  Spec csr = two_sequences();
  csr.table = TableKind::kCsr;
  check_refused(csr, [](Scene& s) { s.seq_lens[1] = 40; }, Status::kLengthExceedsTable,
                {"sequence 1", "3 pages", "holds 2"});
}

TEST_CASE("run: page ids outside the pool, in every table") {
  check_refused([](Scene& s) { s.block_table[1] = -1; }, Status::kBlockIdOutOfRange,
                {"block_table", "sequence 0", "page -1", "position 1", "0 to 7"});
  check_refused([](Scene& s) { s.block_table[4] = 8; }, Status::kBlockIdOutOfRange,
                {"block_table", "sequence 1", "page 8", "0 to 7"});
  Spec csr = two_sequences();
  csr.table = TableKind::kCsr;
  check_refused(csr, [](Scene& s) { s.kv_indices[2] = 1 << 30; }, Status::kBlockIdOutOfRange,
                {"kv_indices", "sequence 0", "1073741824", "position 2"});
  Spec tiers = two_sequences();
  tiers.window = 16;
  check_refused(tiers, [](Scene& s) { s.recent_table[0] = s.recent_table[1] = s.recent_table[2] = -7; },
                Status::kBlockIdOutOfRange, {"recent_table", "sequence 0", "page -7"});
}

TEST_CASE("run: kv_indptr that is negative or decreases") {
  Spec csr = two_sequences();
  csr.table = TableKind::kCsr;
  check_refused(csr, [](Scene& s) { s.kv_indptr[0] = -1; }, Status::kInvalidIndptr, {"kv_indptr", "-1"});
  check_refused(csr, [](Scene& s) { s.kv_indptr[2] = 1; }, Status::kInvalidIndptr, {"kv_indptr", "3, 1", "decrease"});
  csr.sequences[0].q_len = 0;  // whose pages nobody reads
  check_refused(csr, [](Scene& s) { s.kv_indptr[1] = -1; }, Status::kInvalidIndptr, {"kv_indptr[1..2] is -1"});
}

TEST_CASE("run: a global scale behind a pointer that is NaN or not positive") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), 0.0f, -1.0f, std::numeric_limits<float>::infinity()}) {
    Spec spec = two_sequences();
    spec.k = spec.v = KvFormat::kFp8E4m3;
    Scene s(spec);
    float scales[2] = {0.5f, 2.0f};
    s.config.cache.k.global_scale_ptr = scales;
    s.config.cache.k.global_scale_per_head = true;
    REQUIRE(s.run() == Status::kOk);
    s.reset_outputs();
    scales[1] = bad;
    CHECK_REFUSED(s.run(), Status::kInvalidGlobalScale, "global_scale_ptr[1]", "greater than 0");
    CHECK(s.outputs_untouched());
  }
}

TEST_CASE("run: page ids of sequences without queries are not looked at") {
  Spec spec = two_sequences();
  spec.sequences = {{0, 40, 0}, {2, 17, 1}};
  Scene s(spec);
  for (std::int32_t& id : s.block_table) id = &id < s.block_table.data() + s.args.table_stride ? -9 : id;
  CHECK(s.run() == Status::kOk);
}
