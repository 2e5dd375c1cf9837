#!/usr/bin/env python3
"""The measurements of `fp4pa bench --suite full` and of perf/peers.py as short tables in Markdown, beside the bars that they are
to reach.

  table.py BENCH.json [PEERS.json ...]

Files from before these two measured products (results/h200-gemm-*.json) are read too. Append and gather say what is scattered over
the cache: whole pages, or every token by itself. Rows that were not measured are left out. A bar that is missed says so; the exit
status is 0 either way.
"""
import argparse

import results_file
from results_file import find

# batch, query heads, KV heads, tokens; bars: share of the read bandwidth, and speed of mxfp4 and nvfp4 against cuDNN's BF16.
DECODE = [((64, 64, 8, 8192), 0.90, 3.2, 3.0), ((32, 32, 8, 8192), 0.90, 3.2, 3.0), ((128, 32, 8, 2048), 0.85, 3.0, 2.8),
          ((8, 64, 8, 32768), 0.90, 3.2, 3.0), ((1, 32, 8, 131072), 0.75, 2.6, 2.5), ((16, 32, 32, 4096), 0.85, 3.0, 2.8)]
FORMATS = ["mxfp4", "nvfp4", "fp8_e4m3", "bf16"]
# Shape; bars: speed against cuBLAS in bf16, and percent of the read bandwidth.
PRODUCTS = [("1x8192x8192", 2.8, 75), ("4x8192x8192", 2.8, 75), ("16x8192x8192", 2.8, 75), ("64x8192x8192", 1.7, None),
            ("256x2880x2880", 1.0, None), ("2048x2880x7680", 0.8, None)]
TENSORS = ["1024x1024", "2048x2048", "4096x8192", "8192x4096"]


def shape_of(shape):
    batch, heads, kv_heads, tokens = shape
    return dict(batch=batch, heads=heads, kv_heads=kv_heads, kv_len=tokens, head_dim=128)


def name_of(shape):
    batch, heads, kv_heads, tokens = shape
    return f"b{batch} {heads}/{kv_heads} {tokens // 1024}K"


def plain(results, fmt, **config):
    """A decode of one token without options."""
    return find(results, "decode", **{"format": fmt, "q_len": 1, "window": 0, "rotation": 0, "v_scale_axis": "head_dim",
                                      "ragged": False, "same_lengths": False, "layers": 1, "page_size": 64, **config})


def cell(r):
    return f"{r.us:.1f} us, {100 * r.share:.0f} %" if r else ""


def print_table(header, rows):
    if not rows:
        return
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def decode_table(results, layers=1):
    """Of single calls, or of calls in runs of `layers`, each on a cache of its own."""
    rows = []
    extra = [("ragged b64 32/8 to 32K", dict(batch=64, heads=32, kv_heads=8, kv_len=32768, head_dim=128, ragged=True)),
             ("b32 32/8 8K D64", dict(batch=32, heads=32, kv_heads=8, kv_len=8192, head_dim=64)),
             ("b32 32/8 8K D256", dict(batch=32, heads=32, kv_heads=8, kv_len=8192, head_dim=256))]
    for name, config in [(name_of(shape), shape_of(shape)) for shape, *_ in DECODE] + extra:
        ours = {f: plain(results, f, layers=layers, **config) for f in FORMATS}
        if not any(ours.values()):
            continue
        cudnn = find(results, "decode", backend="torch-cudnn", layers=layers, **config)  # it has no ragged lengths
        rows.append([name, *(cell(ours[f]) for f in FORMATS), f"{cudnn.us:.1f} us" if cudnn else "",
                     *(f"{cudnn.us / ours[f].us:.2f}" if cudnn and ours[f] else "" for f in ("mxfp4", "nvfp4"))])
    head = "batch, query/KV heads, tokens" + (f"; {layers} layers, a call" if layers > 1 else "")
    print_table([head, *FORMATS, "cuDNN bf16", "mxfp4 against it", "nvfp4 against it"], rows)


def cublas(results, shape, dtype="bf16"):
    return find(results, "gemm", backend="cublas", shape=shape, dtype=dtype)


def product(results, fmt, shape, dtype, form="a16"):
    return find(results, "gemm", format=fmt, activations=form, shape=shape, dtype=dtype, scale_layout="linear")


def product_table(results, form, name):
    kinds = [(fmt, dtype) for fmt in FORMATS[:2] for dtype in ("f16", "bf16")]
    rows = []
    for shape in dict.fromkeys(r.config["shape"] for r in results if r.bench == "gemm" and r.has(activations=form)):
        peers = {dtype: cublas(results, shape, dtype) for dtype in ("f16", "bf16")}
        ours = [product(results, fmt, shape, dtype, form) for fmt, dtype in kinds]
        rows.append([shape, *(f"{r.us:.1f} us" + (f" ({peers['bf16'].us / r.us:.2f})" if peers["bf16"] else "") if r else ""
                              for r in ours), *(f"{r.us:.1f} us" if r else "" for r in peers.values())])
    print_table([f"{name}, MxNxK", *(f"{fmt}, X {dtype}" for fmt, dtype in kinds), "cuBLAS f16", "cuBLAS bf16"], rows)


def attention_table(results):
    """Many queries: whole prompts over a cache, and contiguous Q, K and V."""
    rows = []
    for r in results:
        if r.bench not in ("prefill", "dense", "mxfp8"):
            continue
        c = r.config
        shape = (c["batch"], c["heads"], c["kv_heads"], c["kv_len"] if r.bench == "prefill" else c["length"])
        what = f"mxfp8, decoded {c['format']}" if r.bench == "mxfp8" else c["format"]
        what += ", K smoothed" if c.get("smooth_k") else ""
        tflops = r.tflops or 1e-3 * r.figures["GFLOP_per_s"]
        rows.append(["prefill" if r.bench == "prefill" else "contiguous", name_of(shape), "causal" if c["causal"] else "all keys",
                     f"{what}, {c['backend']}", f"{1e-3 * r.us:.2f} ms", f"{tflops:.0f} TFLOP/s"])
    print_table(["many queries", "", "", "", "time", ""], rows)


def digits(value, bar):
    """Three digits of the value, or as many as tell it from the bar."""
    return next((text for text in (f"{value:.{n}g}" for n in range(3, 17)) if value == bar or float(text) != bar), repr(value))


class Bars:
    """Rows of (what, value, bar, verdict)."""

    def __init__(self):
        self.rows = []

    def add(self, what, value, bar, unit="", least=True):
        met = value >= bar if least else value <= bar
        self.rows.append([what, f"{digits(value, bar)}{unit}", f"{'at least' if least else 'at most'} {bar:.3g}{unit}",
                          "reached" if met else "missed"])

    def ratio(self, what, one, other, bar, least=False):
        """one's time over other's."""
        if one and other:
            self.add(what, one.us / other.us, bar, least=least)


def decode_bars(results, bars):
    for shape, share, mxfp4, nvfp4 in DECODE:
        cudnn = find(results, "decode", backend="torch-cudnn", layers=1, **shape_of(shape))
        ours = {f: plain(results, f, **shape_of(shape)) for f in FORMATS}
        if ours["mxfp4"]:
            bars.add(f"mxfp4 {name_of(shape)}, of the bandwidth", 100 * ours["mxfp4"].share, 100 * share, " %")
        for fmt, bar in (("mxfp4", mxfp4), ("nvfp4", nvfp4)):
            bars.ratio(f"{fmt} {name_of(shape)}, speed against cuDNN", cudnn, ours[fmt], bar, least=True)
        for fmt in ("bf16", "fp8_e4m3"):
            if ours[fmt]:
                bars.add(f"{fmt} {name_of(shape)}, of the bandwidth", 100 * ours[fmt].share, 90, " %")
        bars.ratio(f"mxfp4 {name_of(shape)}, speed against fp8", ours["fp8_e4m3"], ours["mxfp4"], 1.7, least=True)
        bars.ratio(f"mxfp4 {name_of(shape)}, pages of 16 over 64", plain(results, "mxfp4", page_size=16, **shape_of(shape)),
                   ours["mxfp4"], 1.03)
        for queries in (4, 8):
            bars.ratio(f"mxfp4 {name_of(shape)}, {queries} query tokens over 1",
                       plain(results, "mxfp4", q_len=queries, **shape_of(shape)), ours["mxfp4"], 1.25)
    middle = shape_of((32, 32, 8, 8192))
    ragged = plain(results, "mxfp4", batch=64, kv_len=32768, ragged=True)
    if ragged:
        bars.add("mxfp4 ragged, of the bandwidth", 100 * ragged.share, 80, " %")
    base = plain(results, "mxfp4", **middle)
    for head_dim in (64, 256):
        other = plain(results, "mxfp4", **{**middle, "head_dim": head_dim})
        if base and other:
            bars.add(f"mxfp4 head_dim {head_dim}, share over that of 128", other.share / base.share, 0.9)
    for shape, bar in (((32, 32, 8, 8192), 1.05), ((8, 64, 8, 32768), 1.02)):
        bars.ratio(f"mxfp4 {name_of(shape)}, window of 64 over none", plain(results, "mxfp4", window=64, **shape_of(shape)),
                   plain(results, "mxfp4", **shape_of(shape)), bar)
    bars.ratio("mxfp4 b32 32/8 8K, rotation over none", plain(results, "mxfp4", rotation=128, **middle), base, 1.02)
    bars.ratio("mxfp4 b32 32/8 8K, V along tokens over head_dim", plain(results, "mxfp4", v_scale_axis="tokens", **middle),
               base, 1.0)
    graph = find(results, "graph", format="mxfp4")
    if graph:
        bars.add("graph replay mxfp4 b1 32/8 1K", graph.us, 12, " us", least=False)


def other_bars(results, bars):
    for r in results:
        if r.bench in ("append", "gather"):
            c = r.config
            what = f"{r.bench} {c['format']}" + (f", rotation {c['rotation']}" if c["rotation"] else "")
            what += ", V along tokens" if c["v_scale_axis"] == "tokens" else ""
            what += f", {c['slots']} scattered" if "slots" in c else ""
            bars.add(f"{what}, {c['tokens'] // 1024}K tokens, of the bandwidth", 100 * r.share, 85, " %")
        elif r.bench in ("quantize", "dequantize") and r.share is not None and r.has(shape="32768x8192"):
            c = r.config
            layout = "" if c["scale_layout"] == "linear" else ", blocked scales"
            bars.add(f"{r.bench} {c['format']} from {c['dtype']} {c['shape']}{layout}, of the bandwidth", 100 * r.share, 85, " %")
    for fmt in FORMATS:
        rotated = find(results, "append", format=fmt, rotation=128, v_scale_axis="head_dim")
        if rotated:
            plainly = find(results, "append", format=fmt, rotation=0, v_scale_axis="head_dim", slots=rotated.config.get("slots"))
            bars.ratio(f"append {fmt}, rotation over none", rotated, plainly, 1.10)
    for tensor in TENSORS:
        bars.ratio(f"quantise mxfp4 f32 {tensor}, speed against Triton", find(results, "quantize", shape=tensor, backend="triton"),
                   find(results, "quantize", shape=tensor, backend="fp4pa"), 1.0, least=True)
    prompt = dict(batch=1, heads=32, kv_heads=8, kv_len=8192, head_dim=128, causal=True)
    bars.ratio("prefill mxfp4 8K causal, speed against flash", find(results, "prefill", backend="torch-flash", **prompt),
               find(results, "prefill", format="mxfp4", **prompt), 1.0, least=True)


def product_bars(results, bars):
    for shape, speed, share in PRODUCTS:
        for dtype in ("f16", "bf16"):
            ours = product(results, "mxfp4", shape, dtype)
            bars.ratio(f"W4A16 mxfp4 {shape}, X {dtype}, speed against cuBLAS bf16", cublas(results, shape), ours, speed, least=True)
            if share and ours and ours.share:
                bars.add(f"W4A16 mxfp4 {shape}, X {dtype}, of the bandwidth", 100 * ours.share, share, " %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    results, skipped = results_file.load(parser.parse_args().results)
    print(", ".join(dict.fromkeys(f"{r.device}, {r.date}" for r in results if r.share is not None)) + "\n")
    for layers in sorted({r.config["layers"] for r in results}):
        decode_table(results, layers)
    attention_table(results)
    product_table(results, "a16", "W4A16")
    product_table(results, "a4", "W4A4")
    bars = Bars()
    decode_bars(results, bars)
    other_bars(results, bars)
    product_bars(results, bars)
    print_table(["", "measured", "bar", ""], bars.rows)
    for line in skipped:
        print(f"not measured: {line}")


if __name__ == "__main__":
    main()
