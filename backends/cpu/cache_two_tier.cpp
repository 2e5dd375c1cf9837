// append_two_tier: new tokens into the recent ring, and what leaves the window into the 4-bit pages, once.
//
// Two passes with one barrier between them. The first quantises every group that has left the window, from the ring for
// tokens that were there and from the input - rounded through the ring's format - for those of the call itself. The second
// writes the last of the input's tokens that the ring has room for, over rows that the first pass has read.
// (core/paging/two_tier.hpp has the picture.) Since a row of the old tier depends only on the values the ring holds or would have held, and
// groups are always whole, the way the tokens were cut into calls leaves no trace.
#include <cstdint>

#include "api/error.hpp"
#include "api/validate_two_tier_tables.hpp"
#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/cache_tensor.hpp"
#include "backends/cpu/cache_threads.hpp"

namespace fp4pa::cpu {
namespace {

// K or V in both tiers.
struct TierPair {
  CacheTensor old_tier;
  CacheTensor recent;
  const KvInput& input;
};

struct Sequence {
  std::int32_t index;
  std::int32_t first_input;  // row of the input that holds its token length_before
  core::TwoTierStep step;
};

// Token t as the recent tier holds it, or would hold it.
void recent_value(const TierPair& tensor, const api::TwoTierTables& tables, const Sequence& seq, std::int32_t page_size,
                  std::int32_t t, std::int32_t head, float* x) {
  if (t < seq.step.length_before) {
    tensor.recent.read_row(tables.ring.page(seq.index, t / page_size), t % page_size, head, x);
    return;
  }
  tensor.recent.load_input(tensor.input, seq.first_input + (t - seq.step.length_before), head, x);
  tensor.recent.round_through(head, x);
}

// One piece (V's token group, or a single token) of one head into the old tier.
void quantise_piece(const TierPair& tensor, const api::TwoTierAppend& r, const api::TwoTierTables& tables, const Sequence& seq,
                    std::int32_t first, std::int32_t tokens, std::int32_t head) {
  const std::int32_t page_size = r.cache.old_tier.page_size;
  const std::int32_t head_dim = tensor.old_tier.head_dim;
  const std::int64_t page = tables.old_pages.page(seq.index, first / page_size);
  const std::int32_t row = first % page_size;
  alignas(64) float x[kMaxGroup * kMaxRow];
  for (std::int32_t t = 0; t < tokens; ++t) {
    recent_value(tensor, tables, seq, r.cache.recent.page_size, first + t, head, x + t * head_dim);
  }
  if (tensor.old_tier.view.scale_along_tokens()) {
    tensor.old_tier.write_group(page, row, head, {x, head_dim, tokens});
  } else {
    for (std::int32_t t = 0; t < tokens; ++t) tensor.old_tier.write_row(page, row + t, head, x + t * head_dim);
  }
}

void keep_recent(const TierPair& tensor, const api::TwoTierTables& tables, const Sequence& seq, std::int32_t page_size,
                 std::int32_t t, std::int32_t head) {
  alignas(64) float x[kMaxRow];
  tensor.recent.load_input(tensor.input, seq.first_input + (t - seq.step.length_before), head, x);
  tensor.recent.write_row(tables.ring.page(seq.index, t / page_size), t % page_size, head, x);
}

Status append_with(const RowKernels& rows, const api::TwoTierAppend& r, const ExecDesc& exec) noexcept {
  FP4PA_RETURN_IF_FAILED(api::check_two_tier(r));
  const api::TwoTierTables tables = api::tables_of(r);

  const TierPair k{k_of(r.cache.old_tier, rows), k_of(r.cache.recent, rows), r.k};
  const TierPair v{v_of(r.cache.old_tier, rows), v_of(r.cache.recent, rows), r.v};
  const core::PageCut cut{r.cache.old_tier.page_size, v.old_tier.view.token_group()};
  const std::int32_t heads = r.cache.old_tier.num_kv_heads;
  const int threads = num_threads(exec, r.num_tokens * heads, 64);

  on_threads(threads, [&](const Team& team) {
    for (std::int32_t b = 0; b < r.batch; ++b) {
      const Sequence seq{b, r.indptr[b], api::step_of(r, b)};
      const std::int64_t begin = cut.piece_of(seq.step.quantised_before);
      const std::int64_t items = (cut.piece_of(seq.step.quantised_after) - begin) * heads;
      team.share(items, [&](std::int64_t item) {
        const std::int64_t piece = begin + item / heads;
        const auto head = static_cast<std::int32_t>(item % heads);
        quantise_piece(k, r, tables, seq, cut.first_token(piece), cut.tokens(piece), head);
        quantise_piece(v, r, tables, seq, cut.first_token(piece), cut.tokens(piece), head);
      });
    }
    team.barrier();
    for (std::int32_t b = 0; b < r.batch; ++b) {
      const Sequence seq{b, r.indptr[b], api::step_of(r, b)};
      const std::int64_t items = static_cast<std::int64_t>(seq.step.length_after - seq.step.first_kept) * heads;
      team.share(items, [&](std::int64_t item) {
        const auto t = static_cast<std::int32_t>(seq.step.first_kept + item / heads);
        const auto head = static_cast<std::int32_t>(item % heads);
        keep_recent(k, tables, seq, r.cache.recent.page_size, t, head);
        keep_recent(v, tables, seq, r.cache.recent.page_size, t, head);
      });
    }
  });
  return Status::kOk;
}

}  // namespace

Status append_two_tier(const api::TwoTierAppend& request, const ExecDesc& exec) noexcept {
  return append_with(fastest_rows(), request, exec);
}

Status scalar::append_two_tier(const api::TwoTierAppend& request, const ExecDesc& exec) noexcept {
  return append_with(kScalarRows, request, exec);
}

}  // namespace fp4pa::cpu
