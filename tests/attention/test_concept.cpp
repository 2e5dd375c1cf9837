// The kernel body's words are required one by one: take any of them away and a back end is none.
//
// Checked when this file is compiled, so there is nothing to run. That the compiler then says which word is missing is
// tests/compile_fail's business; and that the body uses no word beyond these is held by book_backend.hpp, which has no
// others.
#include "backends/cpu/tile_backend.hpp"
#include "tests/attention/book_backend.hpp"

namespace {

using Complete = book::BookBackend<1, 64>;
static_assert(fp4pa::core::TileBackend<Complete>);
static_assert(fp4pa::core::TileBackend<fp4pa::cpu::TileBackend<1>>);
static_assert(fp4pa::core::TileBackend<fp4pa::cpu::TileBackend<2>>);

#define FP4PA_WITHOUT(word)          \
  struct Without_##word : Complete { \
    using Complete::Complete;        \
                                     \
   private:                          \
    using Complete::word;            \
  };                                 \
  static_assert(!fp4pa::core::TileBackend<Without_##word>)

FP4PA_WITHOUT(RowVector);
FP4PA_WITHOUT(Scores);
FP4PA_WITHOUT(Output);
FP4PA_WITHOUT(kSegments);
FP4PA_WITHOUT(kTileKeys);
FP4PA_WITHOUT(open);
FP4PA_WITHOUT(row_vector);
FP4PA_WITHOUT(zero_output);
FP4PA_WITHOUT(multiply_query_key);
FP4PA_WITHOUT(multiply_probability_value);
FP4PA_WITHOUT(each_score);
FP4PA_WITHOUT(raise_max);
FP4PA_WITHOUT(exp2_minus);
FP4PA_WITHOUT(add_row_sums);
FP4PA_WITHOUT(each_row);
FP4PA_WITHOUT(each_row_index);
FP4PA_WITHOUT(scale_rows);
FP4PA_WITHOUT(finish_rows);
FP4PA_WITHOUT(store_output);
FP4PA_WITHOUT(store_lse);
FP4PA_WITHOUT(store_partial);

// Segments are one or two; a tile has a constant number of keys.
struct ThreeSegments : Complete {
  using Complete::Complete;
  static constexpr std::int32_t kSegments = 3;
};
static_assert(!fp4pa::core::TileBackend<ThreeSegments>);

struct NoWait {
  bool done() const;
  fp4pa::core::KeyRange keys() const;
  void release();
};
struct Wait : NoWait {
  void wait();
};
static_assert(!fp4pa::core::KeyStream<NoWait>);
static_assert(fp4pa::core::KeyStream<Wait>);

}  // namespace
