// The body itself refuses a back end whose products are missing: not a call that does nothing, but no call at all.
#include "core/attention/body.hpp"
#include "tests/attention/book_backend.hpp"

struct Shim : book::BookBackend<1, 64> {
  using Base = book::BookBackend<1, 64>;
  using Base::Base;
#ifndef FP4PA_COMPILE_OK
  void multiply_probability_value(Stream&, const Scores&, Output&) = delete;
#endif
};

void attend_with(Shim& shim, const fp4pa::core::AttentionParams& params, const fp4pa::core::WorkItem& item) {
  fp4pa::core::attend(shim, params, item);
}
