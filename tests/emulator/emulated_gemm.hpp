// Matrix products on the emulator: in this program, products of back end "cuda" go to the emulated kernel that `current_gemm`
// names, on the host's memory. What surrounds the kernel, quantising X, is the CPU's.
#pragma once

#include "api/backend.hpp"
#include "backends/emulator/block.hpp"
#include "core/gemm/block.hpp"

namespace fp4pa::emulator_test {

/// What a kernel takes X as.
enum class XForm {
  kQuantised,  // as W: codes and scales
  kPrepared,   // in f16, for those that decode W, paired as the table decodes
  kInOrder,    // the same with columns in their order, for those that convert
  kTerms,      // E4M3 terms (core/gemm/terms.hpp)
};

/// One kernel: one block of its grid.
struct EmulatedGemm {
  const char* name;
  BlockFormat format;
  XForm x_form;
  int rows, x_rows;  // of W and X of a block
  void (*run_block)(const core::GemmParams&, int tile, int batch, int block, const emulator::Watch&);
};

struct GemmSetup {
  const EmulatedGemm* kernel = nullptr;  // null: products are refused
  emulator::Watch watch{};
};
extern GemmSetup current_gemm;

/// The kernel that products go to until the scope ends, then the one before: a test that fails hands nothing on to the next.
class ScopedGemm {
 public:
  ScopedGemm(const EmulatedGemm& kernel, const emulator::Watch& watch) { current_gemm = {&kernel, watch}; }
  ScopedGemm(const ScopedGemm&) = delete;
  ScopedGemm& operator=(const ScopedGemm&) = delete;
  ~ScopedGemm() { current_gemm = before_; }

 private:
  GemmSetup before_ = current_gemm;
};

template <class Shim>
void run_gemm_block(const core::GemmParams& p, int tile, int batch, int block, const emulator::Watch& watch) {
  using Block = core::GemmBlock<Shim>;
  emulator::run_block<typename Shim::Exec>(watch, block, Shim::kWarps, Block::kSharedBytes,
                                           [&](auto& exec) { Block(exec, p, tile, batch).run(); });
}

template <class Shim>
constexpr EmulatedGemm emulated_gemm(const char* name, BlockFormat format, XForm x_form) {
  return {name, format, x_form, core::GemmBlock<Shim>::kRows, core::GemmBlock<Shim>::kXRows, run_gemm_block<Shim>};
}
template <class Shim>
constexpr EmulatedGemm emulated_gemm(const char* name, BlockFormat format, bool decodes) {
  XForm prepared = XForm::kPrepared;
  if constexpr (requires { requires !Shim::kPaired; }) prepared = XForm::kInOrder;
  return emulated_gemm<Shim>(name, format, decodes ? prepared : XForm::kQuantised);
}

[[nodiscard]] Status gemm_workspace(const LinearArgs& args, const ExecDesc& exec, std::size_t* bytes) noexcept;
[[nodiscard]] Status gemm(const LinearArgs& args, const ExecDesc& exec) noexcept;

}  // namespace fp4pa::emulator_test
