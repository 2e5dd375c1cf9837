// Which tiles of keys a row block is scheduled for, and when the body may leave the mask out, against every key of
// every row.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "core/attention/row_map.hpp"
#include "core/schedule/partition.hpp"
#include "tests/schedule/random_work.hpp"

using namespace schedule;

namespace {

/// The kernels' parameters, as far as masks read them.
AttentionParams params_of(const Work& w, const std::vector<std::uint64_t>& tree) {
  AttentionParams p{};
  p.num_kv_heads = w.num_kv_heads;
  p.group_heads = w.group_heads;
  p.group_divisor = Divisor::of(static_cast<std::uint32_t>(w.group_heads));
  p.num_q_heads = w.num_kv_heads * w.group_heads;
  p.causal = w.mask != Mask::kNone;
  p.sliding_window = w.mask == Mask::kWindow ? w.sliding_window : 0;
  p.tree_mask = tree.empty() ? nullptr : tree.data();
  p.qo_indptr = w.qo_indptr.data();
  p.seq_lens = w.kv_lens.data();
  p.batch = static_cast<std::int32_t>(w.q_lens.size());
  p.partition.tile_rows = w.tile_rows;
  return p;
}

}  // namespace

TEST_CASE("row_blocks counts packed rows, and visible_tiles the tiles that some row of a block sees") {
  int with_keys = 0, without_keys = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Work w = draw(seed);
    const WorkList list = w.list();
    for (std::int32_t seq = 0; seq < list.batch; ++seq) {
      const SequenceShape shape = list.shape(seq);
      std::int32_t blocks = 0;
      for (const ListedUnit& unit : w.units) {
        if (unit.seq != seq || unit.kv_head != 0) continue;
        ++blocks;
        const TileRange got = visible_tiles(shape, w.tile_rows, unit.block);
        INFO("seed ", seed, " sequence ", seq, " block ", unit.block);
        CHECK(got.size() == unit.tiles.size());
        if (unit.tiles.size() > 0) {
          CHECK(got.begin == unit.tiles.begin);
          ++with_keys;
        } else {
          ++without_keys;
        }
      }
      CHECK(row_blocks(shape, w.tile_rows) == blocks);
    }
  }
  // Both kinds must have been drawn, or the loop above says little.
  CHECK(with_keys > 100);
  CHECK(without_keys > 20);
}

TEST_CASE("more queries than keys: the first queries stand before key 0 and see nothing") {
  const SequenceShape shape{.q_len = 100, .kv_len = 3, .group_heads = 1, .sliding_window = 0, .ends_at_row = true};
  CHECK(visible_tiles(shape, 16, 0).size() == 0);  // queries 0..15 at positions -97..-82
  CHECK(visible_tiles(shape, 16, 5).size() == 0);
  CHECK(visible_tiles(shape, 16, 6).size() == 1);  // queries 96..99 at -1..2
  const SequenceShape all{.q_len = 100, .kv_len = 3, .group_heads = 1, .sliding_window = 0, .ends_at_row = false};
  CHECK(visible_tiles(all, 16, 0).size() == 1);
}

TEST_CASE("RowMap: packed rows count heads fastest, and RowMask sees what the definition says") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Work w = draw(seed);
    const AttentionParams p = params_of(w, {});
    for (const ListedUnit& unit : w.units) {
      const std::int32_t kv_len = w.kv_lens[static_cast<std::size_t>(unit.seq)];
      if (kv_len > 500) continue;
      const RowMap rows(p, {unit.seq, unit.block, unit.kv_head, unit.tiles, -1});
      const std::int32_t all = w.q_lens[static_cast<std::size_t>(unit.seq)] * w.group_heads;
      CHECK(rows.num_rows == std::min(w.tile_rows, all - unit.block * w.tile_rows));
      for (std::int32_t r = 0; r < rows.num_rows; ++r) {
        const std::int32_t packed = unit.block * w.tile_rows + r;
        const std::int32_t query = packed / w.group_heads;
        CHECK(rows.token(r) == w.qo_indptr[static_cast<std::size_t>(unit.seq)] + query);
        CHECK(rows.head(r) == unit.kv_head * w.group_heads + packed % w.group_heads);
        const RowMask mask(p, rows, r);
        std::int32_t wrong = 0;
        for (std::int32_t key = 0; key < kv_len; ++key) wrong += mask.sees(key) != w.sees(unit.seq, query, key) ? 1 : 0;
        INFO("seed ", seed, " sequence ", unit.seq, " packed row ", packed);
        CHECK(wrong == 0);
      }
      // The first key is the smallest that any row sees: pages before it may be gone.
      std::int32_t first = kv_len;
      for (std::int32_t key = kv_len - 1; key >= 0; --key) {
        for (std::int32_t r = 0; r < rows.num_rows; ++r) first = RowMask(p, rows, r).sees(key) ? key : first;
      }
      if (first < kv_len) CHECK(first_visible_key(p, rows) == first);
    }
  }
}

TEST_CASE("a tree under a sliding window: its blocks' tiles and first keys leave out nothing that a row sees") {
  int windows_cut = 0;
  for (std::uint64_t seed = 2000; seed < 2200; ++seed) {
    Work w = draw(seed);
    test::Random random(seed);
    for (std::int32_t& q : w.q_lens) q = std::min(q, 64);
    w.mask = Mask::kWindow;
    w.sliding_window = 64 + random.below(100);
    w.finish();
    std::vector<std::uint64_t> tree;
    for (std::int32_t i = 0; i < w.qo_indptr.back(); ++i) tree.push_back(random.below(9) == 0 ? 0 : random.bits());
    const AttentionParams p = params_of(w, tree);
    for (std::int32_t seq = 0; seq < p.batch; ++seq) {
      const std::int32_t kv_len = w.kv_lens[static_cast<std::size_t>(seq)], q_len = w.q_lens[static_cast<std::size_t>(seq)];
      const SequenceShape shape{q_len, kv_len, w.group_heads, scheduled_window(p), false};
      for (std::int32_t block = 0; block < row_blocks(shape, w.tile_rows); ++block) {
        const TileRange tiles = visible_tiles(shape, w.tile_rows, block);
        const RowMap rows(p, {seq, block, 0, tiles, -1});
        const std::int32_t first_key = first_visible_key(p, rows);
        INFO("seed ", seed, " sequence ", seq, " block ", block);
        // No page is read that a query at the root would not read.
        CHECK(first_key == std::max(0, kv_len - q_len + 1 - w.sliding_window));
        for (std::int32_t r = 0; r < rows.num_rows; ++r) {
          fp4pa::reference::QueryRow row;
          row.num_keys = kv_len;
          row.num_queries = q_len;
          row.query_index = rows.query(r);
          row.sliding_window = w.sliding_window;
          row.tree_mask = tree[static_cast<std::size_t>(rows.token(r))];
          const RowMask mask(p, rows, r);
          std::int32_t wrong = 0, lost = 0;
          for (std::int32_t key = 0; key < kv_len; ++key) {
            const bool sees = fp4pa::reference::sees(row, key);
            wrong += mask.sees(key) != sees ? 1 : 0;
            lost += sees && (key < first_key || key / kScheduleTokens < tiles.begin || key / kScheduleTokens >= tiles.end) ? 1 : 0;
            windows_cut += !sees && key >= first_key && key < kv_len - q_len ? 1 : 0;
          }
          CHECK(wrong == 0);
          CHECK(lost == 0);
        }
      }
    }
  }
  CHECK(windows_cut > 1000);
}

TEST_CASE("all_see contains those ranges, and only those, that every row sees whole") {
  int visible = 0, hidden = 0;
  for (std::uint64_t seed = 1000; seed < 1120; ++seed) {
    Work w = draw(seed);
    test::Random random(seed);
    // Every third batch under a tree mask, which replaces the causal rule.
    std::vector<std::uint64_t> tree;
    if (seed % 3 == 0) {
      w.mask = Mask::kCausal;
      for (std::int32_t& q : w.q_lens) q = std::min(q, 64);
      w.finish();
      for (std::int32_t i = 0; i < w.qo_indptr.back(); ++i) {
        // Also masks whose queries see all of one another: the shortcut may be lost there, correctness may not.
        tree.push_back(random.below(3) == 0 ? ~std::uint64_t{0} : random.bits());
      }
    }
    const AttentionParams p = params_of(w, tree);
    for (const ListedUnit& unit : w.units) {
      const std::int32_t kv_len = w.kv_lens[static_cast<std::size_t>(unit.seq)];
      const std::int32_t q_len = w.q_lens[static_cast<std::size_t>(unit.seq)];
      const RowMap rows(p, {unit.seq, unit.block, unit.kv_head, unit.tiles, -1});
      for (std::int32_t i = 0; i < 12; ++i) {
        const std::int32_t begin = random.below(kv_len + 8);
        const std::int32_t end = begin + 1 + random.below(random.below(2) == 0 ? 64 : 4);
        bool every = end <= kv_len;
        bool clear_of_tree = true;
        for (std::int32_t r = 0; r < rows.num_rows; ++r) {
          const std::int32_t query = rows.query(r);
          for (std::int32_t key = begin; key < std::min(end, kv_len) && every; ++key) {
            if (tree.empty()) {
              every = w.sees(unit.seq, query, key);
            } else {
              const std::int32_t j = key - (kv_len - q_len);
              clear_of_tree = clear_of_tree && j < 0;
              every = j < 0 || ((tree[static_cast<std::size_t>(rows.token(r))] >> j) & 1) != 0;
            }
          }
        }
        INFO("seed ", seed, " sequence ", unit.seq, " block ", unit.block, " keys ", begin, " to ", end);
        const bool got = rows.all_see.contains({begin, end});
        if (tree.empty() || clear_of_tree) {
          CHECK(got == every);
        } else if (got) {
          CHECK(every);
        }
        (every ? visible : hidden) += 1;
      }
    }
  }
  CHECK(visible > 500);
  CHECK(hidden > 500);
}
