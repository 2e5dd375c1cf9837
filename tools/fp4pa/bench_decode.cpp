// `fp4pa bench decode`: one step of decoding (or a few query tokens) over long caches, against the memory's bandwidth;
// `fp4pa bench prefill`: as many queries as keys, in TFLOPS; and `fp4pa bench graph`: replays of a recorded step, one after
// the other, per call.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>

#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/decode_case.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/options.hpp"

namespace fp4pa::tool {
namespace {

struct DecodeAxes {
  std::string formats = "bf16,mxfp4,nvfp4", page_sizes = "16,64", batches = "4", head_dims = "128", kv_lens = "32768",
              q_lens = "1", rotations = "0", windows = "0", v_scale_axes = "head_dim", page_order = "hnd", dtype = "bf16";
  int heads = 32, kv_heads = 8, sliding_window = 0, splits = 0, layers = 1;
  bool ragged = false, in_order = false, all_keys = false, same_lengths = false;
};

constexpr int kMostSequences = 1 << 20, kMostTokens = 1 << 30;  // of the library's plan
constexpr int kMostLayers = 1024;

/// Every value of `values` in every spec so far.
template <class Value, class Set>
std::vector<DecodeSpec> crossed(const std::vector<DecodeSpec>& specs, const std::vector<Value>& values, Set&& set) {
  std::vector<DecodeSpec> out;
  for (const DecodeSpec& spec : specs) {
    for (const Value& value : values) {
      out.push_back(spec);
      set(out.back(), value);
    }
  }
  return out;
}

void set_formats(DecodeSpec& spec, const std::string& text) {
  const auto plus = text.find('+');
  spec.format = text;
  spec.k = parse_format(text.substr(0, plus));
  spec.v = plus == std::string::npos ? spec.k : parse_format(text.substr(plus + 1));
}

void set_axis(DecodeSpec& spec, const std::string& text) { spec.v_scale_axis = parse_v_scale_axis(text, spec.v); }

nlohmann::ordered_json config_of(const DecodeSpec& s) {
  nlohmann::ordered_json config{{"format", s.format},
                                {"page_size", s.page_size},
                                {"batch", s.batch},
                                {"heads", s.heads},
                                {"kv_heads", s.kv_heads},
                                {"head_dim", s.head_dim},
                                {"kv_len", s.kv_len},
                                {"q_len", s.q_len},
                                {"rotation", s.rotation},
                                {"window", s.window},
                                {"sliding_window", s.sliding_window},
                                {"v_scale_axis", name_of(s.v_scale_axis)},
                                {"page_order", name_of(s.page_order)},
                                {"shuffled", !s.in_order},
                                {"split_tokens", s.splits},
                                {"dtype", name_of(s.dtype)}};
  if (s.ragged) config["ragged"] = true;  // the rule goes without saying
  if (!s.causal) config["causal"] = false;
  if (s.same_lengths) config["same_lengths"] = true;
  if (s.layers > 1) config["layers"] = s.layers;
  return config;
}

/// All combinations.
std::vector<DecodeSpec> specs_of(const DecodeAxes& o, bool whole_prompt) {
  if (o.kv_heads < 1 || o.heads % o.kv_heads != 0) {
    throw Failure(Exit::kUsage, fmt::format("--heads {} is not a multiple of --kv-heads {}", o.heads, o.kv_heads));
  }
  DecodeSpec base;
  base.heads = o.heads;
  base.kv_heads = o.kv_heads;
  base.page_order = parse_name<PageLayout>(o.page_order, kRandomPageLayouts, "page order");
  base.dtype = parse_name<DType>(o.dtype, kAllDTypes, "dtype");
  base.sliding_window = o.sliding_window;
  base.splits = o.splits;
  base.ragged = o.ragged;
  base.in_order = o.in_order;
  base.causal = !o.all_keys;
  base.same_lengths = o.same_lengths;
  base.layers = o.layers;
  std::vector<DecodeSpec> specs{base};
  const auto integers = [&](const std::string& text, const char* option, int least, int DecodeSpec::*member,
                            int most = std::numeric_limits<int>::max()) {
    specs = crossed(specs, split_integers(text, option, least, most), [&](DecodeSpec& s, int value) { s.*member = value; });
  };
  integers(o.kv_lens, "--tokens", 1, &DecodeSpec::kv_len, kMostTokens);
  integers(o.batches, "--batch", 1, &DecodeSpec::batch, kMostSequences);
  integers(o.head_dims, "--head-dim", 1, &DecodeSpec::head_dim);
  integers(o.page_sizes, "--page-size", 1, &DecodeSpec::page_size);
  integers(o.q_lens, "--q-len", 1, &DecodeSpec::q_len);
  integers(o.rotations, "--rotation", 0, &DecodeSpec::rotation);
  integers(o.windows, "--window", 0, &DecodeSpec::window);
  specs = crossed(specs, split_list(o.formats, "--format"), set_formats);
  specs = crossed(specs, split_list(o.v_scale_axes, "--v-scale-axis"), set_axis);
  for (DecodeSpec& s : specs) {
    if (whole_prompt) s.q_len = s.kv_len;
    (void)parse_rotation(s.rotation);
    if (s.q_len > s.kv_len) {
      throw Failure(Exit::kUsage,
                    fmt::format("--q-len {} exceeds --tokens {}: the queries are the last tokens", s.q_len, s.kv_len));
    }
    check_rows(s.batch, s.q_len);
  }
  return specs;
}

std::string label_of(const char* name, const DecodeSpec& s) {
  std::string label = fmt::format("{} {} b{} {}/{} {} tokens{} D{} page {}", name, s.format, s.batch, s.heads, s.kv_heads,
                                  s.kv_len, s.ragged ? " at most" : "", s.head_dim, s.page_size);
  const DecodeSpec plain;
  if (s.q_len != plain.q_len) label += fmt::format(" q_len {}", s.q_len);
  if (s.window != plain.window) label += fmt::format(" window {}", s.window);
  if (s.rotation != plain.rotation) label += fmt::format(" rotation {}", s.rotation);
  if (s.v_scale_axis != plain.v_scale_axis) label += " V along tokens";
  if (s.sliding_window != plain.sliding_window) label += fmt::format(" sliding window {}", s.sliding_window);
  if (s.splits != plain.splits) label += fmt::format(" splits {}", s.splits);
  if (s.page_order != plain.page_order) label += fmt::format(" {}", name_of(s.page_order));
  if (s.dtype != plain.dtype) label += fmt::format(" {}", name_of(s.dtype));
  if (s.in_order) label += " in order";
  if (!s.causal) label += " all keys";
  if (s.same_lengths) label += " same lengths";
  if (s.layers > 1) label += fmt::format(" {} layers", s.layers);
  return label;
}

BenchResult result_of(const char* name, Device& device, const DecodeSpec& spec, const DecodeCase& decode, int threads,
                      const Spread& time) {
  BenchResult r;
  r.bench = name;
  r.time = time;
  r.bytes = decode.bytes();
  r.config = config_of(spec);
  if (device.has_threads()) r.config["threads"] = threads;
  r.config["backend"] = decode.plan().backend();
  r.figures["tflops"] = 1e-12 * decode.operations() / time.median;
  r.figures["Mtoken_heads_per_s"] = 1e-6 * decode.tokens() * spec.kv_heads / time.median;
  return r;
}

/// decode, and prefill, which has as many queries as keys.
class BenchDecode : public Benchmark {
 public:
  explicit BenchDecode(bool whole_prompt) : whole_prompt_(whole_prompt) {
    if (!whole_prompt) return;
    axes_.batches = "1";
    axes_.kv_lens = "8192";
    axes_.page_sizes = "64";
  }

  void add_options(Command c) override {
    c.add_option("--batch", axes_.batches, "Sequences, a list").capture_default_str();
    c.add_option("--heads", axes_.heads, "Query heads").check(integer_from(1)).capture_default_str();
    c.add_option("--kv-heads", axes_.kv_heads, "KV heads").check(integer_from(1)).capture_default_str();
    c.add_option("--head-dim", axes_.head_dims, "Head size, a list").capture_default_str();
    c.add_option("--tokens,--kv-len", axes_.kv_lens, "Tokens of each sequence, a list: 1K,128K").capture_default_str();
    c.add_flag("--ragged", axes_.ragged, "Lengths log-uniform from 1 to --tokens");
    c.add_option("--page-size", axes_.page_sizes, "Tokens of a page, a list").capture_default_str();
    c.add_option("--page-order", axes_.page_order, "hnd or nhd").capture_default_str();
    c.add_option("--format", axes_.formats, "KV formats, a list of " + format_names() + "; K+V where they differ: fp8_e4m3+nvfp4")
        .capture_default_str();
    c.add_option("--v-scale-axis", axes_.v_scale_axes, "head_dim, tokens, a list").capture_default_str();
    c.add_option("--dtype", axes_.dtype, "Of Q and O: " + dtype_names()).capture_default_str();
    c.add_option("--rotation", axes_.rotations, "Hadamard block: 0, 16, 32, 64, 128, a list").capture_default_str();
    c.add_option("--window", axes_.windows, "Newest tokens kept in bf16, a list").capture_default_str();
    c.add_option("--sliding-window", axes_.sliding_window, "A query sees at most this many keys");
    c.add_option("--splits", axes_.splits, "Force KV splits of this many tokens");
    c.add_flag("--in-order", axes_.in_order, "Pages in order instead of scattered");
    c.add_flag("--same-lengths", axes_.same_lengths, "Calls behind the first use its schedule, as the layers of a model may");
    c.add_option("--layers", axes_.layers,
                 "Calls of a run, each on a cache of its own, recorded where the device records; times are a call's")
        .check(integer_from(1, kMostLayers))
        .capture_default_str();
    c.add_flag("--shuffle", "Scatter the pages (the default)");
    if (whole_prompt_) {
      c.add_flag("--all-keys", axes_.all_keys, "Every query sees every key, instead of those up to its own position");
    } else {
      c.add_option("--q-len", axes_.q_lens, "Query tokens of each sequence, a list").capture_default_str();
    }
  }

  std::vector<BenchStep> steps(const std::vector<int>& threads) override {
    std::vector<BenchStep> steps;
    for (const DecodeSpec& spec : specs_of(axes_, whole_prompt_)) {
      steps.push_back({label_of(name(), spec), [this, spec, threads](BenchReport& report) {
                         DecodeCase decode(report.device(), spec, report.options().backend_name());
                         for (const int t : threads) measure_one(report, spec, decode, t);
                       }});
    }
    return steps;
  }

 protected:
  [[nodiscard]] virtual const char* name() const { return whole_prompt_ ? "prefill" : "decode"; }
  virtual void measure_one(BenchReport& report, const DecodeSpec& spec, DecodeCase& decode, int threads) {
    const auto work = decode.prepare(report.device(), threads);
    std::function<void()> once;
    if (spec.layers > 1) once = report.device().recorded(work);
    if (!once) once = [&] { work(nullptr); };
    const Spread time = per_call(measure(report.device(), report.options(), once), spec.layers);
    report.add(result_of(name(), report.device(), spec, decode, threads, time));
  }
  DecodeAxes axes_;

 private:
  bool whole_prompt_;
};

/// Replays follow each other at once, so that a call's time is what the device needs from one to the next. They find their
/// keys in the caches, as far as these hold them.
class BenchGraph final : public BenchDecode {
 public:
  BenchGraph() : BenchDecode(false) {
    axes_.batches = "1";
    axes_.kv_lens = "1024";
    axes_.page_sizes = "64";
  }
  void add_options(Command c) override {
    BenchDecode::add_options(c);
    c.add_option("--calls", calls_, "Replays that are timed together").check(integer_from(1)).capture_default_str();
  }

 private:
  [[nodiscard]] const char* name() const override { return "graph"; }
  void measure_one(BenchReport& report, const DecodeSpec& spec, DecodeCase& decode, int threads) override {
    const auto replay = report.device().recorded(decode.prepare(report.device(), threads));
    if (!replay)
      return report.add(BenchSkip{label_of("graph", spec), "this device's back end records no graphs; cuda does"});
    const auto replays = [&] {
      for (int i = 0; i < calls_; ++i) replay();
    };
    const Spread time = per_call(measure(report.device(), report.options(), replays), static_cast<double>(calls_) * spec.layers);
    BenchResult r = result_of("graph", report.device(), spec, decode, threads, time);
    r.config["calls"] = calls_;
    r.figures["us_per_call"] = 1e6 * time.median;
    report.add(std::move(r));
  }
  int calls_ = 100;
};

}  // namespace

std::unique_ptr<Benchmark> make_bench_decode() { return std::make_unique<BenchDecode>(false); }
std::unique_ptr<Benchmark> make_bench_prefill() { return std::make_unique<BenchDecode>(true); }
std::unique_ptr<Benchmark> make_bench_graph() { return std::make_unique<BenchGraph>(); }

}  // namespace fp4pa::tool
