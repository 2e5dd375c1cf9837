// A stream that nobody can wait for would read a page before it has landed.
#include "core/attention/tile_backend.hpp"

struct Stream {
  bool done() const;
  fp4pa::core::KeyRange keys() const;
  void release();
#ifdef FP4PA_COMPILE_OK
  void wait();
#endif
};

static_assert(fp4pa::core::KeyStream<Stream>);
