// Scenes in which key 0 scores some binades above all other keys, which score alike: what is kept far below a row's largest
// probability, and what becomes of many equal ones.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "core/formats/half.hpp"
#include "tests/attention/scene.hpp"
#include "tests/emulator/extreme_scales.hpp"

namespace fp4pa::sink {

/// One sequence; K and V of one format, queries of bf16.
inline scene::Spec spec_of(KvFormat format, std::int32_t head_dim, std::int32_t rows, std::int32_t keys) {
  scene::Spec spec;
  spec.k = spec.v = format;
  spec.head_dim = head_dim;
  spec.kv_heads = 1;
  spec.group_heads = rows < 8 ? rows : 8;
  spec.page_size = 64;
  spec.q_dtype = DType::kBF16;
  spec.sequences = {{rows / spec.group_heads, keys, 1}};
  return spec;
}

/// The code of 1 or 1.5, in the bytes that it is repeated by.
inline std::vector<std::uint8_t> code_bytes(KvFormat format, bool half_more) {
  if (format == KvFormat::kBf16) return half_more ? std::vector<std::uint8_t>{0xc0, 0x3f} : std::vector<std::uint8_t>{0x80, 0x3f};
  if (format == KvFormat::kMxfp8) return {static_cast<std::uint8_t>(half_more ? 0x3c : 0x38)};
  return {static_cast<std::uint8_t>(half_more ? 0x33 : 0x22)};
}
inline void fill_codes(scene::Scene& s, bool value, std::int32_t token, const std::vector<std::uint8_t>& with) {
  const std::size_t bits = s.spec.k == KvFormat::kBf16 ? 16 : s.spec.k == KvFormat::kMxfp8 ? 8 : 4;
  std::uint8_t* codes = s.codes(value, 0, token, 0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(s.spec.head_dim) * bits / 8; ++i) codes[i] = with[i % with.size()];
}

/// Every query sees key 0 `binades` above the others.
inline void set_keys(scene::Scene& s, double binades) {
  s.config.backend = "cuda";
  s.config.causal = false;
  s.config.sm_scale = static_cast<float>(binades / (0.5 * s.spec.head_dim * 1.4426950408889634));
  const std::uint16_t one = core::f32_to_bf16(1.0f);
  const int elements = s.q_tokens() * s.q_heads() * s.spec.head_dim;
  for (int i = 0; i < elements; ++i) std::memcpy(s.q.data() + 2 * i, &one, 2);
  const int scales = kv_scale_bytes(s.spec.k, VScaleAxis::kHeadDim, s.spec.head_dim);
  for (std::int32_t t = 0; t < s.seq_lens[0]; ++t) {
    fill_codes(s, false, t, code_bytes(s.spec.k, t == 0));
    if (scales > 0) std::memset(s.scales(false, 0, t, 0), 127, static_cast<std::size_t>(scales));
  }
}

/// Key 0 has V = 0, so that O is what the others' probabilities are worth; the same scale for all blocks of V.
inline void set_values(scene::Scene& s, int scale) {
  const int scales = kv_scale_bytes(s.spec.v, s.spec.v_axis, s.spec.head_dim);
  for (std::int32_t t = 0; t < s.seq_lens[0]; ++t) {
    if (scales > 0) std::memset(s.scales(true, 0, t, 0), scale, static_cast<std::size_t>(scales));
  }
  fill_codes(s, true, 0, {0});
}

/// O of sinks of these binades over values of one scale after the other. Equal probabilities are rounded to f16 all the same way: 2^-12 of
/// them, and nothing more while no scale makes them less than f16 has at eleven bits.
inline void check_probabilities(scene::Scene& s, const emulator_test::Emulation& emulation, std::initializer_list<int> scales) {
  for (const double binades : {8.3, 12.3, 14.3, 16.3}) {
    set_keys(s, binades);
    for (const int scale : scales) {
      CAPTURE(binades);
      CAPTURE(scale);
      set_values(s, scale);
      (void)extreme::run_without_findings(s, emulation);
      CHECK(s.error().o <= 2.5e-4);
      CHECK(s.error().lse <= 1e-5);  // 5.4e-6, where an LSE of 34 is held in steps of 3.8e-6
    }
  }
}

}  // namespace fp4pa::sink
