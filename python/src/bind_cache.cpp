// KvTensor, KvCache and TwoTierKvCache, and the shapes of their memory.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>

#include "python/src/bind.hpp"
#include "python/src/cache.hpp"
#include "python/src/names.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fp4pa::python {
namespace {

using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

Shape shape_of(PageOrder order, std::int64_t pages, std::int64_t heads, std::int64_t tokens, std::int64_t row) {
  return order == PageOrder::kHnd ? Shape{pages, heads, tokens, row} : Shape{pages, tokens, heads, row};
}

std::tuple<Shape, std::optional<Shape>> kv_shapes(const std::string& format, std::int64_t num_pages, std::int32_t page_size,
                                                  std::int32_t num_kv_heads, std::int32_t head_dim, const std::string& axis_name,
                                                  const std::string& order_name) {
  const KvFormat f = kv_format(format, "format");
  const VScaleAxis axis = scale_axis(axis_name, "scale_axis");
  const PageOrder order = page_order(order_name);
  const Shape data = shape_of(order, num_pages, num_kv_heads, page_size, kv_data_bytes(f, head_dim));
  if (!has_scales(f)) return {data, std::nullopt};
  return {data, shape_of(order, num_pages, num_kv_heads, page_size / kv_token_group(f, axis), kv_scale_bytes(f, axis, head_dim))};
}

}  // namespace

void bind_cache(nb::module_& m) {
  m.def("kv_shapes", &kv_shapes, "format"_a, "num_pages"_a, "page_size"_a, "num_kv_heads"_a, "head_dim"_a, nb::kw_only(),
        "scale_axis"_a = "head_dim", "order"_a = "hnd",
        R"(Shapes of the K or the V of a cache, in bytes: (data, scales), scales being None for a format without.

Both are arrays of uint8 that KvTensor takes. Nothing is checked here but names: KvCache refuses what no cache has.)");

  nb::class_<KvTensor>(m, "KvTensor", R"(The K or the V of every page of a cache: your memory, described.

format: "mxfp4", "nvfp4", "e8m0_per_token", "fp8_e4m3", "bf16", "f16" or "mxfp8".
data: [num_pages, num_kv_heads, page_size, row] ("hnd") or [num_pages, page_size, num_kv_heads, row] ("nhd", see KvCache). A row is head_dim elements
    of the format: head_dim / 2 bytes of FP4, head_dim of FP8, 2 * head_dim of 16 bits; its elements may have any size that fits (uint8 always
    does). Any strides but the last, which is 1: views of interleaved pages are fine. Starts at a multiple of 16 bytes, as every row does.
scales: likewise, of 8 bits, with head_dim / 32 (MXFP4, MXFP8), head_dim / 16 (NVFP4) or 1 (per token) a row; None for formats without.
scale_axis: "head_dim", or "tokens" for V in MXFP4 and NVFP4: groups of 32 or 16 tokens share scales, [.., page_size / group, .., head_dim].
global_scale: decode multiplier of NVFP4 and FP8, a number, or a float32 tensor of one element or of num_kv_heads.)")
      .def(nb::init<const std::string&, nb::handle, nb::handle, const std::string&, nb::handle>(), "format"_a, "data"_a,
           "scales"_a = nb::none(), nb::kw_only(), "scale_axis"_a = "head_dim", "global_scale"_a = 1.0)
      .def_prop_ro("format", [](const KvTensor& t) { return fp4pa::name_of(t.format()); })
      .def_prop_ro("scale_axis", [](const KvTensor& t) { return fp4pa::name_of(t.axis()); });

  nb::class_<KvCache>(m, "KvCache", R"(One pool of pages; it keeps the tensors.

k, v: KvTensor; formats may differ, pages, heads, page_size and head_dim may not.
order: "hnd" or "nhd", of both.
rotation: 0, or 16, 32, 64 or 128: blocks of a Hadamard rotation of K on append and of Q on load.
scale_mode: "floor", "ceil", "rceil" or "even", used when encoding MXFP4, MXFP8 and E8M0 per token.
nvfp4_scale: "amax_over_6" or "four_over_six", used when encoding NVFP4.
Raises ValueError for tensors that do not fit each other, Error for a description that the library refuses.)")
      .def(nb::init<const KvTensor&, const KvTensor&, const std::string&, std::int64_t, const std::string&, const std::string&>(),
           "k"_a, "v"_a, nb::kw_only(), "order"_a = "hnd", "rotation"_a = 0, "scale_mode"_a = "floor",
           "nvfp4_scale"_a = "amax_over_6")
      .def_prop_ro("num_pages", [](const KvCache& c) { return c.desc().num_pages; })
      .def_prop_ro(
          "page_size", [](const KvCache& c) { return c.desc().page_size; }, "Tokens of a page.")
      .def_prop_ro("num_kv_heads", [](const KvCache& c) { return c.desc().num_kv_heads; })
      .def_prop_ro("head_dim", [](const KvCache& c) { return c.desc().head_dim; })
      .def_prop_ro("order", [](const KvCache& c) { return name_of(c.order()); });

  nb::class_<TwoTierKvCache>(m, "TwoTierKvCache",
                             R"(The newest tokens in 16 or 8 bits, everything older in another format; it keeps both caches.

old_tier, recent: KvCache with the same heads, head_dim and rotation; recent in bf16, f16 or fp8_e4m3.
window_tokens: 16 to 256. group_tokens: how many tokens leave the window at once.
ring_pages: pages of the recent tier that a sequence has; 0 is the smallest number that does (min_ring_pages).)")
      .def(nb::init<const KvCache&, const KvCache&, std::int64_t, std::int64_t, std::int64_t>(), "old_tier"_a, "recent"_a,
           nb::kw_only(), "window_tokens"_a = 64, "group_tokens"_a = 32, "ring_pages"_a = 0)
      .def_prop_ro("window_tokens", [](const TwoTierKvCache& c) { return c.desc().window_tokens; })
      .def_prop_ro("group_tokens", [](const TwoTierKvCache& c) { return c.desc().group_tokens; })
      .def_prop_ro("ring_pages", [](const TwoTierKvCache& c) { return c.desc().ring_pages; })
      .def(
          "old_tier_pages", [](const TwoTierKvCache& c, std::int32_t length) { return old_tier_pages(c.desc(), length); },
          "length"_a, "Pages of the old tier that a sequence of `length` tokens occupies.");

  m.def("quantised_tokens", &quantised_tokens, "length"_a, "window_tokens"_a, "group_tokens"_a,
        "Tokens of a sequence of `length` tokens that the old tier holds.");
  m.def("min_ring_pages", &min_ring_pages, "window_tokens"_a, "group_tokens"_a, "page_size"_a, "max_rollback"_a = 0,
        "The smallest ring_pages for a window, a group and a recent page size, with room to drop max_rollback tokens again.");
}

}  // namespace fp4pa::python
