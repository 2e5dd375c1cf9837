#!/usr/bin/env python3
"""The written model of docs/time_model.md: time of a tile of keys, resource by resource, and which one rules.

A model, not a measurement: bytes and shared-memory traffic follow from the formats and the tile; matrix instructions and issue
slots are those of the inner loop in perf/isa_gates.json, rarely taken ways included, so that both are upper bounds. Of kernels that
are in perf/executed.json they are the matrix instructions, and the vector and matrix instructions, that a tile took.

  time_model.py    prints the tables
"""
import json
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEY_BYTES = {"mxfp4": 68, "nvfp4": 72, "fp8_e4m3": 128, "mxfp8": 132, "e8m0_per_token": 65, "bf16": 256}  # codes and scales of a row of 128 of K (or V)


class Device:
    """Rates of one multiprocessor (compute unit) a clock. `matrix`: FLOP by kind; `issue`: instructions; `shared`:
    bytes; `exp`: exponentials."""

    def __init__(self, name, arch, units, ghz, gb_s, matrix, issue=4, shared=128, exp=16):
        self.name, self.arch, self.units, self.ghz, self.gb_s = name, arch, units, ghz, gb_s
        self.matrix, self.issue, self.shared, self.exp = matrix, issue, shared, exp

    @property
    def bytes_per_clock(self):
        return self.gb_s / self.ghz / self.units


# SM120: published dense rates of three cards agree on 2048 FLOP a clock and multiprocessor for mxf8f6f4 (993 TFLOPS on the RTX
# 5090 at 2.85 GHz, 256 on GB10 at 2.6), twice that for mxf4nvf4, a quarter for 16-bit operands. Counts of multiprocessors and
# bandwidths are the makers' data sheets. H200: 637 TFLOPS of mma.sync and 4.55 TB/s, both measured. MI355X: 8 TB/s, 10 PFLOPS
# FP4; an instruction with an FP8 operand takes 32 clocks, one without 16; a vector instruction of 64 lanes holds one of the four
# SIMDs of 16 for four clocks (scalar ones issue beside them; where nothing was executed they are counted all the same).
SM120 = {"f8f6f4": 2048, "f4": 4096, "f16": 512}
DEVICES = [
    Device("RTX 5090", "sm_120", 170, 2.85, 1792, SM120),
    Device("RTX 5070 Ti", "sm_120", 70, 2.7, 896, SM120),
    Device("GB10", "sm_120", 48, 2.6, 273, SM120),
    Device("MI355X", "gfx950", 256, 2.4, 8000, {"f8f6f4": 8192, "f4": 16384, "f16": 4096}, issue=1),
    Device("H200", "sm_90", 132, 1.98, 4550, {"f16": 637e3 / 132 / 1.98}),
]


class Kernel:
    """An instance. `keys`: of a tile; `rows`: query rows computed on it (padding included); `warps`: that share a tile.
    """

    def __init__(self, title, arch, instance, fmt, keys, rows, warps, prefill=False, head_dim=128):
        self.title, self.arch, self.instance, self.fmt = title, arch, instance, fmt
        self.keys, self.rows, self.warps, self.prefill, self.head_dim = keys, rows, warps, prefill, head_dim
        if head_dim != 128:
            self.title += f", head_dim {head_dim}"


KERNELS = [
    Kernel("decode, native QK and PV", "sm_120", "decode(Mxfp4, Mxfp4Tokens, 128, 1, 4, 2, 2)", "mxfp4", 32, 8, 1),
    Kernel("decode, native QK", "sm_120", "decode(Mxfp4, Mxfp4, 128, 1, 4, 2, 2)", "mxfp4", 32, 8, 1),
    Kernel("decode, native QK", "sm_120", "decode(Nvfp4, Nvfp4, 128, 1, 4, 2, 2)", "nvfp4", 32, 8, 1),
    Kernel("decode, native QK and PV", "sm_120", "decode(Nvfp4, Nvfp4Tokens, 128, 1, 4, 2, 2)", "nvfp4", 32, 8, 1),
    Kernel("decode, native QK and PV", "sm_120", "decode(Nvfp4, Nvfp4Tokens, 64, 1, 4, 3, 2)", "nvfp4", 32, 8, 1, head_dim=64),
    Kernel("decode, native QK", "sm_120", "decode(Mxfp8, Mxfp8, 128, 1, 4, 1, 2)", "mxfp8", 32, 8, 1),
    Kernel("decode, native QK", "sm_120", "decode(Mxfp8, Mxfp8, 64, 1, 4, 2, 2)", "mxfp8", 32, 8, 1, head_dim=64),
    Kernel("prefill, native", "sm_120", "prefill(Mxfp4, Mxfp4Tokens, 128, 32)", "mxfp4", 32, 64, 4, prefill=True),
    Kernel("prefill, native", "sm_120", "prefill(Nvfp4, Nvfp4Tokens, 128, 32)", "nvfp4", 32, 64, 4, prefill=True),
    Kernel("prefill, native", "sm_120", "prefill(Nvfp4, Nvfp4Tokens, 64, 32)", "nvfp4", 32, 64, 4, prefill=True, head_dim=64),
    Kernel("prefill, native QK", "sm_120", "prefill_decoded(Mxfp4, Mxfp4, 128, 64)", "mxfp4", 64, 128, 8, prefill=True),
    Kernel("prefill, native QK", "sm_120", "prefill_decoded(Mxfp8, Mxfp8, 128, 64)", "mxfp8", 64, 128, 8, prefill=True),
    Kernel("prefill, native QK", "sm_120", "prefill_decoded(Mxfp8, Mxfp8, 64, 64)", "mxfp8", 64, 128, 8, prefill=True, head_dim=64),
    Kernel("decode, native QK and PV", "gfx950", "native(Mxfp4, Mxfp4Tokens, 128, 4)", "mxfp4", 128, 16, 1),
    Kernel("decode, native QK", "gfx950", "native(Mxfp4, Mxfp4, 128, 4)", "mxfp4", 128, 16, 1),
    Kernel("decode in registers", "gfx950", "decode(Nvfp4, Nvfp4, 128, 4, 64, 2)", "nvfp4", 64, 16, 1),
    Kernel("decode in registers", "gfx950", "decode(Fp8, Fp8, 128, 2, 32, 2)", "fp8_e4m3", 32, 16, 1),
    Kernel("decode", "gfx950", "decode(Bf16, Bf16, 128, 2, 32, 1)", "bf16", 32, 16, 1),
    Kernel("prefill, native", "gfx950", "native_prefill(Mxfp4, Mxfp4Tokens, 128)", "mxfp4", 128, 64, 4, prefill=True),
    Kernel("prefill, native QK", "gfx950", "native_prefill(Mxfp4, Mxfp4, 128)", "mxfp4", 128, 64, 4, prefill=True),
    Kernel("prefill, native QK", "gfx950", "native_prefill(Mxfp8, Mxfp8, 128)", "mxfp8", 128, 64, 4, prefill=True),
    Kernel("decode in registers", "sm_90", "plain(decode(Mxfp4, Mxfp4, 128, 1, 4, 4, 2))", "mxfp4", 32, 8, 1),
    Kernel("decode in registers", "sm_90", "plain(decode(Nvfp4, Nvfp4, 128, 1, 4, 4, 2))", "nvfp4", 32, 8, 1),
    Kernel("decode in registers", "sm_90", "plain(decode(Fp8, Fp8, 128, 1, 4, 2, 3))", "fp8_e4m3", 32, 8, 1),
    Kernel("decode", "sm_90", "plain(decode(Bf16, Bf16, 128, 1, 6, 1, 2))", "bf16", 32, 8, 1),
]


class Product:
    """A matrix product's kernel. `rows`: of X a block; `x_bytes`: of each in shared memory, a stage of 128 columns; `warps`, and
    `w_rows` of W a block."""

    def __init__(self, title, arch, instance, fmt, rows, x_bytes, warps, w_rows):
        self.title, self.arch, self.instance, self.fmt, self.rows = title, arch, instance, fmt, rows
        self.x_bytes, self.warps, self.w_rows = x_bytes, warps, w_rows


PRODUCTS = [
    Product("W4A4, native", "sm_120", "gemm_native(Mxfp4, 8)", "mxfp4", 8, 64, 2, 64),
    Product("W4A4, native", "sm_120", "gemm_native(Mxfp4, 64)", "mxfp4", 64, 64, 4, 128),
    Product("W4A4, native", "sm_120", "gemm_native(Nvfp4, 8)", "nvfp4", 8, 64, 2, 64),
    Product("W4A4, native", "sm_120", "gemm_native(Nvfp4, 64)", "nvfp4", 64, 64, 4, 128),
    Product("W4A4, native", "gfx950", "gemm_native(Mxfp4, 16)", "mxfp4", 16, 64, 2, 32),
    Product("W4A4, native", "gfx950", "gemm_native(Mxfp4, 64)", "mxfp4", 64, 64, 4, 128),
    Product("W4A16, X in terms", "gfx950", "gemm_terms(Mxfp4, 16)", "mxfp4", 16, 384, 2, 32),
    Product("W4A16, X in terms", "gfx950", "gemm_terms(Mxfp4, 64)", "mxfp4", 64, 384, 4, 128),
    Product("W decoded", "gfx950", "gemm(Nvfp4, 16)", "nvfp4", 16, 256, 2, 32),
    Product("W decoded", "gfx950", "gemm(Nvfp4, 64)", "nvfp4", 64, 256, 4, 128),
]


class Published:
    """Another kernel's measured figure, as its authors give it, and what the model says of ours on the same problem.

    `ours`: instance of KERNELS (TFLOPS of prefill without a mask), or of PRODUCTS with M, N and K (microseconds)."""

    def __init__(self, device, what, figure, source, ours, mnk=None):
        self.device, self.what, self.figure, self.source, self.ours, self.mnk = device, what, figure, source, ours, mnk


SAGE3 = "[SageAttention3](https://arxiv.org/abs/2505.11594)"
HIPKITTENS = "[HipKittens](https://hazyresearch.stanford.edu/blog/2025-11-09-hk)"
FLASHINFER = "[FlashInfer 3026](https://github.com/flashinfer-ai/flashinfer/pull/3026)"
AITER = "[AITER 4782](https://github.com/ROCm/aiter/pull/4782)"
PREFILL_SM120 = "prefill(Mxfp4, Mxfp4Tokens, 128, 32)"
PREFILL_NVFP4_SM120 = "prefill(Nvfp4, Nvfp4Tokens, 128, 32)"
PREFILL_GFX950 = "native_prefill(Mxfp4, Mxfp4Tokens, 128)"
PUBLISHED = [
    Published("RTX 5090", "prefill, head_dim 128: NVFP4 Q, K, P, V, one operand each", "1038 TFLOPS", SAGE3, PREFILL_SM120),
    Published("RTX 5090", "the same, beside ours from NVFP4: five operands of Q, four of P", "1038 TFLOPS", SAGE3, PREFILL_NVFP4_SM120),
    Published("RTX 5090", "prefill, head_dim 128: FlashAttention 2, a fifth of it", "about 208 TFLOPS", SAGE3, PREFILL_SM120),
    Published("MI355X", "prefill, head_dim 128: Mojo's, BF16, 16 x 16 heads x 2048", "430 TFLOPS", HIPKITTENS, PREFILL_GFX950),
    Published("RTX 5090", "product 1 x 4608 x 7168, NVFP4", "31.5 us", FLASHINFER, "gemm_native(Nvfp4, 8)", (1, 4608, 7168)),
    Published("RTX 5090", "product 64 x 7168 x 5120, NVFP4", "25.4 us", FLASHINFER, "gemm_native(Nvfp4, 64)", (64, 7168, 5120)),
    Published("RTX 5090", "product 64 x 5120 x 16384, NVFP4", "58.9 us", FLASHINFER, "gemm_native(Nvfp4, 64)", (64, 5120, 16384)),
    Published("GB10", "product 1 x 4608 x 7168, NVFP4", "146.7 us", FLASHINFER, "gemm_native(Nvfp4, 8)", (1, 4608, 7168)),
    Published("GB10", "product 64 x 7168 x 5120, NVFP4", "168.6 us", FLASHINFER, "gemm_native(Nvfp4, 64)", (64, 7168, 5120)),
    Published("MI355X", "product 1 x 8448 x 7168, MXFP4", "23.2 us", AITER, "gemm_native(Mxfp4, 16)", (1, 8448, 7168)),
    Published("MI355X", "product 128 x 8448 x 7168, MXFP4", "60.1 us", AITER, "gemm_native(Mxfp4, 64)", (128, 8448, 7168)),
]


def matrix_clocks(device, mnemonic):
    """Clocks of a multiprocessor's matrix cores for one instruction."""
    for pattern, flop, kind in ((r"HMMA\.16816", 4096, "f16"), (r"QMMA\.SF\.16832", 8192, "f8f6f4"), (r"OMMA\.SF\.16864", 16384, "f4"),
                                (r"v_mfma_scale_f32_16x16x128", 65536, "f8f6f4"), (r"v_mfma_f32_16x16x32", 16384, "f16")):
        if re.match(pattern, mnemonic):
            return flop / device.matrix[kind]
    raise SystemExit(f"time_model: no rate is known of {mnemonic}")


def work(kernel, gates, executed):
    """What all warps of a tile, or of a block of a product, do: matrix instructions by mnemonic, and instructions that take issue slots."""
    ran = executed.get(kernel.arch, {}).get(kernel.instance)
    if ran:
        return {m: n for m, n in ran.items() if m.startswith("v_mfma")}, ran["vector"] + ran["matrix"]
    row = gates[kernel.arch][kernel.instance]
    # Every warp runs the loop once for the tile or stage.
    return {m: n * kernel.warps for m, n in row["matrix"].items()}, row["loop_instructions"] * kernel.warps


def tile(device, kernel, gates, executed):
    """Clocks of one multiprocessor for one tile, by resource."""
    size = 2 * kernel.keys * KEY_BYTES[kernel.fmt] * kernel.head_dim // 128
    matrix, issued = work(kernel, gates, executed)
    clocks = {
        "memory": size / device.bytes_per_clock,
        "matrix": sum(n * matrix_clocks(device, m) for m, n in matrix.items()),
        # Staged once, read by every warp that shares the tile.
        "shared": (1 + kernel.warps) * size / device.shared,
        "exp": kernel.keys * kernel.rows / device.exp,
    }
    clocks["issue"] = issued / device.issue
    return size, clocks


def product_stage(device, product, gates, executed):
    """Clocks of one multiprocessor for a stage of one block, by resource."""
    matrix, issued = work(product, gates, executed)
    codes = product.w_rows * 64
    scales = product.w_rows * (4 if product.fmt == "mxfp4" else 8)
    x = product.rows * product.x_bytes
    clocks = {
        "memory": (codes + scales) / device.bytes_per_clock,  # X is other blocks', too, and in the second-level cache
        "matrix": sum(n * matrix_clocks(device, m) for m, n in matrix.items()),
        # Written once; W read by the warp that owns its rows, X by all.
        "shared": (2 * codes + (1 + product.warps) * x) / device.shared,
        "issue": issued / device.issue,
    }
    return codes + scales, clocks


def print_products(device, gates, executed):
    print("| product | format | rows of X | bytes | memory | matrix | shared | issue | rules | share |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for product in PRODUCTS:
        if product.arch != device.arch:
            continue
        if product.instance not in gates.get(product.arch, {}):
            print(f"| {product.title} | {product.fmt} | not in perf/isa_gates.json: {product.instance} |")
            continue
        size, clocks = product_stage(device, product, gates, executed)
        known = dict(clocks)
        # With many rows other blocks find W in the second-level cache.
        bar = "matrix" if product.rows > 16 else "memory"
        if bar == "matrix":
            del known["memory"]
        rules = max(known, key=known.get)
        cells = [f"{clocks[k]:.0f}" for k in ("memory", "matrix", "shared", "issue")]
        print(f"| {product.title} | {product.fmt} | {product.rows} | {size} | " + " | ".join(cells) +
              f" | {rules} | {100 * clocks[bar] / known[rules]:.0f} % of {bar} |")
    print()


def product_time(device, product, mnk, gates, executed):
    """Microseconds of a whole product, and what rules them: the busiest multiprocessor's blocks one after the other."""
    m, n, k = mnk
    _, clocks = product_stage(device, product, gates, executed)
    blocks = -(-n // product.w_rows) * -(-m // product.rows)
    stages = -(-k // 128)
    w_bytes = n * k * (68 if product.fmt == "mxfp4" else 72) / 128
    times = {r: c * stages * -(-blocks // device.units) / device.ghz / 1e3 for r, c in clocks.items() if r != "memory"}
    times["memory"] = w_bytes / device.gb_s / 1e3
    rules = max(times, key=times.get)
    return times[rules], rules


def print_published(gates, executed):
    print("| device | problem | published | source | the model, of ours | rules |")
    print("|---|---|---|---|---|---|")
    for p in PUBLISHED:
        device = next(d for d in DEVICES if d.name == p.device)
        if p.mnk:
            product = next(x for x in PRODUCTS if x.arch == device.arch and x.instance == p.ours)
            time, rules = product_time(device, product, p.mnk, gates, executed)
            ours = f"{time:.1f} us"
        else:
            kernel = next(x for x in KERNELS if x.arch == device.arch and x.instance == p.ours)
            if kernel.instance not in gates.get(kernel.arch, {}):
                print(f"| {p.device} | {p.what} | {p.figure} | {p.source} | not in perf/isa_gates.json: {kernel.instance} | |")
                continue
            _, clocks = tile(device, kernel, gates, executed)
            del clocks["memory"]
            rules = max(clocks, key=clocks.get)
            flop = 4 * kernel.keys * kernel.rows * kernel.head_dim
            rate = lambda c: flop / c * device.units * device.ghz / 1e3
            ours = f"{rate(clocks[rules]):.0f} TFLOPS; matrix core alone {rate(clocks['matrix']):.0f}"
        print(f"| {p.device} | {p.what} | {p.figure} | {p.source} | {ours} | {rules} |")
    print()


def main():
    with open(os.path.join(ROOT, "perf", "isa_gates.json"), encoding="utf-8") as text:
        gates = json.load(text)
    with open(os.path.join(ROOT, "perf", "executed.json"), encoding="utf-8") as text:
        executed = json.load(text)
    for device in DEVICES:
        print(f"{device.name} ({device.arch}, {device.units} units at {device.ghz} GHz, {device.gb_s} GB/s: "
              f"{device.bytes_per_clock:.1f} B a clock and unit)\n")
        print("| kernel | format | keys x rows | bytes | memory | matrix | shared | exp | issue | rules | share |\n"
              "|---|---|---|---|---|---|---|---|---|---|---|")
        for kernel in KERNELS:
            if kernel.arch != device.arch:
                continue
            if kernel.instance not in gates.get(kernel.arch, {}):
                print(f"| {kernel.title} | {kernel.fmt} | not in perf/isa_gates.json: {kernel.instance} |")
                continue
            size, clocks = tile(device, kernel, gates, executed)
            known = dict(clocks)
            if kernel.prefill:
                del known["memory"]  # the second-level cache serves the other query tiles and heads
            rules = max(known, key=known.get)
            bar = "matrix" if kernel.prefill else "memory"
            share = 100 * clocks[bar] / known[rules]
            cells = [f"{clocks[k]:.0f}" for k in ("memory", "matrix", "shared", "exp", "issue")]
            print(f"| {kernel.title} | {kernel.fmt} | {kernel.keys} x {kernel.rows} | {size} | " + " | ".join(cells) +
                  f" | {rules} | {share:.0f} % of {bar} |")
        print()
        if any(product.arch == device.arch for product in PRODUCTS):
            print_products(device, gates, executed)
    print("Published figures of other kernels\n")
    print_published(gates, executed)


if __name__ == "__main__":
    main()
