#!/usr/bin/env python3
"""Peers on the same machine: PyTorch's cuDNN and flash SDPA in BF16, cuBLAS in BF16 and F16 through PyTorch, FlashInfer's paged
decode where it is importable, and a plain Triton quantiser (triton_mxfp4.py) beside libfp4pa's own in this process.

  peers.py [--json FILE] [--repeats 30] [--sweep] [--library build/gpu/libfp4pa.so] [--only decode,prefill,quantize,gemm]
           [--shape MxNxK,...]

The decode shapes are those of `fp4pa bench --suite decode`, one query token over long K and V (contiguous for PyTorch); prefill
those of `--suite prefill`, products those of `--suite gemm`; --sweep adds cuDNN on those of `--suite sweep`. cuDNN also decodes
as `--suite layers` does: a graph of calls, each on K and V of its own. All is timed as
`fp4pa bench` does it: before each run 512 MiB are read, which displaces the caches and takes longer than enqueueing the run, so
that neither warm caches nor Python is in the time between the events; medians. A run of products or of quantisers is one CUDA
graph of calls, each on a copy of its own of the weight or the tensor, and the time of a call is the run's divided by its calls.
Triton gets the fastest of several numbers of groups a program. Before they are timed, codes and scales of both quantisers must
equal those of libfp4pa's CPU back end.

What is not installed or refuses a shape is named under "skipped", and no number is made up for it. Results have the names of
`fp4pa bench --json`.
"""
import argparse
import json
import os
import statistics
import sys

SHAPES = [  # batch, query heads, KV heads, tokens, head_dim
    (64, 64, 8, 8192, 128), (32, 32, 8, 8192, 128), (128, 32, 8, 2048, 128), (8, 64, 8, 32768, 128), (1, 32, 8, 131072, 128),
    (16, 32, 32, 4096, 128), (32, 32, 8, 8192, 64), (32, 32, 8, 8192, 256)]
SWEEP = [(8, 32, 8, 1024 << i, 128) for i in range(8)] + [(1 << i, 32, 8, 8192, 128) for i in range(8)]
PROMPTS = [(1, 32, 8, 8192, 128), (4, 32, 32, 2048, 128)]
TENSORS = [(1024, 1024), (2048, 2048), (4096, 8192), (8192, 4096)]
LAYERS = 8  # calls of a run of `fp4pa bench --suite layers`, each on a cache of its own
PAGE = 64
PRODUCTS = "1x8192x8192,4x8192x8192,16x8192x8192,64x8192x8192,256x2880x2880,2048x2880x7680"
KINDS = ("decode", "prefill", "quantize", "gemm")
WARMUP = 5
FLUSH_BYTES = 512 << 20
COPIES_BYTES = 400 << 20


class Clock:
    """Times on the GPU, in seconds."""

    def __init__(self, torch):
        self.torch = torch
        self.flush = torch.ones(FLUSH_BYTES // 4, device="cuda")

    def _events(self):
        return [self.torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def runs(self, repeats, work):
        """Sorted times of `repeats` runs after a few that do not count, the caches displaced before each."""
        times = []
        for i in range(WARMUP + repeats):
            begin, end = self._events()
            self.flush.sum()
            begin.record()
            work()
            end.record()
            end.synchronize()
            if i >= WARMUP:
                times.append(1e-3 * begin.elapsed_time(end))
        return sorted(times)

    def calls(self, repeats, count, work):
        """Sorted times per call of work(0) .. work(count - 1), recorded as one graph that is timed as runs() times a run."""
        for i in range(count):
            work(i)
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for i in range(count):
                work(i)
        return [t / count for t in self.runs(repeats, graph.replay)]


def measured(times, size, **more):
    median = statistics.median(times)

    def at(fraction):
        return 1e3 * times[round(fraction * (len(times) - 1))]

    return {"ms": {"median": 1e3 * median, "min": at(0), "p10": at(0.1), "p90": at(0.9), "repeats": len(times)}, "bytes": size,
            "gbs": 1e-9 * size / median, **{key: value / median for key, value in more.items()}}


def attention_result(bench, backend, shape, causal, times, layers=1):
    batch, heads, kv_heads, tokens, head_dim = shape
    queries = tokens if bench == "prefill" else 1
    pairs = queries * (queries + 1) / 2 if causal and queries > 1 else queries * tokens
    config = {"format": "bf16", "batch": batch, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "kv_len": tokens,
              "q_len": queries, "dtype": "bf16", "backend": backend}
    if bench == "prefill" and not causal:
        config["causal"] = False
    if layers > 1:
        config["layers"] = layers
    return {"bench": bench, "config": config,
            **measured(times, 4 * batch * kv_heads * tokens * head_dim, tflops=1e-12 * 4 * pairs * head_dim * heads * batch)}


def sdpa(torch, clock, backend, shape, queries, causal, repeats, layers=1):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    batch, heads, kv_heads, tokens, head_dim = shape

    def random(h, t):
        return torch.randn(batch, h, t, head_dim, device="cuda", dtype=torch.bfloat16)

    q = random(heads, queries)
    kv = [(random(kv_heads, tokens), random(kv_heads, tokens)) for _ in range(layers)]
    kind = {"torch-cudnn": SDPBackend.CUDNN_ATTENTION, "torch-flash": SDPBackend.FLASH_ATTENTION}[backend]
    with sdpa_kernel([kind]):  # raises where the kind does not serve the shape: never another kind's time
        def work(layer=0):
            torch.nn.functional.scaled_dot_product_attention(q, *kv[layer], is_causal=causal, enable_gqa=heads != kv_heads)

        return clock.runs(repeats, work) if layers == 1 else clock.calls(repeats, layers, work)


def flashinfer_decode(torch, clock, shape, repeats):
    import flashinfer
    batch, heads, kv_heads, tokens, head_dim = shape
    pages = batch * tokens // PAGE
    cache = torch.randn(pages, 2, kv_heads, PAGE, head_dim, device="cuda", dtype=torch.bfloat16)
    q = torch.randn(batch, heads, head_dim, device="cuda", dtype=torch.bfloat16)
    workspace = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND")
    wrapper.plan(torch.arange(batch + 1, device="cuda", dtype=torch.int32) * (tokens // PAGE),
                 torch.randperm(pages, device="cuda").to(torch.int32),
                 torch.full((batch,), PAGE, device="cuda", dtype=torch.int32), heads, kv_heads, head_dim, PAGE,
                 q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)
    return clock.runs(repeats, lambda: wrapper.run(q, cache))


def copies_of(size):
    """How many copies of so many bytes a run has: together several times the second-level cache."""
    return max(2, -(-COPIES_BYTES // size))


def cublas(torch, clock, shape, name, repeats):
    m, n, k = shape
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[name]
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    weights = [torch.randn(n, k, device="cuda", dtype=dtype) for _ in range(copies_of(2 * n * k))]
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    times = clock.calls(repeats, len(weights), lambda i: torch.matmul(x, weights[i].t(), out=out))
    return {"bench": "gemm", "config": {"format": name, "shape": f"{m}x{n}x{k}", "dtype": name, "backend": "cublas"},
            **measured(times, 2 * (n * k + m * k + m * n), tflops=2e-12 * m * n * k)}


class Quantisers:
    """Triton's and ours on copies of one tensor."""

    def __init__(self, torch, library, rows, cols):
        self.torch, self.library, self.rows, self.cols = torch, library, rows, cols
        self.count = copies_of(4 * rows * cols)
        self.x = [torch.randn(rows, cols, device="cuda") for _ in range(self.count)]
        self.codes = [torch.zeros(rows, cols // 2, device="cuda", dtype=torch.uint8) for _ in range(self.count)]
        self.scales = [torch.zeros(rows, cols // 32, device="cuda", dtype=torch.uint8) for _ in range(self.count)]

    def ours(self, i):
        self.library.quantize_mxfp4("cuda", self.torch.cuda.current_stream().cuda_stream, self.rows, self.cols,
                                    self.x[i].data_ptr(), self.codes[i].data_ptr(), self.scales[i].data_ptr())

    def triton(self, groups_per_program):
        import triton_mxfp4
        return lambda i: triton_mxfp4.quantize(self.x[i], self.codes[i], self.scales[i], groups_per_program)

    def check(self, name, work):
        """Raises RuntimeError unless `work` writes what the CPU back end does."""
        x, codes, scales = self.x[0].cpu(), self.codes[0].cpu(), self.scales[0].cpu()
        self.library.quantize_mxfp4("cpu", None, self.rows, self.cols, x.data_ptr(), codes.data_ptr(), scales.data_ptr())
        self.codes[0].fill_(0xEE)
        self.scales[0].fill_(0xEE)
        work(0)
        self.torch.cuda.synchronize()
        wrong = [int((mine.cpu() != theirs).sum()) for mine, theirs in ((self.codes[0], codes), (self.scales[0], scales))]
        if any(wrong):
            raise RuntimeError(f"{name} differs from the CPU back end in {wrong[0]} bytes of codes and {wrong[1]} scales")

    def result(self, backend, times, **more):
        return {"bench": "quantize", "config": {"format": "mxfp4", "shape": f"{self.rows}x{self.cols}", "scale_layout": "linear",
                                                "scale_mode": "floor", "dtype": "f32", "backend": backend, **more},
                **measured(times, self.rows * self.cols * 4 + self.rows * self.cols // 2 + self.rows * self.cols // 32)}


class Report:
    def __init__(self, torch):
        self.document = {"tool": "perf/peers.py", "device": torch.cuda.get_device_name(), "torch": torch.__version__,
                         "cuda": torch.version.cuda, "results": [], "skipped": []}

    def add(self, result, name):
        self.document["results"].append(result)
        flops = f"{result['tflops']:8.1f} TFLOPS" if "tflops" in result else ""
        print(f"{result['bench']:8} {name:28} {result['config']['backend']:12} {result['ms']['median']:9.4f} ms "
              f"{result['gbs']:8.0f} GB/s {flops}", flush=True)

    def skip(self, bench, backend, name, error):
        lines = str(error).strip().splitlines()
        why = lines[0] if lines else type(error).__name__
        self.document["skipped"].append({"bench": bench, "backend": backend, "shape": name, "why": why})
        print(f"{bench:8} {name:28} {backend:12} skipped: {why}", flush=True)

    def write(self, path):
        if path:
            with open(path, "w", encoding="utf-8") as text:
                json.dump(self.document, text, indent=1)
                text.write("\n")


def attention_cases(only, sweep):
    """(bench, backend, shape, causal, layers)"""
    cases = []
    if "decode" in only:
        cases += [("decode", b, s, False, 1) for s in SHAPES for b in ("torch-cudnn", "torch-flash", "flashinfer")]
        cases += [("decode", "torch-cudnn", s, False, LAYERS) for s in SHAPES]
        cases += [("decode", "torch-cudnn", s, False, 1) for s in SWEEP if sweep and s not in SHAPES]
    if "prefill" in only:
        cases += [("prefill", b, s, causal, 1) for s in PROMPTS for causal in (True, False) for b in ("torch-cudnn", "torch-flash")]
    return list(dict.fromkeys(cases))


def run_attention(torch, clock, report, case, repeats):
    bench, backend, shape, causal, layers = case
    name = "b{} {}/{} {} D{}".format(*shape) + (" causal" if causal else "") + (f" {layers} layers" if layers > 1 else "")
    queries = shape[3] if bench == "prefill" else 1
    try:
        times = (flashinfer_decode(torch, clock, shape, repeats) if backend == "flashinfer"
                 else sdpa(torch, clock, backend, shape, queries, causal, repeats, layers))
    except Exception as error:  # FlashInfer's have no base of their own, and an older PyTorch has no enable_gqa
        report.skip(bench, backend, name, error)
    else:
        report.add(attention_result(bench, backend, shape, causal, times, layers), name)
    torch.cuda.empty_cache()


def run_products(torch, clock, report, shape, repeats):
    for name in ("bf16", "f16"):
        try:
            report.add(cublas(torch, clock, shape, name, repeats), "{}x{}x{} ".format(*shape) + name)
        except RuntimeError as error:
            report.skip("gemm", "cublas", "{}x{}x{} ".format(*shape) + name, error)
        torch.cuda.empty_cache()


def product_shape(text):
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"'{text}' is not MxNxK with all three at least 1")
    return tuple(int(part) for part in parts)


def run_quantisers(torch, clock, report, library, rows, cols, repeats):
    name = f"{rows}x{cols} f32"
    torch.cuda.empty_cache()
    try:
        both = Quantisers(torch, library, rows, cols)
    except RuntimeError as error:  # no memory for so many copies
        for backend in ("fp4pa", "triton"):
            report.skip("quantize", backend, name, error)
        return
    try:
        both.check("libfp4pa's CUDA back end", both.ours)
        report.add(both.result("fp4pa", clock.calls(repeats, both.count, both.ours)), name)
    except RuntimeError as error:
        report.skip("quantize", "fp4pa", name, error)
    try:
        best = None
        for groups_per_program in (16, 32, 64, 128):
            work = both.triton(groups_per_program)
            both.check("the Triton kernel", work)
            times = clock.calls(repeats, both.count, work)
            if best is None or statistics.median(times) < statistics.median(best[1]):
                best = groups_per_program, times
        report.add(both.result("triton", best[1], groups_per_program=best[0]), name)
    except Exception as error:  # a compiler's errors have no base of their own
        report.skip("quantize", "triton", name, error)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--sweep", action="store_true", help="cuDNN over context lengths and batches too")
    parser.add_argument("--library", help="libfp4pa.so with the CUDA back end; without it nothing is quantised")
    parser.add_argument("--only", default=",".join(KINDS), help="a list of these (default: %(default)s)")
    parser.add_argument("--shape", default=PRODUCTS, help="of products, MxNxK, a list (default: %(default)s)")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    if arguments.repeats < 1:
        parser.error(f"--repeats {arguments.repeats}: must be at least 1")
    for name in only:
        if name not in KINDS:
            parser.error(f"--only {name}: allowed are {', '.join(KINDS)}")
    try:
        products = [product_shape(text) for text in arguments.shape.split(",")]
    except ValueError as error:
        parser.error(f"--shape: {error}")
    try:
        import torch
    except ImportError:
        sys.exit("peers: PyTorch is not installed; there is nothing to compare with")
    if not torch.cuda.is_available():
        sys.exit("peers: PyTorch finds no CUDA device")
    report, clock = Report(torch), Clock(torch)
    if "quantize" in only:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        try:
            if not arguments.library:
                raise OSError("no --library was given")
            import libfp4pa
            library = libfp4pa.Library(arguments.library)
            report.document["fp4pa"] = library.version()
        except (OSError, AttributeError) as error:
            report.skip("quantize", "fp4pa", "all", error)
        else:
            for rows, cols in TENSORS:
                run_quantisers(torch, clock, report, library, rows, cols, arguments.repeats)
                report.write(arguments.json)
    for case in attention_cases(only, arguments.sweep):
        run_attention(torch, clock, report, case, arguments.repeats)
        report.write(arguments.json)
    for shape in products if "gemm" in only else []:
        run_products(torch, clock, report, shape, arguments.repeats)
        report.write(arguments.json)
    report.write(arguments.json)


if __name__ == "__main__":
    main()
