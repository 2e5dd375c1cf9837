// E8M0 scales of keys as f16 factors of the decoded codes, whatever their range.
//
// A decoded code is e 2^-14. Multiplied by 2^(byte - top + 15) it is exact in f16 for scales in the window of 25 binades that ends at
// `top`, and a sum is then the true one times 2^(128 - top). The window that all tiles are tried in holds the scales from 2^-15 to
// 2^9. A tile with other scales is multiplied once for each window that it needs, the lowest first, with factors of 0 for scales of other
// windows: slow, rare and exact, as a scale of 2^-127 counts as 0. So are tiles that end before their last key. The factor of NaN is NaN.
#pragma once

#include <cstdint>

#include "backends/sm80/scale_form.hpp"
#include "core/math.hpp"

namespace fp4pa::sm80 {

inline constexpr int kKeyWindowBinades = 25;
/// Byte of the largest scale of the window that is tried first; sums are in its unit.
inline constexpr int kKeyTop = 136;
inline constexpr int kKeyUnitLog2 = kKeyTop - 128;

/// MXFP4's scales stay words in shared memory, those of values as those of keys, until the products make factors of them.
struct WindowScales : ProductScales {
  [[nodiscard]] FP4PA_FN static constexpr bool keeps_words(KvKind k) { return k == KvKind::kMxfp4; }
};

/// Of a tile of 32 keys with four scales each. A key's word lies at 4 * key behind `scales` first, and its factors, each in both halves of a
/// word, at 16 * key afterwards. By a warp, lane l for key l.
template <class E>
class KeyWindows {
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;

 public:
  /// Factors of the first window.
  /// @param scratch  of the warp, where it keeps the words if there are more
  FP4PA_FN KeyWindows(E& exec, std::uint32_t scales, std::uint32_t scratch) : exec_(exec), scales_(scales), scratch_(scratch) {
    PerLane<std::uint32_t> word;
    exec_.each_lane([&](Lane lane) { word[lane] = exec_.template load_shared<std::uint32_t>(lane, scales_ + 4 * lane.id); });
    // The barrier of a vote does not order shared memory.
    outside_ = exec_.any([&](Lane lane) { return leaves(word[lane]); });
    exec_.warp_barrier();
    if (outside_) {
      find_windows(word);
      form();
    } else {
      exec_.each_lane([&](Lane lane) {
        constexpr std::uint32_t kBias = static_cast<std::uint32_t>(kTopField - kKeyTop) * 0x04000400u;
        const std::uint32_t even = multiply_add(word[lane] & kBytes, 1024u, kBias);
        const std::uint32_t odd = multiply_add((word[lane] >> 8) & kBytes, 1024u, kBias);
        store(lane, {twice_low(even), twice_low(odd), twice_high(even), twice_high(odd)});
      });
    }
    exec_.warp_barrier();
  }

  /// Whether sums are as they should be, as after nearly every first product; else they are to be multiplied by 2^next().
  [[nodiscard]] FP4PA_FN bool done() const { return !outside_; }
  /// Factors of the next window, or, behind the last one, the way to the first window's unit: then done() is true.
  [[nodiscard]] FP4PA_FN int next() {
    outside_ = top_ != last_;
    if (!outside_) return top_ - kKeyTop;
    top_ += kKeyWindowBinades;
    exec_.warp_barrier();
    form();
    exec_.warp_barrier();
    return -kKeyWindowBinades;
  }

 private:
  /// f16's exponent field of the factor of a window's largest scale.
  static constexpr int kTopField = 30;
  static constexpr std::uint32_t kBytes = 0x00ff00ffu;

  /// Whether one of four scales lies outside of the first window. A difference below zero shows in the sign of its half; a borrow comes
  /// only from such a half.
  [[nodiscard]] FP4PA_FN static bool leaves(std::uint32_t word) {
    constexpr std::uint32_t kHigh = static_cast<std::uint32_t>(kKeyTop) * 0x00010001u;
    constexpr std::uint32_t kLow = static_cast<std::uint32_t>(kKeyTop - kKeyWindowBinades + 1) * 0x00010001u;
    const std::uint32_t even = word & kBytes;
    const std::uint32_t odd = (word >> 8) & kBytes;
    return (((kHigh - even) | (even - kLow) | (kHigh - odd) | (odd - kLow)) & 0x80008000u) != 0;
  }
  /// Top of the window that a scale lies in.
  [[nodiscard]] FP4PA_FN static int window_of(int byte) {
    constexpr int kHighest = kKeyTop + 10 * kKeyWindowBinades;
    return kHighest - (kHighest - byte) / kKeyWindowBinades * kKeyWindowBinades;
  }

  FP4PA_FN void find_windows(const PerLane<std::uint32_t>& word) {
    PerLane<std::uint32_t> largest;
    PerLane<std::uint32_t> least;  // 255 less it
    exec_.each_lane([&](Lane lane) {
      largest[lane] = least[lane] = 0;
      FP4PA_UNROLL
      for (int b = 0; b < 4; ++b) {
        const std::uint32_t byte = byte_of(word[lane], b);
        if (byte == 0 || byte == 255) continue;
        largest[lane] = byte > largest[lane] ? byte : largest[lane];
        least[lane] = 255 - byte > least[lane] ? 255 - byte : least[lane];
      }
      exec_.template store_shared<std::uint32_t>(lane, scratch_ + 4 * lane.id, word[lane]);
    });
    const int high = static_cast<int>(exec_.reduce_max(largest));
    const int low = 255 - static_cast<int>(exec_.reduce_max(least));
    top_ = high == 0 ? kKeyTop : window_of(low);
    last_ = high == 0 ? kKeyTop : window_of(high);
  }

  /// Of the window at hand, from a lane's own word in its scratch.
  FP4PA_FN void form() {
    exec_.each_lane([&](Lane lane) {
      const auto word = exec_.template load_shared<std::uint32_t>(lane, scratch_ + 4 * lane.id);
      std::uint32_t factor[4];
      FP4PA_UNROLL
      for (int b = 0; b < 4; ++b) {
        const int byte = static_cast<int>(byte_of(word, b));
        const bool inside = byte != 0 && byte <= top_ && byte > top_ - kKeyWindowBinades;
        factor[b] = byte == 255 ? 0x7e007e00u : inside ? static_cast<std::uint32_t>(byte - top_ + kTopField) * 0x04000400u : 0u;
      }
      store(lane, {factor[0], factor[1], factor[2], factor[3]});
    });
  }

  struct alignas(16) Factors {
    std::uint32_t of_block[4];
  };
  FP4PA_FN void store(Lane lane, const Factors& factors) {
    exec_.template store_shared<Factors>(lane, scales_ + 16 * lane.id, factors);
  }

  E& exec_;
  std::uint32_t scales_;
  std::uint32_t scratch_;
  bool outside_;
  int top_ = kKeyTop;
  int last_ = kKeyTop;
};

}  // namespace fp4pa::sm80
