// A staged tile of keys or values to 16-bit operands in shared memory, once for all warps of a block.
//
// Prefill reads every key with many query rows. Warps that each decoded the same codes would spend more on decoding than on
// the products; here each thread decodes a few 16-byte chunks, and the products are those of a 16-bit cache.
//   E2M1 x E8M0   bf16, exactly: two significant bits, and the range of the scale is bf16's own. Only what the smallest scale
//                 (2^-127) would make is as good as zero
//   E2M1 x E4M3   f16 times 2^-14, exactly: a product is a multiple of 2^-24, f16's least magnitude, and has six significant bits
//   E4M3          f16, exactly
//   E4M3 x E8M0   bf16, exactly
//
// The decoded rows are chunks of 8 elements with the swizzle of key_product.hpp. Within a chunk FP4 elements lie in the order
// 0 4 1 5 2 6 3 7, as they fall out of the decoding (decoded_dim): the query is stored in the same order, and an output's
// order of dims is settled at its store.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/key_product.hpp"

namespace fp4pa::sm80 {

/// What an NVFP4 operand is a value's multiple of: as the code came out of the decoding.
inline constexpr int kDecodedNvfp4Log2 = kE2m1F16Log2;

/// Element, within 8, at position x of a decoded chunk.
[[nodiscard]] FP4PA_FN constexpr int decoded_dim(KvKind kind, int x) { return core::is_fp4(kind) ? x / 2 + 4 * (x % 2) : x; }

/// Kinds that do not lie in the stages as operands already.
[[nodiscard]] FP4PA_FN constexpr bool needs_decoding(KvKind kind) { return kind != KvKind::kBf16 && kind != KvKind::kF16; }

/// Whether a kind's operands are bf16; f16 otherwise.
[[nodiscard]] FP4PA_FN constexpr bool decodes_to_bf16(KvKind kind) {
  return kind == KvKind::kBf16 || kind == KvKind::kMxfp4 || kind == KvKind::kPerToken || kind == KvKind::kMxfp4Tokens ||
         kind == KvKind::kMxfp8;
}

/// Whether keys of any segment of an instance that decodes tiles become bf16.
[[nodiscard]] FP4PA_FN constexpr bool any_decodes_to_bf16(const core::SimtConfig& c) {
  return decodes_to_bf16(c.k[0]) || (c.segments == 2 && decodes_to_bf16(c.k[1]));
}

/// Of a tile whose rows lie at a power-of-two pitch (DecodedRows).
[[nodiscard]] FP4PA_FN constexpr int decoded_bytes(KvKind kind, int head_dim, int tile_keys) {
  return needs_decoding(kind) ? tile_keys * core::power_of_two_at_least(head_dim * 2) : 0;
}

/// a * b in each half of bf16, subnormals included.
FP4PA_FN std::uint32_t multiply_bf16(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  std::uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(0x80008000u));
  return out;
#else
  return host::each_half([&](int s) { return core::f32_to_bf16(host::bf16(a, s) * host::bf16(b, s)); });
#endif
}

/// x, in a way that keeps what is computed from it out of the loop-invariant registers: a few additions a tile are cheaper
/// than addresses that live as long as the accumulators.
FP4PA_FN int recomputed(int x) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(x));
#endif
  return x;
}

/// 16 bytes, stored at once.
struct alignas(16) Chunk {
  std::uint32_t word[4];
};

/// Where the scales of a staged tensor lie.
struct StagedScales {
  std::uint32_t offset;  // of the tile's first row of scales
  int pitch;
};

/// Decoded rows at a power-of-two pitch with the swizzle of key_product.hpp.
template <int kHeadDim>
struct DecodedRows {
  static constexpr int kPitch = core::power_of_two_at_least(kHeadDim * 2 / core::kChunkBytes);
  [[nodiscard]] FP4PA_FN static std::uint32_t row_address(std::uint32_t tile, int row) { return row_offset(tile, row, kPitch); }
  [[nodiscard]] FP4PA_FN static std::uint32_t chunk_address(std::uint32_t row, int chunk) { return chunk_offset(row, chunk); }
};

/// 16 bytes of a row, `codes`, to chunks of operands.
/// @param scale  word number -> its scale, twice, in the type of the operands (along tokens: word number and pair, of elements p
///               and p + 4 of eight)
template <KvKind kKind, class Scale, int kOut>
FP4PA_FN void decode_chunk(const std::uint32_t (&codes)[4], Scale&& scale, Chunk (&out)[kOut]) {
  constexpr std::uint32_t kUnscale = 0x7e807e80u;      // 2^126, bf16's bias less E2M1's
  constexpr std::uint32_t kUnscaleE4m3 = 0x7b807b80u;  // 2^120, see kE4m3Bf16Log2
  if constexpr (!needs_decoding(kKind)) {
    FP4PA_UNROLL
    for (int w = 0; w < 4; ++w) out[0].word[w] = codes[w];
  } else if constexpr (kKind == KvKind::kFp8) {
    FP4PA_UNROLL
    for (int w = 0; w < 4; ++w) {
      out[w / 2].word[w % 2 * 2] = e4m3_to_f16(codes[w] & 0xffffu);
      out[w / 2].word[w % 2 * 2 + 1] = e4m3_to_f16(codes[w] >> 16);
    }
  } else if constexpr (kKind == KvKind::kMxfp8) {
    FP4PA_UNROLL
    for (int w = 0; w < 4; ++w) {
      std::uint32_t pairs[2];
      e4m3_to_bf16(codes[w], pairs);
      FP4PA_UNROLL
      for (int i = 0; i < 2; ++i) {
        out[w / 2].word[w % 2 * 2 + i] = scale_bf16(multiply_bf16(pairs[i], kUnscaleE4m3), scale(w));
      }
    }
  } else if constexpr (kKind == KvKind::kNvfp4) {
    FP4PA_UNROLL
    for (int w = 0; w < 4; ++w) {
      e2m1_to_f16(codes[w], out[w].word);
      const std::uint32_t factor = scale(w);
      FP4PA_UNROLL
      for (int p = 0; p < 4; ++p) out[w].word[p] = multiply_f16(out[w].word[p], factor);
    }
  } else if constexpr (kKind == KvKind::kNvfp4Tokens) {
    FP4PA_UNROLL
    for (int w = 0; w < 4; ++w) {
      e2m1_to_f16(codes[w], out[w].word);
      FP4PA_UNROLL
      for (int p = 0; p < 4; ++p) out[w].word[p] = multiply_f16(out[w].word[p], scale(w, p));
    }
  } else {
    static_assert(decodes_to_bf16(kKind));
    FP4PA_UNROLL
    for (int w = 0; w < 4; ++w) {
      e2m1_to_bf16(codes[w], out[w].word);
      FP4PA_UNROLL
      for (int p = 0; p < 4; ++p) {
        std::uint32_t factor;
        if constexpr (kKind == KvKind::kMxfp4Tokens) {
          factor = scale(w, p);
        } else {
          factor = scale(w);
        }
        out[w].word[p] = scale_bf16(multiply_bf16(out[w].word[p], kUnscale), factor);
      }
    }
  }
}

/// Byte `index` of two words as E4M3 scales in f16, signs ignored.
[[nodiscard]] FP4PA_FN std::uint32_t e4m3_pair_to_f16(std::uint32_t low, std::uint32_t high, int index) {
  return e4m3_to_f16(((low >> (8 * index)) & 0x7fu) | ((high >> (8 * index)) & 0x7fu) << 8);
}
/// An E8M0 byte as a pair of bf16, for scale_bf16.
[[nodiscard]] FP4PA_FN std::uint32_t e8m0_pair(std::uint32_t byte) { return byte << 7 | byte << 23; }

/// Of rows of codes, 16 bytes each.
struct RowOfCodes {
  int chunks;
  int pitch;
};

/// @tparam kKind  16-bit elements are only moved
/// @tparam kHeadDim  of the decoded rows; a call's may be less
/// @tparam Target  where rows lie in a decoded tile, and chunks in a row
template <KvKind kKind, class E, int kHeadDim, int kTileKeys, int kThreads, class Target = DecodedRows<kHeadDim>>
struct TileDecoder {
  using Lane = typename E::Lane;
  static constexpr int kChunks = core::code_bytes(kKind, kHeadDim) / core::kChunkBytes;
  static constexpr RowOfCodes kWholeRow{kChunks, core::power_of_two_at_least(kChunks)};
  static constexpr int kOut = kHeadDim * 2 / core::kChunkBytes;        // chunks of a decoded row
  static constexpr int kPerChunk = kOut / kChunks;                     // decoded chunks of a chunk of codes

  /// Decodes the tile whose codes lie at `from` to `to`; the caller's barriers stand before and after.
  /// @tparam kFirstThread  of the threads that work, where there are more than chunks
  template <int kFirstThread = 0>
  FP4PA_FN static void run(E& exec, std::uint32_t from, StagedScales scales, std::uint32_t to) {
    exec.each_lane([&](Lane lane) {
      const int own = recomputed(exec.warp() * E::kLanes + lane.id);
      const int thread = kFirstThread == 0 ? own : own < kFirstThread ? own + kThreads - kFirstThread : own - kFirstThread;
      FP4PA_UNROLL
      for (int first = 0; first < kTileKeys * kChunks; first += kThreads) {
        const unsigned i = first + static_cast<unsigned>(thread);
        if (kTileKeys * kChunks % kThreads != 0 && i >= kTileKeys * kChunks) continue;
        // Neighbouring lanes take neighbouring rows: the swizzle spreads rows over the banks, and not a row's decoded chunks.
        const int row = static_cast<int>(i % kTileKeys);
        const int chunk = static_cast<int>(i / kTileKeys);
        decode_at(exec, lane, from, kWholeRow.pitch, scales, row, chunk, to);
      }
    });
  }
  /// The same of rows as long as a call has them.
  FP4PA_FN static void run(E& exec, std::uint32_t from, RowOfCodes codes, StagedScales scales, std::uint32_t to) {
    exec.each_lane([&](Lane lane) {
      FP4PA_NO_UNROLL
      for (int i = exec.warp() * E::kLanes + lane.id; i < kTileKeys * codes.chunks; i += kThreads) {
        decode_at(exec, lane, from, codes.pitch, scales, i % kTileKeys, i / kTileKeys, to);
      }
    });
  }

 private:
  FP4PA_FN static void decode_at(E& exec, Lane lane, std::uint32_t from, int pitch, StagedScales scales, int row, int chunk,
                                 std::uint32_t to) {
    std::uint32_t codes[4];
    exec.load_shared_16(lane, chunk_offset(row_offset(from, row, pitch), chunk), codes);
    Chunk out[kPerChunk];
    decode(exec, lane, codes, scales, row, chunk, out);
    const std::uint32_t target = Target::row_address(to, row);
    FP4PA_UNROLL
    for (int c = 0; c < kPerChunk; ++c) {
      exec.template store_shared<Chunk>(lane, Target::chunk_address(target, chunk * kPerChunk + c), out[c]);
    }
  }
  FP4PA_FN static void decode(E& exec, Lane lane, const std::uint32_t (&codes)[4], StagedScales scales, int row, int chunk,
                              Chunk (&out)[kPerChunk]) {
    const auto byte = [&](int i) -> std::uint32_t {
      return exec.template load_shared<std::uint8_t>(lane, scales.offset + row * scales.pitch + i);
    };
    if constexpr (core::along_tokens(kKind)) {
      decode_chunk<kKind>(codes, [&](int w, int p) {
        const std::uint32_t at = scales.offset + row / core::kScalePiece * scales.pitch + chunk * 32 + 8 * w;
        const auto low = exec.template load_shared<std::uint32_t>(lane, at);
        const auto high = exec.template load_shared<std::uint32_t>(lane, at + 4);
        return kKind == KvKind::kMxfp4Tokens ? e8m0_to_bf16(low, high, p) : e4m3_pair_to_f16(low, high, p);
      }, out);
    } else if constexpr (kKind == KvKind::kNvfp4) {
      decode_chunk<kKind>(codes, [&](int w) { return e4m3_to_f16((byte(2 * chunk + w / 2) & 0x7fu) * 0x101u); }, out);
    } else {
      const int index = kKind == KvKind::kPerToken ? 0 : kKind == KvKind::kMxfp8 ? chunk / 2 : chunk;
      decode_chunk<kKind>(codes, [&](int) { return e8m0_pair(byte(index)); }, out);
    }
  }
};

}  // namespace fp4pa::sm80
