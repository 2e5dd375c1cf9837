"""Products with FP4 weights, against double precision over what codes and scales say."""

import numpy as np
import pytest

import fp4pa
import reference

FORMATS = ["mxfp4", "nvfp4"]
RAGGED = [(1, 7, 40), (5, 33, 96), (40, 130, 200), (3, 1, 1)]  # m, weight rows, columns


def make_weight(frame, w, format, layout="linear", global_scales=None, **more):
    """The weight, and its codes and scales."""
    batch = w.shape[0] if w.ndim == 3 else 1
    codes = frame.zeros(fp4pa.weight_code_bytes(format, *w.shape[-2:], batch), np.uint8)
    scales = frame.zeros(fp4pa.weight_scale_bytes(format, *w.shape[-2:], batch, scale_layout=layout), np.uint8)
    return fp4pa.quantize_weight(frame.array(w), codes, scales, global_scales, format=format, scale_layout=layout, **more), codes, scales


def linear(frame, x, weight, out_dtype="f32", bias=None, **more):
    """fp4pa.linear's result, from an output filled with NaN."""
    shape = (*x.shape[:-1], weight.rows)
    out = frame.array(np.full(shape, np.nan, np.float32), out_dtype)
    asked = {k: v for k, v in more.items() if k in ("activations", "x_global_scale")}
    bytes_needed = fp4pa.linear_workspace_bytes(x, weight, out, bias, **asked)
    workspace = frame.zeros(bytes_needed, np.uint8) if bytes_needed else None
    fp4pa.linear(x, weight, out, bias, workspace=workspace, **more)
    return frame.numpy(out).astype(np.float64)


def check(got, *operands, **more):
    assert np.isfinite(got).all()
    assert reference.product_error(got, *operands, **more) <= 1


@pytest.mark.parametrize("layout", ["linear", "blocked_128x4"])
@pytest.mark.parametrize("format", FORMATS)
def test_weight_bytes(frame, rng, format, layout):
    """Codes past the last column are 0, and so are scales that pad."""
    w = rng.standard_normal((2, 33, 200)).astype(np.float32)
    weight, codes, scales = make_weight(frame, w, format, layout)
    want_codes, want_scales = reference.encode(reference.padded(w, format), format)
    np.testing.assert_array_equal(frame.numpy(codes), reference.pack(want_codes).reshape(-1))
    want_scales = np.concatenate([reference.blocked(s) for s in want_scales]) if layout == "blocked_128x4" else want_scales.reshape(-1)
    np.testing.assert_array_equal(frame.numpy(scales), want_scales)
    assert (weight.rows, weight.cols, weight.batch, weight.format, weight.scale_layout) == (33, 200, 2, format, layout)


@pytest.mark.parametrize("x_dtype, out_dtype", [("f16", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("bf16", "f32")])
@pytest.mark.parametrize("m, n, k", RAGGED)
@pytest.mark.parametrize("format, layout", [("mxfp4", "linear"), ("nvfp4", "linear"), ("mxfp4", "blocked_128x4"), ("nvfp4", "blocked_128x4")])
def test_linear_a16(frame, rng, format, layout, m, n, k, x_dtype, out_dtype):
    if {x_dtype, out_dtype} - set(frame.dtypes):
        pytest.skip("NumPy has no bf16")
    w, bias = rng.standard_normal((n, k)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    x = frame.array(rng.standard_normal((m, k)).astype(np.float32), x_dtype)
    got = linear(frame, x, make_weight(frame, w, format, layout)[0], out_dtype, frame.array(bias))
    check(got, frame.numpy(x).astype(np.float64), reference.quantized_values(w, format), bias, dtype=out_dtype)


@pytest.mark.parametrize("x_dtype", ["f32", "f16"])
@pytest.mark.parametrize("mode", ["floor", "even"])
@pytest.mark.parametrize("m, n, k", RAGGED)
def test_linear_a4_mxfp4(frame, rng, m, n, k, mode, x_dtype):
    w = rng.standard_normal((n, k)).astype(np.float32)
    x = frame.array(rng.standard_normal((m, k)).astype(np.float32), x_dtype)
    got = linear(frame, x, make_weight(frame, w, "mxfp4", scale_mode=mode)[0], activations="a4", scale_mode=mode)
    check(got, *(reference.quantized_values(t.astype(np.float32), "mxfp4", mode=mode) for t in (frame.numpy(x), w)))


@pytest.mark.parametrize("x_global_scale", [0.0, 0.01])
def test_linear_a4_nvfp4(frame, rng, x_global_scale):
    """A scale of 0 stands for amax / 2688 of x."""
    w, x = rng.standard_normal((33, 200)).astype(np.float32), rng.standard_normal((5, 200)).astype(np.float32)
    got = linear(frame, frame.array(x), make_weight(frame, w, "nvfp4", global_scale=0.25)[0], activations="a4", x_global_scale=x_global_scale)
    check(got, reference.quantized_values(x, "nvfp4", np.float32(x_global_scale or reference.own_scale(x))), reference.quantized_values(w, "nvfp4", 0.25))


@pytest.mark.parametrize("format, rule", [("mxfp4", dict(scale_mode="ceil")), ("nvfp4", dict(nvfp4_scale="four_over_six"))])
@pytest.mark.parametrize("where", ["weight", "x", "both operands of matmul"])
def test_rules_for_scales(frame, rng, format, rule, where):
    """Given for the weight or for x, not for the other."""
    w, x = rng.standard_normal((33, 192)).astype(np.float32), rng.standard_normal((5, 192)).astype(np.float32)
    how = dict(mode=rule.get("scale_mode", "floor"), rule=rule.get("nvfp4_scale", "amax_over_6"))
    own = lambda t: reference.own_scale(t) if format == "nvfp4" else 1.0
    if where == "both operands of matmul":
        out = frame.zeros((5, 33))
        operands = [frame.array(x), frame.array(w), out]
        fp4pa.matmul(*operands, format=format, workspace=frame.zeros(fp4pa.matmul_workspace_bytes(*operands, format=format), np.uint8), **rule)
        check(frame.numpy(out), *(reference.quantized_values(t, format, own(t), **how) for t in (x, w)))
    else:
        weight = make_weight(frame, w, format, **(rule if where == "weight" else {}))[0]
        got = linear(frame, frame.array(x), weight, activations="a4", **(rule if where == "x" else {}))
        x_values = reference.quantized_values(x, format, own(x), **(how if where == "x" else {}))
        check(got, x_values, reference.quantized_values(w, format, **(how if where == "weight" else {})))


@pytest.mark.parametrize("activations", ["a16", "a4"])
@pytest.mark.parametrize("weights", [1, 3])
def test_batches(frame, rng, weights, activations):
    """Three x, with a weight each or one for all; each has a multiplier of its own."""
    w = rng.standard_normal((weights, 33, 96)).astype(np.float32) * np.array([1, 30, 0.02], np.float32)[:weights, None, None]
    x = (rng.standard_normal((3, 5, 96)) * np.array([[[1]], [[8]], [[0.1]]])).astype(np.float16)
    global_scales = frame.zeros(weights)
    weight = make_weight(frame, w, "nvfp4", global_scales=global_scales)[0]
    np.testing.assert_array_equal(frame.numpy(global_scales), [reference.own_scale(one) for one in w])
    got = linear(frame, frame.array(x), weight, activations=activations)
    values = np.stack([reference.quantized_values(one, "nvfp4", reference.own_scale(one)) for one in w])
    x64 = x.astype(np.float64)
    if activations == "a4":
        x64 = np.stack([reference.quantized_values(one.astype(np.float32), "nvfp4", reference.own_scale(one.astype(np.float32))) for one in x])
    check(got, x64, np.broadcast_to(values, (3, 33, 96)))


@pytest.mark.parametrize("bias_dtype", ["f32", "f16", "bf16"])
def test_bias_dtypes(frame, rng, bias_dtype):
    if bias_dtype not in frame.dtypes:
        pytest.skip("NumPy has no bf16")
    w = rng.standard_normal((33, 96)).astype(np.float32)
    x, bias = frame.array(rng.standard_normal((5, 96)).astype(np.float16)), frame.array(rng.standard_normal(33).astype(np.float32), bias_dtype)
    got = linear(frame, x, make_weight(frame, w, "mxfp4")[0], bias=bias)
    check(got, frame.numpy(x).astype(np.float64), reference.quantized_values(w, "mxfp4"), frame.numpy(bias))


def test_weights_described_by_hand(frame, rng):
    """Codes and scales that others have made, in shapes of theirs (gpt-oss's blocks [rows, groups, 16])."""
    w = rng.standard_normal((33, 96)).astype(np.float32)
    codes, scales = reference.encode(w, "mxfp4")
    x = rng.standard_normal((5, 96)).astype(np.float16)
    weight = fp4pa.Fp4Weight(frame.array(reference.pack(codes).reshape(33, 3, 16)), frame.array(scales), 33, 96)
    check(linear(frame, frame.array(x), weight), x.astype(np.float64), reference.quantized_values(w, "mxfp4"))


@pytest.mark.parametrize("global_scale", ["number", "tensor"])
def test_global_scale_of_a_weight(frame, rng, global_scale):
    w, x = rng.standard_normal((33, 96)).astype(np.float32), rng.standard_normal((5, 96)).astype(np.float16)
    codes, scales = reference.encode(w, "nvfp4", global_scale=0.125)
    given = 0.125 if global_scale == "number" else frame.array(np.array([0.125], np.float32))
    weight = fp4pa.Fp4Weight(frame.array(reference.pack(codes)), frame.array(scales), 33, 96, format="nvfp4", global_scale=given)
    check(linear(frame, frame.array(x), weight), x.astype(np.float64), reference.quantized_values(w, "nvfp4", 0.125))


def test_no_rows(frame):
    weight = make_weight(frame, np.ones((33, 96), np.float32), "mxfp4")[0]
    assert linear(frame, frame.zeros((0, 96), np.float16), weight).shape == (0, 33)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("m, n, k", RAGGED)
def test_matmul(frame, rng, m, n, k, batch, format):
    a, b = rng.standard_normal((*batch, m, k)).astype(np.float32), rng.standard_normal((*batch, n, k)).astype(np.float16)
    out = frame.array(np.full((*batch, m, n), np.nan, np.float32))
    operands = [frame.array(a), frame.array(b), out]
    fp4pa.matmul(*operands, format=format, workspace=frame.zeros(fp4pa.matmul_workspace_bytes(*operands, format=format), np.uint8))

    def values(t):
        t = t.astype(np.float32).reshape(-1, *t.shape[-2:])
        scales = [reference.own_scale(one) if format == "nvfp4" else 1.0 for one in t]
        return np.stack([reference.quantized_values(one, format, s) for one, s in zip(t, scales)]).reshape(*batch, *t.shape[-2:])

    check(frame.numpy(out), values(a), values(b))


def test_sizes():
    assert fp4pa.weight_code_bytes("mxfp4", 3, 33) == 3 * 32 and fp4pa.weight_code_bytes("nvfp4", 3, 33, 2) == 2 * 3 * 24
    assert fp4pa.weight_scale_bytes("mxfp4", 3, 33) == 6 and fp4pa.weight_scale_bytes("nvfp4", 3, 33, 2) == 18
    assert fp4pa.weight_scale_bytes("nvfp4", 129, 80, 2, scale_layout="blocked_128x4") == 2 * 256 * 8
    assert fp4pa.weight_code_bytes("mxfp4", 0, 32) == fp4pa.weight_scale_bytes("mxfp4", 3, -1) == 0
    with pytest.raises(ValueError, match="format is \"mxfp8\"; allowed: \"mxfp4\", \"nvfp4\""):
        fp4pa.weight_code_bytes("mxfp8", 3, 32)
