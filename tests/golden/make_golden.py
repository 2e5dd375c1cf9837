"""Writes the golden files next to this script from ml_dtypes and torchao.

    python -m venv venv && venv/bin/pip install numpy ml_dtypes torch torchao
    venv/bin/python make_golden.py

Each file is JSON and records the versions of the packages that produced it. Byte strings are lower-case hex, floats are
the hex of their 32 bits (8 digits each, in order). The files are committed; the C++ tests read them and need no Python.
Everything runs on the CPU and is deterministic. Only the values are theirs: which inputs to try is chosen here.
"""

import json
import pathlib
import struct

import ml_dtypes
import numpy as np
import torch
import torchao
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_mx
from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize
from torchao.prototype.mx_formats.utils import to_blocked

HERE = pathlib.Path(__file__).resolve().parent
INF, NAN = float("inf"), float("nan")


def versions():
    return {
        "ml_dtypes": ml_dtypes.__version__,
        "numpy": np.__version__,
        "torch": torch.__version__.split("+")[0],
        "torchao": torchao.__version__.split("+")[0],
    }


def floats_to_hex(values):
    return "".join(f"{b:08x}" for b in np.ascontiguousarray(values, np.float32).view(np.uint32).ravel())


def bytes_to_hex(values):
    return np.ascontiguousarray(values).view(np.uint8).tobytes().hex()


def neighbours(value):
    """A float32 and the ones just below and above it."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return [bits - 1, bits, bits + 1] if bits > 0 else [bits, bits + 1]


# --- ml_dtypes: element by element ------------------------------------------------------------------------------------

ML_DTYPES = [
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e8m0fnu",
    "bfloat16",
]


def element_patterns(rng):
    """Bit patterns: every value and tie of every small format, their neighbours, and some at random."""
    patterns = set()
    for name in ML_DTYPES[:-2]:
        dtype = getattr(ml_dtypes, name)
        bits = {"4": 4, "6": 6, "8": 8}[name[5]]
        values = np.arange(2 ** (bits - 1), dtype=np.uint8).view(dtype).astype(np.float32)
        values = np.unique(values[np.isfinite(values)])
        # The tie above the largest value is where formats that overflow do so.
        top = values[-1] + (values[-1] - values[-2]) / 2
        for value in [*values[1:], *((values[1:] + values[:-1]) / 2), top, 2 * values[-1]]:
            patterns.update(neighbours(value))
    for exponent in range(-127, 128, 8):
        for mantissa in (1.0, 1.5):
            patterns.update(neighbours(mantissa * 2.0**exponent))
    for exponent in (-127, -126, 126, 127):
        for mantissa in (1.0, 1.5):
            patterns.update(neighbours(mantissa * 2.0**exponent))
    patterns.update([0, 1, 2, 0x007FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF])
    patterns.update(int(b) for b in rng.integers(0, 0x7F800000, 60))
    patterns.update(int(b) for b in (2.0 ** rng.uniform(-18, 17, 200)).astype(np.float32).view(np.uint32))
    ordered = sorted(patterns)
    return np.array(ordered + [b | 0x80000000 for b in ordered], np.uint32)


def elements(rng):
    patterns = element_patterns(rng)
    values = patterns.view(np.float32)
    out = {"versions": versions(), "x": floats_to_hex(values), "codes": {}, "values": {}}
    with np.errstate(all="ignore"):
        for name in ML_DTYPES:
            dtype = getattr(ml_dtypes, name)
            codes = values.astype(dtype)
            out["codes"][name] = bytes_to_hex(codes)
            if name != "bfloat16":
                every = np.arange(256 if name[5] == "8" else 2 ** int(name[5]), dtype=np.uint8).view(dtype)
                out["values"][name] = floats_to_hex(every.astype(np.float32))
        out["codes"]["float16"] = bytes_to_hex(values.astype(np.float16))
    return out


# --- torchao: blocks --------------------------------------------------------------------------------------------------


def mx_blocks(rng):
    blocks = []

    def add(kind, values):
        block = np.zeros(32, np.float32)
        values = np.asarray(values, np.float32)
        block[: len(values)] = values
        blocks.append((kind, block))

    signs = np.where(np.arange(32) % 3 == 0, -1.0, 1.0)
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, 7], np.float32)
    add("ties", np.repeat(ties, 2) * signs)
    add("ties", np.repeat(ties, 2) * signs * 2.0**-20)
    add("tie_neighbours", np.concatenate([np.nextafter(ties, np.float32(9)), np.nextafter(ties, np.float32(-9))]))
    fp8_ties = np.array([1.0625, 1.1875, 17.0, 19.0, 240, 248, 256, 272, 304, 400, 416, 432, 440, 444, 448], np.float32)
    add("ties", fp8_ties)
    add("ties", fp8_ties * 2.0**-8)
    add("zero", np.zeros(32))
    add("zero", -np.zeros(32))
    add("nan", [1.0, NAN, -2.0, 0.25])
    add("inf", [1.0, INF, -2.0, 0.25])
    add("inf", [1.0, -INF, -2.0, 0.25])
    add("nan", [INF, NAN, -INF, -NAN])
    # amax at powers of two, at the largest elements, at the even mode's rounding points, and next to each
    for exponent in (-130, -126, -124, -118, -60, -1, 0, 1, 40, 127):
        for mantissa in (1.0, 1.5, 1.75, 1.875, 1.9375):
            for bits in neighbours(mantissa * 2.0**exponent):
                amax = np.array([bits], np.uint32).view(np.float32)[0]
                if not np.isfinite(amax):
                    continue
                if mantissa in (1.5, 1.75) or exponent in (-124, 0, 127) or bits % 8 == 0:
                    add("amax", np.concatenate([[amax], amax * rng.uniform(-1, 1, 31)]))
    for bits in (1, 2, 3, 0x1000, 0x400000, 0x600000, 0x7FFFFF):
        amax = np.array([bits], np.uint32).view(np.float32)[0]
        add("subnormal", np.concatenate([[amax], rng.integers(-bits, bits + 1, 31) * 2.0**-149]))
    add("amax", np.concatenate([[np.finfo(np.float32).max], rng.uniform(-1, 1, 31) * 3e38]))
    for _ in range(24):
        add("random", rng.normal(size=32) * 2.0 ** rng.integers(-30, 30))
    for _ in range(8):  # few mantissa bits, so that ties are common
        add("random", rng.integers(-128, 129, 32) * 2.0 ** rng.integers(-20, 20))
    return blocks


MX_ELEMENTS = {"e2m1": torch.float4_e2m1fn_x2, "e4m3": torch.float8_e4m3fn}


def mx(rng):
    blocks = mx_blocks(rng)
    data = torch.from_numpy(np.stack([b for _, b in blocks]))
    out = {"versions": versions(), "kinds": [k for k, _ in blocks], "x": floats_to_hex(data.numpy()), "results": []}
    for mode in (
        ScaleCalculationMode.FLOOR,
        ScaleCalculationMode.CEIL,
        ScaleCalculationMode.RCEIL,
        ScaleCalculationMode.EVEN,
    ):
        for name, element in MX_ELEMENTS.items():
            scales, codes = to_mx(data.clone(), element, 32, mode)
            out["results"].append(
                {
                    "mode": mode.name.lower(),
                    "element": name,
                    "scales": bytes_to_hex(scales.view(torch.uint8).numpy()),
                    "codes": bytes_to_hex(codes.view(torch.uint8).numpy()),
                }
            )
    return out


def nvfp4_groups(rng):
    groups = []

    def add(kind, values):
        group = np.zeros(16, np.float32)
        values = np.asarray(values, np.float32)
        group[: len(values)] = values
        groups.append((kind, group))

    halves = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
    ties = np.array([6, *halves, *(-h for h in halves), 4], np.float32)
    for sf in (1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875, 7 / 512, 448):
        add("ties", ties * sf)
    add("zero", np.zeros(16))
    add("zero", -np.zeros(16))
    add("nan", [1, NAN, -2])
    add("inf", [1, INF, -2])
    for sf in (2.0**-12, 2.0**-10, 1.5 * 2.0**-10, 2.0**-9, 2.5 * 2.0**-9, 2.0**-7, 2.0**-6, 448, 464, 480, 1000):
        for bits in neighbours(6.0 * sf):
            amax = np.array([bits], np.uint32).view(np.float32)[0]
            add("amax", np.concatenate([[amax], amax * rng.uniform(-1, 1, 15)]))
    for _ in range(40):
        add("random", rng.normal(size=16) * 2.0 ** rng.integers(-6, 9))
    for _ in range(16):
        add("random", rng.integers(-128, 129, 16) * 2.0 ** rng.integers(-8, 3))
    return groups


def nvfp4(rng):
    groups = nvfp4_groups(rng)
    data = np.stack([g for _, g in groups])
    out = {"versions": versions(), "kinds": [k for k, _ in groups], "results": []}
    for scale in (1.0, 2.0**-12, 2.0**20, 0.01):
        # The groups are written for a global scale of 1; times the scale they exercise the same cases.
        x = (data * np.float32(scale)).astype(np.float32)
        sf, codes = nvfp4_quantize(torch.from_numpy(x), 16, torch.tensor(scale, dtype=torch.float32))
        out["results"].append(
            {
                "global": floats_to_hex(np.float32(scale)),
                "x": floats_to_hex(x),
                "scales": bytes_to_hex(sf.view(torch.uint8).numpy()),
                "codes": bytes_to_hex(codes.view(torch.uint8).numpy()),
            }
        )
    return out


def blocked():
    """to_blocked of a matrix that holds 1 + its linear index: 0 is padding."""
    out = {"versions": versions(), "shapes": []}
    for rows, groups in ((1, 1), (31, 3), (128, 4), (129, 5), (260, 9)):
        matrix = torch.arange(1, rows * groups + 1, dtype=torch.int32).reshape(rows, groups)
        out["shapes"].append({"rows": rows, "groups": groups, "blocked": to_blocked(matrix).tolist()})
    return out


def main():
    for name, content in (
        ("elements", elements(np.random.default_rng(1))),
        ("mx", mx(np.random.default_rng(2))),
        ("nvfp4", nvfp4(np.random.default_rng(3))),
        ("blocked", blocked()),
    ):
        path = HERE / f"{name}.json"
        text = json.dumps(content, separators=(",", ":"))
        for joint in ('],"', '","', '"},{'):  # some line breaks, for diffs
            text = text.replace(joint, joint.replace(",", ",\n"))
        path.write_text(text + "\n")
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
