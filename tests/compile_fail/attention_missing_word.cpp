// A tile back end that lacks one word of the kernel body is not a tile back end, and the compiler says which word it
// is.
#include "tests/attention/book_backend.hpp"

struct Shim : book::BookBackend<1, 64> {
  using Base = book::BookBackend<1, 64>;
  using Base::Base;
#ifndef FP4PA_COMPILE_OK
  bool raise_max(const Scores&, RowVector&, RowVector&) const = delete;
#endif
};

static_assert(fp4pa::core::TileBackend<Shim>);
