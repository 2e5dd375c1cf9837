#include "tests/emulator/emulated_gemm.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cmath>
#include <vector>

#include "api/error.hpp"
#include "api/gemm_params.hpp"
#include "backends/cpu/gemm.hpp"
#include "backends/sm80/convert.hpp"
#include "core/formats/block.hpp"
#include "core/gemm/prepare.hpp"
#include "core/paging/plain_row.hpp"

namespace fp4pa::emulator_test {

GemmSetup current_gemm;

namespace {

constexpr std::int64_t kStage = 128;

[[nodiscard]] std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What the preparing kernel does (kernels/gemm_quantize.hpp): rows in f16, of W4A4 quantised and decoded first.
void prepare(const LinearArgs& a, const api::PreparedX& to) {
  auto* const memory = static_cast<std::uint8_t*>(a.workspace);
  auto* const inverse = reinterpret_cast<float*>(memory + to.inverse);
  const bool quantise = a.activations == ActivationForm::kFp4;
  const bool nvfp4 = a.weight.format == BlockFormat::kNvfp4;
  const std::int64_t k = a.weight.cols;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    std::vector<float> x(static_cast<std::size_t>(a.m * k));
    core::load_plain_row(core::element_address(a.x, a.x_dtype, b * a.m * k), a.x_dtype, static_cast<int>(a.m * k), x.data());
    float global = a.x_global_scale;
    if (global == 0.0f) {
      std::uint32_t amax = 0;
      for (const float v : x) amax = core::finite_amax_step(amax, v);
      global = core::nvfp4_global_scale(amax);
    }
    reinterpret_cast<float*>(memory + to.globals)[b] = global;
    for (std::int64_t i = 0; i < a.m; ++i) {
      std::vector<float> row(x.begin() + i * k, x.begin() + (i + 1) * k);
      float amax = 0.0f;
      for (const float v : row) amax = std::fmax(amax, std::fabs(v));
      row.resize(static_cast<std::size_t>(to.cols), 0.0f);
      float scale = 1.0f;
      if (quantise || a.x_dtype != DType::kF16) scale = core::row_scale(quantise && nvfp4 ? amax / global : amax);
      inverse[b * a.m + i] = 1.0f / scale;
      for (std::int64_t c = 0; quantise && c < to.cols; c += nvfp4 ? 16 : 32) {
        float* const group = row.data() + c;
        std::uint8_t codes[16];
        if (nvfp4) {
          const std::uint8_t s = core::encode_nvfp4(group, global, a.nvfp4_scale, codes);
          core::decode_nvfp4(codes, s, 1.0f, group);
        } else {
          const std::uint8_t s = core::encode_e2m1_e8m0(group, 32, a.scale_mode, codes);
          core::decode_e2m1_e8m0(codes, 32, s, group);
        }
      }
      auto* const out = reinterpret_cast<std::uint32_t*>(memory) + (b * a.m + i) * to.cols / 2;
      for (std::int64_t c = 0; c < to.cols; c += 8) {
        std::uint32_t words[4];
        if (to.paired) {
          core::pair_columns(row.data() + c, scale, sm80::pack_f16, words);
        } else {
          core::neighbour_columns(row.data() + c, scale, sm80::pack_f16, words);
        }
        std::copy(words, words + 4, out + c / 2);
      }
    }
  }
}

/// What kernels/gemm_terms.hpp does.
void split(const LinearArgs& a, const api::SplitX& to) {
  auto* const memory = static_cast<std::uint8_t*>(a.workspace);
  auto* const scales = reinterpret_cast<std::uint32_t*>(memory + to.scales);
  auto* const rest = reinterpret_cast<std::uint32_t*>(memory + to.rest);
  const std::int64_t k = a.weight.cols;
  for (std::int64_t i = 0; i < to.rows; ++i) {
    std::vector<float> row(static_cast<std::size_t>(128 * to.stages), 0.0f);
    core::load_plain_row(core::element_address(a.x, a.x_dtype, i * k), a.x_dtype, static_cast<int>(k), row.data());
    for (std::int64_t g = 0; g < 4 * to.stages; ++g) {
      float* const x = row.data() + 32 * g;
      float special[32] = {};
      for (int e = 0; e < 32; ++e) {
        if (!std::isfinite(x[e])) std::swap(x[e], special[e]);
      }
      const auto largest = [&] {
        std::uint32_t bits = 0;
        for (int e = 0; e < 32; ++e) bits = std::max(bits, core::magnitude_bits(x[e]));
        return bits;
      };
      std::uint32_t word = 0;
      for (int term = 0; term < core::kXTerms; ++term) {
        const int log2 = core::term_log2(largest());
        word |= static_cast<std::uint32_t>(log2 + 127) << (8 * term);
        std::uint8_t* const codes = memory + (i * to.stages + g / 4) * core::kTermStageBytes + 128 * term + g % 4 * 32;
        for (int e = 0; e < 32; ++e) {
          codes[e] = core::E4M3::encode(core::times_exp2(x[e], -log2));
          x[e] -= core::times_exp2(core::E4M3::decode(codes[e]), log2);
        }
      }
      const int log2 = core::rest_log2(largest());
      for (int e = 0; e < 32; ++e) x[e] = special[e] != 0.0f ? special[e] : x[e];
      if (largest() != 0) {
        word |= static_cast<std::uint32_t>(log2 + 127) << 24;
        for (int e = 0; e < 32; ++e) x[e] = core::times_exp2(x[e], -log2);
        for (int e = 0; e < 32; e += 8) {
          std::uint32_t words[4];
          core::pair_columns(x + e, 1.0f, sm80::pack_f16, words);
          std::copy(words, words + 4, rest + (i * 128 * to.stages + 32 * g + e) / 2);
        }
      }
      scales[i * 4 * to.stages + g] = word;
    }
  }
}

}  // namespace

Status gemm_workspace(const LinearArgs& args, const ExecDesc&, std::size_t* bytes) noexcept {
  *bytes = static_cast<std::size_t>(
      std::max({api::QuantisedX::of(args).bytes, api::PreparedX::of(args).bytes, api::SplitX::of(args).bytes}));
  return Status::kOk;
}

Status gemm(const LinearArgs& a, const ExecDesc& exec) noexcept {
  const EmulatedGemm* const kernel = current_gemm.kernel;
  if (kernel == nullptr || kernel->format != a.weight.format ||
      (kernel->x_form == XForm::kQuantised && a.activations != ActivationForm::kFp4) ||
      (kernel->x_form == XForm::kTerms && a.activations != ActivationForm::k16Bit)) {
    return api::fail(Status::kBackendUnavailable, "no emulated kernel was chosen for %s, %s", name_of(a.weight.format),
                     name_of(a.activations));
  }
  core::GemmParams p = api::gemm_params(a);
  if (kernel->x_form == XForm::kTerms) {
    const api::SplitX x = api::SplitX::of(a);
    split(a, x);
    x.put_into(a, &p);
  } else if (kernel->x_form == XForm::kPrepared || kernel->x_form == XForm::kInOrder) {
    api::PreparedX x = api::PreparedX::of(a);
    x.paired = kernel->x_form == XForm::kPrepared;
    prepare(a, x);
    x.put_into(a, &p);
  } else {
    const api::QuantisedX x = api::QuantisedX::of(a);
    if (const Status s = cpu::quantize_weight(x.request(a), exec); s != Status::kOk) return s;
    x.put_into(a, &p);
  }
  p.stages = static_cast<std::int32_t>(ceil_div(a.weight.cols, kStage));
  p.row_tiles = static_cast<std::int32_t>(ceil_div(a.weight.rows, kernel->rows));
  const auto tiles = static_cast<int>(p.row_tiles * ceil_div(a.m, kernel->x_rows));
  const int blocks = tiles * static_cast<int>(a.batch);
  const std::vector<int> order = emulator::sequence(current_gemm.watch.order, blocks, 1);
  Kokkos::parallel_for("gemm",
                       Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace, Kokkos::Schedule<Kokkos::Dynamic>>(0, blocks),
                       [&](int i) {
                         const int block = order[static_cast<std::size_t>(i)];
                         kernel->run_block(p, block % tiles, block / tiles, block, current_gemm.watch);
                       });
  Kokkos::fence();
  return Status::kOk;
}

}  // namespace fp4pa::emulator_test
