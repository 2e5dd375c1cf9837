// `fp4pa bench merge`: two states of attention over disjoint keys to one (merge_states), as a cascade's last step. Bytes are those of both
// inputs and of the result.
#include <fmt/format.h>

#include <memory>

#include "fp4pa/attention.hpp"
#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/options.hpp"
#include "tools/fp4pa/paged_cache.hpp"

namespace fp4pa::tool {
namespace {

struct MergeAxes {
  std::string rows = "64K", dtypes = "bf16";
  int head_dim = 128;
};

struct MergeSpec {
  std::int64_t rows = 0;
  int head_dim = 0;
  DType dtype = DType::kBF16;
};

void merge(const MergeSpec& spec, const std::vector<int>& threads, BenchReport& report) {
  Device& device = report.device();
  const auto bytes = static_cast<std::size_t>(spec.rows * spec.head_dim * size_of(spec.dtype));
  const auto lse_bytes = static_cast<std::size_t>(spec.rows) * sizeof(float);
  Buffer o[3], lse[3];  // a, b and their sum
  for (int i = 0; i < 3; ++i) {
    o[i] = device.allocate(bytes);
    lse[i] = device.allocate(lse_bytes);
    const auto seed = static_cast<std::uint64_t>(2 * i + 1);
    device.fill(o[i], fill_of(spec.dtype), seed);
    device.fill(lse[i], Fill::kF32, seed + 1);
  }
  for (const int t : threads) {
    const ExecDesc exec{report.options().backend_name(), nullptr, t};
    BenchResult r;
    r.bench = "merge";
    r.config = {{"rows", spec.rows}, {"head_dim", spec.head_dim}, {"dtype", name_of(spec.dtype)}};
    if (device.has_threads()) r.config["threads"] = t;
    r.config["backend"] = backend_in_use(report.options().backend);
    r.time = measure(device, report.options(), [&] {
      check(merge_states(o[0].data(), lse[0].as<float>(), o[1].data(), lse[1].as<float>(), o[2].data(), lse[2].as<float>(), spec.dtype,
                         spec.rows, spec.head_dim, exec),
            "merge_states");
    });
    r.bytes = 3.0 * static_cast<double>(bytes + lse_bytes);
    r.figures["Mrows_per_s"] = 1e-6 * static_cast<double>(spec.rows) / r.time.median;
    report.add(std::move(r));
  }
}

class BenchMerge final : public Benchmark {
 public:
  void add_options(Command c) override {
    c.add_option("--rows", axes_.rows, "Rows of a call, a list: 64,64K; tokens times query heads").capture_default_str();
    c.add_option("--head-dim", axes_.head_dim, "Head size").capture_default_str();
    c.add_option("--dtype", axes_.dtypes, "Of the outputs, a list of " + dtype_names()).capture_default_str();
  }

  std::vector<BenchStep> steps(const std::vector<int>& threads) override {
    std::vector<BenchStep> steps;
    check_head_dim(axes_.head_dim);
    MergeSpec spec;
    spec.head_dim = axes_.head_dim;
    for (const int rows : split_integers(axes_.rows, "--rows")) {
      spec.rows = rows;
      for (const std::string& dtype : split_list(axes_.dtypes, "--dtype")) {
        spec.dtype = parse_name<DType>(dtype, kAllDTypes, "dtype");
        steps.push_back({fmt::format("merge {} rows D{} {}", rows, axes_.head_dim, dtype),
                         [spec, threads](BenchReport& report) { merge(spec, threads, report); }});
      }
    }
    return steps;
  }

 private:
  MergeAxes axes_;
};

}  // namespace

std::unique_ptr<Benchmark> make_bench_merge() { return std::make_unique<BenchMerge>(); }

}  // namespace fp4pa::tool
