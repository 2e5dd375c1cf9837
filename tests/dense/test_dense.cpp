// Dense attention in FP4: what is representable comes out exactly, everything else within the contract over the
// quantised values, and what quantising itself costs is stated.
#include <cstdio>

#include "core/attention/params.hpp"
#include "tests/dense/fixture.hpp"

using namespace dense_test;

namespace {

struct Format {
  KvFormat format;
  VScaleAxis v_axis;
  Rotation rotation;
  Nvfp4Scale nvfp4;
};
const Format kFormats[] = {
    {KvFormat::kMxfp4, VScaleAxis::kHeadDim, Rotation::kNone, Nvfp4Scale::kAmaxOver6},
    {KvFormat::kMxfp4, VScaleAxis::kTokens, Rotation::kHadamard64, Nvfp4Scale::kAmaxOver6},
    {KvFormat::kNvfp4, VScaleAxis::kHeadDim, Rotation::kNone, Nvfp4Scale::kFourOverSix},
    {KvFormat::kNvfp4, VScaleAxis::kTokens, Rotation::kHadamard32, Nvfp4Scale::kAmaxOver6},
    {KvFormat::kE8m0PerToken, VScaleAxis::kHeadDim, Rotation::kNone, Nvfp4Scale::kAmaxOver6},
    {KvFormat::kMxfp8, VScaleAxis::kHeadDim, Rotation::kNone, Nvfp4Scale::kAmaxOver6},
};
std::string label(const Format& f) {
  return std::string(name_of(f.format)) + (f.v_axis == VScaleAxis::kTokens ? ", V along tokens" : "") +
         (f.rotation != Rotation::kNone ? ", H" + std::to_string(static_cast<int>(f.rotation)) : "") +
         (f.nvfp4 == Nvfp4Scale::kFourOverSix ? ", 4/6" : "");
}
void set_format(DenseAttentionConfig& c, const Format& f) {
  c.k_format = c.v_format = f.format;
  c.v_scale_axis = f.v_axis;
  c.rotation = f.rotation;
  c.nvfp4_scale = f.nvfp4;
  c.scale_mode = ScaleMode::kEven;
}

double bound(const Target& t, KvFormat k, std::int32_t head_dim) {
  if (dense_test::served_natively(k, head_dim)) return dense_test::kNativeBound;
  return is_fp4(k) ? t.rounded_bound : t.o_bound;
}
double lse_bound(KvFormat k, std::int32_t head_dim) {
  return dense_test::served_natively(k, head_dim) ? dense_test::kNativeLseBound : 1e-3;
}

/// The contract's answer: attention over K and V as a cache of the same formats holds them, filled by append and read
/// back by gather, with the query rotated as the keys are.
Result contract(const DenseCall& call) {
  const Shape& s = call.shape;
  const DenseAttentionConfig& c = call.config;
  KvCacheDesc cache;
  cache.num_kv_heads = s.kv_heads;
  cache.head_dim = s.head_dim;
  cache.page_size = 1024;  // a sequence a page: as the groups of V along tokens begin anew with each
  cache.num_pages = s.batch();
  cache.rotation = c.rotation;
  cache.scale_mode = c.scale_mode;
  cache.nvfp4_scale = c.nvfp4_scale;
  cache.k.format = c.k_format;
  cache.v.format = c.v_format;
  cache.v.scale_axis = c.v_scale_axis;
  cache.k.global_scale = c.k_global_scale;
  cache.v.global_scale = c.v_global_scale;
  set_dense_strides(cache, PageOrder::kNhd);
  Memory parts[4] = {Memory(static_cast<std::size_t>(dense_data_bytes(cache, cache.k))),
                     Memory(static_cast<std::size_t>(dense_scale_bytes(cache, cache.k))),
                     Memory(static_cast<std::size_t>(dense_data_bytes(cache, cache.v))),
                     Memory(static_cast<std::size_t>(dense_scale_bytes(cache, cache.v)))};
  cache.k.data = parts[0].data();
  cache.v.data = parts[2].data();
  if (has_scales(cache.k.format)) cache.k.scales = parts[1].data();
  if (has_scales(cache.v.format)) cache.v.scales = parts[3].data();
  std::vector<std::int64_t> slots;
  for (std::size_t b = 0; b < s.kv_lens.size(); ++b) {
    for (std::int32_t t = 0; t < s.kv_lens[b]; ++t) slots.push_back(static_cast<std::int64_t>(b) * 1024 + t);
  }
  const ExecDesc exec{"cpu-scalar", nullptr, 1};
  REQUIRE(append(cache, {call.k.data.data(), call.k.dtype, 0, 0}, {call.v.data.data(), call.v.dtype, 0, 0},
                 slots.data(), IndexType::kInt64, s.kv_tokens(), exec) == Status::kOk);
  std::vector<float> k(call.k.values.size()), v(k.size());
  REQUIRE(gather(cache, slots.data(), IndexType::kInt64, s.kv_tokens(), {k.data(), DType::kF32, 0, 0},
                 {v.data(), DType::kF32, 0, 0}, exec) == Status::kOk);
  Values q = call.q.values;
  for (std::size_t row = 0; row * static_cast<std::size_t>(s.head_dim) < q.size(); ++row) {
    const auto dim = static_cast<std::size_t>(s.head_dim);
    reference::rotate({q.data() + row * dim, dim}, c.rotation);
  }
  return answer(s, q, Values(k.begin(), k.end()), Values(v.begin(), v.end()));
}

/// Every key a sequence of its own and every query in each of them: then LSE is a score and O is a value.
Shape one_key_each(std::int32_t queries, std::int32_t keys, std::int32_t head_dim) {
  Shape s{{}, {}, 2, 1, head_dim, false, core::kLn2};
  s.q_lens.assign(static_cast<std::size_t>(keys), queries);
  s.kv_lens.assign(static_cast<std::size_t>(keys), 1);
  return s;
}

/// Runs a call of one_key_each and compares every score and every value with the numbers given.
struct ExactError {
  double s_max = 0.0, s_largest = 0.0, s_cosine = 0.0, v_max = 0.0;
};
ExactError exact_error(DenseCall& call, const char* backend) {
  // In log2 units a score is q.k itself, and a single key's LSE is that number times ln 2, rounded once.
  static_assert(core::kLn2 * core::kLog2E == 1.0f);
  REQUIRE(call.run(backend) == Status::kOk);
  const Shape& s = call.shape;
  const auto dim = static_cast<std::size_t>(s.head_dim);
  const auto queries = static_cast<std::size_t>(s.q_lens[0]);
  reference::Difference scores;
  ExactError e;
  for (std::size_t key = 0; key < s.kv_lens.size(); ++key) {
    for (std::size_t row = key * queries * 2; row < (key + 1) * queries * 2; ++row) {
      double dot = 0.0;
      for (std::size_t d = 0; d < dim; ++d) dot += call.q.values[row * dim + d] * call.k.values[key * dim + d];
      const float want = static_cast<float>(dot) * core::kLn2;
      scores.add(call.out.lse[row], want);
      e.s_largest = std::max(e.s_largest, static_cast<double>(std::abs(want)));
      e.s_max = std::max(e.s_max, static_cast<double>(std::abs(call.out.lse[row] - want)));
      for (std::size_t d = 0; d < dim; ++d) {
        e.v_max = std::max(e.v_max, std::abs(call.out.value(row * dim + d) - call.v.values[key * dim + d]));
      }
    }
  }
  e.s_cosine = scores.cosine();
  return e;
}

}  // namespace

TEST_CASE("dense: what FP4 represents exactly comes out exactly") {
  for (const Target& target : kTargets) {
    for (const Format& f : kFormats) {
      if (f.rotation != Rotation::kNone || f.format == KvFormat::kMxfp8) continue;
      for (const std::int32_t head_dim : {64, 128}) {
        for (const bool identity : {true, false}) {
          DenseCall call(one_key_each(identity ? head_dim : 16, head_dim, head_dim));
          set_format(call.config, f);
          call.config.scale_mode = ScaleMode::kFloor;
          test::Random random(9);
          const auto dim = static_cast<std::size_t>(head_dim);
          const auto digit = [&](std::size_t) { return static_cast<double>(random.below(5) - 2); };  // -2 to 2
          call.v.fill(digit);
          if (identity) {
            call.q.fill([&](std::size_t i) { return i / dim / 2 % dim == i % dim ? 1.0 : 0.0; });
            call.k.fill([&](std::size_t i) { return i / dim == i % dim ? 1.0 : 0.0; });
          } else {
            call.q.fill(digit);
            call.k.fill(digit);
          }
          const ExactError e = exact_error(call, target.backend);
          INFO(std::string(target.backend), " ", label(f), " head_dim ", head_dim,
               std::string(identity ? " identity" : " digits"), " S ", e.s_max, " cosine ", e.s_cosine, " V ", e.v_max);
          CHECK(e.s_max <= target.score_steps * 0x1p-23 * e.s_largest);
          CHECK(e.s_cosine == doctest::Approx(1.0).epsilon(1e-12));
          // |V| is at most 2; ln 2 times half a last place of a score in log2 units is 2^-24 of the natural one, and a GPU's exp2
          // of it is two last places off.
          CHECK(e.v_max <= (target.exact_weight ? 0.0 : 2.0 * (0x1p-24 * e.s_largest + 0x1p-22)));
        }
      }
    }
  }
}

TEST_CASE("dense: six shapes within the contract, every format") {
  const Shape shapes[] = {
      {{16}, {16}, 1, 1, 64, false, 0.0f},         {{64}, {300}, 1, 1, 128, true, 0.0f},
      {{33, 33}, {33, 33}, 4, 4, 64, true, 0.0f},  {{1, 17, 40}, {130, 17, 201}, 8, 2, 128, true, 0.0f},
      {{70, 5}, {65, 500}, 3, 1, 64, false, 0.0f}, {{128, 0, 3}, {128, 9, 0}, 2, 2, 128, false, 0.05f},
  };
  double worst = 0.0, worst_lse = 0.0;
  for (const Target& target : kTargets) {
    for (const Format& f : kFormats) {
      for (const Shape& shape : shapes) {
        DenseCall call(shape);
        call.fill(3, Distribution::kGaussian);
        set_format(call.config, f);
        REQUIRE(call.run(target.backend) == Status::kOk);
        const Error error = call.out.error(contract(call));
        INFO(std::string(target.backend), " ", label(f), " head_dim ", shape.head_dim, " keys ", shape.kv_lens[0],
             " O ", error.o, " LSE ", error.lse);
        CHECK(error.o <= bound(target, f.format, shape.head_dim));
        CHECK(error.lse <= lse_bound(f.format, shape.head_dim));
        worst = std::max(worst, error.o);
        worst_lse = std::max(worst_lse, error.lse);
      }
    }
  }
  std::printf("dense against the contract: O %.2e, LSE %.2e\n", worst, worst_lse);
}

TEST_CASE("dense: every head_dim") {
  for (const Target& target : kTargets) {
    for (std::int32_t head_dim = 32; head_dim <= 256; head_dim += 32) {
      for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
        DenseCall call({{9, 2}, {70, 31}, 2, 1, head_dim, true, 0.0f});
        call.fill(4, Distribution::kUniform);
        set_format(call.config, {format, VScaleAxis::kTokens, Rotation::kHadamard32, Nvfp4Scale::kAmaxOver6});
        REQUIRE(call.run(target.backend) == Status::kOk);
        const Error error = call.out.error(contract(call));
        INFO(std::string(target.backend), " ", std::string(name_of(format)), " head_dim ", head_dim);
        CHECK(error.o <= bound(target, format, head_dim));
        CHECK(error.lse <= lse_bound(format, head_dim));
      }
    }
  }
}

TEST_CASE("dense: what quantising costs, against the unquantised reference") {
  // The cosines that the formats reach on this data, pinned about a tenth of their distance from 1 below what was
  // measured (printed).
  struct Row {
    Format format;
    double uniform, uniform_smooth, gaussian, gaussian_smooth, offset, offset_smooth;
  };
  const Row rows[] = {
      {kFormats[0], 0.9942, 0.9942, 0.985, 0.985, 0.913, 0.985},
      {kFormats[1], 0.9941, 0.9941, 0.985, 0.985, 0.938, 0.985},
      {kFormats[2], 0.9956, 0.9956, 0.991, 0.991, 0.948, 0.991},
      {kFormats[3], 0.9942, 0.9942, 0.989, 0.989, 0.938, 0.989},
      {kFormats[4], 0.9942, 0.9942, 0.984, 0.984, 0.888, 0.984},
      {kFormats[5], 0.9994, 0.9994, 0.999, 0.999, 0.9961, 0.999},
  };
  std::printf("%-36s %9s %9s %9s %9s %9s %9s   cosine of O\n", "", "uniform", "smooth", "Gaussian", "smooth", "offset",
              "smooth");
  for (const Row& row : rows) {
    double cosines[6];
    for (int column = 0; column < 6; ++column) {
      DenseCall call({{64, 64}, {512, 512}, 4, 2, 128, false, 0.0f});
      call.fill(12, column < 2 ? Distribution::kUniform : Distribution::kGaussian);
      if (column >= 4) {
        // A few channels that all keys share, as models have them.
        for (std::size_t i = 0; i < call.k.values.size(); ++i) {
          if (i % 128 % 16 == 3) call.k.put(i, call.k.values[i] + 12.0);
        }
      }
      set_format(call.config, row.format);
      call.config.smooth_k = column % 2 == 1;
      REQUIRE(call.run(kTargets[0].backend) == Status::kOk);
      cosines[column] = call.out.error(call.want()).cosine;
    }
    std::printf("%-36s %9.6f %9.6f %9.6f %9.6f %9.6f %9.6f\n", label(row.format).c_str(), cosines[0], cosines[1],
                cosines[2], cosines[3], cosines[4], cosines[5]);
    INFO(label(row.format));
    CHECK(cosines[0] >= row.uniform);
    CHECK(cosines[1] >= row.uniform_smooth);
    CHECK(cosines[2] >= row.gaussian);
    CHECK(cosines[3] >= row.gaussian_smooth);
    CHECK(cosines[4] >= row.offset);
    CHECK(cosines[5] >= row.offset_smooth);
    CHECK(cosines[5] > cosines[4]);
  }
}

TEST_CASE("dense: the dtype and the strides of K and V do not matter") {
  for (const Target& target : kTargets) {
    for (const bool smooth : {false, true}) {
      const Shape shape{{9, 20}, {50, 77}, 4, 2, 64, true, 0.0f};
      std::vector<std::vector<std::uint8_t>> bits;
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        DenseCall call(shape, dtype);
        test::Random random(2);
        for (PlainData* x : {&call.q, &call.k, &call.v}) {
          x->fill([&](std::size_t) { return (random.below(255) - 127) / 64.0; });  // eight bits: bf16 holds them
        }
        call.config.q_dtype = DType::kF32;
        PlainData q(shape.q_tokens(), shape.q_heads, shape.head_dim, DType::kF32);
        q.fill([&](std::size_t i) { return call.q.values[i]; });
        call.q = std::move(q);
        set_format(call.config, kFormats[3]);
        call.config.smooth_k = smooth;
        REQUIRE(call.run(target.backend) == Status::kOk);
        bits.push_back(call.out.bits());

        // Heads outermost, with gaps between them: rows that begin on words of 16 bytes, and rows that do not.
        const std::int64_t tokens = shape.kv_tokens();
        const auto size = static_cast<std::size_t>(size_of(dtype));
        for (const std::int64_t gap : {8, 7}) {
          const std::int64_t token_stride = 64 + gap, head_stride = tokens * token_stride + gap;
          Memory moved[2] = {Memory(static_cast<std::size_t>(2 * head_stride) * size),
                             Memory(static_cast<std::size_t>(2 * head_stride) * size)};
          for (int i = 0; i < 2; ++i) {
            const Memory& from = i == 0 ? call.k.data : call.v.data;
            KvInput& input = i == 0 ? call.args.k : call.args.v;
            for (std::int64_t row = 0; row < 2 * tokens; ++row) {
              std::memcpy(moved[i].data() + static_cast<std::size_t>(row / 2 * token_stride + row % 2 * head_stride) * size,
                          from.data() + static_cast<std::size_t>(row * 64) * size, 64 * size);
            }
            input = {moved[i].data(), dtype, token_stride, head_stride};
          }
          call.out.reset();
          REQUIRE(run_dense_attention(call.plan, call.args) == Status::kOk);
          CHECK(call.out.bits() == bits.back());
        }
      }
      CHECK(bits[0] == bits[1]);
      CHECK(bits[0] == bits[2]);
    }
  }
}

TEST_CASE("dense: a plan serves smaller calls, and a sequence alone gives its bits in the batch") {
  for (const Target& target : kTargets) {
    DenseCall call({{20, 7, 33}, {90, 7, 140}, 4, 2, 128, true, 0.0f});
    call.fill(21, Distribution::kGaussian);
    set_format(call.config, kFormats[1]);
    call.config.batch_invariant = true;
    call.config.smooth_k = true;
    REQUIRE(call.run(target.backend) == Status::kOk);
    const std::vector<std::uint8_t> all(call.out.o.data(), call.out.o.data() + call.out.o.size());
    const std::vector<float> lse = call.out.lse;
    for (std::size_t b = 0; b < 3; ++b) {
      const std::size_t q_row = static_cast<std::size_t>(call.rows.q[b]) * 4 * 128 * 4;
      const std::size_t kv_row = static_cast<std::size_t>(call.rows.kv[b]) * 2 * 128 * 4;
      const auto queries = static_cast<std::size_t>(call.shape.q_lens[b]);
      DenseAttentionArgs args = call.args;
      args.q = call.q.data.data() + q_row;
      args.k.data = call.k.data.data() + kv_row;
      args.v.data = call.v.data.data() + kv_row;
      args.rows = {1, call.shape.q_lens[b], call.shape.kv_lens[b], nullptr, nullptr};
      call.out.reset();
      REQUIRE(run_dense_attention(call.plan, args) == Status::kOk);
      CHECK(std::memcmp(call.out.o.data(), all.data() + q_row, queries * 4 * 128 * 4) == 0);
      CHECK(std::memcmp(call.out.lse.data(), lse.data() + call.rows.q[b] * 4, queries * 4 * 4) == 0);
    }
    DenseAttentionArgs none = call.args;
    none.rows = {0, 0, 0, nullptr, nullptr};
    CHECK(run_dense_attention(call.plan, none) == Status::kOk);
  }
}

TEST_CASE("dense: bad input is refused by name, and nothing is written") {
  const char* const backend = kTargets[0].backend;
  const Shape shape{{5, 6}, {40, 50}, 4, 2, 64, true, 0.0f};
  const auto plan_with = [&](auto&& change) {
    DenseCall call(shape);
    call.config.backend = backend;
    change(call.config);
    return plan_dense_attention(call.config, &call.plan);
  };
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.head_dim = 272; }), Status::kUnsupportedHeadDim, "head_dim is 272",
                      "32 to 256");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.num_q_heads = 0; }), Status::kInvalidHeads, "num_q_heads is 0",
                      "1 to 65536");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.kv_dtype = static_cast<DType>(3); }), Status::kUnsupportedFormat,
                      "kv_dtype is 3", "2 (bf16)");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.k_format = static_cast<KvFormat>(7); }), Status::kUnsupportedFormat,
                      "k.format is 7", "6 (mxfp8)");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) {
                        c.v_format = KvFormat::kMxfp8;
                        c.v_scale_axis = VScaleAxis::kTokens;
                      }),
                      Status::kUnsupportedFormat, "v.scale_axis is 1 (tokens)", "mxfp8", "mxfp4, nvfp4");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.matrix_path = static_cast<MatrixPath>(3); }), Status::kInvalidArgument,
                      "matrix_path is 3", "1 (native)");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.matrix_path = MatrixPath::kNative; }), Status::kUnsupportedFormat,
                      "matrix_path is native", "allowed: auto, decode");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.rotation = Rotation::kHadamard128; }), Status::kUnsupportedFormat,
                      "rotation is 128", "head_dim 64");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.k_global_scale = 0.0f; }), Status::kInvalidGlobalScale,
                      "k.global_scale is 0", "greater than 0");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) {
                        c.v_format = KvFormat::kMxfp4;
                        c.v_global_scale = 2.0f;
                      }),
                      Status::kInvalidGlobalScale, "v.global_scale is 2", "mxfp4: 1");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.limits.max_q_len = 12; }), Status::kInvalidSize, "max_q_len is 12",
                      "11");
  DENSE_CHECK_REFUSED(plan_dense_attention({}, nullptr), Status::kNullPointer, "plan is null");

  DenseCall call(shape);
  call.fill(1, Distribution::kUniform);
  REQUIRE(call.run(backend) == Status::kOk);
  const DenseAttentionArgs good = call.args;
  const auto run_with = [&](auto&& change) {
    call.args = good;
    change(call.args);
    call.out.reset();
    const Status s = run_dense_attention(call.plan, call.args);
    CHECK(call.out.untouched());
    return s;
  };
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.k.data = nullptr; }), Status::kNullPointer, "k.data is null");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.v.dtype = DType::kF16; }), Status::kPlanMismatch, "v.dtype is 1",
                      "kv_dtype 0 (f32)");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.k.token_stride = 64; }), Status::kInvalidStrides, "k.", "overlap",
                      "at least");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.q = nullptr; }), Status::kNullPointer, "q is null");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.q_token_stride = 3; }), Status::kInvalidStrides, "q has token stride 3");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.rows.kv_tokens = 91; }), Status::kPlanMismatch, "kv_tokens is 91",
                      "max_kv_tokens 90");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.rows.batch = -1; }), Status::kPlanMismatch, "batch is -1", "0 to");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.rows.batch = 0; }), Status::kInvalidSize, "q_tokens is ", " with batch 0", "allowed: 0");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.rows.batch = a.rows.q_tokens = 0; }), Status::kInvalidSize, "kv_tokens is 90 with batch 0");
  CHECK(run_with([](auto& a) { a.rows = {}; }) == Status::kOk);  // no work, and nothing written
  DENSE_CHECK_REFUSED(run_with([](auto& a) {
                        a.rows.kv_indptr = nullptr;
                        a.rows.batch = 1;
                        a.rows.q_indptr = nullptr;
                        a.rows.q_tokens = 5;
                      }),
                      Status::kPlanMismatch, "kv_tokens is 90", "90 a sequence", "50");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.workspace = nullptr; }), Status::kNullPointer, "workspace is null");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.workspace_bytes = 0; }), Status::kWorkspaceTooSmall,
                      "workspace_bytes is 0");
  DENSE_CHECK_REFUSED(run_dense_attention({}, good), Status::kPlanMismatch, "plan_dense_attention");
}
