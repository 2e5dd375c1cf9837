#!/usr/bin/env python3
"""Plots of recorded results (perf/results/*.json): share of the measured read bandwidth, and speed against BF16, per format.

  plot.py RESULT.json [-o docs/img/NAME.png]

Reads what `fp4pa bench decode --json` and perf/gpu_bench.cpp write. One group of bars per shape (batch, heads, context length),
one bar per KV format. Needs matplotlib.
"""
import argparse
import json
import os
import sys


def bars_of(document):
    """[(shape, format, share of the bandwidth, microseconds)] in the file's order."""
    rows = []
    for result in document.get("results", []):
        if "shape" in result:
            rows.append((result["shape"], result["format"], result["share"], result["us"]))
        elif result.get("bench") == "decode":
            c = result["config"]
            shape = f"b{c['batch']} {c['heads']}/{c['kv_heads']} {c['kv_len'] // 1024}K D{c['head_dim']}, page {c['page_size']}"
            if "threads" in c and document.get("hardware_threads"):
                shape += f", {c['threads']} thread{'s' if c['threads'] > 1 else ''}"
            rows.append((shape, c["format"], result["bandwidth_share"], 1e3 * result["ms"]["median"]))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result")
    parser.add_argument("-o", "--output", help="PNG to write; default: docs/img/<the result's name>.png")
    arguments = parser.parse_args()
    try:
        with open(arguments.result, encoding="utf-8") as text:
            document = json.load(text)
    except (OSError, ValueError) as error:
        sys.exit(f"plot: {arguments.result}: {error}")
    rows = bars_of(document)
    if not rows:
        sys.exit(f"plot: {arguments.result} has no decode results")
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot: matplotlib is not installed (pip install matplotlib)")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shapes = list(dict.fromkeys(r[0] for r in rows))
    formats = list(dict.fromkeys(r[1] for r in rows))
    share = {(r[0], r[1]): 100 * r[2] for r in rows}
    time = {(r[0], r[1]): r[3] for r in rows}
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(max(8, 1.3 * len(shapes)), 8), sharex=True, layout="constrained")
    width = 0.8 / len(formats)
    for i, name in enumerate(formats):
        at = [x + (i - (len(formats) - 1) / 2) * width for x in range(len(shapes))]
        top.bar(at, [share.get((s, name), 0) for s in shapes], width, label=name)
        ratio = [time[s, "bf16"] / time[s, name] if (s, name) in time and (s, "bf16") in time else 0 for s in shapes]
        bottom.bar(at, ratio, width, label=name)
    top.set_ylabel("% of the measured read bandwidth")
    top.set_title(f"Paged decode, {document.get('device', 'unknown device')}, {document.get('date', 'undated')}")
    top.legend(ncols=len(formats))
    bottom.set_ylabel("speed against our bf16")
    bottom.axhline(1, color="black", linewidth=0.8)
    bottom.set_xticks(range(len(shapes)), shapes, rotation=30, ha="right")
    output = arguments.output
    if output is None:
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        output = os.path.join(root, "docs", "img", os.path.splitext(os.path.basename(arguments.result))[0] + ".png")
    os.makedirs(os.path.dirname(os.path.abspath(output)), exist_ok=True)
    figure.savefig(output, dpi=110, metadata={"Software": None})
    print(output)


if __name__ == "__main__":
    main()
