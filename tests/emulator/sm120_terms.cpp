#include "tests/emulator/sm120_instances.hpp"

namespace fp4pa::emulator_test {
const Emulation kSm120Terms = emulation<Sm120Terms, emulator::Sm120Exec>("SM120 with fewer terms");
}
