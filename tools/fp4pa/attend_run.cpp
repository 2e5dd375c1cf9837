// See attend_run.hpp. Every sequence of the batch is compared with the reference of the first: they hold the same
// tokens on different pages.
#include "tools/fp4pa/attend_run.hpp"

#include <algorithm>

#include "fp4pa/attention.hpp"
#include "reference/call.hpp"
#include "tools/fp4pa/attend_cache.hpp"
#include "tools/fp4pa/device_cpu.hpp"
#include "tools/fp4pa/exit_codes.hpp"

namespace fp4pa::tool {
namespace {

std::int32_t queries_of(const AttendSettings& settings, const AttendInput& input) {
  return settings.q_len != 0 ? settings.q_len : static_cast<std::int32_t>(input.q.tokens);
}

/// The configuration without a cache.
AttentionConfig base_config(const AttendSettings& settings, const AttendInput& input) {
  AttentionConfig config;
  config.cache.num_kv_heads = static_cast<std::int32_t>(input.k.heads);
  config.cache.head_dim = static_cast<std::int32_t>(input.k.head_dim);
  config.num_q_heads = static_cast<std::int32_t>(input.q.heads);
  config.q_dtype = input.q.dtype;
  config.o_dtype = settings.o_dtype;
  config.sm_scale = settings.sm_scale;
  config.causal = settings.causal;
  config.sliding_window = settings.sliding_window;
  config.softcap = settings.softcap;
  config.max_batch = settings.batch;
  config.max_q_len = queries_of(settings, input);
  config.max_q_tokens = settings.batch * config.max_q_len;
  config.max_kv_len = static_cast<std::int32_t>(input.k.tokens);
  config.kv_split_tokens = settings.split_tokens;
  config.backend = settings.backend.empty() ? nullptr : settings.backend.c_str();
  config.num_threads = settings.threads;
  return config;
}

/// The reference of one sequence whose K and V are given per KV head.
Expected reference_of(const AttentionConfig& config, const AttentionArgs& args,
                      const std::vector<reference::Keys>& keys) {
  const std::int32_t queries = args.qo_indptr[1];
  const auto head_dim = static_cast<std::size_t>(config.cache.head_dim);
  const auto rows = static_cast<std::int64_t>(queries) * config.num_q_heads;
  Expected expected{std::vector<double>(static_cast<std::size_t>(rows) * head_dim),
                    std::vector<double>(static_cast<std::size_t>(rows))};
#pragma omp parallel for schedule(dynamic, 4)
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto query = static_cast<std::int32_t>(row / config.num_q_heads);
    const auto head = static_cast<std::int32_t>(row % config.num_q_heads);
    const std::int32_t group = config.num_q_heads / config.cache.num_kv_heads;
    const auto index = static_cast<std::size_t>(row);
    expected.lse[index] =
        reference::attend_one(config, args, 0, query, head, keys[static_cast<std::size_t>(head / group)],
                              {expected.o.data() + index * head_dim, head_dim});
  }
  return expected;
}

/// Adds one sequence's results to a difference; returns the largest LSE error.
double compare(const float* o, const float* lse, const Expected& expected, reference::Difference& difference) {
  double worst = 0.0;
  for (std::size_t i = 0; i < expected.o.size(); ++i) difference.add(o[i], expected.o[i]);
  for (std::size_t i = 0; i < expected.lse.size(); ++i) {
    worst = std::max(worst, reference::lse_difference(lse[i], expected.lse[i]));
  }
  return worst;
}

std::vector<float> widened(const std::vector<std::byte>& data, DType dtype, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(reference::decode_plain(data.data(), dtype, static_cast<std::int64_t>(i)));
  }
  return values;
}

/// The same last queries for every sequence of the batch, and what that makes of outputs.
struct Batch {
  Batch(const AttentionConfig& config, const AttendInput& input) : indptr{0} {
    const std::vector<std::byte> of_one = input.q.token_major(input.q.tokens - config.max_q_len, config.max_q_len);
    for (std::int32_t b = 0; b < config.max_batch; ++b) {
      q.insert(q.end(), of_one.begin(), of_one.end());
      indptr.push_back(indptr.back() + config.max_q_len);
    }
    lens.assign(static_cast<std::size_t>(config.max_batch), config.max_kv_len);
    rows = lens.size() * static_cast<std::size_t>(config.max_q_len) * static_cast<std::size_t>(config.num_q_heads);
    elements = rows * static_cast<std::size_t>(config.cache.head_dim);
  }
  std::vector<std::byte> q;
  std::vector<std::int32_t> indptr, lens;
  std::size_t rows, elements;  // of O
};

/// What a call needs in device memory besides the cache.
struct CallBuffers {
  CallBuffers(Device& device, const Batch& batch, DType o_dtype, std::size_t workspace_bytes)
      : q(uploaded(device, batch.q)),
        o(device.allocate(batch.elements * static_cast<std::size_t>(size_of(o_dtype)))),
        lse(device.allocate(batch.rows * sizeof(float))),
        indptr(uploaded(device, batch.indptr)),
        lens(uploaded(device, batch.lens)),
        workspace(device.allocate(workspace_bytes)) {}
  void describe(AttentionArgs& args, std::size_t workspace_bytes) const {
    args.q = q.data();
    args.o = o.data();
    args.lse = lse.as<float>();
    args.qo_indptr = indptr.as<std::int32_t>();
    args.seq_lens = lens.as<std::int32_t>();
    args.workspace = workspace.data();
    args.workspace_bytes = workspace_bytes;
  }
  Buffer q, o, lse, indptr, lens, workspace;
};

/// The reference over what a cache holds.
Expected expected_of_cache(Device& device, const FilledCache& cache, AttentionConfig config, const Batch& batch) {
  const auto host = make_cpu_device();
  const FilledCache::HostCopy copy = cache.host_copy(device, *host);
  AttentionArgs args;
  cache.describe_host(copy, config, args);
  args.q = batch.q.data();
  args.qo_indptr = batch.indptr.data();
  args.seq_lens = batch.lens.data();
  std::vector<reference::Keys> keys;
  for (std::int32_t h = 0; h < config.cache.num_kv_heads; ++h) keys.push_back(reference::dequantize(config, args, 0, h));
  return reference_of(config, args, keys);
}

}  // namespace

Expected expected_of_input(const AttendSettings& settings, const AttendInput& input) {
  const AttentionConfig config = base_config(settings, input);
  const std::int32_t queries = queries_of(settings, input);
  const std::vector<std::byte> q = input.q.token_major(input.q.tokens - queries, queries);
  const std::int32_t indptr[2] = {0, queries};
  const std::int32_t length = config.max_kv_len;
  AttentionArgs args;
  args.q = q.data();
  args.qo_indptr = indptr;
  args.seq_lens = &length;

  std::vector<reference::Keys> keys;
  for (std::int64_t h = 0; h < input.k.heads; ++h) {
    reference::Keys head{static_cast<std::size_t>(input.k.head_dim), {}, {}};
    for (std::int64_t t = 0; t < input.k.tokens; ++t) {
      for (std::int64_t d = 0; d < input.k.head_dim; ++d) {
        head.k.push_back(input.k.at(h, t, d));
        head.v.push_back(input.v.at(h, t, d));
      }
    }
    keys.push_back(std::move(head));
  }
  return reference_of(config, args, keys);
}

AttendResult attend_variant(Device& device, const AttendSettings& settings, const AttendInput& input,
                            const Variant& variant, const Expected& unquantised) {
  const FilledCache cache(device, settings, input, variant);
  AttentionConfig config = base_config(settings, input);
  cache.describe(config);
  AttentionPlan plan;
  check(fp4pa::plan(config, &plan), "plan");

  const Batch batch(config, input);
  const CallBuffers on_device(device, batch, settings.o_dtype, plan.workspace_bytes());
  AttentionArgs args;
  cache.describe(args);
  args.batch = settings.batch;
  on_device.describe(args, plan.workspace_bytes());
  std::vector<double> times;
  for (std::int32_t i = 0; i < settings.repeats; ++i) {
    times.push_back(device.seconds([&] { check(run(plan, args), "run"); }));
  }
  std::sort(times.begin(), times.end());

  AttendResult result;
  result.backend = plan.backend();
  result.workers = plan.num_workers();
  result.append_seconds = cache.append_seconds();
  result.seconds = times[times.size() / 2];
  result.query_tokens_per_second = config.max_q_tokens / result.seconds;
  result.bytes_per_token = cache.bytes_per_token();
  result.bf16_bytes_per_token = 4.0 * config.cache.num_kv_heads * config.cache.head_dim;

  result.o = widened(downloaded<std::byte>(device, on_device.o), settings.o_dtype, batch.elements);
  result.lse = downloaded<float>(device, on_device.lse);

  const Expected quantised = expected_of_cache(device, cache, config, batch);
  const std::size_t o_each = batch.elements / batch.lens.size(), rows_each = batch.rows / batch.lens.size();
  for (std::size_t b = 0; b < batch.lens.size(); ++b) {
    const float* o = result.o.data() + b * o_each;
    const float* lse = result.lse.data() + b * rows_each;
    result.lse_error_cache = std::max(result.lse_error_cache, compare(o, lse, quantised, result.against_cache));
    result.lse_error_input = std::max(result.lse_error_input, compare(o, lse, unquantised, result.against_input));
  }
  result.o.resize(o_each);
  result.lse.resize(rows_each);
  return result;
}

}  // namespace fp4pa::tool
