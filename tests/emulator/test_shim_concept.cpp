// A shim's words are required one by one, as the kernel body's are (tests/attention/test_concept.cpp): take any of them away and
// a shim is none, before a kernel is compiled. That every shim of this source is one, SimtTileBackend asserts where it is used.
//
// Checked when this file is compiled, so there is nothing to run.
#include "backends/emulator/sm80_exec.hpp"
#include "backends/sm80/shims.hpp"
#include "tests/emulator/sm80_instances.hpp"

namespace {

using Complete = fp4pa::emulator_test::Sm80Instances::Shim<0, fp4pa::emulator::Sm80Exec>;
static_assert(fp4pa::core::SimtShim<Complete>);

#define FP4PA_WITHOUT(word)          \
  struct Without_##word : Complete { \
   private:                          \
    using Complete::word;            \
  };                                 \
  static_assert(!fp4pa::core::SimtShim<Without_##word>)

FP4PA_WITHOUT(Exec);
FP4PA_WITHOUT(kConfig);
FP4PA_WITHOUT(ScoreAtom);
FP4PA_WITHOUT(OutputAtom);
FP4PA_WITHOUT(QueryRegisters);
FP4PA_WITHOUT(swizzle);
FP4PA_WITHOUT(token_of_slot);
FP4PA_WITHOUT(kTokenAlignment);
FP4PA_WITHOUT(exp2);
FP4PA_WITHOUT(query_form);
FP4PA_WITHOUT(dim_order);
FP4PA_WITHOUT(output_dim);
FP4PA_WITHOUT(store_query_row);
FP4PA_WITHOUT(load_query_registers);
FP4PA_WITHOUT(query_key);
FP4PA_WITHOUT(probability_value);

}  // namespace
