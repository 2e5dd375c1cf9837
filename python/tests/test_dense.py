"""Attention over contiguous Q, K and V: quantised in the call, or given in MXFP8."""

import numpy as np
import pytest

import fp4pa
import reference
from scenes import int32

HEADS, KV_HEADS, DIM = 4, 2, 64
LIMITS = dict(max_batch=4, max_q_tokens=64, max_q_len=64, max_kv_tokens=256, max_kv_len=256)


def quantized(x, format, global_scale=1.0, axis=-1):
    """What a format makes of [tokens, heads, dim] of one sequence; axis 0 are groups of tokens, those that lack counting as zeros."""
    if format in ("bf16", "f16"):
        return x.astype(reference.BF16 if format == "bf16" else np.float16).astype(np.float64)
    if format == "fp8_e4m3":
        return reference.value(reference.cast(x / np.float32(global_scale), reference.E4M3), reference.E4M3) * global_scale
    turned = np.moveaxis(x, axis, -1)
    return np.moveaxis(reference.quantized_values(turned, format, global_scale), -1, axis)


def make_inputs(frame, rng, q_tokens, kv_tokens, dtype="f32"):
    shapes = (q_tokens, HEADS, DIM), (kv_tokens, KV_HEADS, DIM), (kv_tokens, KV_HEADS, DIM)
    return [frame.array(rng.standard_normal(shape).astype(np.float32), dtype) for shape in shapes]


def make_plan(frame, dtype="f32", o_dtype="f32", kind=fp4pa.DenseAttentionPlan, **more):
    dtypes = dict(o_dtype=o_dtype) | (dict(q_dtype=dtype, kv_dtype=dtype) if kind is fp4pa.DenseAttentionPlan else {})
    plan = kind(HEADS, KV_HEADS, DIM, **LIMITS, backend=frame.backend, **dtypes, **more)
    assert plan.backend == frame.backend
    return plan


def run(frame, plan, q, k, v, o_dtype="f32", q_lens=None, kv_lens=None, **more):
    """O and LSE. `q_lens` and `kv_lens` go in as an indptr."""
    shape = tuple((q[0] if isinstance(q, tuple) else q).shape)
    o, lse = frame.array(np.full(shape, 7, np.float32), o_dtype), frame.array(np.full(shape[:2], 7, np.float32))
    for name, lens in (("q_indptr", q_lens), ("kv_indptr", kv_lens)):
        if lens is not None:
            more |= {name: int32(frame, *np.cumsum([0, *lens])), "batch": len(lens)}
    plan.run(q, k, v, o, lse=lse, workspace=frame.zeros(plan.workspace_bytes, np.uint8), **more)
    return frame.numpy(o), frame.numpy(lse)


def check(frame, got, q, k, v, q_lens, kv_lens, o_dtype="f32", **masks):
    parts = [np.split(t, np.cumsum(lens)[:-1]) for t, lens in ((q, q_lens), (k, kv_lens), (v, kv_lens))]
    want = [np.concatenate(w) for w in zip(*(reference.attention(*part, **masks) for part in zip(*parts)))]
    o_bound, lse_bound = reference.bounds(frame.backend, o_dtype)
    assert reference.distance(got[0], want[0]) < o_bound
    assert reference.lse_distance(got[1], want[1]) < lse_bound


@pytest.mark.parametrize("k_format, v_format", [("nvfp4", "nvfp4"), ("mxfp4", "mxfp8"), ("mxfp8", "mxfp4"), ("f16", "bf16"), ("fp8_e4m3", "nvfp4")])
@pytest.mark.parametrize("causal", [False, True])
def test_formats(frame, rng, k_format, v_format, causal):
    q, k, v = make_inputs(frame, rng, 20, 70)
    got = run(frame, make_plan(frame, causal=causal, k_format=k_format, v_format=v_format), q, k, v)
    check(frame, got, frame.numpy(q), quantized(frame.numpy(k), k_format), quantized(frame.numpy(v), v_format), [20], [70], causal=causal)


@pytest.mark.parametrize("form, q_lens, kv_lens", [("equal", [10, 10], [35, 35]), ("indptr", [10, 10], [35, 35]), ("indptr", [1, 0, 19], [30, 8, 32]),
                                                   ("indptr", [10, 5, 5], [10, 0, 60])])
@pytest.mark.parametrize("causal", [False, True])
def test_batches(frame, rng, form, q_lens, kv_lens, causal):
    q, k, v = make_inputs(frame, rng, sum(q_lens), sum(kv_lens))
    how = dict(batch=len(q_lens)) if form == "equal" else dict(q_lens=q_lens, kv_lens=kv_lens)
    got = run(frame, make_plan(frame, causal=causal), q, k, v, **how)
    check(frame, got, frame.numpy(q), quantized(frame.numpy(k), "nvfp4"), quantized(frame.numpy(v), "nvfp4"), q_lens, kv_lens, causal=causal)


@pytest.mark.parametrize("rotation", [16, 64])
def test_rotation(frame, rng, rotation):
    """K is quantised rotated. f32 and double precision rotate to the same codes here."""
    q, k, v = make_inputs(frame, rng, 20, 70)
    got = run(frame, make_plan(frame, rotation=rotation), q, k, v)
    turned = [frame.numpy(t).astype(np.float64) @ reference.hadamard(DIM, rotation) for t in (q, k)]
    check(frame, got, turned[0], quantized(turned[1].astype(np.float32), "nvfp4"), quantized(frame.numpy(v), "nvfp4"), [20], [70], causal=False)


@pytest.mark.parametrize("format, rule", [("mxfp4", dict(scale_mode="even")), ("mxfp8", dict(scale_mode="ceil")), ("nvfp4", dict(nvfp4_scale="four_over_six"))])
def test_rules_for_scales(frame, rng, format, rule):
    q, k, v = make_inputs(frame, rng, 20, 70)
    got = run(frame, make_plan(frame, k_format=format, v_format=format, **rule), q, k, v)
    how = dict(zip(("mode", "rule"), (rule.get("scale_mode", "floor"), rule.get("nvfp4_scale", "amax_over_6"))))
    values = [reference.quantized_values(frame.numpy(t), format, **how) for t in (k, v)]
    check(frame, got, frame.numpy(q), *values, [20], [70], causal=False)


@pytest.mark.parametrize("kind", [fp4pa.DenseAttentionPlan, fp4pa.Mxfp8AttentionPlan])
def test_batch_invariance(frame, rng, kind):
    """A sequence alone has the bits that it has in a batch."""
    plan = make_plan(frame, kind=kind, batch_invariant=True)
    q, k, v = tensors = make_inputs(frame, rng, 4, 252)
    if kind is fp4pa.Mxfp8AttentionPlan:
        tensors = [tuple(frame.array(part) for part in reference.encode(frame.numpy(t), "mxfp8")) for t in tensors]
    part = lambda t, a, b: tuple(x[a:b] for x in t) if isinstance(t, tuple) else t[a:b]
    whole = run(frame, plan, *tensors, q_lens=[1, 1, 2], kv_lens=[200, 2, 50])
    for queries, keys in (((0, 1), (0, 200)), ((1, 2), (200, 202)), ((2, 4), (202, 252))):
        alone = run(frame, plan, part(tensors[0], *queries), part(tensors[1], *keys), part(tensors[2], *keys))
        for a, b in zip(alone, whole):
            np.testing.assert_array_equal(a, b[queries[0] : queries[1]])


@pytest.mark.parametrize("format", ["nvfp4", "mxfp4"])
def test_v_along_tokens(frame, rng, format):
    q, k, v = make_inputs(frame, rng, 20, 70)
    got = run(frame, make_plan(frame, v_format=format, v_scale_axis="tokens"), q, k, v)
    check(frame, got, frame.numpy(q), quantized(frame.numpy(k), "nvfp4"), quantized(frame.numpy(v), format, axis=0), [20], [70], causal=False)


def test_global_scales(frame, rng):
    q, k, v = make_inputs(frame, rng, 20, 70)
    plan = make_plan(frame, k_format="fp8_e4m3", v_format="nvfp4", k_global_scale=0.01, v_global_scale=0.002, sm_scale=0.2)
    k_values, v_values = (quantized(frame.numpy(t), f, np.float32(s)) for t, f, s in ((k, "fp8_e4m3", 0.01), (v, "nvfp4", 0.002)))
    check(frame, run(frame, plan, q, k, v), frame.numpy(q), k_values, v_values, [20], [70], causal=False, scale=0.2)


@pytest.mark.parametrize("dtype, o_dtype", [("f16", "f16"), ("bf16", "bf16"), ("bf16", "f32")])
def test_dtypes(frame, rng, dtype, o_dtype):
    if {dtype, o_dtype} - set(frame.dtypes):
        pytest.skip("NumPy has no bf16")
    q, k, v = make_inputs(frame, rng, 20, 70, dtype)
    got = run(frame, make_plan(frame, dtype, o_dtype), q, k, v, o_dtype)
    values = [frame.numpy(t).astype(np.float32) for t in (q, k, v)]
    check(frame, got, values[0], *(quantized(t, "nvfp4") for t in values[1:]), [20], [70], o_dtype, causal=False)


@pytest.mark.parametrize("rotation", [0, 64])
def test_what_smoothing_and_rotation_gain(frame, rng, rotation):
    """A channel with a large mean costs the others of its group their precision. Less its mean it does not; the LSE that comes out is unsmoothed K's."""
    q, k, v = make_inputs(frame, rng, 20, 70)
    large = frame.numpy(k)
    large[:, :, 5] += 40
    k = frame.array(large)
    want = reference.attention(frame.numpy(q), large, frame.numpy(v), causal=False)
    errors = {smooth: run(frame, make_plan(frame, k_format="nvfp4", v_format="f16", smooth_k=smooth, rotation=rotation), q, k, v) for smooth in (False, True)}
    o_error, lse_error = ({s: f(e[i], want[i]) for s, e in errors.items()} for i, f in ((0, reference.distance), (1, reference.lse_distance)))
    # Measured: O 0.39 and 0.50 without smoothing, rotated or not, 0.10 and 0.09 with it, which is NVFP4's own; LSE 0.23 and 0.40, 0.05 and 0.06.
    assert o_error[True] < 0.15 and o_error[False] > 0.3
    assert lse_error[True] < 0.1 and lse_error[False] > 0.15


def test_strided_rows(frame, rng):
    """Q, K and V as slices of one fused array, O as every other head of another."""
    q_tokens = 20
    fused = frame.array(rng.standard_normal((q_tokens, HEADS + 2 * KV_HEADS, DIM)).astype(np.float32))
    q, k, v = fused[:, :HEADS], fused[:, HEADS : HEADS + KV_HEADS], fused[:, HEADS + KV_HEADS :]
    plan, wide = make_plan(frame, causal=True), frame.array(np.full((q_tokens, 2 * HEADS, DIM), 7, np.float32))
    plan.run(q, k, v, wide[:, ::2], workspace=frame.zeros(plan.workspace_bytes, np.uint8))
    values = [frame.numpy(t) for t in (q, k, v)]
    want, _ = reference.attention(values[0], *(quantized(t, "nvfp4") for t in values[1:]))
    assert reference.distance(frame.numpy(wide)[:, ::2], want) < reference.bounds(frame.backend)[0]
    assert (frame.numpy(wide)[:, 1::2] == 7).all()


@pytest.mark.parametrize("decode", ["auto", "per_tile", "once"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lens", [([20], [70]), ([1, 19], [38, 32])])
def test_mxfp8(frame, rng, decode, causal, lens):
    plan = make_plan(frame, kind=fp4pa.Mxfp8AttentionPlan, decode=decode, causal=causal)
    assert plan.decode in ("per_tile", "once") and decode in ("auto", plan.decode)
    pairs, values = [], []
    for x in make_inputs(frame, rng, sum(lens[0]), sum(lens[1])):
        codes, scales = reference.encode(frame.numpy(x), "mxfp8")
        pairs.append((frame.array(codes), frame.array(scales)))
        values.append(reference.decode(codes, scales, "mxfp8"))
    check(frame, run(frame, plan, *pairs, q_lens=lens[0], kv_lens=lens[1]), *values, *lens, causal=causal)


def test_mxfp8_with_gaps(frame, rng):
    """Codes and scales of heads that lie apart, tokens and heads in either order, as views."""
    plan, pairs, values = make_plan(frame, kind=fp4pa.Mxfp8AttentionPlan), [], []
    for i, x in enumerate(make_inputs(frame, rng, 20, 70)):
        codes, scales = reference.encode(frame.numpy(x), "mxfp8")
        values.append(reference.decode(codes, scales, "mxfp8"))
        wide = [np.pad(t, ((0, 0), (0, 0), (0, 16))) for t in (codes, scales)]
        if i == 1:  # [heads, tokens, ..] in memory
            pairs.append(tuple(frame.array(w.swapaxes(0, 1)).swapaxes(0, 1)[..., : t.shape[-1]] for w, t in zip(wide, (codes, scales))))
        else:
            pairs.append(tuple(frame.array(w)[..., : t.shape[-1]] for w, t in zip(wide, (codes, scales))))
    check(frame, run(frame, plan, *pairs), *values, [20], [70], causal=False)


@pytest.mark.parametrize("kind", [fp4pa.DenseAttentionPlan, fp4pa.Mxfp8AttentionPlan])
def test_no_keys_and_no_queries(frame, kind):
    plan = make_plan(frame, kind=kind)
    tensor = lambda n, heads: frame.zeros((n, heads, DIM)) if kind is fp4pa.DenseAttentionPlan else (frame.zeros((n, heads, DIM), np.uint8),
                                                                                                       frame.zeros((n, heads, DIM // 32), np.uint8))
    o, lse = run(frame, plan, tensor(3, HEADS), tensor(0, KV_HEADS), tensor(0, KV_HEADS))
    assert (o == 0).all() and np.isneginf(lse).all()
    o, lse = run(frame, plan, tensor(0, HEADS), tensor(9, KV_HEADS), tensor(9, KV_HEADS))
    assert o.shape == (0, HEADS, DIM)
