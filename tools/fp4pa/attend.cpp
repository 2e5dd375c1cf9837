// `fp4pa attend`: attention over a real cache, one row per way of encoding it, with its error, its size and its time.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/fp4pa/attend_run.hpp"
#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/options.hpp"
#include "tools/fp4pa/progress.hpp"
#include "tools/fp4pa/table.hpp"

namespace fp4pa::tool {
namespace {

struct AttendOptions {
  std::string file, q = "q", k = "k", v = "v", out;
  std::string format, k_format, v_format, v_scale_axis = "head_dim", scale_mode = "floor", page_order = "hnd";
  std::string o_dtype = "f32";
  int rotation = 0, window = 0;
  bool four_over_six = false, suite = false, shuffle = false, json = false, progress = false;
  bool causal = false, no_causal = false;
  std::uint64_t seed = 1;
  AttendSettings settings;
};

using Rows = std::vector<std::pair<Variant, AttendResult>>;

/// One variant for each format asked for; the suite when none was.
std::vector<Variant> chosen_variants(Command command, const AttendOptions& o, std::int32_t head_dim) {
  if (o.suite) {
    for (const char* option : {"--v-scale-axis", "--rotation", "--scale-mode", "--four-over-six"}) {
      if (!command.given(option)) continue;
      throw Failure(Exit::kUsage, std::string(option) + " is chosen by the suite's variants; allowed with: --format");
    }
    return suite(head_dim, o.settings.page_size, o.window != 0 ? o.window : 64);
  }
  Variant base;
  base.v_axis = parse_name<VScaleAxis>(o.v_scale_axis, kAllScaleAxes, "V scale axis");
  base.rotation = parse_rotation(o.rotation);
  base.scale_mode = parse_name<ScaleMode>(o.scale_mode, kAllScaleModes, "scale mode");
  base.nvfp4_scale = o.four_over_six ? Nvfp4Scale::kFourOverSix : Nvfp4Scale::kAmaxOver6;
  base.window = o.window;
  std::vector<Variant> variants;
  if (o.format == "all") {
    if (!o.k_format.empty() || !o.v_format.empty()) {
      throw Failure(Exit::kUsage, "--format all leaves nothing for --k-format and --v-format to choose");
    }
    for (const KvFormat format : kAllFormats) {
      variants.push_back(base);
      variants.back().k = variants.back().v = format;
    }
    return variants;
  }
  const std::string any = !o.format.empty() ? o.format : !o.k_format.empty() ? o.k_format : o.v_format;
  base.k = parse_format(o.k_format.empty() ? any : o.k_format);
  base.v = parse_format(o.v_format.empty() ? any : o.v_format);
  std::vector<std::string> formats{name_of(base.k)};
  if (base.v != base.k) formats.emplace_back(name_of(base.v));
  refuse_idle_scale_options(command, formats, format_names());
  return {base};
}

nlohmann::ordered_json to_json(const Variant& variant, const AttendResult& r) {
  const auto error = [](const reference::Difference& d, double lse) {
    return nlohmann::ordered_json{
        {"relative", d.relative()}, {"cosine", d.cosine()}, {"max_abs", d.max_abs()}, {"lse_max_abs", lse}};
  };
  return {{"label", label_of(variant)},
          {"k_format", name_of(variant.k)},
          {"v_format", name_of(variant.v)},
          {"v_scale_axis", name_of(variant.v_axis)},
          {"rotation", static_cast<int>(variant.rotation)},
          {"scale_mode", name_of(variant.scale_mode)},
          {"nvfp4_scale", name_of(variant.nvfp4_scale)},
          {"window_tokens", variant.window},
          {"backend", r.backend},
          {"workers", r.workers},
          {"error_against_cache", error(r.against_cache, r.lse_error_cache)},
          {"error_against_input", error(r.against_input, r.lse_error_input)},
          {"within_contract", within_contract(r)},
          {"bytes_per_token", r.bytes_per_token},
          {"ratio_to_bf16", r.bytes_per_token / r.bf16_bytes_per_token},
          {"append_ms", 1e3 * r.append_seconds},
          {"attend_ms", 1e3 * r.seconds},
          {"query_tokens_per_second", r.query_tokens_per_second}};
}

void print_as_json(const AttendOptions& o, const AttendInput& input, const Rows& rows) {
  nlohmann::ordered_json document;
  document["file"] = o.file;
  document["shape"] = {{"query_heads", input.q.heads},     {"kv_heads", input.k.heads},
                       {"head_dim", input.k.head_dim},     {"kv_tokens", input.k.tokens},
                       {"query_tokens", o.settings.q_len}, {"batch", o.settings.batch}};
  document["page_size"] = o.settings.page_size;
  document["page_order"] = name_of(o.settings.layout);
  document["contract"] = {{"relative", kMaxRelativeError}, {"lse_max_abs", kMaxLseError}};
  document["variants"] = nlohmann::ordered_json::array();
  for (const auto& [variant, result] : rows) document["variants"].push_back(to_json(variant, result));
  print_json(document);
}

void print_as_text(const AttendOptions& o, const AttendInput& input, const Rows& rows) {
  const AttendSettings& s = o.settings;
  fmt::print("{}: {} query heads over {} KV heads of {}, {} tokens, the last {} as queries, batch {}\n", o.file,
             input.q.heads, input.k.heads, input.k.head_dim, input.k.tokens, s.q_len, s.batch);
  fmt::print("pages of {} tokens, {}, {}; {}; back end {}, {} workers; times are medians of {} runs\n\n", s.page_size,
             name_of(s.layout), s.shuffle_seed != 0 ? "shuffled" : "in order", s.causal ? "causal" : "not causal",
             rows.front().second.backend, rows.front().second.workers, s.repeats);
  Table table({"KV cache", "B/token", "of bf16", "err(cache)", "LSE(cache)", "err(input)", "cosine", "max",
               "LSE(input)", "ms", "query tok/s"});
  for (const auto& [variant, r] : rows) {
    table.add({label_of(variant), fmt::format("{:.0f}", r.bytes_per_token),
               fmt::format("{:.1f} %", 100.0 * r.bytes_per_token / r.bf16_bytes_per_token),
               fmt::format("{:.1e}{}", r.against_cache.relative(), within_contract(r) ? "" : " !"),
               fmt::format("{:.1e}", r.lse_error_cache), fmt::format("{:.2e}", r.against_input.relative()),
               fmt::format("{:.6f}", r.against_input.cosine()), fmt::format("{:.1e}", r.against_input.max_abs()),
               fmt::format("{:.1e}", r.lse_error_input), fmt::format("{:.2f}", 1e3 * r.seconds),
               fmt::format("{:.0f}", r.query_tokens_per_second)});
  }
  table.print(stdout);
  if (o.suite && s.page_size % kSuiteTokenGroup != 0) {
    fmt::print("\nV along tokens is left out: it needs pages of a multiple of {} tokens.\n", kSuiteTokenGroup);
  }
  fmt::print(
      "\nerr: relative Frobenius error of O; LSE: largest absolute error. (cache): against double precision over the\n"
      "dequantised cache, contract {:g} and {:g}. (input), cosine, max: against the unquantised input.\n",
      kMaxRelativeError, kMaxLseError);
}

void write_results(const AttendOptions& o, const AttendInput& input, const Rows& rows) {
  std::vector<safetensors::TensorToWrite> tensors;
  std::map<std::string, std::string> metadata{{"source", as_utf8(o.file)},
                                              {"layout", "o [queries, heads, head_dim]; lse natural log"}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // A single variant gets the plain names; several are numbered, with their labels in the metadata.
    const std::string suffix = rows.size() == 1 ? "" : "." + std::to_string(i);
    const AttendResult& r = rows[i].second;
    tensors.push_back(
        {"o" + suffix, "F32", {o.settings.q_len, input.q.heads, input.k.head_dim}, std::as_bytes(std::span(r.o))});
    tensors.push_back({"lse" + suffix, "F32", {o.settings.q_len, input.q.heads}, std::as_bytes(std::span(r.lse))});
    metadata["variant" + suffix] = label_of(rows[i].first);
  }
  safetensors::write(o.out, tensors, metadata);
}

void attend(Command command, AttendOptions o) {
  o.suite = !command.given("--format") && !command.given("--k-format") && !command.given("--v-format");
  const AttendInput input(o.file, o.q, o.k, o.v);
  AttendSettings& s = o.settings;
  s.layout = parse_name<PageLayout>(o.page_order, kAllPageLayouts, "page order");
  s.o_dtype = parse_name<DType>(o.o_dtype, kAllDTypes, "output dtype");
  s.shuffle_seed = o.shuffle ? o.seed : 0;
  s.causal = o.causal || (!o.no_causal && input.causal);
  if (s.sm_scale == 0.0f) s.sm_scale = static_cast<float>(input.softmax_scale);
  if (s.q_len == 0) s.q_len = static_cast<std::int32_t>(input.q.tokens);
  if (s.q_len > input.q.tokens) {
    throw Failure(Exit::kUsage, fmt::format("--q-len {} exceeds the {} queries of the file", s.q_len, input.q.tokens));
  }
  const std::vector<Variant> variants = chosen_variants(command, o, static_cast<std::int32_t>(input.k.head_dim));
  const auto device = make_device(s.backend);

  Rows rows;
  {
    Progress progress(static_cast<int>(variants.size()) + 1, o.progress);
    progress.step("reference without quantisation");
    const Expected unquantised = expected_of_input(s, input);
    for (const Variant& variant : variants) {
      progress.step(label_of(variant));
      rows.emplace_back(variant, attend_variant(*device, s, input, variant, unquantised));
    }
  }
  if (!o.out.empty()) write_results(o, input, rows);
  o.json ? print_as_json(o, input, rows) : print_as_text(o, input, rows);

  std::vector<std::string> outside;
  for (const auto& [variant, result] : rows) {
    if (!within_contract(result)) outside.push_back(label_of(variant));
  }
  if (!outside.empty()) {
    throw Failure(Exit::kOutsideContract, fmt::format("outside the error contract: {}", fmt::join(outside, "; ")));
  }
}

void add_cache_options(Command command, AttendOptions& o) {
  const Option suite =
      command.add_flag("--suite", o.suite, "The cache variants worth comparing (the default without a format)");
  command.add_option("--format", o.format, "KV format: " + format_names() + "; or all")
      .excludes(suite);
  command.add_option("--k-format", o.k_format, "Format of K alone").excludes(suite);
  command.add_option("--v-format", o.v_format, "Format of V alone").excludes(suite);
  command.add_option("--v-scale-axis", o.v_scale_axis, "head_dim or tokens").capture_default_str();
  command.add_option("--rotation", o.rotation, "Hadamard block along head_dim for Q and K: 0, 16, 32, 64, 128").capture_default_str();
  command.add_option("--scale-mode", o.scale_mode, "floor, ceil, rceil or even (MXFP4, E8M0 per token)").capture_default_str();
  command.add_flag("--four-over-six", o.four_over_six, "NVFP4: amax/6 or amax/4, whichever errs less");
  command.add_option("--window", o.window, "Keep this many of the newest tokens in bf16 (16 to 256; 0 = none)");
  command.add_option("--page-size", o.settings.page_size, "Tokens of a page").check(integer_from(1, 1024)).capture_default_str();
  command.add_option("--page-order", o.page_order, "hnd, nhd or interleaved").capture_default_str();
  command.add_flag("--shuffle-pages", o.shuffle, "Scatter the pages over the pool");
  command.add_option("--seed", o.seed, "Seed of the shuffle").check(integer_from<std::uint64_t>(1)).capture_default_str();
}

void add_call_options(Command command, AttendOptions& o) {
  AttendSettings& s = o.settings;
  command.add_option("--batch", s.batch, "Repeat the sequence this often").check(integer_from(1, 4096)).capture_default_str();
  command.add_option("--q-len", s.q_len, "Use only the last queries of the file (default: all)").check(integer_from(1));
  command.add_option("--sm-scale", s.sm_scale, "Softmax scale; default: the file's, or 1/sqrt(head_dim)");
  const Option causal =
      command.add_flag("--causal", o.causal, "Causal, aligned to the end (default: what the file says, or on)");
  command.add_flag("--no-causal", o.no_causal, "Every query sees every key").excludes(causal);
  command.add_option("--sliding-window", s.sliding_window, "A query sees at most this many keys (default: all)");
  command.add_option("--softcap", s.softcap, "Logits become softcap * tanh(logit / softcap) (default: off)");
  command.add_option("--o-dtype", o.o_dtype, "Output: f32, f16 or bf16").capture_default_str();
  command.add_option("--backend", s.backend, "Back end by name; see `fp4pa info`");
  command.add_option("--threads", s.threads, "CPU threads; 0 = OpenMP's choice (the default)").check(thread_count());
  command.add_option("--splits", s.split_tokens, "Force KV splits of this many tokens (a multiple of 64; default: balance over processors)");
  command.add_option("--repeats", s.repeats, "Timed runs").check(integer_from(1)).capture_default_str();
}

}  // namespace

void add_attend(Command app) {
  auto options = std::make_shared<AttendOptions>();
  const Command command = app.add_subcommand(
      "attend", "Attention over q, k, v of a safetensors file: error, size and time of each KV cache format");
  command.add_option("file", options->file, "safetensors file with q [Hq, Tq, D], k and v [Hkv, T, D]").required();
  command.add_option("--q", options->q, "Name of q; its tokens are the last of k's").capture_default_str();
  command.add_option("--k", options->k, "Name of k").capture_default_str();
  command.add_option("--v", options->v, "Name of v").capture_default_str();
  add_cache_options(command, *options);
  add_call_options(command, *options);
  command.add_option("--out", options->out, "Write O and LSE to this safetensors file").check(output_file());
  command.add_flag("--json", options->json, "Print JSON");
  command.add_flag("--progress", options->progress, "Report progress on stderr even when it is no terminal");
  command.footer(kExitCodeHelp);
  command.callback([options, command] { attend(command, *options); });
}

}  // namespace fp4pa::tool
