// append, append_two_tier, gather and copy_pages.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "python/src/bind.hpp"
#include "python/src/cache.hpp"
#include "python/src/error.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fp4pa::python {
namespace {

const Tensor& check_rows(const Tensor& t, const KvCacheDesc& cache, std::int64_t tokens, const Place& place) {
  return place.also(t.is_shape({tokens, cache.num_kv_heads, cache.head_dim}, "[tokens, num_kv_heads, head_dim]").has_rows());
}

KvInput input_of(const Tensor& t, const KvCacheDesc& cache, std::int64_t tokens, const Place& place) {
  const Rows rows = rows_of(check_rows(t, cache, tokens, place));
  return {t.data(), t.dtype(), rows.token_stride, rows.head_stride};
}

KvOutput output_of(const std::optional<Tensor>& t, const KvCacheDesc& cache, std::int64_t tokens, const Place& place) {
  if (!t) return {};
  const Rows rows = rows_of(check_rows(*t, cache, tokens, place));
  return {t->data(), t->dtype(), rows.token_stride, rows.head_stride};
}

void append_rows(const KvCache& cache, nb::handle k_given, nb::handle v_given, nb::handle slots_given,
                 const std::optional<std::string>& backend, nb::handle stream, std::int32_t num_threads, bool validate) {
  const Tensor k(k_given, "k"), v(v_given, "v"), slots(slots_given, "slots");
  const Place place = cache.place();
  place.also(slots.is_shape({-1}, "[tokens]").is_dense());
  const std::int64_t tokens = slots.extent(0);
  const KvInput k_in = input_of(k, cache.desc(), tokens, place), v_in = input_of(v, cache.desc(), tokens, place);
  const IndexType slot_type = slots.index_type();
  run_there(place, {backend, stream, num_threads, validate},
            [&](const ExecDesc& exec) { return append(cache.desc(), k_in, v_in, slots.data(), slot_type, tokens, exec); });
}

void append_two_tiers(const TwoTierKvCache& cache, nb::handle k_given, nb::handle v_given, nb::handle indptr_given,
                      nb::handle seq_lens_given, nb::handle old_table_given, nb::handle recent_table_given,
                      const std::optional<std::string>& backend, nb::handle stream, std::int32_t num_threads, bool validate) {
  const Tensor k(k_given, "k"), v(v_given, "v"), indptr(indptr_given, "indptr"), seq_lens(seq_lens_given, "seq_lens"),
      old_table(old_table_given, "old_table"), recent_table(recent_table_given, "recent_table");
  const Place place = cache.place();
  place.also(seq_lens.is_shape({-1}, "[batch]").is_int32().is_dense());
  const std::int64_t batch = seq_lens.extent(0);
  place.also(indptr.is_shape({batch + 1}, "[batch + 1]").is_int32().is_dense());
  place.also(old_table.is_shape({batch, -1}, "[batch, pages]").is_int32().has_rows().moves_along(0));
  place.also(recent_table.is_shape({batch, cache.desc().ring_pages}, "[batch, ring_pages]").is_int32().is_dense());
  const KvCacheDesc& old = cache.desc().old_tier;
  const std::int64_t tokens = k.ndim() == 3 ? k.extent(0) : -1;
  const KvInput k_in = input_of(k, old, tokens, place), v_in = input_of(v, old, tokens, place);
  if (indptr.device() == Device::kHost) {  // the library is told by a stride how many pages a row has
    const auto* starts = static_cast<const std::int32_t*>(indptr.data());
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t length = std::int64_t{static_cast<const std::int32_t*>(seq_lens.data())[b]} + starts[b + 1] - starts[b];
      if (length > 0 && length <= INT32_MAX)
        old_table.has_pages(b, old_tier_pages(cache.desc(), static_cast<std::int32_t>(length)));
    }
  }
  run_there(place, {backend, stream, num_threads, validate}, [&](const ExecDesc& exec) {
    return append_two_tier(cache.desc(), k_in, v_in, static_cast<const std::int32_t*>(indptr.data()),
                           static_cast<const std::int32_t*>(seq_lens.data()), int32_of(batch, "batch"), tokens,
                           static_cast<const std::int32_t*>(old_table.data()), old_table.stride(0),
                           static_cast<const std::int32_t*>(recent_table.data()), exec);
  });
}

void gather_rows(const KvCache& cache, nb::handle slots_given, nb::handle k_given, nb::handle v_given,
                 const std::optional<std::string>& backend, nb::handle stream, std::int32_t num_threads, bool validate) {
  const Tensor slots(slots_given, "slots");
  const std::optional<Tensor> k = optional_tensor(k_given, "k", Access::kWrite),
                              v = optional_tensor(v_given, "v", Access::kWrite);
  const Place place = cache.place();
  place.also(slots.is_shape({-1}, "[tokens]").is_dense());
  const std::int64_t tokens = slots.extent(0);
  const KvOutput k_out = output_of(k, cache.desc(), tokens, place), v_out = output_of(v, cache.desc(), tokens, place);
  const IndexType slot_type = slots.index_type();
  run_there(place, {backend, stream, num_threads, validate},
            [&](const ExecDesc& exec) { return gather(cache.desc(), slots.data(), slot_type, tokens, k_out, v_out, exec); });
}

void copy_whole_pages(const KvCache& cache, nb::handle src_given, nb::handle dst_given, const std::optional<std::string>& backend,
                      nb::handle stream, std::int32_t num_threads, bool validate) {
  const Tensor src(src_given, "src"), dst(dst_given, "dst");
  const Place place = cache.place();
  place.also(src.is_shape({-1}, "[copies]").is_int32().is_dense());
  place.also(dst.is_shape({src.extent(0)}, "[copies]").is_int32().is_dense());
  run_there(place, {backend, stream, num_threads, validate}, [&](const ExecDesc& exec) {
    return copy_pages(cache.desc(), static_cast<const std::int32_t*>(src.data()), static_cast<const std::int32_t*>(dst.data()),
                      src.extent(0), exec);
  });
}

}  // namespace

void bind_cache_operations(nb::module_& m) {
  m.def("append", &append_rows, "cache"_a, "k"_a, "v"_a, "slots"_a, nb::kw_only(), "backend"_a = nb::none(),
        "stream"_a = nb::none(), "num_threads"_a = 0, "validate"_a = false,
        R"(Writes token i of k and v to slot slots[i], rotating K and quantising on the way.

cache: KvCache. k, v: [tokens, num_kv_heads, head_dim] float32, float16 or bfloat16. slots: [tokens] int32 or int64, page * page_size + row; negative
ones are skipped, and they must be distinct. With V scaled along tokens, tokens come in whole groups (fp4pa/cache.hpp).
backend, stream: where to run; None is the back end of this memory and PyTorch's current stream (the default stream with other tensors).
num_threads: CPU threads, 0 is OpenMP's choice. validate: on a GPU, read the slots back, which waits, and raise what the CPU raises.
Raises Error for slots outside the pool or inside a group (on a GPU with validate).)");
  m.def("append_two_tier", &append_two_tiers, "cache"_a, "k"_a, "v"_a, "indptr"_a, "seq_lens"_a, "old_table"_a, "recent_table"_a,
        nb::kw_only(), "backend"_a = nb::none(), "stream"_a = nb::none(), "num_threads"_a = 0, "validate"_a = false,
        R"(Appends to a TwoTierKvCache; groups that leave the window are quantised into the old tier.

Sequence b receives tokens indptr[b] .. indptr[b + 1] - 1 of k and v. indptr: [batch + 1] int32. seq_lens: [batch] int32, lengths before the call.
old_table: [batch, pages] int32, page ids of the old tier. recent_table: [batch, ring_pages] int32, of the recent one. The rest as append.)");
  m.def(
      "gather", &gather_rows, "cache"_a, "slots"_a, "k"_a = nb::none(), "v"_a = nb::none(), nb::kw_only(),
      "backend"_a = nb::none(), "stream"_a = nb::none(), "num_threads"_a = 0, "validate"_a = false,
      R"(Dequantises the tokens at `slots` into k and v, [tokens, num_kv_heads, head_dim] float32, float16 or bfloat16; either may be None.

K comes out as stored: rotated if the cache is. A negative slot leaves its row untouched. The rest as append.)");
  m.def(
      "copy_pages", &copy_whole_pages, "cache"_a, "src"_a, "dst"_a, nb::kw_only(), "backend"_a = nb::none(),
      "stream"_a = nb::none(), "num_threads"_a = 0, "validate"_a = false,
      R"(Copies whole pages, codes and scales, src[i] -> dst[i]. src, dst: [copies] int32; no page may be both, nor a destination twice.)");
}

}  // namespace fp4pa::python
