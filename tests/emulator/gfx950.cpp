// Where gfx950's instances are compiled for the emulator.
#include "tests/emulator/gfx950_instances.hpp"

namespace fp4pa::emulator_test {
const Emulation kGfx950 =
    emulation<Gfx950Instances<gfx950::ValueReads::kColumns16>, emulator::Gfx950Exec>("gfx950 on the emulator");
const Emulation kGfx950Columns4 =
    emulation_of<Gfx950Instances<gfx950::ValueReads::kColumns4>, emulator::Gfx950Exec, 0, 1, 3, 6>("gfx950, columns of 4 bits");
}
