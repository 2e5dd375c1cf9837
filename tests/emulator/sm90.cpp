// Where the instances are compiled: once, and apart from the tests.
#include "tests/emulator/sm90_instances.hpp"

namespace fp4pa::emulator_test {
const Emulation kSm90 = emulation<Sm90Instances, emulator::Sm90Exec>("sm_90a on the emulator");
}
