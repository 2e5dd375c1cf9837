#!/usr/bin/env python3
"""What gfx950's kernels execute, counted by the interpreter of tests/isa: those of attention for a tile of keys, on real K and V, and
those of products for a stage of 128 columns of a block.

perf/isa_gates.json has a loop's instructions as they lie in the code, rarely taken ways included. Here the tool's `attend` runs with
1024 and with 2048 keys of tests/data/sample_kv.safetensors, and the difference is that of so many tiles: what opens and ends an item
cancels out, and what is taken rarely counts rarely. Its `gemm` runs likewise, with 2048 and with 4096 columns.

  executed.py check  BUILD   compares with perf/executed.json; 1 where a count has moved by more than 3 %
  executed.py update BUILD   writes it
"""
import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

from isa_gates import TOLERANCE, rows_of, short_name

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = os.path.join(ROOT, "perf", "executed.json")
SAMPLE = os.path.join(ROOT, "tests", "data", "sample_kv.safetensors")
UNITS = ("vector", "matrix", "lds", "memory", "scalar")
SHORT, LONG = 1024, 2048
# Of a build folder: file, and the target that makes it.
TOOL = ("bin/fp4pa", "fp4pa_tool")
RUNTIME = ("tests/isa/libfp4pa_isa_runtime.so", "fp4pa_isa_runtime")

# (instance, keys and query rows of its tile, query tokens, arguments of `fp4pa attend`)
CALLS = [
    ("native(Mxfp4, Mxfp4Tokens, 128, 4)", 128, 16, 1, ["--format", "mxfp4", "--v-scale-axis", "tokens"]),
    ("native(Mxfp4, Mxfp4, 128, 4)", 128, 16, 1, ["--format", "mxfp4"]),
    ("native(PerToken, PerToken, 128, 4)", 128, 16, 1, ["--format", "e8m0_per_token"]),
    ("decode(Nvfp4, Nvfp4, 128, 4, 64, 2)", 64, 16, 1, ["--format", "nvfp4"]),
    ("decode(Fp8, Fp8, 128, 2, 32, 2)", 32, 16, 1, ["--format", "fp8_e4m3"]),
    ("decode(Bf16, Bf16, 128, 2, 32, 1)", 32, 16, 1, ["--format", "bf16"]),
    ("decode(Fp8, Nvfp4, 128, 2, 32, 2)", 32, 16, 1, ["--k-format", "fp8_e4m3", "--v-format", "nvfp4"]),
    ("native_prefill(Mxfp4, Mxfp4Tokens, 128)", 128, 64, 64, ["--format", "mxfp4", "--v-scale-axis", "tokens", "--no-causal"]),
    ("native_prefill(Mxfp4, Mxfp4, 128)", 128, 64, 64, ["--format", "mxfp4", "--no-causal"]),
    ("native_prefill(Mxfp8, Mxfp8, 128)", 128, 64, 64, ["--format", "mxfp8", "--no-causal"]),
]

# (instance, its path of hip/gemm_path.hpp, rows of X and of W a block, arguments of `fp4pa gemm`)
PRODUCTS = [
    ("gemm_native(Mxfp4, 16)", 0, 16, 32, ["--format", "mxfp4", "--activations", "a4"]),
    ("gemm_native(Mxfp4, 64)", 0, 64, 128, ["--format", "mxfp4", "--activations", "a4"]),
    ("gemm_terms(Mxfp4, 16)", 3, 16, 32, ["--format", "mxfp4"]),
    ("gemm_terms(Mxfp4, 64)", 3, 64, 128, ["--format", "mxfp4"]),
    ("gemm(Nvfp4, 16)", 2, 16, 32, ["--format", "nvfp4"]),
    ("gemm(Nvfp4, 64)", 2, 64, 128, ["--format", "nvfp4"]),
]
PRODUCT_ROWS = 256  # of W
PRODUCT_SHORT, PRODUCT_LONG, STAGE = 2048, 4096, 128  # columns


class Sample:
    """The sample's tensors, of which a call takes the last tokens."""

    def __init__(self):
        with open(SAMPLE, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            self.header = json.loads(file.read(size))
            self.data = file.read()

    def shape(self, name):
        return self.header[name]["shape"]

    def last(self, name, tokens):
        heads, have, dim = self.shape(name)
        row = 2 * dim  # bf16
        begin = self.header[name]["data_offsets"][0]
        parts = [self.data[begin + (h * have + have - tokens) * row:begin + (h + 1) * have * row] for h in range(heads)]
        return [heads, tokens, dim], b"".join(parts)

    def write(self, path, queries, keys):
        header, data = {k: v for k, v in self.header.items() if k == "__metadata__"}, b""
        for name, tokens in (("q", queries), ("k", keys), ("v", keys)):
            shape, part = self.last(name, tokens)
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
            data += part
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)


def program_of(build, part):
    """Where a build has the tool or the interpreter; without the latter a loader would go on with the machine's own runtime."""
    file, target = part
    path = os.path.join(build, file)
    if not os.path.exists(path):
        sys.exit(f"executed: {path} is missing; build the target {target}, with HIP and gfx950")
    return path


def report_of(build, command, kernel):
    """[(match of the kernel's name, launches, instructions of one by unit, and of the matrix core by name)] on one compute unit."""
    runtime, tool = program_of(build, RUNTIME), program_of(build, TOOL)
    environment = dict(os.environ, LD_PRELOAD=os.path.abspath(runtime), FP4PA_ISA_REPORT="1", FP4PA_ISA_COMPUTE_UNITS="1")
    ran = subprocess.run([tool, *command, "--backend", "hip"], env=environment, capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):  # 1: a native kernel's errors are its own, not the contract's
        sys.exit(f"executed: {' '.join(command)} failed\n{ran.stdout}{ran.stderr}")
    number = r" +(\d+) "
    found = []
    for line in re.finditer("executed" + number + "launches" + "".join(number + unit for unit in UNITS) + r" +(\S+)(.*)", ran.stdout):
        name = re.fullmatch(kernel, line[len(UNITS) + 2])
        if name:
            launches = int(line[1])
            counts = dict(zip(UNITS, map(int, line.groups()[1:])))
            counts |= {name: int(times) for times, name in re.findall(r"(\d+) (v_mfma\w+)", line[len(UNITS) + 3])}
            found.append((name, {name: times / launches for name, times in counts.items()}))
    if len(found) != 1:
        sys.exit(f"executed: {' '.join(command)} ran {len(found)} kernels like {kernel}, not 1\n{ran.stdout}{ran.stderr}")
    return found[0]


def execute(build, path, arguments):
    """(instance, instructions by unit, and the matrix core's by name) of one call."""
    name, counts = report_of(build, ["attend", path, "--repeats", "1", "--page-size", "64", *arguments], r"fp4pa_attend_(\d+)")
    return short_name(rows_of("hip/instances.hpp")[int(name[1])]), counts


def difference(short, long, times):
    return {name: round((long[name] - short.get(name, 0)) / times, 1) for name in long}


def count(build):
    """{instance: {keys or w_rows, rows, instructions of a tile or stage, all its waves, by unit, and the matrix core's by name}}"""
    sample, table = Sample(), {}
    for instance, keys, rows, queries, arguments in CALLS:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kv.safetensors")
            results = []
            for length in (SHORT, LONG):
                sample.write(path, queries, length)
                ran, counts = execute(build, path, arguments)
                if ran != instance:
                    sys.exit(f"executed: {' '.join(arguments)} is served by {ran}, not by {instance}")
                results.append(counts)
        kv_heads = sample.shape("k")[0]
        units = kv_heads * -(-queries * sample.shape("q")[0] // kv_heads // rows)
        tiles = (LONG - SHORT) // keys * units
        table[instance] = {"keys": keys, "rows": rows} | difference(*results, tiles)
    for instance, way, rows, w_rows, arguments in PRODUCTS:
        kernel = rf".*gemmIL\w*GemmPathE{way}ELi{rows // 16}E\w*"
        size = ["gemm", "--m", str(rows), "--n", str(PRODUCT_ROWS), *arguments]
        results = [report_of(build, [*size, "--k", str(columns)], kernel)[1] for columns in (PRODUCT_SHORT, PRODUCT_LONG)]
        stages = (PRODUCT_LONG - PRODUCT_SHORT) // STAGE * (PRODUCT_ROWS // w_rows)
        table[instance] = {"rows": rows, "w_rows": w_rows} | difference(*results, stages)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=("check", "update"))
    parser.add_argument("build", help="with the tool, HIP's kernels and tests/isa")
    arguments = parser.parse_args()
    table = count(arguments.build)
    if arguments.command == "update":
        with open(TABLE, "w", encoding="utf-8") as text:
            json.dump({"gfx950": table}, text, indent=1)
            text.write("\n")
        print(f"{len(table)} kernels counted")
        return
    with open(TABLE, encoding="utf-8") as text:
        known = json.load(text)["gfx950"]
    moved = [f"{instance}, {what}: {known.get(instance, {}).get(what)} -> {now}" for instance, row in table.items() for what, now in row.items()
             if abs(now - known.get(instance, {}).get(what, 0)) > TOLERANCE * now]
    print("\n".join(moved) or f"{len(table)} kernels execute what perf/executed.json says")
    if moved:
        sys.exit("executed: where a change is meant, run `perf/executed.py update BUILD`")


if __name__ == "__main__":
    main()
