// An Exec on the host: lane regions as loops over lanes, one thread per warp, instructions from the atoms' maps.
//
// Enough to run the SIMT back end of sm_80 where there is no GPU, so that indexing, staging, masks and merging are tested by
// the ordinary tests. It is not the emulator: the product comes from the same maps as the shim, so a wrong map would
// cancel. Asynchronous copies land at their wait and shared memory starts as NaN.
#pragma once

#include <barrier>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "backends/sm80/atoms.hpp"
#include "core/simt/exec.hpp"

namespace fp4pa::gpu_test {

struct HostBlock {
  HostBlock(int warps, std::size_t shared_bytes)
      : num_warps(warps), shared((shared_bytes + 15) / 16 * 16, 0xff), barrier(warps) {}
  int num_warps;
  std::vector<std::uint8_t> shared;
  std::barrier<> barrier;
};

class HostExec {
 public:
  static constexpr int kLanes = 32;
  struct Lane {
    int id;
  };
  template <class T>
  struct PerLane {
    T value[kLanes];
    T& operator[](Lane lane) { return value[lane.id]; }
    const T& operator[](Lane lane) const { return value[lane.id]; }
  };

  HostExec(HostBlock& block, int warp, bool reverse) : block_(block), warp_(warp), reverse_(reverse) {}
  [[nodiscard]] int warp() const { return warp_; }
  [[nodiscard]] int num_warps() const { return block_.num_warps; }

  template <class F>
  void each_lane(F&& f) const {
    for (int i = 0; i < kLanes; ++i) f(Lane{reverse_ ? kLanes - 1 - i : i});
  }
  template <class T>
  [[nodiscard]] PerLane<T> shuffle_xor(const PerLane<T>& x, int mask) const {
    PerLane<T> out;
    for (int i = 0; i < kLanes; ++i) out.value[i] = x.value[i ^ mask];
    return out;
  }
  [[nodiscard]] std::uint32_t reduce_max(const PerLane<std::uint32_t>& x) const {
    std::uint32_t m = 0;
    for (const std::uint32_t v : x.value) m = v > m ? v : m;
    return m;
  }
  template <class F>
  [[nodiscard]] bool any(F&& f) const {
    bool result = false;
    for (int i = 0; i < kLanes; ++i) result = f(Lane{i}) || result;
    return result;
  }
  void warp_barrier() const {}
  void block_barrier() const { block_.barrier.arrive_and_wait(); }

  template <class T>
  void store_shared(Lane, std::uint32_t offset, T value) const {
    check(offset, sizeof(T));
    std::memcpy(block_.shared.data() + offset, &value, sizeof(T));
  }
  template <class T>
  [[nodiscard]] T load_shared(Lane, std::uint32_t offset) const {
    check(offset, sizeof(T));
    T value;
    std::memcpy(&value, block_.shared.data() + offset, sizeof(T));
    return value;
  }
  void load_shared_16(Lane, std::uint32_t offset, std::uint32_t (&words)[4]) const {
    check(offset, 16);
    std::memcpy(words, block_.shared.data() + offset, 16);
  }
  template <class T>
  [[nodiscard]] T load_global(const void* from) const {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }

  void copy_async_16(Lane, std::uint32_t to, const void* from, bool valid) {
    check(to, 16);
    if (valid && reinterpret_cast<std::uintptr_t>(from) % 16 != 0) std::abort();
    open_.push_back({to, valid ? from : nullptr});
  }
  void copy_commit() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  template <int kNewest>
  void copy_wait() {
    while (groups_.size() > static_cast<std::size_t>(kNewest)) {
      for (const Copy& c : groups_.front()) {
        if (c.from != nullptr) {
          std::memcpy(block_.shared.data() + c.to, c.from, 16);
        } else {
          std::memset(block_.shared.data() + c.to, 0, 16);
        }
      }
      groups_.pop_front();
    }
  }

  template <bool kTransposed, class Offset, class Words>
  void load_matrix(Offset&& offset, Words&& words) const {
    for (int l = 0; l < kLanes; ++l) {
      std::uint32_t(&w)[4] = words(Lane{l});
      for (int m = 0; m < 4; ++m) {
        std::uint32_t out = 0;
        for (int h = 0; h < 2; ++h) {
          const int row = kTransposed ? l % 4 * 2 + h : l / 4;
          const int col = kTransposed ? l / 4 : l % 4 * 2 + h;
          const std::uint32_t at = offset(Lane{8 * m + row});
          if (at % 16 != 0) std::abort();
          std::uint16_t element;
          check(at + 2 * col, 2);
          std::memcpy(&element, block_.shared.data() + at + 2 * col, 2);
          out |= std::uint32_t{element} << (16 * h);
        }
        w[m] = out;
      }
    }
  }
  template <class Word>
  void transpose(Word&& word) const {
    std::uint16_t matrix[8][8];
    for (int l = 0; l < kLanes; ++l) {
      for (int h = 0; h < 2; ++h) matrix[l / 4][l % 4 * 2 + h] = static_cast<std::uint16_t>(word(Lane{l}) >> (16 * h));
    }
    for (int l = 0; l < kLanes; ++l) {
      word(Lane{l}) = std::uint32_t{matrix[l % 4 * 2][l / 4]} | std::uint32_t{matrix[l % 4 * 2 + 1][l / 4]} << 16;
    }
  }
  template <class Element, class D, class A, class B>
  void multiply(D&& d, A&& a, B&& b) const {
    using Atom = sm80::MmaM16N8K16<Element>;
    float am[16][16];
    float bm[16][8];
    for (int l = 0; l < kLanes; ++l) {
      for (int v = 0; v < 8; ++v) {
        const core::RowK x = Atom::a_coord(l, v);
        am[x.row][x.k] = Element::decode(static_cast<std::uint16_t>(a(Lane{l})[v / 2] >> (v % 2 * 16)));
      }
      for (int v = 0; v < 4; ++v) {
        const core::ColK x = Atom::b_coord(l, v);
        bm[x.k][x.col] = Element::decode(static_cast<std::uint16_t>(b(Lane{l})[v / 2] >> (v % 2 * 16)));
      }
    }
    for (int l = 0; l < kLanes; ++l) {
      for (int v = 0; v < 4; ++v) {
        const core::RowCol x = Atom::c_coord(l, v);
        float sum = d(Lane{l})[v];
        for (int k = 0; k < 16; ++k) sum += am[x.row][k] * bm[k][x.col];
        d(Lane{l})[v] = sum;
      }
    }
  }

 private:
  struct Copy {
    std::uint32_t to;
    const void* from;
  };
  void check(std::size_t offset, std::size_t bytes) const {
    if (offset % bytes != 0 || offset + bytes > block_.shared.size()) std::abort();
  }
  HostBlock& block_;
  int warp_;
  bool reverse_;
  std::vector<Copy> open_;
  std::deque<std::vector<Copy>> groups_;
};

static_assert(core::Exec<HostExec>);

}  // namespace fp4pa::gpu_test
