// SM120's native kernels where there is no SM120, each in two ways: on the host by the emulator, and on a device of sm_80 or
// later with the instructions in software. Plain C++.
#pragma once

#include "backends/emulator/block.hpp"
#include "core/attention/params.hpp"
#include "core/schedule/work.hpp"
#include "core/simt/shared_layout.hpp"

namespace fp4pa::gpu_test {

/// One block of instance `index` of sm120::kInstances, on the host's memory.
void emulate_block(int index, const core::AttentionParams& params, const core::WorkList& list, const core::SharedLayout& layout,
                   int worker, const emulator::Watch& watch);

/// The grid of instance `index`, on the device's memory; returns when it has ended. Ends the program where the runtime fails.
void launch(int index, const core::AttentionParams& params, const core::WorkList& list, const core::SharedLayout& layout);

/// Whether every atom of SM120 and the expanding matrix loads, in software on the device, pass the conformance checks; prints a
/// line for each.
[[nodiscard]] bool conforms();

}  // namespace fp4pa::gpu_test
