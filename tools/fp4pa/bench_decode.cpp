// `fp4pa bench decode`: one step of decoding (or a few query tokens) over long caches, against the memory's bandwidth; and
// `fp4pa bench prefill`: as many queries as keys, causal, in TFLOPS.
//
// Codes and scales are random bytes, not appended tokens: decoding takes the same time whatever they say, and filling
// gigabytes through append does not. Pages are scattered over the pool unless asked otherwise.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "fp4pa/attention.hpp"
#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/paged_cache.hpp"

namespace fp4pa::tool {
namespace {

struct DecodeOptions {
  BenchOptions common;
  std::string formats = "bf16,mxfp4,nvfp4", page_sizes = "16,64", page_order = "hnd", v_scale_axis = "head_dim",
              dtype = "bf16";
  int batch = 4, heads = 32, kv_heads = 8, head_dim = 128, kv_len = 32768, q_len = 1, rotation = 0, window = 0,
      splits = 0, sliding_window = 0;
  bool in_order = false;
};

struct Formats {
  KvFormat k, v;
  std::string label;
};

/// "mxfp4", or "fp8_e4m3+nvfp4" for a K and a V that differ.
Formats parse_formats(const std::string& text) {
  const auto plus = text.find('+');
  if (plus == std::string::npos) return {parse_format(text), parse_format(text), text};
  return {parse_format(text.substr(0, plus)), parse_format(text.substr(plus + 1)), text};
}

constexpr std::int32_t kGroupTokens = 32;
constexpr std::int32_t kRecentPageTokens = 16;

/// Device memory of one (format, page size), and the call that reads it.
class DecodeCase {
 public:
  DecodeCase(Device& device, const DecodeOptions& o, const Formats& formats, int page_size);
  /// Plans for `threads` and returns the work to be timed.
  [[nodiscard]] std::function<void()> prepare(Device& device, int threads);
  [[nodiscard]] double bytes() const;
  /// Of both products over the (query, key) pairs that are visible; a multiplication and an addition are two.
  [[nodiscard]] double operations() const;
  [[nodiscard]] const AttentionPlan& plan() const { return plan_; }

 private:
  void add_recent_tier(Device& device, const DecodeOptions& o, const KvCacheDesc& desc);
  [[nodiscard]] std::int32_t visible_tokens() const;
  PagedCache cache_, recent_;
  AttentionConfig config_;
  AttentionArgs args_;
  AttentionPlan plan_;
  std::string backend_;
  Buffer table_, recent_table_, q_, o_, lse_, indptr_, lens_, workspace_;
};

template <class T>
Buffer uploaded(Device& device, const std::vector<T>& values) {
  Buffer buffer = device.allocate(values.size() * sizeof(T));
  device.upload(buffer.data(), values.data(), buffer.bytes());
  return buffer;
}

DecodeCase::DecodeCase(Device& device, const DecodeOptions& o, const Formats& formats, int page_size)
    : backend_(o.common.backend) {
  KvCacheDesc desc;
  desc.k.format = formats.k;
  desc.v.format = formats.v;
  const bool v_has_axis = formats.v == KvFormat::kMxfp4 || formats.v == KvFormat::kNvfp4;
  if (v_has_axis) desc.v.scale_axis = parse_name<VScaleAxis>(o.v_scale_axis, kAllScaleAxes, "V scale axis");
  desc.num_kv_heads = o.kv_heads;
  desc.head_dim = o.head_dim;
  desc.page_size = page_size;
  desc.rotation = parse_rotation(o.rotation);
  const std::int32_t pages = (o.kv_len + page_size - 1) / page_size;
  desc.num_pages = std::int64_t{o.batch} * pages;
  cache_ = PagedCache(device, desc, parse_name<PageLayout>(o.page_order, kAllPageLayouts, "page order"));
  cache_.fill_random(device, 1);
  table_ = uploaded(device, page_order(desc.num_pages, o.in_order ? 0 : 7));

  config_.cache = cache_.desc();
  config_.num_q_heads = o.heads;
  config_.q_dtype = config_.o_dtype = parse_name<DType>(o.dtype, kAllDTypes, "dtype");
  config_.sliding_window = o.sliding_window;
  config_.max_batch = o.batch;
  config_.max_q_len = o.q_len;
  config_.max_q_tokens = o.batch * o.q_len;
  config_.max_kv_len = o.kv_len;
  config_.kv_split_tokens = o.splits;
  config_.backend = backend_.empty() ? nullptr : backend_.c_str();
  if (o.window != 0) add_recent_tier(device, o, desc);

  std::vector<std::int32_t> indptr{0};
  for (int b = 0; b < o.batch; ++b) indptr.push_back(indptr.back() + o.q_len);
  indptr_ = uploaded(device, indptr);
  lens_ = uploaded(device, std::vector<std::int32_t>(static_cast<std::size_t>(o.batch), o.kv_len));
  const auto rows = static_cast<std::size_t>(config_.max_q_tokens) * static_cast<std::size_t>(o.heads);
  const std::size_t row_bytes = static_cast<std::size_t>(o.head_dim * size_of(config_.q_dtype));
  q_ = device.allocate(rows * row_bytes);
  device.fill(q_,
              config_.q_dtype == DType::kF32   ? Fill::kF32
              : config_.q_dtype == DType::kF16 ? Fill::kF16
                                               : Fill::kBf16,
              9);
  o_ = device.allocate(rows * row_bytes);
  lse_ = device.allocate(rows * sizeof(float));
  args_.q = q_.data();
  args_.o = o_.data();
  args_.lse = lse_.as<float>();
  args_.batch = o.batch;
  args_.qo_indptr = indptr_.as<std::int32_t>();
  args_.seq_lens = lens_.as<std::int32_t>();
  args_.block_table = table_.as<std::int32_t>();
  args_.table_stride = pages;
}

void DecodeCase::add_recent_tier(Device& device, const DecodeOptions& o, const KvCacheDesc& desc) {
  KvCacheDesc recent = desc;
  recent.k = KvTensorDesc{};
  recent.v = KvTensorDesc{};
  recent.k.format = recent.v.format = KvFormat::kBf16;
  recent.page_size = kRecentPageTokens;
  config_.two_tier = true;
  config_.window_tokens = o.window;
  config_.group_tokens = kGroupTokens;
  config_.ring_pages = min_ring_pages(o.window, kGroupTokens, kRecentPageTokens);
  recent.num_pages = std::int64_t{o.batch} * config_.ring_pages;
  recent_ = PagedCache(device, recent, PageLayout::kHnd);
  recent_.fill_random(device, 2);
  config_.recent = recent_.desc();
  recent_table_ = uploaded(device, page_order(recent.num_pages, 7));
  args_.recent_table = recent_table_.as<std::int32_t>();
}

std::function<void()> DecodeCase::prepare(Device& device, int threads) {
  config_.num_threads = threads;
  check(fp4pa::plan(config_, &plan_), "plan");
  workspace_ = device.allocate(plan_.workspace_bytes());
  args_.workspace = workspace_.data();
  args_.workspace_bytes = workspace_.bytes();
  return [this] { check(run(plan_, args_), "run"); };
}

std::int32_t DecodeCase::visible_tokens() const {
  const std::int32_t reach =
      config_.sliding_window == 0 ? config_.max_kv_len : config_.sliding_window + config_.max_q_len - 1;
  return std::min(config_.max_kv_len, reach);
}

/// Codes and scales of the tokens that some query sees, each once.
double DecodeCase::bytes() const {
  double per_sequence = visible_tokens() * bytes_per_token(cache_.desc());
  if (config_.two_tier) {
    const std::int32_t recent =
        config_.max_kv_len - quantised_tokens(config_.max_kv_len, config_.window_tokens, config_.group_tokens);
    const std::int32_t seen = std::min(recent, visible_tokens());
    per_sequence += seen * (bytes_per_token(recent_.desc()) - bytes_per_token(cache_.desc()));
  }
  return per_sequence * config_.max_batch;
}

double DecodeCase::operations() const {
  // Query i of q_len stands at key kv_len - q_len + i and sees the keys up to it, within the sliding window.
  double pairs = 0.0;
  for (std::int32_t i = 0; i < config_.max_q_len; ++i) {
    const std::int32_t keys = std::max(0, config_.max_kv_len - config_.max_q_len + i + 1);
    pairs += config_.sliding_window == 0 ? keys : std::min(keys, config_.sliding_window);
  }
  return 4.0 * pairs * config_.cache.head_dim * config_.num_q_heads * config_.max_batch;
}

BenchResult measure_once(const char* name, Device& device, const DecodeOptions& o, DecodeCase& decode,
                         const Formats& formats, int page_size, int threads) {
  const auto work = decode.prepare(device, threads);
  BenchResult r;
  r.bench = name;
  r.time = measure(device, o.common, work);
  r.bytes = decode.bytes();
  r.config = {{"format", formats.label},
              {"page_size", page_size},
              {"threads", threads},
              {"batch", o.batch},
              {"heads", o.heads},
              {"kv_heads", o.kv_heads},
              {"head_dim", o.head_dim},
              {"kv_len", o.kv_len},
              {"q_len", o.q_len},
              {"rotation", o.rotation},
              {"window", o.window},
              {"sliding_window", o.sliding_window},
              {"v_scale_axis", o.v_scale_axis},
              {"page_order", o.page_order},
              {"shuffled", !o.in_order},
              {"split_tokens", o.splits},
              {"dtype", o.dtype},
              {"backend", decode.plan().backend()}};
  r.figures["tflops"] = 1e-12 * decode.operations() / r.time.median;
  r.figures["Mtoken_heads_per_s"] = 1e-6 * o.batch * static_cast<double>(o.kv_len) * o.kv_heads / r.time.median;
  r.figures["vs_bf16"] = nullptr;
  return r;
}

/// Speed relative to the bf16 row with the same page size and threads, where the run had one.
void relate_to_bf16(std::vector<BenchResult>& results) {
  for (BenchResult& r : results) {
    for (const BenchResult& base : results) {
      if (base.config.at("format") != "bf16" || base.config.at("page_size") != r.config.at("page_size") ||
          base.config.at("threads") != r.config.at("threads")) {
        continue;
      }
      r.figures["vs_bf16"] = base.time.median / r.time.median;
    }
  }
}

void bench(const char* name, const DecodeOptions& o) {
  if (o.heads % o.kv_heads != 0) {
    throw Failure(Exit::kUsage, fmt::format("--heads {} is not a multiple of --kv-heads {}", o.heads, o.kv_heads));
  }
  const std::vector<std::string> formats = split_list(o.formats, "--format");
  const std::vector<int> page_sizes = split_integers(o.page_sizes, "--page-size");
  const std::vector<int> threads = split_integers(o.common.threads, "--threads");
  const auto device = make_device(o.common.backend);
  BenchReport report(*device, o.common);
  {
    Progress progress(static_cast<int>(threads.size() + formats.size() * page_sizes.size() * threads.size()),
                      o.common.progress);
    for (const int t : threads) {
      progress.step(fmt::format("read bandwidth, {} threads", t));
      (void)report.bandwidth(t);
    }
    for (const int page_size : page_sizes) {
      for (const std::string& text : formats) {
        const Formats pair = parse_formats(text);
        DecodeCase decode_case(*device, o, pair, page_size);
        for (const int t : threads) {
          progress.step(fmt::format("{} {} page {} threads {}", name, text, page_size, t));
          report.add(measure_once(name, *device, o, decode_case, pair, page_size, t));
        }
      }
    }
  }
  relate_to_bf16(report.results());
  report.finish({"format", "page_size", "threads"}, {"tflops", "Mtoken_heads_per_s", "vs_bf16"});
}

void add_options(CLI::App* command, const std::shared_ptr<DecodeOptions>& o) {
  command->add_option("--batch", o->batch, "Sequences")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--heads", o->heads, "Query heads")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--kv-heads", o->kv_heads, "KV heads")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--head-dim", o->head_dim, "Head size")->capture_default_str();
  command->add_option("--kv-len", o->kv_len, "Tokens of each sequence")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--page-size", o->page_sizes, "Tokens of a page, a list")->capture_default_str();
  command->add_option("--page-order", o->page_order, "hnd or nhd")->capture_default_str();
  command->add_option("--format", o->formats, "KV formats, a list; K+V where they differ: fp8_e4m3+nvfp4")
      ->capture_default_str();
  command->add_option("--v-scale-axis", o->v_scale_axis, "head_dim or tokens")->capture_default_str();
  command->add_option("--dtype", o->dtype, "Of Q and O")->capture_default_str();
  command->add_option("--rotation", o->rotation, "Hadamard block: 0, 16, 32, 64, 128");
  command->add_option("--window", o->window, "Newest tokens kept in bf16");
  command->add_option("--sliding-window", o->sliding_window, "A query sees at most this many keys");
  command->add_option("--splits", o->splits, "Force KV splits of this many tokens");
  command->add_flag("--in-order", o->in_order, "Pages in order instead of scattered");
  command->add_flag(
      "--shuffle", [](std::int64_t) {}, "Scatter the pages (the default)");
  add_bench_options(*command, o->common);
}

}  // namespace

void add_bench_decode(CLI::App& parent) {
  auto o = std::make_shared<DecodeOptions>();
  CLI::App* command = parent.add_subcommand("decode", "Decode attention over a long paged cache");
  command->add_option("--q-len", o->q_len, "Query tokens of each sequence")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_options(command, o);
  command->callback([o] { bench("decode", *o); });
}

void add_bench_prefill(CLI::App& parent) {
  auto o = std::make_shared<DecodeOptions>();
  o->batch = 1;
  o->kv_len = 8192;
  o->page_sizes = "64";
  CLI::App* command = parent.add_subcommand("prefill", "Causal attention of a whole prompt over its paged cache");
  add_options(command, o);
  command->callback([o] {
    o->q_len = o->kv_len;
    bench("prefill", *o);
  });
}

}  // namespace fp4pa::tool
