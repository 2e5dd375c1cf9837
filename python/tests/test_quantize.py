"""quantize and dequantize: codes and scales of every format, layout and rule, against ml_dtypes."""

import numpy as np
import pytest

import fp4pa
import reference
from reference import E2M1, E8M0

FORMATS = ["mxfp4", "nvfp4", "mxfp8"]


def matrix(rng, rows, cols):
    """Rows of many magnitudes, some groups of zeros, ties between codes among the rest."""
    x = rng.standard_normal((rows, cols)) * np.exp2(rng.integers(-12, 8, (rows, 1)))
    x[::3] = rng.integers(-16, 17, x[::3].shape) / 4  # quarters: every tie of E2M1, and zeros
    x[-1] = 0
    x[-1, 0] = -0.0
    return x.astype(np.float32)


def quantize(frame, x, rows, cols, format, dtype=None, layout="linear", **more):
    codes = frame.zeros(fp4pa.quantized_code_bytes(format, rows, cols), np.uint8)
    scales = frame.array(np.full(fp4pa.quantized_scale_bytes(format, rows, cols, scale_layout=layout), 0xA5, np.uint8))
    fp4pa.quantize(frame.array(x, dtype), codes, scales, format=format, scale_layout=layout, **more)
    return codes, scales


def packed(codes, format):
    return codes if format == "mxfp8" else reference.pack(codes)


@pytest.mark.parametrize("layout", ["linear", "blocked_128x4"])
@pytest.mark.parametrize("rows, cols", [(1, 32), (7, 96), (130, 160), (128, 64)])
@pytest.mark.parametrize("format", FORMATS)
def test_codes_and_scales(frame, rng, format, rows, cols, layout):
    x = matrix(rng, rows, cols)
    codes, scales = quantize(frame, x, rows, cols, format, layout=layout)
    want_codes, want_scales = reference.encode(x, format)
    np.testing.assert_array_equal(frame.numpy(codes), packed(want_codes, format).reshape(-1))
    np.testing.assert_array_equal(frame.numpy(scales), reference.blocked(want_scales) if layout == "blocked_128x4" else want_scales.reshape(-1))
    y = frame.zeros(x.shape)
    fp4pa.dequantize(codes, scales, y, format=format, scale_layout=layout)
    np.testing.assert_array_equal(frame.numpy(y), reference.decode(want_codes, want_scales, format))


@pytest.mark.parametrize("mode", ["floor", "ceil", "rceil", "even"])
@pytest.mark.parametrize("format", ["mxfp4", "mxfp8"])
def test_scale_modes(frame, rng, format, mode):
    x = matrix(rng, 50, 320)
    x[:, ::32] = np.exp2(rng.integers(-3, 3, (50, 10))) * rng.choice([1, 1.25, 1.5, 1.5625, 1.75, 1.9375], (50, 10))  # where the modes part
    codes, scales = quantize(frame, x, 50, 320, format, scale_mode=mode)
    want_codes, want_scales = reference.encode(x, format, mode)
    np.testing.assert_array_equal(frame.numpy(scales), want_scales.reshape(-1))
    np.testing.assert_array_equal(frame.numpy(codes), packed(want_codes, format).reshape(-1))


@pytest.mark.parametrize("global_scale", [0.0078125, 0.3, 40.0])
def test_global_scale(frame, rng, global_scale):
    x = rng.standard_normal((20, 64)).astype(np.float32)
    codes, scales = quantize(frame, x, 20, 64, "nvfp4", global_scale=global_scale)
    want = reference.encode(x, "nvfp4", global_scale=np.float32(global_scale))
    np.testing.assert_array_equal(frame.numpy(codes), reference.pack(want[0]).reshape(-1))
    np.testing.assert_array_equal(frame.numpy(scales), want[1].reshape(-1))
    y = frame.zeros(x.shape)
    fp4pa.dequantize(codes, scales, y, format="nvfp4", global_scale=global_scale)
    np.testing.assert_array_equal(frame.numpy(y), reference.decode(*want, "nvfp4", global_scale=np.float64(np.float32(global_scale))))


@pytest.mark.parametrize("global_scale", [1.0, 0.3])
def test_four_over_six(frame, rng, global_scale):
    x = rng.standard_normal((64, 128)).astype(np.float32)
    codes, scales = quantize(frame, x, 64, 128, "nvfp4", nvfp4_scale="four_over_six", global_scale=global_scale)
    want_codes, want_scales = reference.four_over_six(x, global_scale)
    np.testing.assert_array_equal(frame.numpy(scales), want_scales.reshape(-1))
    np.testing.assert_array_equal(frame.numpy(codes), reference.pack(want_codes).reshape(-1))
    assert 0.2 < (want_scales != reference.encode(x, "nvfp4", global_scale=global_scale)[1]).mean() < 0.8  # both occur


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("format", FORMATS)
def test_dtypes(frame, rng, format, dtype):
    if dtype not in frame.dtypes:
        pytest.skip("NumPy has no bf16")
    x = matrix(rng, 9, 64)
    rounded = frame.numpy(frame.array(x, dtype)).astype(np.float32)
    codes, scales = quantize(frame, x, 9, 64, format, dtype)
    want = reference.encode(rounded, format)
    np.testing.assert_array_equal(frame.numpy(codes), packed(want[0], format).reshape(-1))
    np.testing.assert_array_equal(frame.numpy(scales), want[1].reshape(-1))
    y = frame.zeros(x.shape, dtype)
    fp4pa.dequantize(codes, scales, y, format=format)
    np.testing.assert_array_equal(frame.numpy(y), frame.numpy(frame.array(reference.decode(*want, format), dtype)))


@pytest.mark.parametrize("shape", [(64,), (2, 3, 64), (1, 1, 2, 3, 1, 64), (0, 64), (3, 0, 64)])
def test_any_leading_shape(frame, rng, shape):
    """Axes before the last are rows; codes and scales may have any shape themselves."""
    x = rng.standard_normal(shape).astype(np.float32)
    rows = x.size // 64
    codes, scales = frame.zeros((*shape[:-1], 32), np.uint8), frame.zeros((*shape[:-1], 2), np.uint8)
    fp4pa.quantize(frame.array(x), codes, scales)
    y = frame.zeros(shape)
    fp4pa.dequantize(codes, scales, y)
    want = reference.encode(x.reshape(rows, 64), "mxfp4") if rows else (np.zeros((0, 64), np.uint8), np.zeros((0, 2), np.uint8))
    np.testing.assert_array_equal(frame.numpy(codes).reshape(rows, 32), reference.pack(want[0]))
    np.testing.assert_array_equal(frame.numpy(y).reshape(rows, 64), reference.decode(*want, "mxfp4"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("format, scale", [("mxfp4", 0xFF), ("nvfp4", 0x7F), ("mxfp8", 0xFF)])
def test_what_is_not_finite_makes_nan_of_its_group(frame, rng, format, scale, bad):
    x = rng.standard_normal((1, 64)).astype(np.float32)
    x[0, 5] = bad
    codes, scales = quantize(frame, x, 1, 64, format)
    group = reference.GROUP[format]
    assert frame.numpy(scales)[0] == scale and (frame.numpy(scales)[1:] != scale).all()
    y = frame.zeros(x.shape)
    fp4pa.dequantize(codes, scales, y, format=format)
    np.testing.assert_array_equal(np.isnan(frame.numpy(y)[0]), np.arange(64) < group)


def test_sizes():
    assert [fp4pa.quantized_code_bytes(f, 3, 64) for f in FORMATS] == [96, 96, 192]
    assert [fp4pa.quantized_scale_bytes(f, 3, 64) for f in FORMATS] == [6, 12, 6]
    assert [fp4pa.quantized_scale_bytes(f, 129, 96, scale_layout="blocked_128x4") for f in FORMATS] == [1024, 2048, 1024]
    assert [fp4pa.quantized_code_bytes(f, *shape) for f, shape in (("mxfp4", (3, 48)), ("nvfp4", (3, 40)), ("mxfp8", (-1, 64)))] == [0, 0, 0]


def test_every_scale_and_code_decodes(frame):
    """All 256 E8M0 scales with all 16 codes: 2^-127, a subnormal, is what it is, and 0xFF is NaN."""
    scales = np.arange(256, dtype=np.uint8)
    codes = np.tile(np.arange(16, dtype=np.uint8), (256, 2))
    y = frame.zeros((256, 32))
    fp4pa.dequantize(frame.array(reference.pack(codes)), frame.array(scales), y)
    with np.errstate(over="ignore"):
        want = (reference.value(codes, E2M1) * reference.value(scales, E8M0)[:, None]).astype(np.float32)
    np.testing.assert_array_equal(frame.numpy(y), want)
    assert np.isnan(want[255]).all() and not np.isnan(want[:255]).any()
