// `fp4pa bench dense` and `fp4pa bench mxfp8`: attention over contiguous Q, K and V, quantised on the way or given in
// MXFP8.
//
// Time is that of a whole call: quantising, or expanding, is part of it. FLOP are those of the two products, 4 a query
// head, query, key and head_dim element; half of them with --causal and equal lengths. Bytes are Q, K, V and O, each
// once.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "fp4pa/dense_attention.hpp"
#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/options.hpp"

namespace fp4pa::tool {
namespace {

struct DenseOptions {
  std::string formats = "bf16,mxfp4,nvfp4", decode = "per_tile,once", v_scale_axis = "head_dim", dtype = "bf16";
  int batch = 1, heads = 8, kv_heads = 8, head_dim = 128, length = 1024, q_len = 0, rotation = 0;
  bool causal = false, smooth_k = false;

  [[nodiscard]] int queries() const { return q_len != 0 ? q_len : length; }
  [[nodiscard]] DenseLimits limits() const { return {batch, batch * queries(), queries(), batch * length, length}; }
  [[nodiscard]] DenseBatch rows() const { return {batch, batch * queries(), batch * length, nullptr, nullptr}; }
  [[nodiscard]] double elements(int tokens, int of_heads) const {
    return static_cast<double>(batch) * tokens * of_heads * head_dim;
  }
  /// Key-query pairs that a query head computes for one sequence.
  [[nodiscard]] double pairs() const {
    double sum = 0.0;
    for (int i = 0; i < queries(); ++i) sum += causal ? std::clamp(length - queries() + i + 1, 0, length) : length;
    return sum;
  }
  [[nodiscard]] double flop() const { return 4.0 * batch * heads * pairs() * head_dim; }
};

BenchResult result_of(const Device& device, const DenseOptions& o, const char* name, const std::string& format,
                      VScaleAxis v_scale_axis, int threads, const char* backend) {
  BenchResult r;
  r.bench = name;
  r.config = {{"format", format},       {"batch", o.batch},
              {"heads", o.heads},       {"kv_heads", o.kv_heads},
              {"head_dim", o.head_dim}, {"length", o.length},
              {"q_len", o.queries()},   {"causal", o.causal},
              {"rotation", o.rotation}, {"v_scale_axis", name_of(v_scale_axis)},
              {"smooth_k", o.smooth_k}, {"dtype", o.dtype},
              {"backend", backend}};
  if (device.has_threads()) r.config["threads"] = threads;
  return r;
}

void check_shape(const DenseOptions& o) {
  if (o.heads % o.kv_heads != 0) {
    throw Failure(Exit::kUsage, fmt::format("--heads {} is not a multiple of --kv-heads {}", o.heads, o.kv_heads));
  }
  check_rows(o.batch, std::max(o.queries(), o.length));
}

template <class Config>
Config config_of(const DenseOptions& o, const BenchReport& report, int threads) {
  Config c;
  c.num_q_heads = o.heads;
  c.num_kv_heads = o.kv_heads;
  c.head_dim = o.head_dim;
  c.causal = o.causal;
  c.limits = o.limits();
  c.num_threads = threads;
  c.backend = report.options().backend_name();
  return c;
}

/// A buffer of `bytes` filled with `pattern`.
Buffer filled(Device& device, double bytes, Fill pattern, std::uint64_t seed) {
  Buffer buffer = device.allocate(static_cast<std::size_t>(bytes));
  device.fill(buffer, pattern, seed);
  return buffer;
}

void dense_once(const DenseOptions& o, const std::string& format, int threads, BenchReport& report) {
  Device& device = report.device();
  auto c = config_of<DenseAttentionConfig>(o, report, threads);
  const DType dtype = parse_name<DType>(o.dtype, kAllDTypes, "dtype");
  c.q_dtype = c.kv_dtype = c.o_dtype = dtype;
  c.k_format = c.v_format = parse_format(format);
  c.v_scale_axis = parse_v_scale_axis(o.v_scale_axis, c.v_format);
  c.rotation = parse_rotation(o.rotation);
  c.smooth_k = o.smooth_k;
  DenseAttentionPlan plan;
  check(plan_dense_attention(c, &plan), "plan_dense_attention");

  const Fill pattern = fill_of(dtype);
  const double q_bytes = o.elements(o.queries(), o.heads) * size_of(dtype);
  const double kv_bytes = o.elements(o.length, o.kv_heads) * size_of(dtype);
  const Buffer q = filled(device, q_bytes, pattern, 1), k = filled(device, kv_bytes, pattern, 2),
               v = filled(device, kv_bytes, pattern, 3);
  const Buffer out = device.allocate(static_cast<std::size_t>(q_bytes)), workspace = device.allocate(plan.workspace_bytes());
  DenseAttentionArgs args;
  args.q = q.data();
  args.k = {k.data(), dtype, 0, 0};
  args.v = {v.data(), dtype, 0, 0};
  args.o = out.data();
  args.rows = o.rows();
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes();

  BenchResult r = result_of(device, o, "dense", format, c.v_scale_axis, threads, plan.backend());
  r.time = measure(device, report.options(), [&] { check(run_dense_attention(plan, args), "run_dense_attention"); });
  r.bytes = 2.0 * q_bytes + 2.0 * kv_bytes;
  r.figures["GFLOP_per_s"] = 1e-9 * o.flop() / r.time.median;
  report.add(std::move(r));
}

Mxfp8Decode parse_decode(const std::string& text) {
  static constexpr Mxfp8Decode kDecodes[] = {Mxfp8Decode::kAuto, Mxfp8Decode::kPerTile, Mxfp8Decode::kOnce};
  return parse_name<Mxfp8Decode>(text, kDecodes, "decoding");
}

void mxfp8_once(const DenseOptions& o, const std::string& decode, int threads, BenchReport& report) {
  Device& device = report.device();
  auto c = config_of<Mxfp8AttentionConfig>(o, report, threads);
  c.decode = parse_decode(decode);
  c.o_dtype = parse_name<DType>(o.dtype, kAllDTypes, "dtype");
  Mxfp8AttentionPlan plan;
  check(plan_mxfp8_attention(c, &plan), "plan_mxfp8_attention");

  const double q_codes = o.elements(o.queries(), o.heads);
  const double kv_codes = o.elements(o.length, o.kv_heads);
  const Buffer q = filled(device, q_codes, Fill::kE4m3, 1), k = filled(device, kv_codes, Fill::kE4m3, 2),
               v = filled(device, kv_codes, Fill::kE4m3, 3), q_scales = filled(device, q_codes / 32, Fill::kE8m0Scales, 4),
               k_scales = filled(device, kv_codes / 32, Fill::kE8m0Scales, 5),
               v_scales = filled(device, kv_codes / 32, Fill::kE8m0Scales, 6);
  const double o_bytes = q_codes * size_of(c.o_dtype);
  const Buffer out = device.allocate(static_cast<std::size_t>(o_bytes)), workspace = device.allocate(plan.workspace_bytes());
  Mxfp8AttentionArgs args;
  args.q = {q.data(), 0, 0, q_scales.data(), 0, 0};
  args.k = {k.data(), 0, 0, k_scales.data(), 0, 0};
  args.v = {v.data(), 0, 0, v_scales.data(), 0, 0};
  args.o = out.data();
  args.rows = o.rows();
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes();

  BenchResult r = result_of(device, o, "mxfp8", name_of(plan.decode()), VScaleAxis::kHeadDim, threads, plan.backend());
  r.time = measure(device, report.options(), [&] { check(run_mxfp8_attention(plan, args), "run_mxfp8_attention"); });
  r.bytes = (q_codes + 2.0 * kv_codes) * 33.0 / 32.0 + o_bytes;
  r.figures["GFLOP_per_s"] = 1e-9 * o.flop() / r.time.median;
  report.add(std::move(r));
}

void add_shape_options(Command command, DenseOptions& o) {
  command.add_option("--batch", o.batch, "Sequences").check(integer_from(1)).capture_default_str();
  command.add_option("--heads", o.heads, "Query heads").check(integer_from(1)).capture_default_str();
  command.add_option("--kv-heads", o.kv_heads, "KV heads").check(integer_from(1)).capture_default_str();
  command.add_option("--head-dim", o.head_dim, "Head size").capture_default_str();
  command.add_option("--length", o.length, "Keys of each sequence").check(integer_from(1)).capture_default_str();
  command.add_option("--q-len", o.q_len, "Queries of each sequence; as many as keys if not given")
      .check(integer_from(1));
  command.add_flag("--causal", o.causal, "Queries see the keys up to their own position");
}

/// @param axis_of  the axis that V's scales lie along in a row
template <class AxisOf, class Once>
std::vector<BenchStep> steps_of(const DenseOptions& o, const char* name, const std::vector<std::string>& rows,
                                const std::vector<int>& threads, AxisOf axis_of, Once once) {
  check_shape(o);
  std::vector<BenchStep> steps;
  for (const std::string& row : rows) {
    steps.push_back(
        {fmt::format("{} {} b{} {}/{} {} tokens{}{} D{} rotation {} V along {}{} {}", name, row, o.batch, o.heads,
                     o.kv_heads, o.length, o.q_len != 0 ? fmt::format(" q_len {}", o.q_len) : "", o.causal ? " causal" : "",
                     o.head_dim, o.rotation, name_of(axis_of(row)), o.smooth_k ? " smooth K" : "", o.dtype),
         [&o, row, threads, once](BenchReport& report) {
           for (const int t : threads) once(o, row, t, report);
         }});
  }
  return steps;
}

class BenchDense final : public Benchmark {
 public:
  void add_options(Command c) override {
    add_shape_options(c, o_);
    c.add_option("--format", o_.formats, "What K and V become, a list of " + format_names()).capture_default_str();
    c.add_option("--v-scale-axis", o_.v_scale_axis, "head_dim or tokens").capture_default_str();
    c.add_option("--rotation", o_.rotation, "Hadamard block: 0, 16, 32, 64, 128");
    c.add_flag("--smooth-k", o_.smooth_k, "Quantise K less its mean over tokens");
    c.add_option("--dtype", o_.dtype, "Of Q, K, V and O: " + dtype_names()).capture_default_str();
  }
  std::vector<BenchStep> steps(const std::vector<int>& threads) override {
    const std::vector<std::string> formats = split_list(o_.formats, "--format");
    (void)parse_rotation(o_.rotation);
    (void)parse_name<DType>(o_.dtype, kAllDTypes, "dtype");
    const auto axis_of = [&](const std::string& format) { return parse_v_scale_axis(o_.v_scale_axis, parse_format(format)); };
    return steps_of(o_, "dense", formats, threads, axis_of, dense_once);
  }

 private:
  DenseOptions o_;
};

class BenchMxfp8 final : public Benchmark {
 public:
  void add_options(Command c) override {
    add_shape_options(c, o_);
    c.add_option("--decode", o_.decode, "Where K and V are decoded, a list: per_tile, once, auto").capture_default_str();
    c.add_option("--dtype", o_.dtype, "Of O: " + dtype_names()).capture_default_str();
  }
  std::vector<BenchStep> steps(const std::vector<int>& threads) override {
    const std::vector<std::string> decodes = split_list(o_.decode, "--decode");
    for (const std::string& decode : decodes) (void)parse_decode(decode);
    (void)parse_name<DType>(o_.dtype, kAllDTypes, "dtype");
    return steps_of(o_, "mxfp8", decodes, threads, [](const std::string&) { return VScaleAxis::kHeadDim; }, mxfp8_once);
  }

 private:
  DenseOptions o_;
};

}  // namespace

std::unique_ptr<Benchmark> make_bench_dense() { return std::make_unique<BenchDense>(); }
std::unique_ptr<Benchmark> make_bench_mxfp8() { return std::make_unique<BenchMxfp8>(); }

}  // namespace fp4pa::tool
