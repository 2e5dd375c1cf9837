// Where the instances are compiled: once, and apart from the tests.
#include "tests/emulator/sm80_instances.hpp"

namespace fp4pa::emulator_test {
const Emulation kSm80 = emulation<Sm80Instances, emulator::Sm80Exec>("sm_80 on the emulator");
}
