// E8M0 scales of values on their way into f16 probabilities: the window of scales that f16 has room for, and what lies outside.
//
// With `top` the byte of the largest scale that the output's unit is made for, P * 2^6 is multiplied by 2^(byte - top) in f16: at
// most 2^15, and the factor is a normal number for the kWindow binades below. What lies outside of the window is added
// in f32, one product at a time, and its factors are set to 0 for the matrix instructions: rare, and exact. Byte 0, 2^-127,
// counts as 0 everywhere.
#pragma once

#include <cstdint>
#include <limits>

#include "backends/sm80/key_product.hpp"

namespace fp4pa::sm80 {

/// Values whose block scales are multiplied into P.
[[nodiscard]] FP4PA_FN constexpr bool scales_probability(KvKind kind) {
  return scales_blocks(kind) || kind == KvKind::kPerToken;
}
/// What values decoded to f16 are multiplied by, as a power of two.
[[nodiscard]] FP4PA_FN constexpr int decoded_f16_log2(KvKind kind) { return core::is_fp4(kind) ? kE2m1F16Log2 : 0; }

/// The top of the window of an output's unit and what is near it, in halves of 16 bits: a byte's difference to an end is below zero, which shows
/// in the half's sign, where it is outside; a borrow comes only from such a half. And what makes a factor of a byte.
struct WindowNote {
  std::uint32_t high;
  std::uint32_t low;
  std::uint32_t bias;
};

template <class Shim>
struct ScaleWindow {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kBlocks = kConfig.head_dim / core::kDimBlock;
  static constexpr int kStrips = kConfig.tile_keys / 32;

  /// Byte of the window's largest scale in an output of this unit.
  template <KvKind kKind>
  [[nodiscard]] FP4PA_FN static int top_of(int unit_log2) {
    return unit_log2 + kUnitOfTop<kKind>;
  }

  template <KvKind kKind>
  [[nodiscard]] FP4PA_FN static WindowNote note_of(float unit, int unit_log2) {
    constexpr std::uint32_t kBoth = 0x00010001u;
    const int top = top_of<kKind>(unit_log2);
    const bool no_window = unit != 1.0f || top >= 255;
    if (no_window) return {0, 0x7fff * kBoth, 0};  // every byte is below it
    return {static_cast<std::uint32_t>(top) * kBoth, static_cast<std::uint32_t>(top - kNear) * kBoth,
            static_cast<std::uint32_t>(15 - top) * (kBoth << 10)};
  }

  /// Makes factors of P of the tile's scales; false: they are not all near the top of the window, and move() comes next. A pair of
  /// bytes becomes a pair of factors in one operation: shifted to the place of f16's exponent, and moved to its bias and the output's
  /// unit by a sum.
  template <KvKind kKind, class Stream, class Output>
  [[nodiscard]] FP4PA_FN static bool form(E& exec, const Stream& stream, const Output& output) {
    static_assert(Shim::kFirstUnitLog2 + kUnitOfTop<kKind> >= 255);  // no window before the first tile
    WindowNote note;
    if constexpr (requires { output.note.high; }) {
      note = output.note;
    } else {
      note = note_of<kKind>(output.unit, output.unit_log2);
    }
    const auto [high, low, bias] = note;
    PerLane<std::uint32_t> signs;
    exec.each_lane([&](Lane lane) {
      signs[lane] = 0;
      each_raw_word<kKind>(exec, lane, stream, [&](std::uint32_t word, int key, int first, int bytes) {
        const std::uint32_t even = word & 0x00ff00ffu;
        const std::uint32_t odd = (word >> 8) & 0x00ff00ffu;
        // Bytes that are no scales count for nothing.
        signs[lane] |= ((high - even) | (even - low)) & (bytes >= 3 ? 0xffffffffu : 0xffffu);
        signs[lane] |= ((high - odd) | (odd - low)) & (bytes >= 4 ? 0xffffffffu : bytes >= 2 ? 0xffffu : 0u);
        const std::uint32_t factors[2] = {multiply_add(even, 1024u, bias), multiply_add(odd, 1024u, bias)};
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (i < bytes) store_factor<kKind>(exec, lane, stream, key, first + i, factors[i % 2] >> (i / 2 * 16));
        }
      });
    });
    return !exec.any([&](Lane lane) { return (signs[lane] & 0x80008000u) != 0; });
  }

  /// Moves the window to the tile's largest scales where they are above it or not near its top, and gives those outside factors of 0.
  template <KvKind kKind, class Backend, class Stream>
  FP4PA_FN static void move(E& exec, const Backend& backend, const Stream& stream, typename Backend::Output& output) {
    PerLane<std::uint32_t> mine;
    exec.each_lane([&](Lane lane) {
      mine[lane] = 0;
      each_raw_word<kKind>(exec, lane, stream, [&](std::uint32_t word, int, int, int bytes) {
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t byte = byte_of(word, i);
          if (i < bytes && byte != 255 && byte > mine[lane]) mine[lane] = byte;
        }
      });
    });
    const int largest = static_cast<int>(exec.reduce_max(mine));
    const int now = top_of<kKind>(output.unit_log2);
    if (output.unit != 1.0f || now > 254 || now <= kWindow || (largest != 0 && (largest > now || largest < now - kNear))) {
      int top = largest + kRoom;
      top = top > 254 ? 254 : top <= kWindow ? kWindow + 1 : top;
      // Down only as far as what is there stays finite.
      if (output.unit != 1.0f || top - kUnitOfTop<kKind> >= output.unit_floor) {
        backend.set_unit(output, 1.0f, top - kUnitOfTop<kKind>);
      }
    }
    const int top = top_of<kKind>(output.unit_log2);
    exec.each_lane([&](Lane lane) {
      each_raw_word<kKind>(exec, lane, stream, [&](std::uint32_t word, int key, int first, int bytes) {
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (i >= bytes) continue;
          const int byte = static_cast<int>(byte_of(word, i));
          const int factor = is_inside(byte, top) ? (15 - top + byte) * 1024 : 0;
          store_factor<kKind>(exec, lane, stream, key, first + i, static_cast<std::uint32_t>(factor));
        }
      });
    });
  }

  /// Whether the window leaves out any scale of the tile that counts.
  template <KvKind kKind, class Stream, class Output>
  [[nodiscard]] FP4PA_FN static bool any_outside(E& exec, const Stream& stream, const Output& output) {
    const int top = top_of<kKind>(output.unit_log2);
    return exec.any([&](Lane lane) {
      bool mine = false;
      each_raw_word<kKind>(exec, lane, stream, [&](std::uint32_t word, int, int, int bytes) {
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int byte = static_cast<int>(byte_of(word, i));
          mine = mine || (i < bytes && byte != 0 && (byte == 255 || !is_inside(byte, top)));
        }
      });
      return mine;
    });
  }
  /// From products of decoded values and probabilities to the output's unit, for a scale that the window leaves out; false: it does not.
  template <KvKind kKind, class Stream, class Output>
  [[nodiscard]] FP4PA_FN static bool outside_scale(E& exec, Lane lane, const Stream& stream, const Output& output, int key, int block,
                                                   float& scale) {
    const int top = top_of<kKind>(output.unit_log2);
    const int index = OperandScales::count(kKind, stream.head_dim()) == 1 ? 0 : block;
    const int byte = exec.template load_shared<std::uint8_t>(
        lane, stream.tile_offset() + stream.layout().v_scales + OperandScales::raw_offset(kKind, stream.head_dim(), key) + index);
    if (byte == 0 || (byte != 255 && is_inside(byte, top))) return false;
    const int log2 = byte - 127 - output.unit_log2 - Shim::kProbabilityLog2 - decoded_f16_log2(kKind);
    scale = byte == 255 ? std::numeric_limits<float>::quiet_NaN() : log2 < -126 ? 0.0f : core::exp2_exact(log2);
    return true;
  }
  /// Dim `dim` of a staged key of V, decoded.
  template <KvKind kKind, class Stream>
  [[nodiscard]] FP4PA_FN static float value_at(E& exec, Lane lane, const Stream& stream, int key, int dim) {
    constexpr int kChunkDims = core::kChunkBytes / 2 * core::per_halfword(kKind);
    const std::uint32_t row = row_offset(stream.tile_offset() + stream.layout().v_codes, key, stream.layout().v_chunks);
    const std::uint32_t at = chunk_offset(row, dim / kChunkDims);
    std::uint32_t half[4];
    if constexpr (core::is_e4m3(kKind)) {
      half[0] = e4m3_to_f16(std::uint32_t{exec.template load_shared<std::uint8_t>(lane, at + dim % kChunkDims)});
    } else {
      e2m1_to_f16(std::uint32_t{exec.template load_shared<std::uint8_t>(lane, at + dim % kChunkDims / 2)} >> (dim % 2 * 4), half);
    }
    return core::f16_to_f32(static_cast<std::uint16_t>(half[0]));
  }

  /// What the window leaves out, NaN included. P goes through the warp's scratch, key by key.
  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void add_outside(E& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                   typename Backend::Output& output) {
    const core::TileLayout layout = stream.layout();
    const std::uint32_t scratch = backend.scratch_offset();
    if (!any_outside<kKind>(exec, stream, output)) return;  // keys that do not exist, and no others
    FP4PA_UNROLL
    for (int i = 0; i < kStrips * kRowTiles; ++i) {
      const int strip = i / kRowTiles;
      const int nt = i % kRowTiles;
      exec.warp_barrier();
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int j = 0; j < 8; ++j) {
          const int key = 16 * (j / 4) + lane.id / 4 + j % 4 / 2 * 8;
          exec.template store_shared<float>(lane, scratch + 4 * (8 * key + lane.id % 4 * 2 + j % 2),
                                            p[lane][2 * strip + j / 4][nt][j % 4]);
        }
      });
      exec.warp_barrier();
      FP4PA_NO_UNROLL
      for (int k = 0; k < 32; ++k) {
        const int key = strip * 32 + k;
        FP4PA_UNROLL
        for (int block = 0; block < kBlocks; ++block) {
          if (!kConfig.exact_head_dim && block * core::kDimBlock >= stream.head_dim()) break;
          exec.each_lane([&](Lane lane) {
            float scale;
            if (!outside_scale<kKind>(exec, lane, stream, output, key, block, scale)) return;
            const std::uint32_t row = row_offset(stream.tile_offset() + layout.v_codes, key, layout.v_chunks);
            std::uint32_t values[4];  // of this lane's dims of the block, in the lower halves
            if constexpr (core::is_e4m3(kKind)) {
              FP4PA_UNROLL
              for (int m = 0; m < 2; ++m) {
                const std::uint32_t at = chunk_offset(row, 2 * block + m) + lane.id / 4 * 2;
                const auto codes = exec.template load_shared<std::uint16_t>(lane, at);
                values[2 * m] = e4m3_to_f16(codes);
                values[2 * m + 1] = values[2 * m] >> 16;
              }
            } else {
              e2m1_to_f16(exec.template load_shared<std::uint16_t>(lane, chunk_offset(row, block) + lane.id / 4 * 2), values);
            }
            FP4PA_UNROLL
            for (int v = 0; v < 8; ++v) {
              const int dim = v / 2;
              const float weight =
                  exec.template load_shared<float>(lane, scratch + 4 * (8 * k + lane.id % 4 * 2 + v % 2)) * scale;
              float& sum = output.value[lane][2 * block + dim / 2][nt][dim % 2 * 2 + v % 2];
              sum = ::fmaf(weight, core::f16_to_f32(static_cast<std::uint16_t>(values[dim])), sum);
            }
          });
        }
      }
    }
  }

 private:
  static constexpr int kWindow = 14;
  static constexpr int kNear = 6;  // of the top: scales below make form() call for move(), lest a window stay where one tile moved it
  static constexpr int kRoom = 1;  // of a new window, for larger scales in later tiles
  /// The output's unit is 2^(top - kUnitOfTop).
  template <KvKind kKind>
  static constexpr int kUnitOfTop = 127 + Shim::kProbabilityLog2 + decoded_f16_log2(kKind);
  [[nodiscard]] FP4PA_FN static bool is_inside(int byte, int top) { return byte <= top && byte >= top - kWindow && byte != 0; }

  /// By the lane whose key it is.
  template <KvKind kKind, class Stream>
  FP4PA_FN static void store_factor(E& exec, Lane lane, const Stream& stream, int key, int index, std::uint32_t factor) {
    const auto at = stream.layout().v_scales + 64 * index;
    exec.template store_shared<std::uint16_t>(
        lane, stream.tile_offset() + stream.value_place(lane, key) + static_cast<std::uint32_t>(at), static_cast<std::uint16_t>(factor));
  }

  /// Calls f(word, key, index of its first scale, scales in it) for the scale words of the keys that are this lane's.
  template <KvKind kKind, class Stream, class F>
  FP4PA_FN static void each_raw_word(E& exec, Lane lane, const Stream& stream, F&& f) {
    constexpr int kWords = OperandScales::raw_bytes(kKind, kConfig.head_dim) / 4;
    const int count = OperandScales::count(kKind, stream.head_dim());
    FP4PA_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      FP4PA_UNROLL
      for (int w = 0; w < kWords; ++w) {
        if (4 * w >= count) continue;
        const int key = strip * 32 + lane.id;
        const int at = OperandScales::raw_offset(kKind, stream.head_dim(), key) + 4 * w;
        f(exec.template load_shared<std::uint32_t>(lane, stream.tile_offset() + stream.layout().v_scales + at), key, 4 * w,
          count - 4 * w);
      }
    }
  }
};

}  // namespace fp4pa::sm80
