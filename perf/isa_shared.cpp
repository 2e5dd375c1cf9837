// What the launching side gives each kernel of this build: threads and dynamic shared memory, as JSON on the standard output. The
// gates on machine code (isa_gates.py) add it to what the objects say of themselves.
//
// A kernel is launched for a configuration. Here it is the one that its row is made for: its formats at its head_dim, queries in
// bf16. A row that leaves formats open has MXFP4 along head_dim and a recent tier in bf16, at its largest head_dim.
//
//   {"<list of rows>": {"<architecture>": [{"threads", "dynamic_shared", "blocks"}, ...]},
//    "gemm": {"<architecture>": {"<kernel>": {"threads", "dynamic_shared", "blocks"}}}}
//
// `blocks`: the most of a launch on a multiprocessor (compute unit) where the launch itself limits them, 0 where it does not.
#include <cstdio>
#include <string>
#include <utility>

#include "backends/sm120/gemm.hpp"
#include "backends/sm80/gemm_params.hpp"
#include "backends/sm90/gemm_few_params.hpp"
#include "backends/sm90/gemm_many_params.hpp"
#include "cuda/variants.hpp"
#include "hip/gemm_shims.hpp"
#include "hip/instances.hpp"

namespace {

using namespace fp4pa;
using core::KvKind;

/// Shared memory that a block may ask for.
constexpr int kSm80 = 163 << 10, kSm90 = 227 << 10, kSm120 = 99 << 10, kGfx942 = 64 << 10, kGfx950 = 160 << 10;

KvTensorDesc tensor_of(KvKind kind) {
  KvTensorDesc t;
  switch (kind) {
    case KvKind::kNvfp4:
    case KvKind::kNvfp4Tokens: t.format = KvFormat::kNvfp4; break;
    case KvKind::kPerToken: t.format = KvFormat::kE8m0PerToken; break;
    case KvKind::kFp8: t.format = KvFormat::kFp8E4m3; break;
    case KvKind::kBf16:
    case KvKind::kAnyRecent: t.format = KvFormat::kBf16; break;
    case KvKind::kF16: t.format = KvFormat::kF16; break;
    case KvKind::kMxfp8: t.format = KvFormat::kMxfp8; break;
    default: t.format = KvFormat::kMxfp4; break;
  }
  t.scale_axis = core::along_tokens(kind) ? VScaleAxis::kTokens : VScaleAxis::kHeadDim;
  return t;
}

AttentionConfig made_for(const core::SimtConfig& row) {
  AttentionConfig c{};
  c.q_dtype = DType::kBF16;
  c.cache.head_dim = row.head_dim;
  c.cache.k = tensor_of(row.k[0]);
  c.cache.v = tensor_of(row.v[0]);
  c.two_tier = row.segments == 2;
  if (c.two_tier) {
    c.recent = c.cache;
    c.recent.k = tensor_of(row.k[1]);
    c.recent.v = tensor_of(row.v[1]);
  }
  return c;
}

/// An object's members, one a line; commas as JSON wants them.
class Object {
 public:
  Object(const std::string& indent, char close) : indent_(indent), close_(close) {}
  void member(const std::string& name) {
    std::printf("%s\n%s ", first_ ? "" : ",", indent_.c_str());
    if (!name.empty()) std::printf("\"%s\": ", name.c_str());
    first_ = false;
  }
  void kernel(const std::string& name, int threads, int shared, int blocks) {
    member(name);
    std::printf(R"({"threads": %d, "dynamic_shared": %d, "blocks": %d})", threads, shared, blocks);
  }
  ~Object() { std::printf("\n%s%c", indent_.c_str(), close_); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

 private:
  std::string indent_;
  char close_;
  bool first_ = true;
};

/// Rows first .. first + count - 1 of cuda/variants.hpp, on one architecture.
void cuda_rows(Object& list, const char* architecture, int first, int count, int shared_bytes) {
  list.member(architecture);
  std::printf("[");
  Object rows("  ", ']');
  for (int i = first; i < first + count; ++i) {
    const cuda::Launch launch = cuda::launch_of(i, made_for(cuda::shape_of(i)), shared_bytes);
    rows.kernel("", cuda::threads_of(i, launch), launch.layout.bytes, 0);
  }
}

void hip_rows(Object& list, const char* architecture, int shared_bytes) {
  list.member(architecture);
  std::printf("[");
  Object rows("  ", ']');
  for (const core::SimtConfig& row : hip::kInstances) {
    const hip::Launch launch = hip::launch_of(row, made_for(row), shared_bytes);
    rows.kernel("", 64 * launch.warps, launch.layout.bytes, row.blocks);
  }
}

std::string gemm_name(const char* kernel, bool nvfp4, int x_rows, const char* order = "") {
  return std::string(kernel) + (nvfp4 ? "(Nvfp4, " : "(Mxfp4, ") + std::to_string(x_rows) + order + ")";
}

void sm80_products(Object& gemm, const char* architecture) {
  gemm.member(architecture);
  std::printf("{");
  Object kernels("  ", '}');
  for (const bool nvfp4 : {false, true}) {
    for (const int x_tiles : {1, 2, 4, 8}) {
      const int shared = sm80::gemm_shared_bytes(nvfp4, x_tiles);
      kernels.kernel(gemm_name("gemm", nvfp4, 8 * x_tiles, ", paired"), sm80::gemm_rows(x_tiles), shared, 0);
      if (x_tiles > 2) continue;
      kernels.kernel(gemm_name("gemm", nvfp4, 8 * x_tiles, ", as it is"), sm80::gemm_rows(x_tiles), shared, 0);
    }
  }
}

/// On few rows the launch divides K and W as fits best; here all rows of X that a kernel takes, eight groups of W's rows (of a plain product's
/// block, one) and eight stages a block.
void sm90_products(Object& gemm) {
  gemm.member("sm_90a");
  std::printf("{");
  Object kernels("  ", '}');
  for (const bool bf16 : {false, true}) {
    const std::string x_type = bf16 ? ", bf16" : "";  // f16 where none is named
    for (const bool nvfp4 : {false, true}) {
      const std::string format = nvfp4 ? "(Nvfp4" : "(Mxfp4";
      for (const auto& [form, row_groups] : {std::pair{"", 8}, {", plain", 1}, {", halves", 1}, {", wide halves", 8}}) {
        for (const int most : {sm90::kFewMostX, 4, 2}) {
          if (std::string(form) == ", wide halves" && most <= 4) continue;  // there is none
          kernels.kernel("gemm_few" + format + ", " + std::to_string(most) + x_type + form + ")", sm90::kFewThreads,
                         sm90::few_shared_bytes(nvfp4, row_groups, 8, most), 0);
        }
        kernels.kernel("gemm_sixteen" + format + x_type + form + ")", sm90::kFewThreads,
                       sm90::sixteen_shared_bytes(nvfp4, row_groups, 8, sm90::kSixteenX), 0);
      }
      for (const int tiles : sm90::kFewOtherTiles) {
        kernels.kernel("gemm_few" + format + ", 2" + x_type + ", plain, " + std::to_string(16 * tiles) + " rows of W)", sm90::kFewThreads,
                       sm90::few_shared_bytes(nvfp4, 1, 8, sm90::kFewPairedX, tiles), 0);
      }
      for (const int x_rows : {256, 192, 128, 64, 32}) {
        const sm90::ManyLayout layout{x_rows, nvfp4, bf16};
        kernels.kernel("gemm_many" + format + ", " + std::to_string(x_rows) + x_type + ")", layout.threads(), layout.shared_bytes(), 0);
      }
    }
  }
}

/// As much of an Exec as a block's sizes depend on.
struct SizesOfWarp {
  static constexpr int kLanes = 32;
  struct Lane {
    int id;
  };
  template <class T>
  struct PerLane {
    T value;
  };
};
template <bool kNvfp4, int kXTiles>
void sm120_product(Object& kernels) {
  using Shim = sm120::GemmShim<kNvfp4, kXTiles, SizesOfWarp>;
  kernels.kernel(gemm_name("gemm_native", kNvfp4, 8 * kXTiles), 32 * Shim::kWarps, core::GemmBlock<Shim>::kSharedBytes, 0);
}
template <bool kNvfp4>
void sm120_products(Object& kernels) {
  sm120_product<kNvfp4, 1>(kernels);
  sm120_product<kNvfp4, 2>(kernels);
  sm120_product<kNvfp4, 4>(kernels);
  sm120_product<kNvfp4, 8>(kernels);
}

template <hip::GemmPath path, int kXTiles>
void hip_product(Object& kernels) {
  const char* const kernel = path == hip::GemmPath::kNativeMxfp4  ? "gemm_native"
                             : path == hip::GemmPath::kTermsMxfp4 ? "gemm_terms"
                                                                  : "gemm";
  kernels.kernel(gemm_name(kernel, path == hip::GemmPath::kDecodeNvfp4, 16 * kXTiles), hip::gemm_threads<path, kXTiles>,
                 core::GemmBlock<hip::GemmSizes<path, kXTiles>>::kSharedBytes, 0);
}
template <hip::GemmPath path>
void hip_products(Object& kernels) {
  hip_product<path, 1>(kernels);
  hip_product<path, 2>(kernels);
  hip_product<path, 4>(kernels);
}
void hip_products_of(Object& gemm, const char* architecture, bool native) {
  gemm.member(architecture);
  std::printf("{");
  Object kernels("  ", '}');
  if (native) {
    hip_products<hip::GemmPath::kNativeMxfp4>(kernels);
    hip_products<hip::GemmPath::kTermsMxfp4>(kernels);
  }
  hip_products<hip::GemmPath::kDecodeMxfp4>(kernels);
  hip_products<hip::GemmPath::kDecodeNvfp4>(kernels);
}

}  // namespace

int main() {
  std::printf("{");
  {
    Object all("", '}');
    all.member("cuda/instances.hpp");
    std::printf("{");
    {
      Object list(" ", '}');
      cuda_rows(list, "sm_80", 0, simt::kNumInstances, kSm80);
      cuda_rows(list, "sm_90", 0, simt::kNumInstances, kSm90);
    }
    all.member("cuda/instances_sm90.hpp");
    std::printf("{");
    {
      Object list(" ", '}');
      cuda_rows(list, "sm_90a", cuda::kFirstSm90, sm90::kNumInstances, kSm90);
    }
    all.member("cuda/instances_sm120.hpp");
    std::printf("{");
    {
      Object list(" ", '}');
      cuda_rows(list, "sm_120", cuda::kFirstNative, sm120::kNumInstances, kSm120);
    }
    all.member("hip/instances.hpp");
    std::printf("{");
    {
      Object list(" ", '}');
      hip_rows(list, "gfx942", kGfx942);
      hip_rows(list, "gfx950", kGfx950);
    }
    all.member("gemm");
    std::printf("{");
    {
      Object gemm(" ", '}');
      sm80_products(gemm, "sm_80");
      sm80_products(gemm, "sm_90");
      sm90_products(gemm);
      gemm.member("sm_120");
      std::printf("{");
      {
        Object kernels("  ", '}');
        sm120_products<false>(kernels);
        sm120_products<true>(kernels);
      }
      hip_products_of(gemm, "gfx942", false);
      hip_products_of(gemm, "gfx950", true);
    }
  }
  std::printf("\n");
  return 0;
}
