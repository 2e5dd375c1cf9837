// The ways of a matrix product. Plain C++.
#pragma once

namespace fp4pa::hip {

/// The way of a product through the matrix core.
enum class GemmPath {
  kNativeMxfp4,  // both operands as they lie in memory; gfx950 alone
  kDecodeMxfp4,  // W decoded to f16, X prepared in f16
  kDecodeNvfp4,
  kTermsMxfp4,  // W as it lies in memory, X of 16 bits as a sum of E4M3 terms; gfx950 alone
};

}  // namespace fp4pa::hip
