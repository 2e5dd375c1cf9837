// Where gfx942's instances are compiled for the emulator: the decoding ones.
#include "tests/emulator/gfx950_instances.hpp"

namespace fp4pa::emulator_test {
namespace {
template <int... kIndices>
constexpr Emulation decoding(std::integer_sequence<int, kIndices...>) {
  return emulation_of<Gfx942Instances, emulator::Gfx942Exec, hip::kFirstShared + kIndices...>("gfx942 on the emulator");
}
}  // namespace
const Emulation kGfx942 = decoding(std::make_integer_sequence<int, hip::kNumInstances - hip::kFirstShared>());
}  // namespace fp4pa::emulator_test
