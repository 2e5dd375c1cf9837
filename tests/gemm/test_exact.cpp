// Products equal the double product of the decoded operands within the bounds of f32 sums, whatever the sizes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "tests/gemm/far_apart.hpp"
#include "tests/gemm/problem.hpp"

using namespace fp4pa;
using namespace fp4pa::gemm_test;

namespace {

void check(const Spec& s) {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    CAPTURE(text(s));
    Problem p(s, backend.c_str());
    REQUIRE_MESSAGE(p.run() == Status::kOk, last_error_detail());
    CHECK(p.worst() <= 1.0);
    CHECK(p.out.memory.intact());
    CHECK(p.workspace->intact());
  }
}

int grid_cases() {
  const char* const asked = std::getenv("FP4PA_GEMM_CASES");
  return asked != nullptr ? std::atoi(asked) : FP4PA_GEMM_CASES;
}

/// Whether kernels of sm_90 can be run; says so where they cannot.
bool runs_on_cuda() {
  const std::vector<std::string> backends = runnable_backends();
  if (std::find(backends.begin(), backends.end(), "cuda") != backends.end()) return true;
  MESSAGE("not run: no CUDA back end");
  return false;
}

template <class T, std::size_t N>
T pick(std::mt19937& random, const T (&choices)[N]) {
  return choices[random() % N];
}

}  // namespace

TEST_CASE("gemm: a grid of ragged sizes, formats, layouts, types, batches") {
  const int cases = grid_cases();
  for (int i = 0; i < cases; ++i) {
    std::mt19937 random(static_cast<std::uint32_t>(1000 + i));
    Spec s;
    s.seed = static_cast<std::uint32_t>(7 * i + 1);
    s.format = pick(random, {BlockFormat::kMxfp4, BlockFormat::kNvfp4});
    s.layout = pick(random, {ScaleLayout::kLinear, ScaleLayout::kBlocked});
    s.activations = pick(random, {ActivationForm::k16Bit, ActivationForm::kFp4});
    s.x = s.activations == ActivationForm::kFp4 ? pick(random, {DType::kF32, DType::kF16, DType::kBF16})
                                                : pick(random, {DType::kF16, DType::kBF16});
    s.out = pick(random, {DType::kF32, DType::kF16, DType::kBF16});
    const std::int64_t ms[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 97, 130};
    const std::int64_t ns[] = {1, 2, 5, 15, 16, 17, 64, 127, 128, 129, 255, 256, 257, 300};
    const std::int64_t ks[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 80, 127, 128, 129, 144, 250, 256, 272, 480, 513, 1000};
    s.m = pick(random, ms);
    s.n = pick(random, ns);
    s.k = pick(random, ks);
    s.batch = 1 + static_cast<std::int64_t>(random() % 3);
    s.shared_weight = random() % 2 == 0;
    s.bias = random() % 2 == 0;
    s.scale_mode = static_cast<ScaleMode>(random() % 4);
    s.nvfp4_scale = static_cast<Nvfp4Scale>(random() % 2);
    if (s.format == BlockFormat::kNvfp4 && s.activations == ActivationForm::kFp4 && random() % 2 == 0) s.x_global_scale = 0.01f;
    check(s);
  }
}

// On sm_90 small products with so many rows of X are another kernel's.
TEST_CASE("gemm: 9 to 16 rows of X in products that fill a GPU") {
  if (!runs_on_cuda()) return;
  struct Shape {
    std::int64_t batch, n, k;  // the largest
  };
  // K in one, in two and in two of 128 rows of W.
  const Shape shapes[] = {{26, 300, 2048}, {13, 300, 4096}, {8, 1000, 8192}};
  const int cases = std::min(30, grid_cases());  // large ones: the reference takes seconds
  for (int i = 0; i < cases; ++i) {
    std::mt19937 random(static_cast<std::uint32_t>(5000 + i));
    const Shape shape = shapes[i % 10 == 9 ? 2 : i % 2];
    Spec s;
    s.seed = static_cast<std::uint32_t>(11 * i + 3);
    s.format = pick(random, {BlockFormat::kMxfp4, BlockFormat::kNvfp4});
    s.layout = pick(random, {ScaleLayout::kLinear, ScaleLayout::kBlocked});
    s.x = pick(random, {DType::kF16, DType::kBF16});
    s.out = pick(random, {DType::kF32, DType::kF16, DType::kBF16});
    s.m = 9 + static_cast<std::int64_t>(random() % 8);
    s.n = shape.n - static_cast<std::int64_t>(random() % 38);
    s.k = shape.k - static_cast<std::int64_t>(random() % 4) * 32 - (random() % 2 == 0 ? 0 : static_cast<std::int64_t>(random() % 32));
    s.batch = shape.batch;
    s.shared_weight = random() % 2 == 0;
    s.bias = random() % 2 == 0;
    s.scale_mode = static_cast<ScaleMode>(random() % 4);
    s.nvfp4_scale = static_cast<Nvfp4Scale>(random() % 2);
    check(s);
  }
}

// On sm_90 blocks have so many rows of X, 192 and 256, only where there is work for all of them.
TEST_CASE("gemm: many rows of X in products that fill a GPU") {
  if (!runs_on_cuda()) return;
  struct Shape {
    std::int64_t m, n;
  };
  for (const Shape shape : {Shape{2040, 1530}, Shape{4090, 1020}}) {
    for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
      for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
        Spec s;
        s.format = format;
        s.layout = layout;
        s.x = layout == ScaleLayout::kLinear ? DType::kF16 : DType::kBF16;
        s.out = layout == ScaleLayout::kLinear ? DType::kBF16 : DType::kF32;
        s.m = shape.m;
        s.n = shape.n;
        s.k = 1120;
        s.bias = layout == ScaleLayout::kBlocked;
        check(s);
      }
    }
  }
}

TEST_CASE("gemm: long sums, and values far from 1") {
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
    for (const ActivationForm form : {ActivationForm::k16Bit, ActivationForm::kFp4}) {
      for (const DType x : {DType::kF16, DType::kBF16}) {
        for (const float sigma : {1.0f, 1e-4f, 1e4f}) {
          Spec s;
          s.format = format;
          s.activations = form;
          s.x = x;
          s.sigma = sigma;
          s.m = 5;
          s.n = 20;
          s.k = 5000;
          check(s);
        }
      }
    }
  }
}

TEST_CASE("gemm: multipliers of W and X far from 1 whose product is 1") {
  for (const std::string& backend : runnable_backends()) {
    if (backend.rfind("cpu", 0) != 0) continue;  // GPUs multiply in f32, one multiplier after the other
    CAPTURE(backend);
    for (const float global : {0x1p-126f, 0x1p-60f, 1.0f, 0x1p60f, 0x1p126f}) {
      for (const bool small : {false, true}) {
        CAPTURE(global);
        CAPTURE(small);
        Spec s;
        s.format = BlockFormat::kNvfp4;
        s.activations = ActivationForm::kFp4;
        s.x = DType::kF32;
        s.m = 3;
        s.n = 9;
        s.k = 128;
        s.x_global_scale = 1.0f / global;
        s.sigma = 0.25f * s.x_global_scale;
        Problem p(s, backend.c_str());
        p.weight.view.global_scale_ptr = nullptr;
        p.weight.view.global_scale = global;
        if (small) std::memset(p.weight.scales.data(), 1, p.weight.scales.bytes());  // 2^-9
        REQUIRE_MESSAGE(p.run() == Status::kOk, last_error_detail());
        const reference::Matrix a = multiplied_x(s, p.x, 0), b = reference::decode(p.weight.view);
        for (std::int64_t i = 0; i < s.m; ++i) {
          for (std::int64_t j = 0; j < s.n; ++j) {
            const reference::Element e = reference::product(a, i, b, j);
            CHECK(std::fabs(p.out.at(static_cast<std::size_t>(i * s.n + j)) - e.sum) <= 0x1p-20 * e.magnitude);
          }
        }
      }
    }
  }
}

TEST_CASE("gemm: every scale of a format, the smallest and the largest too") {
  // One group of K per column: the result is a decoded weight times 1, and nothing is summed.
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
      CAPTURE(std::string(name_of(format)));
      const std::int64_t group = group_size(format);
      // From 2^112 on, X that was brought to the size of 2^13 may leave f32 before it is brought back. NaN has a test of its own.
      const int scales = format == BlockFormat::kMxfp4 ? 127 + 110 : 127;
      OwnedWeight w(format, ScaleLayout::kLinear, scales, group);
      for (int r = 0; r < scales; ++r) {
        for (int i = 0; i < group / 2; ++i) w.codes.data()[r * group / 2 + i] = static_cast<std::uint8_t>(2 * i | (2 * i + 1) << 4);
        w.scales.data()[r] = static_cast<std::uint8_t>(r);
      }
      const std::tuple<DType, std::int64_t> calls[] = {{DType::kF16, 2}, {DType::kF16, 4}, {DType::kF16, 8}, {DType::kF16, group},
                                                       {DType::kBF16, 2}, {DType::kBF16, 4}, {DType::kBF16, 8}, {DType::kBF16, group}};
      for (const auto& [dtype, rows] : calls) {
        CAPTURE(rows);
        // x is the identity, or the first rows of it.
        std::vector<float> identity(static_cast<std::size_t>(rows * group), 0.0f);
        for (std::int64_t i = 0; i < rows; ++i) identity[static_cast<std::size_t>(i * group + i)] = 1.0f;
        const Tensor x(dtype, identity);
        Tensor out(DType::kF32, std::vector<float>(static_cast<std::size_t>(rows * scales), std::nanf("")));
        LinearArgs a;
        a.weight = w.view;
        a.x = x.memory.data();
        a.x_dtype = dtype;
        a.out = out.memory.data();
        a.out_dtype = DType::kF32;
        a.m = rows;
        std::size_t bytes = 0;
        REQUIRE(fp4_linear_workspace(a, &bytes, ExecDesc{backend.c_str()}) == Status::kOk);
        Memory workspace(bytes);
        a.workspace = workspace.data();
        a.workspace_bytes = bytes;
        REQUIRE(fp4_linear(a, ExecDesc{backend.c_str()}) == Status::kOk);
        const reference::Matrix want = reference::decode(w.view);
        int wrong = 0;
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t r = 0; r < scales; ++r) {
            const double value = want.at[static_cast<std::size_t>(r * group + i)];
            if (format == BlockFormat::kMxfp4 && r == 0) continue;  // 2^-127 may be taken for 0
            wrong += out.at(static_cast<std::size_t>(i * scales + r)) != value;
          }
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("gemm: scales near and far from each other in one row") {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (const std::int64_t m : {1, 3, 7, 40, 130}) {
      for (const DType x : {DType::kF16, DType::kBF16}) {
        Spec s;
        s.x = x;
        s.m = m;
        s.n = 200;
        s.k = 1000;
        Problem p(s, backend.c_str());
        std::mt19937 random(static_cast<std::uint32_t>(m));
        for (std::size_t i = 0; i < p.weight.scales.bytes(); ++i) {
          // One in sixteen is not what f16 can have multiplied into the codes.
          p.weight.scales.data()[i] = static_cast<std::uint8_t>(random() % 16 == 0 ? 60 + random() % 120 : 110 + random() % 20);
        }
        REQUIRE(p.run() == Status::kOk);
        CAPTURE(m);
        CHECK(p.worst() <= 1.0);
      }
    }
  }
}

TEST_CASE("gemm: a NaN scale gives NaN in its row and nowhere else") {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
      for (const std::int64_t m : {1, 3, 7, 40}) {
        CAPTURE(m);
        Spec s;
        s.format = format;
        s.m = m;
        s.n = 40;
        s.k = 96;
        Problem p(s, backend.c_str());
        const std::int64_t groups = s.k / group_size(format);
        p.weight.scales.data()[17 * groups + 1] = format == BlockFormat::kMxfp4 ? 0xff : 0x7f;
        REQUIRE(p.run() == Status::kOk);
        for (std::int64_t i = 0; i < s.m; ++i) {
          for (std::int64_t j = 0; j < s.n; ++j) {
            CHECK(std::isnan(p.out.at(static_cast<std::size_t>(i * s.n + j))) == (j == 17));
          }
        }
      }
    }
  }
}

TEST_CASE("gemm: elements of X far below their neighbours") {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (const DType x : {DType::kF16, DType::kBF16}) {
      for (const std::int64_t m : {1, 3, 5, 19, 40}) {
        for (const int low : {8, 0, -8}) {
          CAPTURE(std::string(name_of(x)));
          CAPTURE(m);
          CAPTURE(low);
          FarApart p(x, 15, low, 127, backend.c_str(), m);
          REQUIRE_MESSAGE(p.run() == Status::kOk, last_error_detail());
          CHECK(p.worst() <= 1.0);
          CHECK(p.workspace->intact());
        }
      }
    }
  }
}

TEST_CASE("gemm: infinities and NaN in X come out as the double product has them") {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (const DType x : {DType::kF16, DType::kBF16}) {
      for (const std::int64_t m : {2, 4, 8, 16, 35, 130}) {
        CAPTURE(std::string(name_of(x)));
        CAPTURE(m);
        SpecialX p(x, backend.c_str(), m);
        REQUIRE_MESSAGE(p.run() == Status::kOk, last_error_detail());
        CHECK(p.wrong() == 0);
      }
    }
  }
}

TEST_CASE("gemm: fp4_matmul is fp4_quantize_weight and fp4_linear") {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
      Spec s;
      s.format = format;
      s.activations = ActivationForm::kFp4;
      s.x = DType::kF32;
      s.m = 19;
      s.n = 33;
      s.k = 100;
      s.batch = 2;
      Problem p(s, backend.c_str());
      REQUIRE(p.run() == Status::kOk);
      CHECK(p.worst() <= 1.0);
      Tensor out(DType::kF32, std::vector<float>(static_cast<std::size_t>(s.batch * s.m * s.n), std::nanf("")));
      MatmulArgs a;
      a.format = format;
      a.a = p.x.memory.data();
      a.a_dtype = s.x;
      a.b = p.w.memory.data();
      a.b_dtype = DType::kBF16;
      a.out = out.memory.data();
      a.out_dtype = DType::kF32;
      a.m = s.m;
      a.n = s.n;
      a.k = s.k;
      a.batch = s.batch;
      std::size_t bytes = 0;
      REQUIRE(fp4_matmul_workspace(a, &bytes, p.exec) == Status::kOk);
      Memory workspace(bytes, 0xff);
      a.workspace = workspace.data();
      a.workspace_bytes = bytes;
      REQUIRE(fp4_matmul(a, p.exec) == Status::kOk);
      CHECK(workspace.intact());
      CHECK(std::memcmp(out.memory.data(), p.out.memory.data(), out.memory.bytes()) == 0);
    }
  }
}

TEST_CASE("gemm: same arguments, same bits") {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (const std::int64_t m : {1, 16, 64, 300}) {
      Spec s;
      s.format = BlockFormat::kNvfp4;
      s.m = m;
      s.n = 300;
      s.k = on_a_simulator() ? 512 : 4096;
      s.batch = m == 16 && !on_a_simulator() ? 13 : 1;  // enough for sm_90's own kernel
      Problem p(s, backend.c_str());
      REQUIRE(p.run() == Status::kOk);
      const std::vector<std::uint8_t> first(p.out.memory.data(), p.out.memory.data() + p.out.memory.bytes());
      for (int i = 0; i < 3; ++i) {
        REQUIRE(p.run() == Status::kOk);
        CHECK(std::memcmp(first.data(), p.out.memory.data(), first.size()) == 0);
      }
    }
  }
}
