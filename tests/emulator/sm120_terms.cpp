#include "tests/emulator/sm120_instances.hpp"

namespace fp4pa::emulator_test {
#ifdef FP4PA_LONG_TESTS  // sixteen instances more, for a table: a minute to compile
const Emulation kSm120Terms = emulation<Sm120Terms, emulator::Sm120Exec>("SM120 with fewer terms");
#endif
}
