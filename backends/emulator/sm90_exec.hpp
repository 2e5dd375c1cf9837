// The instructions of sm_90a on an emulated warp: the names of backends/sm90/exec.hpp.
//
// A group product happens as late as is legal, at its wait: it then reads A and shared memory as they are by that time, so that
// whoever changes either too early is found out. Not modelled: the order between ordinary stores and what the instruction reads,
// that is, whether a writer called async_fence.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "backends/emulator/isa/sm90_wgmma.hpp"
#include "backends/emulator/sm80_exec.hpp"
#include "backends/sm90/operand_tile.hpp"

namespace fp4pa::emulator {

class Sm90Exec : public Sm80Exec {
 public:
  using Sm80Exec::Sm80Exec;

  template <class T, class Source>
  [[nodiscard]] PerLane<T> shuffle(const PerLane<T>& x, Source&& source) {
    PerLane<T> out;
    each_lane([&](Lane lane) { out[lane] = x[Lane{source(lane)}]; });
    return out;
  }

  template <class T>
  [[nodiscard]] T load_global_or_zero(const void* from, bool exists, Site at = Site::current()) {
    return exists ? load_global<T>(from, at) : T{};
  }
  template <class T>
  void load_word_if(T& x, const void* from, bool exists, Site at = Site::current()) {
    if (exists) x = load_global<T>(from, at);
  }
  template <int kBytes, int kWords>
  void load_scales_if(std::uint32_t (&x)[kWords], const void* from, bool exists, Site at = Site::current()) {
    if (!exists) return;
    if constexpr (kBytes == 16) {
      load_chunk_if(x, from, true, at);
    } else if constexpr (kBytes == 8) {
      const auto both = load_global<std::uint64_t>(from, at);
      x[0] = static_cast<std::uint32_t>(both);
      x[1] = static_cast<std::uint32_t>(both >> 32);
    } else if constexpr (kBytes == 4) {
      x[0] = load_global<std::uint32_t>(from, at);
    } else if constexpr (kBytes == 2) {
      x[0] = load_global<std::uint16_t>(from, at);
    } else {
      static_assert(kBytes == 1);
      x[0] = load_global<std::uint8_t>(from, at);
    }
  }
  void load_chunk_if(std::uint32_t (&x)[4], const void* from, bool exists, Site at = Site::current()) {
    if (!exists) return;
    const auto words = load_global<std::array<std::uint32_t, 4>>(from, at);
    for (std::size_t i = 0; i < 4; ++i) x[i] = words[i];
  }
  void prefetch(const void*) {}

  void group_fence() {}
  template <class Element, int kN, bool kTransposed, class D>
  void group_multiply_shared(D&& d, const sm90::SharedMatrix& a, const sm90::SharedMatrix& b, bool accumulate, Site at = Site::current()) {
    issue<Element, kN, kTransposed>(d, b, accumulate, at, [=, this, from = sm90::matrix_descriptor(a.offset, a)](isa::WgmmaRows& rows) {
      isa::wgmma_rows<isa::Packed<Element>>(from, warp() % 4, rows, collective_read(at, 16));
    });
  }
  template <class Element, int kN, bool kTransposed, class D, class A>
  void group_multiply(D&& d, A&& a, const sm90::SharedMatrix& b, bool accumulate, Site at = Site::current()) {
    std::array<const std::uint32_t*, kLanes> factors;
    for (int lane = 0; lane < kLanes; ++lane) factors[static_cast<std::size_t>(lane)] = &a(Lane{lane})[0];
    issue<Element, kN, kTransposed>(d, b, accumulate, at, [=](isa::WgmmaRows& rows) {
      isa::wgmma_rows<isa::Packed<Element>>(factors, rows);
    });
  }
  void group_commit() {
    for (auto& product : open_) committed_.push_back(std::move(product));
    open_.clear();
  }
  template <class D>
  void group_wait(D&&) {
    for (const auto& product : committed_) product();
    committed_.clear();
  }
  void async_fence() {}

  template <class F>
  [[nodiscard]] bool block_any(F&& f, Site at = Site::current()) {
    const bool mine = any(f);
    const std::uint32_t round = block().turns().barriers();
    block().vote(round) = block().vote(round) || mine;
    block_barrier(at);
    return block().vote(round);
  }

 private:
  template <class Element, int kN, bool kTransposed, class D, class Rows>
  void issue(D&& d, const sm90::SharedMatrix& b, bool accumulate, Site at, Rows&& load) {
    std::array<float*, kLanes> sums;
    for (int lane = 0; lane < kLanes; ++lane) sums[static_cast<std::size_t>(lane)] = &d(Lane{lane})[0][0][0];
    open_.push_back([=, this, descriptor = sm90::matrix_descriptor(b.offset, b)] {
      isa::WgmmaRows rows;
      load(rows);
      isa::wgmma_warp<isa::Packed<Element>, kN, kTransposed>(rows, descriptor, accumulate, sums, collective_read(at, 16));
    });
  }

  std::vector<std::function<void()>> open_;
  std::vector<std::function<void()>> committed_;
};

static_assert(core::Exec<Sm90Exec>);

}  // namespace fp4pa::emulator
