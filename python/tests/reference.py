"""What the library is compared with: double precision in NumPy, and ml_dtypes for what a code means. Nothing here calls the library."""

import ml_dtypes
import numpy as np

E2M1, E4M3, E8M0, BF16 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, ml_dtypes.bfloat16
LARGEST = {E2M1: 6.0, E4M3: 448.0}
GROUP = {"mxfp4": 32, "nvfp4": 16, "mxfp8": 32}
ROUNDING = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}  # half a unit in the last place, of numbers that are not subnormal


# --- Encodings ---


def cast(x, element):
    """Codes of the nearest element, saturating as the library does and ml_dtypes does not above E4M3's 464."""
    return np.clip(x, -LARGEST[element], LARGEST[element]).astype(element).view(np.uint8)


def pack(codes):
    """Two to a byte, the even one in the low nibble."""
    return codes[..., 0::2] | codes[..., 1::2] << 4


def unpack(data):
    return np.stack([data & 15, data >> 4], -1).reshape(*data.shape[:-1], -1)


def value(codes, element):
    return codes.view(element).astype(np.float64)


def mx_scales(x, element, group, mode="floor"):
    """Powers of two of the groups along the last axis, as E8M0 bytes."""
    amax = np.abs(x.astype(np.float64)).reshape(*x.shape[:-1], -1, group).max(-1)
    mantissa, exponent = np.frexp(amax)
    mantissa, exponent = 2 * mantissa, exponent - 1  # amax = mantissa * 2^exponent, 1 <= mantissa < 2
    half_step, largest, emax = (0.25, 1.5, 2) if element is E2M1 else (2.0**-4, 1.75, 8)
    up = {"floor": False, "ceil": mantissa > 1, "rceil": mantissa > largest, "even": mantissa + half_step >= 2}[mode]
    power = np.where(amax == 0, -127, np.maximum(exponent - emax + up, -127))
    return np.exp2(power.astype(np.float64)).astype(E8M0).view(np.uint8)


def encode(x, format, mode="floor", global_scale=1.0, group=None, rule="amax_over_6"):
    """(codes, scales) of x, groups along its last axis; FP4 codes are not packed."""
    if rule == "four_over_six":
        return four_over_six(x, global_scale)
    element = E4M3 if format == "mxfp8" else E2M1
    group = group or GROUP[format]
    grouped = x.astype(np.float32).reshape(*x.shape[:-1], -1, group)
    if format == "nvfp4":
        grouped = grouped * (np.float32(1) / np.float32(global_scale))
        scales = cast(np.abs(grouped).max(-1).astype(np.float64) / 6, E4M3)
        factor = value(scales, E4M3)
    else:
        scales = mx_scales(x, element, group, mode)
        factor = value(scales, E8M0)
    return elements(grouped, factor, element).reshape(x.shape), scales


def elements(grouped, factor, element):
    """Codes of groups by their scales; a scale of 0 leaves zeros with their signs."""
    quotient = np.divide(grouped, factor[..., None], out=np.copysign(np.zeros(grouped.shape), grouped), where=factor[..., None] != 0)
    return cast(quotient, element)


def four_over_six(x, global_scale=1.0):
    """NVFP4 by amax / 6 or amax / 4, whichever has the smaller squared error; amax / 6 where they are equal.

    The library rounds errors to 2^-22 of the power of two above amax first, so that near ties may fall otherwise. Among the data of these tests
    there is none.
    """
    grouped = x.astype(np.float32).reshape(*x.shape[:-1], -1, 16) * (np.float32(1) / np.float32(global_scale))
    tried = []
    for largest in (6, 4):
        scales = cast(np.abs(grouped).max(-1).astype(np.float64) / largest, E4M3)
        codes = elements(grouped, value(scales, E4M3), E2M1)
        tried.append((codes, scales, ((value(codes, E2M1) * value(scales, E4M3)[..., None] - grouped) ** 2).sum(-1)))
    (six, six_scales, six_error), (four, four_scales, four_error) = tried
    better = four_error < six_error
    return np.where(better[..., None], four, six).reshape(x.shape), np.where(better, four_scales, six_scales)


def decode(codes, scales, format, global_scale=1.0):
    """Values of what encode gives, in float32, rounded once."""
    element, scale_element = E4M3 if format == "mxfp8" else E2M1, E4M3 if format == "nvfp4" else E8M0
    factor = np.repeat(value(scales, scale_element), codes.shape[-1] // scales.shape[-1], -1)
    return (value(codes, element) * factor * global_scale).astype(np.float32)


def blocked(scales):
    """[rows, groups] in the 128x4 layout, padding 0."""
    rows, groups = scales.shape
    wide = -(-groups // 4)
    out = np.zeros(-(-rows // 128) * wide * 512, np.uint8)
    row, group = np.indices(scales.shape)
    out[((row // 128) * wide + group // 4) * 512 + (row % 32) * 16 + row % 128 // 32 * 4 + group % 4] = scales
    return out


def hadamard(size, block):
    """Orthonormal, block by block: entry (i, j) of a block is (-1)^(bits that i and j share), over sqrt(block)."""
    i = np.arange(block)
    sign = 1 - 2 * (np.bitwise_count(i[:, None] & i[None, :]) % 2).astype(np.float64)
    return np.kron(np.eye(size // block), sign / np.sqrt(block))


# --- Attention ---


def attention(q, k, v, scale=None, causal=True, window=0, softcap=0.0, sinks=None, slopes=None, tree=None):
    """O and LSE of one sequence. q [n, heads, dim] are its last tokens; k and v [length, kv heads, dim]."""
    (n, heads, dim), length = q.shape, len(k)
    k, v = (np.repeat(t.astype(np.float64), heads // k.shape[1], 1) for t in (k, v))
    logits = np.einsum("ihd,jhd->hij", q.astype(np.float64), k) * (scale or 1 / np.sqrt(dim))
    if softcap:
        logits = softcap * np.tanh(logits / softcap)
    key, position = np.arange(length)[None, :], length - n + np.arange(n)[:, None]
    if slopes is not None:
        logits = logits + slopes.astype(np.float64)[:, None, None] * (key - position)
    seen = key <= position if causal else np.full((n, length), True)
    if tree is not None:  # which queries a query sees is the mask's to say; it stands where its branch ends
        bit = np.array([[int(mask) >> j & 1 for j in range(n)] for mask in tree], bool)
        seen = np.concatenate([np.full((n, length - n), True), bit], 1)
        position = length - n + np.maximum(bit.sum(1)[:, None], 1) - 1
    if window:
        seen = seen & (key > position - window)
    logits = np.where(seen, logits, -np.inf)
    if sinks is not None:
        logits = np.concatenate([logits, np.broadcast_to(sinks[:, None, None], (heads, n, 1))], 2)
        v = np.concatenate([v, np.zeros((1, heads, dim))])
    top = logits.max(2, initial=-np.inf)
    with np.errstate(divide="ignore"):
        lse = np.where(np.isinf(top), -np.inf, top + np.log(np.exp(logits - np.where(np.isinf(top), 0, top)[..., None]).sum(2)))
    weights = np.exp(logits - np.where(np.isinf(lse), 0, lse)[..., None])
    return np.einsum("hij,jhd->ihd", weights, v), lse.T


# --- Differences ---


def distance(got, want):
    """Norm of the difference by the norm of what is wanted."""
    assert np.isfinite(got).all()
    return np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)


def lse_distance(got, want):
    assert (np.isneginf(got) == np.isneginf(want)).all()
    finite = np.isfinite(want)
    return np.abs(got[finite] - want[finite]).max(initial=0.0)


def bounds(backend, o_dtype="f32"):
    """How far O and LSE may be from double precision.

    The CPU computes in f32: these tests measure up to 2.3e-7 (O) and 7e-7 (LSE) with AVX2, but with AVX-512 VNNI, where queries are integers of 16
    bits, 3.5e-5 of LSE. CUDA multiplies P in 16 bits: 1.44e-3 on an H100, 3.4e-6 of LSE, of which its own tests have found 1.8e-5. HIP, which has
    never run, gets the library's contract. Rounding to o_dtype comes on top: of many numbers, errors that are spread evenly over half a step have
    a norm of 1 / sqrt(3) of it.
    """
    o, lse = {"cpu": (1e-4, 1e-4), "cpu-scalar": (1e-4, 1e-4), "cuda": (2e-3, 3e-5), "hip": (2e-3, 1e-3)}[backend]
    return o + ROUNDING[o_dtype] / np.sqrt(3), lse


# --- Products ---


def padded(x, format):
    """x with columns of zeros up to whole groups."""
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % GROUP[format])])


def own_scale(x):
    """NVFP4's multiplier that uses the whole range of its scales."""
    return np.float32(np.abs(x).max()) / np.float32(2688)


def quantized_values(x, format, global_scale=1.0, mode="floor", rule="amax_over_6"):
    """What x becomes by quantising it, in double precision: two factors, so that nothing has been rounded but codes and scales."""
    codes, scales = encode(padded(x, format), format, mode, global_scale, rule=rule)
    return decode(codes, scales, format).astype(np.float64)[..., : x.shape[-1]] * np.float64(global_scale)


def product_error(got, x, w, bias=None, dtype="f32"):
    """The worst error of got = x w^T + bias over what it may be: K sums in f32, each off by 2^-23, of terms of these sizes; rounding to dtype."""
    wt, offset = w.swapaxes(-1, -2), 0.0 if bias is None else bias.astype(np.float64)
    want = x @ wt + offset
    bound = 2.0**-23 * (x.shape[-1] + 8) * (np.abs(x) @ np.abs(wt) + np.abs(offset)) + ROUNDING[dtype] * np.abs(want) + 2.0**-24
    return (np.abs(got - want) / bound).max()
