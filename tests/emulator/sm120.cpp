// Where the instances are compiled: once, and apart from the tests.
#include "tests/emulator/sm120_instances.hpp"

namespace fp4pa::emulator_test {
const Emulation kSm120 = emulation<Sm120Instances, emulator::Sm120Exec>("SM120 on the emulator");
}
