#!/usr/bin/env python3
"""cuBLAS in bf16 and f16, through PyTorch, on the shapes of perf/gpu_gemm.cpp and timed the same way.

    perf/gemm_peers.py [--shapes MxNxK,...] [--dtypes bf16,f16] [--runs 20] [--json FILE]

Calls walk over copies of the weight that together are several times the second-level cache; a round over the copies is one
CUDA graph, and the time of a call is the median round divided by its calls.
"""
import argparse
import json
import statistics
import sys

SHAPES = "1x8192x8192,4x8192x8192,16x8192x8192,64x8192x8192,256x2880x2880,2048x2880x7680"
ACROSS = 400 << 20  # bytes that the copies of a weight have together


def seconds_per_call(torch, m, n, k, dtype, runs):
    copies = max(2, -(-ACROSS // (2 * n * k)))
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    weights = [torch.randn(n, k, device="cuda", dtype=dtype) for _ in range(copies)]
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    for _ in range(3):
        for w in weights:
            torch.matmul(x, w.t(), out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for w in weights:
            torch.matmul(x, w.t(), out=out)
    times = []
    for r in range(-3, runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if r >= 0:
            times.append(1e-3 * begin.elapsed_time(end))
    return statistics.median(times) / copies


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--dtypes", default="bf16,f16")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("gemm_peers.py: PyTorch was not found")
    if not torch.cuda.is_available():
        sys.exit("gemm_peers.py: no CUDA device")
    results = []
    for shape in args.shapes.split(","):
        m, n, k = (int(v) for v in shape.split("x"))
        for name in args.dtypes.split(","):
            dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[name]
            t = seconds_per_call(torch, m, n, k, dtype, args.runs)
            results.append({"peer": "cublas", "dtype": name, "shape": shape, "us": 1e6 * t})
            print(f"cuBLAS {name:5} {shape:>18} {1e6 * t:9.2f} us {2e-12 * m * n * k / t:9.1f} TFLOP/s", flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "results": results}, f, indent=1)


if __name__ == "__main__":
    main()
