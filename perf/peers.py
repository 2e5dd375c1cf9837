#!/usr/bin/env python3
"""Peers on the same machine: PyTorch's cuDNN and flash SDPA in BF16, and FlashInfer's paged decode where it is importable.

  peers.py [--json FILE] [--repeats 30]

The decode shapes are those of perf/gpu_bench.cpp, one query token over long K and V (contiguous for PyTorch); prefill is causal,
8 K tokens. Runs walk over several sets of K and V of at least a GiB together, so that none finds its keys in the second-level
cache; times are medians between events. What is not installed or refuses a shape is named under "skipped", and no number is
made up for it. Results have the names of `fp4pa bench --json`.
"""
import argparse
import json
import statistics
import sys

DECODE = [  # batch, query heads, KV heads, tokens, head_dim
    (64, 64, 8, 8192, 128), (32, 32, 8, 8192, 128), (128, 32, 8, 2048, 128), (8, 64, 8, 32768, 128), (1, 32, 8, 131072, 128),
    (16, 32, 32, 4096, 128)]
PREFILL = [(1, 32, 8, 8192, 128)]
PAGE = 64
WARMUP = 5
SET_BYTES = 1 << 30


def timed(torch, repeats, sets, work):
    """Sorted seconds of `repeats` runs after a few that do not count; run i gets set i % sets."""
    for i in range(WARMUP):
        work(i % sets)
    times = []
    for i in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work(i % sets)
        end.record()
        end.synchronize()
        times.append(1e-3 * begin.elapsed_time(end))
    return sorted(times)


def record(bench, backend, shape, queries, times):
    batch, heads, kv_heads, tokens, head_dim = shape
    size = kv_bytes(shape)
    pairs = queries * (queries + 1) / 2 if queries > 1 else tokens
    median = statistics.median(times)

    def at(fraction):
        return 1e3 * times[round(fraction * (len(times) - 1))]

    return {"bench": bench,
            "config": {"format": "bf16", "batch": batch, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim,
                       "kv_len": tokens, "q_len": queries, "dtype": "bf16", "backend": backend},
            "ms": {"median": 1e3 * median, "min": at(0), "p10": at(0.1), "p90": at(0.9), "repeats": len(times)},
            "bytes": size, "gbs": 1e-9 * size / median,
            "tflops": 1e-12 * 4 * pairs * head_dim * heads * batch / median}


def kv_bytes(shape):
    batch, _, kv_heads, tokens, head_dim = shape
    return 2 * 2 * batch * kv_heads * tokens * head_dim


def sets_of(shape):
    return max(1, min(64, SET_BYTES // kv_bytes(shape) + 1))


def sdpa(torch, backend, shape, queries, repeats):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    batch, heads, kv_heads, tokens, head_dim = shape
    sets = sets_of(shape)

    def random(h, t):
        return torch.randn(batch, h, t, head_dim, device="cuda", dtype=torch.bfloat16)

    q, k, v = random(heads, queries), [random(kv_heads, tokens) for _ in range(sets)], [random(kv_heads, tokens) for _ in range(sets)]
    kind = {"torch-cudnn": SDPBackend.CUDNN_ATTENTION, "torch-flash": SDPBackend.FLASH_ATTENTION}[backend]
    with sdpa_kernel([kind]):  # raises where the kind does not serve the shape: never another kind's time
        return timed(torch, repeats, sets, lambda i: torch.nn.functional.scaled_dot_product_attention(
            q, k[i], v[i], is_causal=queries > 1, enable_gqa=heads != kv_heads))


def flashinfer_decode(torch, shape, repeats):
    import flashinfer
    batch, heads, kv_heads, tokens, head_dim = shape
    sets, pages = sets_of(shape), tokens // PAGE
    cache = torch.randn(sets * batch * pages, 2, kv_heads, PAGE, head_dim, device="cuda", dtype=torch.bfloat16)
    q = torch.randn(batch, heads, head_dim, device="cuda", dtype=torch.bfloat16)
    workspace = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND")
    # The plan is for one table; a set is another stretch of the pool under the same table of relative pages.
    stretch = batch * pages
    order_within = torch.randperm(stretch, device="cuda").to(torch.int32)
    wrapper.plan(torch.arange(batch + 1, device="cuda", dtype=torch.int32) * pages, order_within,
                 torch.full((batch,), PAGE, device="cuda", dtype=torch.int32), heads, kv_heads, head_dim, PAGE,
                 q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)
    return timed(torch, repeats, sets, lambda i: wrapper.run(q, cache[i * stretch:(i + 1) * stretch]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error(f"--repeats {arguments.repeats}: must be at least 1")
    try:
        import torch
    except ImportError:
        sys.exit("peers: PyTorch is not installed; there is nothing to compare with")
    if not torch.cuda.is_available():
        sys.exit("peers: PyTorch finds no CUDA device")
    document = {"tool": "perf/peers.py", "device": torch.cuda.get_device_name(), "torch": torch.__version__,
                "cuda": torch.version.cuda, "results": [], "skipped": []}
    cases = [("decode", b, s, 1) for s in DECODE for b in ("torch-cudnn", "torch-flash", "flashinfer")]
    cases += [("prefill", b, s, s[3]) for s in PREFILL for b in ("torch-cudnn", "torch-flash")]
    for bench, backend, shape, queries in cases:
        name = "b{} {}/{} {} D{}".format(*shape)
        try:
            times = (flashinfer_decode(torch, shape, arguments.repeats) if backend == "flashinfer"
                     else sdpa(torch, backend, shape, queries, arguments.repeats))
        except (ImportError, RuntimeError) as error:
            why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            document["skipped"].append({"bench": bench, "backend": backend, "shape": name, "why": why})
            print(f"{bench:8} {name:24} {backend:12} skipped: {why}")
        else:
            document["results"].append(record(bench, backend, shape, queries, times))
            r = document["results"][-1]
            print(f"{bench:8} {name:24} {backend:12} {r['ms']['median']:9.4f} ms {r['gbs']:8.0f} GB/s {r['tflops']:8.1f} TFLOPS")
        torch.cuda.empty_cache()
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as text:
            json.dump(document, text, indent=1)
            text.write("\n")


if __name__ == "__main__":
    main()
