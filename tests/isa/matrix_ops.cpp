// Matrix instructions. Which lane holds what is in CDNA4 ISA 7.1; sums are taken in double and rounded once.
#include <cmath>
#include <limits>
#include <unordered_map>

#include "tests/isa/small_floats.hpp"
#include "tests/isa/wave.hpp"

namespace isa {
namespace {

/// A (by rows) or B (by columns): kSize of them, kDepth deep.
template <int kSize, int kDepth>
using Matrix = double[kSize][kDepth];

/// D = C + A B. Of column lane % kSize a lane holds rows 4 (lane / kSize) and on, four at a time, in steps of 256 / kSize.
template <int kSize, int kDepth>
void multiply(Wave& w, const Instruction& i, const Matrix<kSize, kDepth>& a, const Matrix<kSize, kDepth>& b) {
  constexpr int kValues = kSize * kSize / kLanes;
  const Operand& to = i.operand[0];
  const Operand& from = i.operand[3];
  if (to.count != kValues) refuse(i, "the destination's size does not fit");
  double by_depth[kDepth][kSize];
  for (int col = 0; col < kSize; ++col) {
    for (int k = 0; k < kDepth; ++k) by_depth[k][col] = b[col][k];
  }
  // A row of D at a time, kSize lanes of one register, whose sums vectors of the host take side by side.
  std::uint32_t out[kValues][kLanes];
  for (int v = 0; v < kValues; ++v) {
    for (int first = 0; first < kLanes; first += kSize) {
      const int row = 256 / kSize * (v / 4) + 4 * (first / kSize) + v % 4;
      double sum[kSize];
      for (int col = 0; col < kSize; ++col) {
        sum[col] = from.kind == OperandKind::kVector ? as_float(w.vector[from.index + v][first + col]) : as_float(read_scalar(w, from));
      }
      for (int k = 0; k < kDepth; ++k) {
        for (int col = 0; col < kSize; ++col) sum[col] += a[row][k] * by_depth[k][col];
      }
      for (int col = 0; col < kSize; ++col) out[v][first + col] = as_bits(static_cast<float>(sum[col]));
    }
  }
  for (int v = 0; v < kValues; ++v) std::memcpy(w.vector[to.index + v], out[v], sizeof out[v]);  // whatever EXEC says
}

/// 16 bits: a lane's eight values are k = 8 (lane / 16) and on.
template <float (*kDecode)(std::uint16_t)>
void mfma_16(Wave& w, const Instruction& i) {
  static Matrix<16, 32> operand[2];
  for (int k = 0; k < 2; ++k) {
    const Operand& o = i.operand[static_cast<std::size_t>(k + 1)];
    if (o.kind != OperandKind::kVector || o.count != 4) refuse(i, "four source registers are expected");
    for (int l = 0; l < kLanes; ++l) {
      for (int j = 0; j < 8; ++j) {
        operand[k][l % 16][8 * (l / 16) + j] = kDecode(static_cast<std::uint16_t>(w.vector[o.index + j / 2][l] >> (16 * (j % 2))));
      }
    }
  }
  multiply<16, 32>(w, i, operand[0], operand[1]);
}

/// Block-scaled, g = lane / kSize: FP4 has k = 32 g and on, FP8 has k = 16 g + j % 16 + (kDepth / 2) (j / 16). The scale of a
/// row's block b of 32 is in lane row + kSize b, in the byte that op_sel (the low bit) and op_sel_hi name.
template <int kSize, int kDepth>
void mfma_scale(Wave& w, const Instruction& i) {
  static Matrix<kSize, kDepth> operand[2];
  for (int k = 0; k < 2; ++k) {
    const Operand& o = i.operand[static_cast<std::size_t>(k + 1)];
    const Operand& scales = i.operand[static_cast<std::size_t>(k + 4)];
    const int format = k == 0 ? i.format_a : i.format_b;
    if (format != 0 && format != 4) refuse(i, "a format other than E4M3 and E2M1");
    if (o.kind != OperandKind::kVector || o.count != (format == 4 ? 4 : 8)) refuse(i, "source registers do not fit the format");
    if (scales.kind != OperandKind::kVector) refuse(i, "a scale outside of the vector registers");
    for (int l = 0; l < kLanes; ++l) {
      const int row = l % kSize;
      const int g = l / kSize;
      for (int j = 0; j < 32; ++j) {
        if (format == 4) {
          operand[k][row][32 * g + j] = from_e2m1(w.vector[o.index + j / 8][l] >> (4 * (j % 8)) & 15u);
        } else {
          operand[k][row][16 * g + j % 16 + kDepth / 2 * (j / 16)] =
              from_e4m3(static_cast<std::uint8_t>(w.vector[o.index + j / 4][l] >> (8 * (j % 4))));
        }
      }
    }
    const unsigned byte = (i.op_sel >> k & 1) + 2 * (i.op_sel_hi >> k & 1);
    for (int row = 0; row < kSize; ++row) {
      for (int block = 0; block < kDepth / 32; ++block) {
        const std::uint32_t code = w.vector[scales.index][row + kSize * block] >> (8 * byte) & 0xffu;
        const double scale = code == 255 ? std::numeric_limits<double>::quiet_NaN() : two_to(static_cast<int>(code) - 127);
        for (int j = 0; j < 32; ++j) operand[k][row][32 * block + j] *= scale;
      }
    }
  }
  multiply<kSize, kDepth>(w, i, operand[0], operand[1]);
}

}  // namespace

Handler matrix_handler(const std::string& name) {
  static const std::unordered_map<std::string, Handler> kTable = {
      {"v_mfma_f32_16x16x32_f16", mfma_16<from_half>},
      {"v_mfma_f32_16x16x32_bf16", mfma_16<from_bfloat>},
      {"v_mfma_scale_f32_16x16x128_f8f6f4", mfma_scale<16, 128>},
      {"v_mfma_scale_f32_32x32x64_f8f6f4", mfma_scale<32, 64>},
  };
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace isa
