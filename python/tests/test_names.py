"""Names and numbers that no call takes: strings out of a set, back ends, sizes of plans, scales."""

import os
import subprocess
import sys

import numpy as np
import pytest

import fp4pa
from calls import Call, HEADS, Q_HEADS, DIM, PAGE
from scenes import kv_tensor
from test_arguments import Elsewhere
from test_refusals import make_cache, refused


def make_plan(frame, heads=Q_HEADS, cache=None, **more):
    sizes = dict(max_batch=2, max_q_tokens=5, max_q_len=3, max_kv_len=64, q_dtype="f32", o_dtype="f32")
    return fp4pa.AttentionPlan(cache or make_cache(frame), heads, **sizes | more)


SETS = {
    "format": '"mxfp4", "nvfp4", "e8m0_per_token", "fp8_e4m3", "bf16", "f16", "mxfp8"', "scale_axis": '"head_dim", "tokens"', "order": '"hnd", "nhd"',
    "scale_mode": '"floor", "ceil", "rceil", "even"', "nvfp4_scale": '"amax_over_6", "four_over_six"', "q_dtype": '"f32", "f16", "bf16"',
    "table_kind": '"block_table", "csr"', "matrix_path": '"auto", "native", "decode"', "scale_layout": '"linear", "blocked_128x4"',
    "activations": '"a16", "a4"', "decode": '"auto", "per_tile", "once"',
}


@pytest.mark.parametrize("name", SETS)
def test_names(frame, name):
    sizes = dict(max_batch=1, max_q_tokens=1, max_q_len=1, max_kv_tokens=1, max_kv_len=1)
    calls = {
        "format": [lambda x: fp4pa.kv_shapes(x, 1, 16, 1, 64), lambda x: fp4pa.KvTensor(x, frame.zeros((1, 1, 16, 64), np.uint8))],
        "scale_axis": [lambda x: fp4pa.kv_shapes("mxfp4", 1, 16, 1, 64, scale_axis=x), lambda x: kv_tensor(frame, "bf16", 1, 16, 1, 64, scale_axis=x)],
        "order": [lambda x: fp4pa.kv_shapes("mxfp4", 1, 16, 1, 64, order=x), lambda x: make_cache(frame, order=x)],
        "scale_mode": [lambda x: make_cache(frame, scale_mode=x), lambda x: Call(frame, "quantize").run(scale_mode=x),
                       lambda x: Call(frame, "linear").run(scale_mode=x), lambda x: fp4pa.DenseAttentionPlan(2, 2, 64, scale_mode=x, **sizes)],
        "nvfp4_scale": [lambda x: make_cache(frame, nvfp4_scale=x), lambda x: Call(frame, "matmul").run(nvfp4_scale=x)],
        "q_dtype": [lambda x: make_plan(frame, q_dtype=x), lambda x: fp4pa.DenseAttentionPlan(2, 2, 64, q_dtype=x, **sizes)],
        "table_kind": [lambda x: make_plan(frame, table_kind=x)],
        "matrix_path": [lambda x: make_plan(frame, matrix_path=x), lambda x: fp4pa.DenseAttentionPlan(2, 2, 64, matrix_path=x, **sizes)],
        "scale_layout": [lambda x: Call(frame, "quantize").run(scale_layout=x), lambda x: fp4pa.quantized_scale_bytes("mxfp4", 1, 32, scale_layout=x)],
        "activations": [lambda x: fp4pa.linear_workspace_bytes(frame.zeros((1, 32)), weight, frame.zeros((1, 4)), activations=x)],
        "decode": [lambda x: fp4pa.Mxfp8AttentionPlan(2, 2, 64, decode=x, **sizes)],
    }
    weight = fp4pa.Fp4Weight(frame.zeros(64, np.uint8), frame.zeros(4, np.uint8), 4, 32)
    for call in calls[name]:
        for bad in ("nonsense", "", SETS[name].split('"')[1] + " ", SETS[name].split('"')[1].upper()):
            with pytest.raises(ValueError) as raised:
                call(bad)
            assert str(raised.value) == f'{name} is "{bad}"; allowed: {SETS[name]}'
        with pytest.raises(TypeError):
            call(3)


@pytest.mark.parametrize("arguments, status, detail", [
    (dict(heads=3), "kInvalidHeads", "num_q_heads is 3; allowed: positive multiples of num_kv_heads 2"),
    (dict(heads=0), "kInvalidHeads", "num_q_heads is 0"),
    (dict(max_batch=0), "kInvalidSize", "max_batch is 0"),
    (dict(max_q_len=6), "kInvalidSize", "max_q_len is 6; allowed: 1 to max_q_tokens 5"),
    (dict(max_kv_len=-1), "kInvalidSize", "max_kv_len is -1"),
    (dict(sm_scale=float("nan")), "kInvalidArgument", "sm_scale is nan"),
    (dict(sliding_window=-1), "kInvalidArgument", "sliding_window is -1"),
    (dict(sliding_window=4, causal=False), "kInvalidArgument", "sliding_window is 4 without causal"),
    (dict(softcap=-1.0), "kInvalidArgument", "softcap is -1"),
    (dict(tree_mask=True, alibi=True), "kInvalidArgument", "tree_mask with alibi"),
    (dict(kv_split_tokens=3), "kInvalidArgument", "kv_split_tokens is 3"),
    (dict(num_threads=-1), "kInvalidArgument", "num_threads is -1"),
    (dict(backend="nonsense"), "kUnknownBackend", 'backend is "nonsense"; allowed in this build: '),
    (dict(backend=""), "kUnknownBackend", 'backend is ""'),
], ids=str)
def test_plans(frame, arguments, status, detail):
    refused(lambda: make_plan(frame, **arguments), status, detail)


@pytest.mark.parametrize("arguments", [dict(causal=1), dict(max_batch=2**70), dict(max_batch=1.5), dict(sinks=None), dict(q_dtype=None),
                                       dict(nonsense=1)], ids=str)
def test_types(frame, arguments):
    with pytest.raises(TypeError):
        make_plan(frame, **arguments)


def test_back_ends_and_their_memory(frame):
    """A back end is asked for by name; one whose memory is another is refused before anything is read."""
    other = "cuda" if frame.backend == "cpu" else "cpu"
    call, plan_words = Call(frame, "append"), f'and the back end is "{other}"; allowed: one with this memory'
    for run in (lambda: call.run(backend=other), lambda: make_plan(frame, backend=other), lambda: Call(frame, "quantize").run(backend=other)):
        with pytest.raises(ValueError, match=plan_words):
            run()
    refused(lambda: call.run(backend="nonsense"), "kUnknownBackend", "nonsense")
    names = [b.name for b in fp4pa.backends()]
    assert "cpu" in names and all(f"{n}" in fp4pa.version_string() for n in names)
    if frame.backend == "cpu":
        plan = make_plan(frame, backend="cpu-scalar")
        assert plan.backend == "cpu-scalar" and plan.num_workers >= 1
        assert make_plan(frame, num_threads=1).num_workers == 1


@pytest.mark.parametrize("name", ["append", "append_two_tier", "gather", "copy_pages", "merge_states", "quantize", "dequantize", "quantize_weight", "linear",
                                  "matmul"])
@pytest.mark.parametrize("frame", ["numpy"], indirect=True)
def test_threads(frame, name):
    for number in (-1, 5000):
        refused(lambda: Call(frame, name).run(num_threads=number), "kInvalidArgument", f"num_threads is {number}; allowed: 0 ")
    with pytest.raises(TypeError):
        Call(frame, name).run(num_threads=2**40)


@pytest.mark.parametrize("forced, first_line", [("cpu-scalar", "cpu-scalar cpu-scalar"), ("", "cpu cpu"), ("nonsense", "kUnknownBackend")])
def test_a_back_end_that_is_forced(forced, first_line):
    """FP4PA_FORCE_BACKEND is the default of calls that name none. It is read once, so in a process of its own."""
    script = """
import numpy as np, fp4pa
pool = lambda: fp4pa.KvTensor("bf16", np.zeros((1, 2, 16, 128), np.uint8))
try:
    paged = fp4pa.AttentionPlan(fp4pa.KvCache(pool(), pool()), 2, max_batch=1, max_q_tokens=1, max_q_len=1, max_kv_len=1)
    dense = fp4pa.DenseAttentionPlan(2, 2, 64, max_batch=1, max_q_tokens=1, max_q_len=1, max_kv_tokens=1, max_kv_len=1)
    print(paged.backend, dense.backend)
except fp4pa.Error as error:
    print(error.status)
"""
    environment = dict(os.environ, FP4PA_FORCE_BACKEND=forced, CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="")  # with a GPU dense plans would be its
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout.strip() == first_line, done.stderr


def test_parts_of_one_thing_lie_in_one_memory(frame):
    """What is checked when a cache, two tiers and a weight are described."""
    far = (lambda t: Elsewhere(t)) if frame.backend == "cpu" else frame.numpy
    data, scales = (frame.zeros(s, np.uint8) for s in fp4pa.kv_shapes("mxfp4", 64, PAGE, HEADS, DIM))
    near = kv_tensor(frame, "bf16", 64, PAGE, HEADS, DIM)
    wide = lambda: far(frame.zeros((64, HEADS, PAGE, 2 * DIM), np.uint8))
    here, there = make_cache(frame, "bf16", "bf16", (64, PAGE, HEADS, DIM)), fp4pa.KvCache(fp4pa.KvTensor("bf16", wide()), fp4pa.KvTensor("bf16", wide()))
    codes, weight_scales = frame.zeros(64, np.uint8), frame.zeros(8, np.uint8)
    for build in (
        lambda: fp4pa.KvCache(fp4pa.KvTensor("mxfp4", data, far(scales)), near),
        lambda: fp4pa.KvCache(fp4pa.KvTensor("mxfp4", far(data), scales), near),
        lambda: fp4pa.KvCache(near, fp4pa.KvTensor("mxfp4", far(data), far(scales))),
        lambda: fp4pa.KvCache(near, kv_tensor(frame, "nvfp4", 64, PAGE, HEADS, DIM, global_scale=far(frame.array(np.ones(1, np.float32))))),
        lambda: fp4pa.TwoTierKvCache(here, there),
        lambda: fp4pa.TwoTierKvCache(there, here),
        lambda: fp4pa.Fp4Weight(far(codes), weight_scales, 4, 32),
        lambda: fp4pa.Fp4Weight(codes, far(weight_scales), 4, 32),
        lambda: fp4pa.Fp4Weight(codes, weight_scales, 4, 32, format="nvfp4", global_scale=far(frame.array(np.ones(1, np.float32)))),
    ):
        with pytest.raises(ValueError, match="one device for all"):
            build()


def test_what_a_plan_was_made_with(frame):
    """Tensors that the plan does not ask for, and those that it does and that are not there."""
    call, csr, tiers = (Call(frame, n) for n in ("run", "run_csr", "run_two_tier"))
    for run, words in (
        (lambda: call.run(sinks=None), "sinks is None, and the plan was made with it"),
        (lambda: csr.run(sinks=call.tensors["sinks"]), "sinks is given, and the plan was made without it"),
        (lambda: csr.run(tree_mask=frame.zeros(5, np.uint64)), "tree_mask is given"),
        (lambda: call.run(block_table=None), "allowed: block_table"),
        (lambda: csr.run(block_table=call.tensors["block_table"]), "no block_table"),
        (lambda: csr.run(kv_indices=None), "kv_indices"),
        (lambda: csr.run(recent_table=tiers.tensors["recent_table"]), "recent_table"),
    ):
        with pytest.raises(ValueError, match=words):
            run()
    refused(lambda: tiers.run(recent_table=None), "kNullPointer", "recent_table")


def test_quantizing_and_weights(frame):
    call, zeros = Call(frame, "quantize"), lambda n: frame.zeros(n, np.uint8)
    refused(lambda: call.run(global_scale=2.0), "kInvalidGlobalScale", "global_scale is 2; allowed for format mxfp4: 1")
    refused(lambda: fp4pa.quantize(frame.zeros((1, 16)), zeros(8), zeros(1), format="nvfp4", global_scale=0.0), "kInvalidGlobalScale", "global_scale is 0")
    refused(lambda: fp4pa.quantize(frame.zeros((2, 0)), zeros(0), zeros(0)), "kInvalidSize", "cols is 0")
    with pytest.raises((ValueError, fp4pa.Error), match="33.*32|32.*33"):  # the number that is wrong is of columns, not of bytes
        fp4pa.quantize(frame.zeros((2, 33)), zeros(33), zeros(4))
    with pytest.raises((ValueError, fp4pa.Error), match="mxfp8"):
        fp4pa.Fp4Weight(zeros(4 * 32), zeros(4), 4, 32, format="mxfp8")
    with pytest.raises(ValueError, match="-4|rows|0 bytes"):
        fp4pa.Fp4Weight(zeros(64), zeros(4), -4, 32)
    with pytest.raises(ValueError, match="codes has 65 bytes; allowed: 64"):
        fp4pa.Fp4Weight(zeros(65), zeros(4), 4, 32)
    weight, x, out = fp4pa.Fp4Weight(zeros(64), zeros(4), 4, 32), frame.zeros((2, 32), np.float16), frame.zeros((2, 4))
    workspace = zeros(1 << 16)
    with pytest.raises(ValueError, match="x has shape \\[2, 31\\]; allowed: the weight's 32 columns"):
        fp4pa.linear(frame.zeros((2, 31), np.float16), weight, out)
    with pytest.raises(ValueError, match="out has shape \\[4, 2\\]; allowed: .*\\[2, 4\\]"):
        fp4pa.linear(x, weight, frame.zeros((4, 2)))
    refused(lambda: fp4pa.linear(frame.zeros((2, 32)), weight, out, workspace=workspace), "kUnsupportedFormat", "x_dtype is f32")
    refused(lambda: fp4pa.linear(x, weight, out, workspace=workspace, x_global_scale=0.5), "kInvalidGlobalScale", "x_global_scale is 0.5")
    refused(lambda: fp4pa.linear(x, fp4pa.Fp4Weight(zeros(128), zeros(8), 4, 32, batch=2), out, workspace=workspace), "kInvalidSize", "weight.batch is 2")


def test_two_tiers(frame):
    cache = lambda f, heads=HEADS: make_cache(frame, f, f, (64, PAGE, heads, DIM))
    refused(lambda: fp4pa.TwoTierKvCache(cache("mxfp4"), cache("mxfp4")), "kUnsupportedFormat", "recent.k.format is mxfp4; allowed: bf16, f16, fp8_e4m3")
    refused(lambda: fp4pa.TwoTierKvCache(cache("mxfp4"), cache("bf16", 4)), "kInvalidSize", "recent.num_kv_heads is 4; allowed: 2")
    for name, value in (("window_tokens", 8), ("group_tokens", 0), ("ring_pages", 1), ("ring_pages", -3)):
        refused(lambda: fp4pa.TwoTierKvCache(cache("mxfp4"), cache("bf16"), **{name: value}), "kInvalidSize", f"{name} is {value}")
