"""Result files of `fp4pa bench --json` and perf/peers.py, as one list of measurements."""
import json
import sys


def in_todays_names(document, entry):
    """A row of the files that a program of its own wrote for products on GPUs before `fp4pa bench gemm` had graphs
    (results/h200-gemm-*.json), and its peers' rows, in today's names; any other row as it is."""
    if "bench" in entry or "us" not in entry:
        return entry
    if entry.keys() >= {"format", "form", "x", "shape"}:
        config = {"format": entry["format"], "activations": entry["form"], "scale_layout": "linear", "dtype": entry["x"]}
    elif entry.keys() >= {"peer", "dtype", "shape"}:
        config = {"format": entry["dtype"], "dtype": entry["dtype"], "backend": entry["peer"]}
    else:
        return entry
    row = {"bench": "gemm", "config": {**config, "shape": entry["shape"]}, "ms": {"median": 1e-3 * entry["us"]}}
    read = document.get("read_GBps", document.get("read_gb_s"))
    if read and "bytes" in entry:
        row["bandwidth_share"] = 1e-3 * entry["bytes"] / entry["us"] / read
    return row


class Result:
    """A measurement: `bench`, `config` (a dict), `us`, and `share` of the measured read bandwidth (None for peers)."""

    def __init__(self, document, entry):
        entry = in_todays_names(document, entry)
        self.bench = entry["bench"]
        self.config = {"page_size": None, "ragged": False, "same_lengths": False, "layers": 1, "causal": True, "window": 0, "rotation": 0,
                       "v_scale_axis": "head_dim", "q_len": 1, "threads": None, **entry["config"]}
        self.us = 1e3 * entry["ms"]["median"]
        self.share = entry.get("bandwidth_share")
        self.tflops = entry.get("tflops")
        self.figures = entry
        self.device = document.get("device", "unknown device")
        self.date = document.get("date", "undated")

    def has(self, **config):
        return all(self.config.get(key) == value for key, value in config.items())


def load(paths):
    """All results of the files; a list of what they could not measure; ends the program where a file is none of these."""
    results, skipped = [], []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as text:
                document = json.load(text)
            results += [Result(document, entry) for entry in document["results"]]
            skipped += [f"{s.get('what') or s['bench'] + ' ' + s['shape'] + ' ' + s['backend']}: {s['why']}"
                        for s in document.get("skipped", [])]
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.exit(f"{path}: not a result file of `fp4pa bench --json` or peers.py: {error!r}")
    return results, skipped


def find(results, bench, **config):
    """The first result of a benchmark with these entries of its configuration, or None."""
    return next((r for r in results if r.bench == bench and r.has(**config)), None)
