#!/usr/bin/env python3
"""Plots of recorded results (perf/results/*.json), per KV format.

  plot.py [shapes] RESULT.json [PEERS.json] [-o docs/img/NAME.png]
  plot.py sweep RESULT.json [PEERS.json] [-o docs/img/NAME.png]

shapes: share of the measured read bandwidth and speed against BF16, a group of bars per shape. sweep: the same over context
length and over batch, from `fp4pa bench --suite sweep` or full.

BF16 is cuDNN's where PEERS.json, of perf/peers.py (--sweep), has it; else our own. Needs matplotlib.
"""
import argparse
import json
import os
import sys

import results_file

FORMATS = ["mxfp4", "nvfp4", "fp8_e4m3", "bf16"]
SWEPT = dict(heads=32, kv_heads=8, head_dim=128, q_len=1, window=0, rotation=0, v_scale_axis="head_dim", ragged=False,
             same_lengths=False, layers=1, page_size=64)


SHAPE = ("format", "batch", "heads", "kv_heads", "kv_len", "head_dim")


def is_measured(share, us):
    return isinstance(share, (int, float)) and isinstance(us, (int, float)) and us > 0


def old_rows(document):
    """[(shape, format, share, microseconds)] of a file from before `fp4pa bench` had suites: of the rows that have all four.
    None of any other file."""
    results = document.get("results") if isinstance(document, dict) else None
    rows = [r for r in results if isinstance(r, dict) and "shape" in r] if isinstance(results, list) else []
    return [(r["shape"], r["format"], r["share"], r["us"]) for r in rows
            if "format" in r and is_measured(r.get("share"), r.get("us"))] if rows else None


def shape_name(c, hardware_threads):
    tokens = f"{c['kv_len'] // 1024}K" if c["kv_len"] % 1024 == 0 else str(c["kv_len"])
    tokens = f"to {tokens}" if c["ragged"] else tokens
    name = f"b{c['batch']} {c['heads']}/{c['kv_heads']} {tokens} D{c['head_dim']}, page {c['page_size']}"
    name += f", {c['layers']} layers" if c["layers"] > 1 else ""
    if c["threads"] and hardware_threads:
        name += f", {c['threads']} thread{'s' if c['threads'] > 1 else ''}"
    return name


def is_plain(r):
    """A decode of one token of every sequence, without options, of which all is known that a plot shows."""
    return (r.bench == "decode" and is_measured(r.share, r.us) and all(key in r.config for key in SHAPE)
            and r.has(q_len=1, window=0, rotation=0, v_scale_axis="head_dim"))


def only_swept(r):
    """A shape that is there for the sweep's sake alone, pages of 16, or layers: too many groups for bars."""
    c = r.config
    swept = r.has(**SWEPT) and (c["batch"] == 8 or c["kv_len"] == 8192) and (c["batch"], c["kv_len"]) != (32, 8192)
    return swept or c["page_size"] == 16 or c["same_lengths"] or c["layers"] > 1


def cudnn(results, c):
    shape = {key: c[key] for key in ("batch", "heads", "kv_heads", "kv_len", "head_dim")}
    return None if c["ragged"] else results_file.find(results, "decode", backend="torch-cudnn", layers=c["layers"], **shape)


def draw_shapes(plt, rows, reference, title):
    """rows [(shape, format, share, us)]; reference {shape: us of BF16}, named by its second element."""
    times, name = reference
    shapes = list(dict.fromkeys(r[0] for r in rows))
    formats = list(dict.fromkeys(r[1] for r in rows))
    share = {(r[0], r[1]): 100 * r[2] for r in rows}
    time = {(r[0], r[1]): r[3] for r in rows}
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(max(8, 1.3 * len(shapes)), 8), sharex=True, layout="constrained")
    width = 0.8 / len(formats)
    for i, fmt in enumerate(formats):
        at = [x + (i - (len(formats) - 1) / 2) * width for x in range(len(shapes))]
        top.bar(at, [share.get((s, fmt), 0) for s in shapes], width, label=fmt)
        ratio = [times[s] / time[s, fmt] if (s, fmt) in time and s in times else 0 for s in shapes]
        bottom.bar(at, ratio, width, label=fmt)
    top.set_ylabel("% of the measured read bandwidth")
    top.set_title(title)
    top.margins(y=0.15)  # the legend stands above the bars
    top.legend(ncols=len(formats), loc="upper center")
    bottom.set_ylabel(f"speed against {name}")
    bottom.axhline(1, color="black", linewidth=0.8)
    bottom.set_xticks(range(len(shapes)), shapes, rotation=30, ha="right")
    return figure


def draw_sweep(plt, results, title):
    axes_of = [("kv_len", "tokens of a sequence, batch 8", dict(batch=8)), ("batch", "batch, 8 K tokens", dict(kv_len=8192))]
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained", sharex="col", sharey="row")
    figure.suptitle(title)
    for column, (axis, label, fixed) in enumerate(axes_of):
        rows = [r for r in results if is_plain(r) and r.has(**SWEPT, **fixed)]
        ours = {f: sorted({r.config[axis]: r for r in rows if r.config["format"] == f}.items()) for f in FORMATS}
        peers = {r.config[axis]: cudnn(results, r.config) for r in rows}
        against_cudnn = any(peers.values())
        own = dict(ours["bf16"])
        for fmt in FORMATS:
            if not ours[fmt]:
                continue
            axes[0][column].plot([x for x, _ in ours[fmt]], [100 * r.share for _, r in ours[fmt]], marker="o", label=fmt)
            base = peers if against_cudnn else own
            points = [(x, base[x].us / r.us) for x, r in ours[fmt] if base.get(x)]
            axes[1][column].plot([x for x, _ in points], [y for _, y in points], marker="o", label=fmt)
        axes[1][column].set_xscale("log", base=2)
        axes[1][column].set_xlabel(label)
        axes[1][column].axhline(1, color="black", linewidth=0.8)
        ticks = sorted({x for f in FORMATS for x, _ in ours[f]})
        axes[1][column].set_xticks(ticks, [f"{t // 1024}K" if axis == "kv_len" and t >= 1024 else str(t) for t in ticks])
        axes[1][column].set_ylabel(f"speed against {'cuDNN' if against_cudnn else 'our'} bf16" if column == 0 else "")
        for row in (0, 1):
            axes[row][column].grid(alpha=0.3)
    axes[0][0].set_ylabel("% of the measured read bandwidth")
    axes[0][0].set_ylim(0, 100)
    axes[0][0].legend()
    return figure


def load_shapes(paths):
    """(rows, reference times and their name, device and date) for draw_shapes."""
    with open(paths[0], encoding="utf-8") as text:
        document = json.load(text)
    rows = old_rows(document)
    if rows is not None:
        return rows, ({r[0]: r[3] for r in rows if r[1] == "bf16"}, "our bf16"), document
    results, _ = results_file.load(paths)
    ours = [r for r in results if is_plain(r) and not (document.get("suite") == "full" and only_swept(r))]
    names = {id(r): shape_name(r.config, document.get("hardware_threads")) for r in ours}
    rows = [(names[id(r)], r.config["format"], r.share, r.us) for r in ours]
    peers = {names[id(r)]: cudnn(results, r.config) for r in ours}
    if any(peers.values()):
        return rows, ({name: r.us for name, r in peers.items() if r}, "cuDNN bf16"), document
    return rows, ({r[0]: r[3] for r in rows if r[1] == "bf16"}, "our bf16"), document


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what_and_results", nargs="+", metavar="[shapes|sweep] RESULT.json")
    parser.add_argument("-o", "--output", help="PNG to write; default: docs/img/<the result's name>.png, with -sweep for a sweep")
    arguments = parser.parse_args()
    paths = arguments.what_and_results
    what = paths.pop(0) if paths[0] in ("shapes", "sweep") else "shapes"
    if not paths:
        parser.error("a result file is missing")
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot: matplotlib is not installed (pip install matplotlib)")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = None
    if what == "sweep":
        results, _ = results_file.load(paths)
        swept = [r for r in results if is_plain(r) and r.has(**SWEPT) and (r.has(batch=8) or r.has(kv_len=8192))]
        if swept:
            where = f"{swept[0].device}, {swept[0].date}"
            figure = draw_sweep(plt, results, f"Paged decode, 32 query heads, 8 KV heads, head_dim 128, {where}")
    else:
        try:
            rows, reference, document = load_shapes(paths)
        except (OSError, ValueError) as error:
            sys.exit(f"plot: {paths[0]}: {error}")
        if rows:
            title = f"Paged decode, {document.get('device', 'unknown device')}, {document.get('date', 'undated')}"
            figure = draw_shapes(plt, rows, reference, title)
    if figure is None:
        sys.exit(f"plot: {paths[0]} has no decode results of that kind with a format, a shape, a time and a share of the bandwidth")
    output = arguments.output
    if output is None:
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        name = os.path.splitext(os.path.basename(paths[0]))[0] + ("-sweep" if what == "sweep" else "")
        output = os.path.join(root, "docs", "img", name + ".png")
    os.makedirs(os.path.dirname(os.path.abspath(output)), exist_ok=True)
    figure.savefig(output, dpi=110, metadata={"Software": None})
    print(output)


if __name__ == "__main__":
    main()
