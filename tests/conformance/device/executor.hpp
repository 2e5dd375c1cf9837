// Runs atoms and copies on a device for the checks of tests/conformance.
//
// A block of one warp is one product: its lanes load the registers that the host packed, execute the instruction once,
// and store the result. The instruction's selects are constants, so there is a kernel for each pair that
// select_pairs() lists.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>

#include "core/atom/atom.hpp"
#include "tests/conformance/atoms_under_test.hpp"
#include "tests/conformance/checks.hpp"
#include "tests/conformance/movement.hpp"
#include "tests/conformance/operands.hpp"
#if defined(__HIP__)
#include "tests/conformance/device/glue_hip.hpp"
#else
#include "tests/conformance/device/glue_cuda.hpp"
#endif

namespace fp4pa::conformance {

/// A select as a plain number: nvcc 13.0 writes a stub that does not compile for a kernel with a class-type template
/// argument.
constexpr core::ScaleSelect select_of(int index) { return {index / 4, index % 4}; }

template <class Instruction, int kSelectA, int kSelectB>
__global__ void execute_atom(const Inputs<typename Instruction::Atom>* in, Outputs<typename Instruction::Atom>* out) {
  using Atom = typename Instruction::Atom;
  const int lane = glue::lane_index();
  const Inputs<Atom>& mine = in[glue::block_index()];
  typename core::AtomRegisters<Atom>::A a;
  typename core::AtomRegisters<Atom>::B b;
  typename core::AtomRegisters<Atom>::C c;
  FP4PA_UNROLL
  for (int r = 0; r < Atom::kRegistersA; ++r) a[r] = mine.a[lane][r];
  FP4PA_UNROLL
  for (int r = 0; r < Atom::kRegistersB; ++r) b[r] = mine.b[lane][r];
  FP4PA_UNROLL
  for (int v = 0; v < Atom::kValuesC; ++v) c[v] = mine.c[lane][v];
  if constexpr (core::kIsScaled<Atom>) {
    Instruction::template mma<select_of(kSelectA), select_of(kSelectB)>(c, a, b, c, mine.sfa[lane], mine.sfb[lane]);
  } else {
    Instruction::mma(c, a, b, c);
  }
  FP4PA_UNROLL
  for (int v = 0; v < Atom::kValuesC; ++v) out[glue::block_index()].d[lane][v] = c[v];
}

/// Memory of the device for the length of a run.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : pointer_(glue::allocate(bytes)) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { glue::release(pointer_); }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(pointer_);
  }

 private:
  void* pointer_;
};

template <class Instruction>
struct DeviceExecutor {
  using Atom = typename Instruction::Atom;
  /// The order and width of the hardware's accumulation are its own affair; exact sums are checked exactly.
  static constexpr double kTolerance = 0x1p-12;

  void run(Selects select, std::span<const Inputs<Atom>> in, std::span<Outputs<Atom>> out) const {
    const DeviceBuffer device_in(in.size_bytes());
    const DeviceBuffer device_out(out.size_bytes());
    glue::to_device(device_in.as<void>(), in.data(), in.size_bytes());
    if constexpr (core::kIsScaled<Atom>) {
      launch_selected(select, std::make_integer_sequence<int, 16>{}, static_cast<int>(in.size()),
                      device_in.as<Inputs<Atom>>(), device_out.as<Outputs<Atom>>());
    } else {
      launch<0, 0>(static_cast<int>(in.size()), device_in.as<Inputs<Atom>>(), device_out.as<Outputs<Atom>>());
    }
    glue::to_host(out.data(), device_out.as<void>(), out.size_bytes());
  }

 private:
  template <int kSelectA, int kSelectB>
  static void launch(int blocks, const Inputs<Atom>* in, Outputs<Atom>* out) {
    execute_atom<Instruction, kSelectA, kSelectB><<<blocks, Atom::kLanes>>>(in, out);
    glue::check_launch();
  }

  template <int kIndex>
  static void launch_if(Selects select, int blocks, const Inputs<Atom>* in, Outputs<Atom>* out) {
    constexpr core::ScaleSelect kSelect = select_of(kIndex);
    if constexpr (Atom::valid_select_a(kSelect)) {
      if (select.a == kSelect && select.b == select_of(0)) launch<kIndex, 0>(blocks, in, out);
    }
    if constexpr (Atom::valid_select_b(kSelect) && kIndex != 0) {
      if (select.a == select_of(0) && select.b == kSelect) launch<0, kIndex>(blocks, in, out);
    }
  }

  template <int... kIndices>
  static void launch_selected(Selects select, std::integer_sequence<int, kIndices...>, int blocks,
                              const Inputs<Atom>* in, Outputs<Atom>* out) {
    (launch_if<kIndices>(select, blocks, in, out), ...);
  }
};

inline constexpr int kSharedBytes = 1024;

/// Op::run(d, pointer into shared memory) is executed by all lanes of one warp.
template <class Op>
__global__ void execute_movement(const std::uint8_t* memory, int bytes, const std::uint32_t* address, Moved* out) {
  __shared__ alignas(16) std::uint8_t shared[kSharedBytes];
  const int lane = glue::lane_index();
  for (int i = lane; i < bytes; i += Op::kLanes) shared[i] = memory[i];
  glue::barrier();
  std::uint32_t d[4] = {};
  Op::run(d, shared + address[lane]);
  FP4PA_UNROLL
  for (int r = 0; r < 4; ++r) out->d[lane][r] = d[r];
}

template <class Op>
Moved run_movement(const Movement& m) {
  const DeviceBuffer memory(m.memory.size());
  const DeviceBuffer address(sizeof m.address);
  const DeviceBuffer out(sizeof(Moved));
  glue::to_device(memory.as<void>(), m.memory.data(), m.memory.size());
  glue::to_device(address.as<void>(), m.address, sizeof m.address);
  execute_movement<Op><<<1, Op::kLanes>>>(memory.as<std::uint8_t>(), static_cast<int>(m.memory.size()),
                                          address.as<std::uint32_t>(), out.as<Moved>());
  glue::check_launch();
  Moved moved;
  glue::to_host(&moved, out.as<void>(), sizeof moved);
  return moved;
}

/// Counts and prints what a program finds; its exit status is the process's.
class Report {
 public:
  void add(const char* name, const Failure& failure) {
    if (failure.empty()) return;
    std::printf("FAILED: %s: %s\n", name, failure.c_str());
    ++failures_;
  }
  void add(const char* name, bool ok) {
    std::printf("  %-46s %s\n", name, ok ? "as modelled" : "DIFFERENT");
    failures_ += ok ? 0 : 1;
  }
  [[nodiscard]] int status() const {
    std::printf(failures_ == 0 ? "all conform\n" : "%d FAILED\n", failures_);
    return failures_ == 0 ? 0 : 1;
  }

 private:
  int failures_ = 0;
};

/// What a program without its device says to the test driver.
inline constexpr int kSkipped = 77;

/// Runs the device, and the model beside it: counts results whose bits differ, and those of which one is NaN and the
/// other is not.
template <class Instruction>
struct ComparedExecutor {
  using Atom = typename Instruction::Atom;
  static constexpr double kTolerance = DeviceExecutor<Instruction>::kTolerance;
  long long total = 0;
  long long different = 0;
  long long nan_mismatches = 0;

  void run(Selects select, std::span<const Inputs<Atom>> in, std::span<Outputs<Atom>> out) {
    DeviceExecutor<Instruction>{}.run(select, in, out);
    std::vector<Outputs<Atom>> model(out.size());
    ModelExecutor<Atom>{}.run(select, in, model);
    for (std::size_t i = 0; i < out.size(); ++i) {
      for (int e = 0; e < Atom::kLanes * Atom::kValuesC; ++e) {
        const float x = out[i].d[e / Atom::kValuesC][e % Atom::kValuesC];
        const float y = model[i].d[e / Atom::kValuesC][e % Atom::kValuesC];
        ++total;
        nan_mismatches += std::isnan(x) != std::isnan(y) ? 1 : 0;
        different += x == y || (std::isnan(x) && std::isnan(y)) ? 0 : 1;
      }
    }
  }
};

/// All checks on the device. Rounding may differ from the model's; NaN may not.
template <class Instruction>
void check_instruction(Report& report, const char* name,
                       const SelectPairs& pairs = select_pairs<typename Instruction::Atom>()) {
  ComparedExecutor<Instruction> executor;
  report.add(name, check_all<typename Instruction::Atom>(executor, name, pairs));
  std::printf("    %lld of %lld results differ from the model in some bit\n", executor.different, executor.total);
  if (executor.nan_mismatches != 0) report.add(name, Failure("the device and the model disagree on what is NaN"));
}

}  // namespace fp4pa::conformance
