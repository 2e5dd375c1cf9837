// The ways of a matrix product. Plain C++.
#pragma once

namespace fp4pa::hip {

/// The way of a product through the matrix core.
enum class GemmPath {
  kNativeMxfp4,  // both operands as they lie in memory; gfx950 alone
  kDecodeMxfp4,  // W decoded to f16, X prepared in f16
  kDecodeNvfp4,
};

}  // namespace fp4pa::hip
