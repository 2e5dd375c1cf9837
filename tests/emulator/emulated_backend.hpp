// Kernels on the emulator as a back end of the library: in programs that link emulated_backend.cpp, plans and runs of back end
// "cuda" go to the emulated instances that `current` names, on the host's memory.
//
// An instance table is a struct of static members, one file for each back end (sm80_instances.hpp):
//   kCount                          instances
//   config(i)                       constexpr, core::SimtConfig
//   Shim<i, Exec>                   the shim of an instance, a template alias
//   select(AttentionConfig)         the instance that a plan gets, -1 if none
//   serves(i, AttentionConfig)      whether an instance computes a configuration at all
//   tile_rows(i)                    query rows of a work item
//   layout(i, AttentionConfig)      core::SharedLayout of a launch
//   native(i)                       whether keys enter the matrix core as they lie; without it none do
#pragma once

#include <array>
#include <utility>

#include "api/backend.hpp"
#include "backends/emulator/block.hpp"
#include "core/schedule/work.hpp"
#include "core/simt/tile_backend.hpp"

namespace fp4pa::emulator_test {

/// One block of an instance's grid, by worker.
using RunBlock = void (*)(const core::AttentionParams&, const core::WorkList&, const core::SharedLayout&, int worker,
                          const emulator::Watch&);

/// Instances of one back end on one Exec.
struct Emulation {
  const char* name;
  int instances;
  const core::SimtConfig& (*config)(int);
  int (*select)(const AttentionConfig&);
  bool (*serves)(int, const AttentionConfig&);
  int (*tile_rows)(int);
  core::SharedLayout (*layout)(int, const AttentionConfig&);
  bool (*native)(int);
  const RunBlock* run_block;  // [instances]; null where the Exec was not compiled for the instance
};

/// How calls are run from now on.
struct Setup {
  const Emulation* emulation = nullptr;
  emulator::Watch watch{};
  int workers = 5;   // blocks of a grid
  int instance = -1; // the instance to use where it serves the configuration; -1: whatever select() says
  int planned = -1;  // the instance of the last plan
  int warps = 0;     // of a block whose warps divide the keys, where instances have a layout for them; 0: as they were made
};
/// At first the instances of the CUDA back end, where a finding makes the call fail.
extern Setup current;

/// Calls are run as it says while it lives, and then as before, also where a REQUIRE ends the test.
class ScopedSetup {
 public:
  /// As they are; its scope may write to `current`.
  ScopedSetup() = default;
  explicit ScopedSetup(const Setup& setup) { current = setup; }
  explicit ScopedSetup(const Emulation& emulation, int instance = -1) {
    current.emulation = &emulation;
    current.instance = instance;
    current.planned = -1;
  }
  ScopedSetup(const ScopedSetup&) = delete;
  ScopedSetup& operator=(const ScopedSetup&) = delete;
  ~ScopedSetup() { current = before_; }

 private:
  Setup before_ = current;
};

/// Warps of an instance's blocks.
inline int warps_of(const core::SimtConfig& c) {
  return current.warps == 0 || c.divide != core::WarpsDivide::kKeys ? c.warps : current.warps;
}

/// The tile back end of an instance: SimtTileBackend over its shim, or what a table names in its place (Backend<i, Exec>).
template <class Instances, class Exec, int kIndex>
struct BackendOf {
  using type = core::SimtTileBackend<typename Instances::template Shim<kIndex, Exec>>;
};
template <class Instances, class Exec, int kIndex>
  requires requires { typename Instances::template Backend<kIndex, Exec>; }
struct BackendOf<Instances, Exec, kIndex> {
  using type = typename Instances::template Backend<kIndex, Exec>;
};

template <class Instances, class Exec, int kIndex>
void run_block_of(const core::AttentionParams& p, const core::WorkList& list, const core::SharedLayout& layout, int worker,
                  const emulator::Watch& watch) {
  constexpr core::SimtConfig kConfig = Instances::config(kIndex);
  using B = typename BackendOf<Instances, Exec, kIndex>::type;
  static_assert(core::TileBackend<B>);
  emulator::run_block<Exec>(watch, worker, warps_of(kConfig), static_cast<std::size_t>(layout.bytes), [&](Exec& exec) {
    core::for_each_item(list, worker, [&](const core::WorkItem& item) {
      const core::RowMap rows(p, item);
      B backend(exec, p, rows, layout);
      core::attend(backend, p, item);
    });
  });
}

/// @param kIndices  the instances to compile; all others are left out
template <class Instances, class Exec, int... kIndices>
inline constexpr std::array<RunBlock, Instances::kCount> kRunBlock = [] {
  std::array<RunBlock, Instances::kCount> table{};
  ((table[kIndices] = run_block_of<Instances, Exec, kIndices>), ...);
  return table;
}();

template <class Instances, class Exec, int... kIndices>
constexpr Emulation emulation_of(const char* name) {
  return {name,
          Instances::kCount,
          [](int i) -> const core::SimtConfig& { return Instances::config(i); },
          Instances::select,
          Instances::serves,
          Instances::tile_rows,
          Instances::layout,
          [](int i) {
            if constexpr (requires { Instances::native(i); }) return Instances::native(i);
            return false;
          },
          kRunBlock<Instances, Exec, kIndices...>.data()};
}
/// All instances.
template <class Instances, class Exec>
constexpr Emulation emulation(const char* name) {
  return [name]<int... kIndices>(std::integer_sequence<int, kIndices...>) {
    return emulation_of<Instances, Exec, kIndices...>(name);
  }(std::make_integer_sequence<int, Instances::kCount>());
}

}  // namespace fp4pa::emulator_test

namespace fp4pa::api {
/// "cuda" in the programs of this folder.
extern const Backend kEmulatedBackend;
}  // namespace fp4pa::api
