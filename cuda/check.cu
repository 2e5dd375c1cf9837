// Validation on the device, for those who ask for it: the same questions that the CPU back end asks of every run.
#include "cuda/kernels.hpp"

#include "core/attention/params.hpp"
#include "fp4pa/status.hpp"

namespace fp4pa::cuda {
namespace {

constexpr int kThreads = 256;

__device__ void report(Finding* best, Status what, std::int32_t seq, std::int64_t value) {
  if (best->what == 0) *best = {static_cast<std::int32_t>(what), seq, value};
}

__device__ void check_segment(const core::AttentionParams& p, const CheckLimits& limits, int s, std::int32_t seq,
                              std::int32_t first_key, std::int32_t last_key, Finding* best) {
  if (last_key <= first_key) return;
  const core::Segment& segment = p.segments[s];
  const std::int32_t pages = (last_key - 1) / segment.page_size + 1;
  if (segment.table.ring_pages == 0 && pages > segment.table.capacity(seq)) {
    return report(best, Status::kLengthExceedsTable, seq, last_key);
  }
  for (std::int32_t page = first_key / segment.page_size; page < pages; ++page) {
    const std::int32_t id = segment.table.page(seq, page);
    if (id < 0 || id >= limits.num_pages[s]) return report(best, Status::kBlockIdOutOfRange, seq, id);
  }
}

__device__ void check_sequence(const core::AttentionParams& p, const CheckLimits& limits, std::int32_t seq, Finding* best) {
  const std::int64_t q_len = std::int64_t{p.qo_indptr[seq + 1]} - p.qo_indptr[seq];
  const std::int32_t kv_len = p.seq_lens[seq];
  if (q_len < 0) return report(best, Status::kInvalidIndptr, seq, p.qo_indptr[seq + 1]);
  if (q_len > limits.max_q_len) return report(best, Status::kPlanMismatch, seq, q_len);
  if (kv_len < 0 || kv_len > limits.max_kv_len) return report(best, Status::kPlanMismatch, seq, kv_len);
  if (q_len == 0) return;
  const std::int64_t first = std::int64_t{kv_len} - q_len + 1 - p.sliding_window;
  const std::int32_t first_key = p.sliding_window > 0 && first > 0 ? static_cast<std::int32_t>(first) : 0;
  const std::int32_t border = core::first_segment_tokens(p, kv_len);
  check_segment(p, limits, 0, seq, first_key, border, best);
  if (p.num_segments == 2) check_segment(p, limits, 1, seq, first_key > border ? first_key : border, kv_len, best);
}

__global__ void __launch_bounds__(kThreads)
    check(const __grid_constant__ core::AttentionParams p, const __grid_constant__ CheckLimits limits, Finding* finding) {
  __shared__ Finding best[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  best[thread] = {0, 0, 0};
  if (thread == 0) {
    if (p.qo_indptr[0] != 0) report(&best[0], Status::kInvalidIndptr, 0, p.qo_indptr[0]);
    if (p.qo_indptr[p.batch] > limits.max_q_tokens) report(&best[0], Status::kPlanMismatch, p.batch, p.qo_indptr[p.batch]);
  }
  for (std::int32_t seq = thread; seq < p.batch; seq += kThreads) check_sequence(p, limits, seq, &best[thread]);
  __syncthreads();
  if (thread != 0) return;
  Finding first{0, 0, 0};
  for (const Finding& f : best) {
    if (f.what != 0 && (first.what == 0 || f.sequence < first.sequence)) first = f;
  }
  *finding = first;
}

}  // namespace

cudaError_t launch_check(const core::AttentionParams& params, const CheckLimits& limits, Finding* finding,
                         cudaStream_t stream) noexcept {
  check<<<1, kThreads, 0, stream>>>(params, limits, finding);
  return cudaGetLastError();
}

}  // namespace fp4pa::cuda
