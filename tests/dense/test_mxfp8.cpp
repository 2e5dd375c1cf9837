// MXFP8 attention: all three scales, exactly, and the double-precision reference.
#include <cstdio>

#include "tests/dense/fixture.hpp"

using namespace dense_test;

namespace {

/// Q's values in bf16, and K and V as a cache of one token a page, run by the paged call: codes without scales (fp8_e4m3), with
/// them (mxfp8), or their values in bf16.
struct Paged {
  std::vector<std::uint8_t> bits;
  Status status;
};
Paged run_paged(const Mxfp8Call& call, const char* backend, KvFormat format) {
  const Shape& s = call.shape;
  AttentionConfig c;
  c.cache.num_kv_heads = s.kv_heads;
  c.cache.head_dim = s.head_dim;
  c.cache.page_size = 1;
  c.cache.num_pages = s.kv_tokens();
  c.cache.k.format = c.cache.v.format = format;
  set_dense_strides(c.cache, PageOrder::kNhd);
  const auto bf16_values = [](const Mxfp8Data& x) {
    Memory values(x.elements * 2);
    for (std::size_t i = 0; i < x.elements; ++i) {
      const std::uint16_t half = core::f32_to_bf16(static_cast<float>(x.value(i)));
      std::memcpy(values.data() + 2 * i, &half, 2);
    }
    return values;
  };
  const Memory q = bf16_values(call.q), k = bf16_values(call.k), v = bf16_values(call.v);
  c.cache.k.data = format == KvFormat::kBf16 ? k.data() : call.k.codes.data();
  c.cache.v.data = format == KvFormat::kBf16 ? v.data() : call.v.codes.data();
  if (format == KvFormat::kMxfp8) {
    c.cache.k.scales = call.k.scales.data();
    c.cache.v.scales = call.v.scales.data();
  }
  c.num_q_heads = s.q_heads;
  c.q_dtype = DType::kBF16;
  c.o_dtype = DType::kF32;
  c.causal = s.causal;
  c.sm_scale = s.sm_scale;
  const DenseLimits l = s.limits();
  c.max_batch = l.max_batch;
  c.max_q_tokens = l.max_q_tokens;
  c.max_q_len = l.max_q_len;
  c.max_kv_len = l.max_kv_len;
  c.table_kind = TableKind::kCsr;
  c.backend = backend;
  c.num_threads = 2;
  AttentionPlan plan;
  Outputs out(s);
  if (const Status status = fp4pa::plan(c, &plan); status != Status::kOk) return {{}, status};
  Memory workspace(plan.workspace_bytes());
  std::vector<std::int32_t> lens(s.kv_lens), indices(static_cast<std::size_t>(s.kv_tokens()));
  std::iota(indices.begin(), indices.end(), 0);
  AttentionArgs a;
  a.q = q.data();
  a.o = out.o.data();
  a.lse = out.lse.data();
  a.batch = s.batch();
  a.qo_indptr = call.rows.q.data();
  a.seq_lens = lens.data();
  a.kv_indptr = call.rows.kv.data();
  a.kv_indices = indices.data();
  a.workspace = workspace.data();
  a.workspace_bytes = plan.workspace_bytes();
  const Status status = fp4pa::run(plan, a);
  return {out.bits(), status};
}

/// A tensor with heads outermost and gaps between its rows and heads.
struct Apart {
  Apart(const Mxfp8Data& x, std::int64_t heads, std::int64_t dim) {
    const std::int64_t rows = static_cast<std::int64_t>(x.elements) / dim, tokens = rows / heads;
    const std::int64_t scale_bytes = dim / 32;
    Mxfp8Tensor& t = tensor;
    t.token_stride = dim + 16;
    t.head_stride = t.token_stride * tokens + 16;
    t.scale_token_stride = scale_bytes + 1;
    t.scale_head_stride = t.scale_token_stride * tokens + 1;
    codes = Memory(static_cast<std::size_t>(heads * t.head_stride));
    scales = Memory(static_cast<std::size_t>(heads * t.scale_head_stride));
    for (std::int64_t row = 0; row < rows; ++row) {
      std::memcpy(codes.data() + row / heads * t.token_stride + row % heads * t.head_stride, x.codes.data() + row * dim,
                  static_cast<std::size_t>(dim));
      std::memcpy(scales.data() + row / heads * t.scale_token_stride + row % heads * t.scale_head_stride,
                  x.scales.data() + row * scale_bytes, static_cast<std::size_t>(scale_bytes));
    }
    t.codes = codes.data();
    t.scales = scales.data();
  }
  Memory codes, scales;
  Mxfp8Tensor tensor;
};

Mxfp8Decode decodes[] = {Mxfp8Decode::kPerTile, Mxfp8Decode::kOnce};

}  // namespace

TEST_CASE("mxfp8: identity scales equal the unscaled path") {
  for (const Target& target : kTargets) {
    // Where plain E4M3 is summed, or its P rounded, in another way than MXFP8, what is compared is the other decoding.
    const KvFormat unscaled_format = target.sums_alike ? KvFormat::kFp8E4m3 : KvFormat::kBf16;
    for (const std::int32_t head_dim : {32, 64, 96, 128, 160, 192, 224, 256}) {
      for (const bool causal : {false, true}) {
        Mxfp8Call call(ragged(head_dim, causal));
        for (Mxfp8Data* x : {&call.q, &call.k, &call.v}) x->set_scales(0);
        call.config.decode = target.sums_alike ? Mxfp8Decode::kPerTile : Mxfp8Decode::kOnce;
        REQUIRE(call.run(target.backend) == Status::kOk);
        const Paged unscaled = run_paged(call, target.backend, unscaled_format);
        REQUIRE(unscaled.status == Status::kOk);
        INFO(std::string(target.backend), " head_dim ", head_dim, " causal ", causal);
        CHECK(call.out.bits() == unscaled.bits);
      }
    }
  }
}

TEST_CASE("mxfp8: queries of codes and scales are their values in bf16, bit for bit") {
  for (const Target& target : kTargets) {
    for (const std::int32_t head_dim : {64, 128}) {
      for (const int spread : {1, 12}) {  // 2^25: a row's smallest elements leave f16's range beside its largest
        Mxfp8Call call(ragged(head_dim, true), 9, -spread, spread);
        call.config.decode = Mxfp8Decode::kPerTile;
        REQUIRE(call.run(target.backend) == Status::kOk);
        const Paged paged = run_paged(call, target.backend, KvFormat::kMxfp8);
        REQUIRE(paged.status == Status::kOk);
        INFO(std::string(target.backend), " head_dim ", head_dim, " spread ", spread);
        CHECK(call.out.bits() == paged.bits);

        const Apart q(call.q, call.shape.q_heads, head_dim);
        call.args.q = q.tensor;
        call.out.reset();
        REQUIRE(run_mxfp8_attention(call.plan, call.args) == Status::kOk);
        CHECK(call.out.bits() == paged.bits);
      }
    }
  }
}

TEST_CASE("mxfp8: a uniform scale of Q or K is the same change of sm_scale, bit for bit") {
  for (const Target& target : kTargets) {
    for (const Mxfp8Decode decode : decodes) {
      for (const int log2 : {-5, 1, 4}) {
        for (const bool on_keys : {false, true}) {
          Shape shape = ragged(128, true);
          shape.sm_scale = 0.11f;
          Mxfp8Call scaled(shape);
          scaled.config.decode = decode;
          (on_keys ? scaled.k : scaled.q).set_scales(log2);
          REQUIRE(scaled.run(target.backend) == Status::kOk);
          const std::vector<std::uint8_t> bits = scaled.out.bits();

          (on_keys ? scaled.k : scaled.q).set_scales(0);
          scaled.config.sm_scale = std::ldexp(0.11f, log2);
          REQUIRE(scaled.run(target.backend) == Status::kOk);
          INFO(std::string(target.backend), " ", std::string(name_of(decode)), on_keys ? " K" : " Q", " times 2^",
               log2);
          CHECK(bits == scaled.out.bits());
        }
      }
    }
  }
}

TEST_CASE("mxfp8: a uniform scale of V scales O, bit for bit") {
  for (const Target& target : kTargets) {
    for (const Mxfp8Decode decode : decodes) {
      Mxfp8Call call(ragged(64, false));
      call.config.decode = decode;
      call.v.set_scales(0);
      REQUIRE(call.run(target.backend) == Status::kOk);
      Values before;
      for (std::size_t i = 0; i < call.q.elements; ++i) before.push_back(call.out.value(i));
      call.v.set_scales(3);
      REQUIRE(call.run(target.backend) == Status::kOk);
      std::int64_t wrong = 0;
      reference::Difference scaled;
      for (std::size_t i = 0; i < before.size(); ++i) {
        wrong += call.out.value(i) != 8.0 * before[i];
        scaled.add(call.out.value(i), 8.0 * before[i]);
      }
      // An f16 probability next to one of 1 is rounded by 2^-25 of it where it is subnormal, by 2^-12 of itself elsewhere.
      INFO(std::string(target.backend), " ", std::string(name_of(decode)), " relative error ", scaled.relative());
      if (target.exact_weight) CHECK(wrong == 0);
      CHECK(scaled.relative() <= 2e-7);  // 4.4e-8 in the emulator
    }
  }
}

TEST_CASE("mxfp8: varying scales equal prescaled data") {
  // Codes whose values times any of the scales are E4M3 again: the same numbers with every scale 1.
  for (const Target& target : kTargets) {
    for (const Mxfp8Decode decode : decodes) {
      Mxfp8Call call(ragged(128, true));
      call.config.decode = decode;
      test::Random random(5);
      for (Mxfp8Data* x : {&call.q, &call.k, &call.v}) x->fill_exact(random);
      REQUIRE(call.run(target.backend) == Status::kOk);
      Values o;
      for (std::size_t i = 0; i < call.q.elements; ++i) o.push_back(call.out.value(i));
      const std::vector<float> lse = call.out.lse;
      for (Mxfp8Data* x : {&call.q, &call.k, &call.v}) REQUIRE(x->fold_scales() == 0);
      REQUIRE(call.run(target.backend) == Status::kOk);
      const Error error = call.out.error({o, Values(lse.begin(), lse.end())});
      INFO(std::string(target.backend), " ", std::string(name_of(decode)), " O ", error.o, " LSE ", error.lse);
      CHECK(error.lse <= 1e-5);  // the bound is 1e-3
      CHECK(error.o <= target.o_bound);
    }
  }
}

TEST_CASE("mxfp8: every group's scale of Q, K and V is applied") {
  for (const Target& target : kTargets) {
    for (const Mxfp8Decode decode : decodes) {
      Mxfp8Call call({{3}, {40}, 1, 1, 96, false, 0.0f}, 1, -3, -2);  // logits so small that every key counts
      call.config.decode = decode;
      REQUIRE(call.run(target.backend) == Status::kOk);
      const std::vector<float> lse = call.out.lse;
      const auto column = [&](std::size_t token, std::size_t d) { return call.out.value(token * 96 + d); };
      // One group of V of one key, four times as large: its 32 columns change, and no others, and no LSE.
      for (std::size_t group = 0; group < 3; ++group) {
        Values before;
        REQUIRE(call.run(target.backend) == Status::kOk);
        for (std::size_t d = 0; d < 96; ++d) before.push_back(column(1, d));
        call.v.scales.data()[17 * 3 + group] += 2;
        REQUIRE(call.run(target.backend) == Status::kOk);
        std::int64_t changed = 0, elsewhere = 0;
        for (std::size_t d = 0; d < 96; ++d) (d / 32 == group ? changed : elsewhere) += column(1, d) != before[d];
        INFO(std::string(target.backend), " V group ", group);
        CHECK(changed >= 28);  // but for codes of 0, and what rounds away
        CHECK(elsewhere == 0);
        CHECK(call.out.lse == lse);
        CHECK(call.out.error(call.want()).o <= target.o_bound);
      }
      for (const bool key : {false, true}) {
        for (std::size_t group = 0; group < 3; ++group) {
          Mxfp8Data& x = key ? call.k : call.q;
          const float before = call.out.lse[1];
          x.scales.data()[1 * 3 + group] += 3;
          REQUIRE(call.run(target.backend) == Status::kOk);
          CHECK(call.out.lse[1] != before);
          CHECK(call.out.error(call.want()).o <= target.o_bound);
        }
      }
    }
  }
}

TEST_CASE("mxfp8: equal batches and equal heads give equal bits") {
  for (const Target& target : kTargets) {
    for (const Mxfp8Decode decode : decodes) {
      Shape shape{{33, 33, 33}, {70, 70, 70}, 6, 2, 64, true, 0.0f};
      Mxfp8Call call(shape);
      call.config.decode = decode;
      call.config.batch_invariant = true;
      // Sequence 0, head 0 everywhere.
      for (Mxfp8Data* x : {&call.q, &call.k, &call.v}) {
        const std::size_t heads = x == &call.q ? 6 : 2;
        const std::size_t tokens = x == &call.q ? 33 : 70;
        for (std::size_t row = 0; row < 3 * tokens * heads; ++row) {
          const std::size_t from = row / heads % tokens * heads;
          if (row == from) continue;
          std::memcpy(x->codes.data() + row * 64, x->codes.data() + from * 64, 64);
          std::memcpy(x->scales.data() + row * 2, x->scales.data() + from * 2, 2);
        }
      }
      REQUIRE(call.run(target.backend) == Status::kOk);
      std::int64_t wrong = 0;
      for (std::size_t row = 0; row < 99 * 6; ++row) {
        const std::size_t first = row / 6 % 33 * 6;
        wrong += std::memcmp(call.out.o.data() + row * 256, call.out.o.data() + first * 256, 256) != 0;
        wrong += call.out.lse[row] != call.out.lse[first];
      }
      CHECK(wrong == 0);

      // The same rows without indptr.
      const std::vector<std::uint8_t> bits = call.out.bits();
      call.args.rows.q_indptr = call.args.rows.kv_indptr = nullptr;
      REQUIRE(call.run(target.backend) == Status::kOk);
      CHECK(call.out.bits() == bits);
    }
  }
}

TEST_CASE("mxfp8: scales of 2^10 stay finite") {
  for (const Target& target : kTargets) {
    for (const Mxfp8Decode decode : decodes) {
      for (const bool causal : {false, true}) {
        Mxfp8Call call(ragged(128, causal), 3, 10, 10);
        call.config.decode = decode;
        REQUIRE(call.run(target.backend) == Status::kOk);
        const Error error = call.out.error(call.want());
        INFO(std::string(target.backend), " ", std::string(name_of(decode)), " O ", error.o, " LSE ", error.lse);
        // Logits of 2^25: each row is one key's value, and the LSE is as good as f32 counts.
        CHECK(error.o <= target.o_bound);
        for (const float x : call.out.lse) CHECK(std::isfinite(x));
      }
    }
  }
}

TEST_CASE("mxfp8: against the double-precision reference") {
  double worst_o = 0.0, worst_lse = 0.0;
  for (const Target& target : kTargets) {
    for (const Mxfp8Decode decode : decodes) {
      for (const std::int32_t head_dim : {64, 128, 256}) {
        for (const bool causal : {false, true}) {
          // Scales of 2^-1 to 2^1 around values of about 1: logits of a few units.
          Mxfp8Call call(ragged(head_dim, causal), static_cast<std::uint64_t>(head_dim), -1, 1);
          call.config.decode = decode;
          REQUIRE(call.run(target.backend) == Status::kOk);
          const Error error = call.out.error(call.want());
          INFO(std::string(target.backend), " ", std::string(name_of(decode)), " head_dim ", head_dim, " causal ",
               causal);
          CHECK(error.o <= target.o_bound);
          CHECK(error.lse <= 2e-5);
          worst_o = std::max(worst_o, error.o);
          worst_lse = std::max(worst_lse, error.lse);
        }
      }
    }
  }
  std::printf("mxfp8 against the reference: O %.2e, LSE %.2e\n", worst_o, worst_lse);
}

TEST_CASE("mxfp8: strides, outputs in f16 and bf16, empty sequences") {
  for (const Target& target : kTargets) {
    for (const Mxfp8Decode decode : decodes) {
      Shape shape{{4, 3, 0, 2}, {19, 0, 5, 40}, 4, 2, 64, true, 0.0f};
      Mxfp8Call call(shape);
      call.config.decode = decode;
      REQUIRE(call.run(target.backend) == Status::kOk);
      const Error error = call.out.error(call.want());
      CHECK(error.o <= target.o_bound);
      CHECK(error.lse <= 2e-5);
      const std::vector<std::uint8_t> bits = call.out.bits();

      const Apart q(call.q, 4, 64), k(call.k, 2, 64), v(call.v, 2, 64);
      call.args.q = q.tensor;
      call.args.k = k.tensor;
      call.args.v = v.tensor;
      call.out.reset();
      REQUIRE(run_mxfp8_attention(call.plan, call.args) == Status::kOk);
      CHECK(call.out.bits() == bits);

      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        call.config.o_dtype = dtype;
        REQUIRE(call.run(target.backend) == Status::kOk);
        const Result want = call.want();
        reference::Difference d;
        for (std::size_t i = 0; i < want.o.size(); ++i) {
          d.add(reference::decode_plain(call.out.o.data(), dtype, static_cast<std::int64_t>(i)), want.o[i]);
        }
        // Half a step of the result's dtype, and the back end's own error.
        CHECK(d.relative() <= target.o_bound + (dtype == DType::kF16 ? 0x1p-11 : 0x1p-8));
      }
    }
  }
}

TEST_CASE("mxfp8: many query rows decode once, few per tile") {
  for (const std::int32_t head_dim : {64, 96}) {  // gfx950 has native kernels for one of them, and nothing for it to decode once
    const bool native = served_natively(KvFormat::kMxfp8, head_dim);
    for (const auto& [q_len, decode] : {std::pair{31, Mxfp8Decode::kPerTile}, {32, native ? Mxfp8Decode::kPerTile : Mxfp8Decode::kOnce}}) {
      Mxfp8Call call({{q_len}, {40}, 4, 2, head_dim, true, 0.0f});
      REQUIRE(call.run(kTargets[0].backend) == Status::kOk);
      INFO("head_dim ", head_dim, " queries ", q_len);
      CHECK(call.plan.decode() == decode);
      CHECK(call.out.error(call.want()).o <= (native ? kNativeBound : kTargets[0].o_bound));
    }
  }
}
