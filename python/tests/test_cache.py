"""append, gather and copy_pages: the bytes of every format and order, and where they go."""

import numpy as np
import pytest

import fp4pa
import reference
from reference import E4M3
from scenes import int32, kv_tensor

PAGES, PAGE_SIZE, HEADS, DIM = 5, 16, 2, 64
FORMATS = ["mxfp4", "nvfp4", "e8m0_per_token", "fp8_e4m3", "mxfp8", "bf16", "f16"]
FILL = 0xA5  # what memory holds that nobody writes


class Pool:
    """The K or V of a cache, its memory at hand."""

    def __init__(self, frame, format, order, axis="head_dim", shape=(PAGES, PAGE_SIZE, HEADS, DIM), **more):
        self.frame, self.order = frame, order
        filled = [None if s is None else frame.array(np.full(s, FILL, np.uint8)) for s in fp4pa.kv_shapes(format, *shape, scale_axis=axis, order=order)]
        self.data, self.scales = filled
        self.tensor = fp4pa.KvTensor(format, *filled, scale_axis=axis, **more)

    def rows(self, of="data"):
        """[pages, page_size, heads, bytes], whatever the order."""
        a = self.frame.numpy(getattr(self, of))
        return a if self.order == "nhd" else a.swapaxes(1, 2)


def expected_bytes(x, format, mode="floor", global_scale=1.0):
    """(data, scales) of rows x [..., dim], and the values that they decode to."""
    if format in ("bf16", "f16"):
        rounded = x.astype(reference.BF16 if format == "bf16" else np.float16)
        return rounded.view(np.uint8), None, rounded.astype(np.float32)
    if format == "fp8_e4m3":
        codes = reference.cast(x / np.float32(global_scale), E4M3)
        return codes, None, (reference.value(codes, E4M3) * global_scale).astype(np.float32)
    family = "mxfp4" if format == "e8m0_per_token" else format
    codes, scales = reference.encode(x, family, mode, global_scale, group=x.shape[-1] if format == "e8m0_per_token" else None)
    return codes if format == "mxfp8" else reference.pack(codes), scales, reference.decode(codes, scales, family, global_scale)


def new_rows(rng, tokens, heads=HEADS, dim=DIM):
    """Rows of many magnitudes, so that scales differ from group to group."""
    return (rng.standard_normal((tokens, heads, dim)) * np.exp2(rng.integers(-6, 6, (tokens, heads, dim // 16))).repeat(16, -1)).astype(np.float32)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("order", ["hnd", "nhd"])
@pytest.mark.parametrize("format", FORMATS)
def test_bytes(frame, rng, format, order, index):
    k, v = (Pool(frame, format, order) for _ in "kv")
    cache = fp4pa.KvCache(k.tensor, v.tensor, order=order)
    x, y = new_rows(rng, 30), new_rows(rng, 30)
    slots = rng.permutation(PAGES * PAGE_SIZE)[:30].astype(index)
    slots[[3, 17]] = -1, -9  # skipped
    fp4pa.append(cache, frame.array(x), frame.array(y), frame.array(slots))
    kept = slots >= 0
    for pool, rows in ((k, x), (v, y)):
        data, scales, values = expected_bytes(rows, format)
        for part, want in (("data", data), ("scales", scales)):
            if want is not None:
                filled = np.full((PAGES * PAGE_SIZE, *want.shape[1:]), FILL, np.uint8)
                filled[slots[kept]] = want[kept]  # and nothing beside them
                np.testing.assert_array_equal(pool.rows(part).reshape(filled.shape), filled)
        got = frame.array(np.full(rows.shape, 7, np.float32))
        fp4pa.gather(cache, frame.array(slots), **{"k" if pool is k else "v": got})  # one of the two is enough
        np.testing.assert_array_equal(frame.numpy(got), np.where(kept[:, None, None], values, 7))


@pytest.mark.parametrize("mode", ["ceil", "rceil", "even"])
@pytest.mark.parametrize("format", ["mxfp4", "e8m0_per_token", "mxfp8"])
def test_scale_modes(frame, rng, format, mode):
    k, v = (Pool(frame, format, "nhd") for _ in "kv")
    x = new_rows(rng, PAGES * PAGE_SIZE)
    cache = fp4pa.KvCache(k.tensor, v.tensor, order="nhd", scale_mode=mode)
    fp4pa.append(cache, frame.array(x), frame.array(-x), frame.array(np.arange(len(x), dtype=np.int32)))
    for pool, rows in ((k, x), (v, -x)):
        data, scales, _ = expected_bytes(rows, format, mode)
        np.testing.assert_array_equal(pool.rows("scales").reshape(scales.shape), scales)
        np.testing.assert_array_equal(pool.rows().reshape(data.shape), data)


def test_four_over_six(frame, rng):
    k, v = (Pool(frame, "nvfp4", "nhd") for _ in "kv")
    x = new_rows(rng, PAGES * PAGE_SIZE)
    cache = fp4pa.KvCache(k.tensor, v.tensor, order="nhd", nvfp4_scale="four_over_six")
    fp4pa.append(cache, frame.array(x), frame.array(-x), frame.array(np.arange(len(x), dtype=np.int32)))
    for pool, rows in ((k, x), (v, -x)):
        codes, scales = reference.four_over_six(rows)
        np.testing.assert_array_equal(pool.rows("scales").reshape(scales.shape), scales)
        np.testing.assert_array_equal(pool.rows().reshape(codes[..., ::2].shape), reference.pack(codes))


@pytest.mark.parametrize("format, group", [("mxfp4", 32), ("nvfp4", 16)])
@pytest.mark.parametrize("order", ["hnd", "nhd"])
def test_v_scaled_along_tokens(frame, rng, format, group, order):
    """Groups run down a column, through the tokens of a page; the last group of a call may be short, and its missing rows count as zeros."""
    size = (3, 32, HEADS, DIM)
    v = Pool(frame, format, order, "tokens", size)
    cache = fp4pa.KvCache(Pool(frame, "bf16", order, shape=size).tensor, v.tensor, order=order)
    x = new_rows(rng, 2 * 32 - 5)
    slots = np.concatenate([np.arange(64, 96), np.arange(0, 27)]).astype(np.int32)  # page 2, and page 0 but for its end
    fp4pa.append(cache, frame.array(x), frame.array(x), frame.array(slots))
    padded = np.concatenate([x, np.zeros((5, HEADS, DIM), np.float32)])
    codes, scales = reference.encode(padded.transpose(1, 2, 0).copy(), format)  # [heads, dim, tokens]
    np.testing.assert_array_equal(v.rows("scales")[[2, 0]].reshape(-1, HEADS, DIM), scales.transpose(2, 0, 1))
    np.testing.assert_array_equal(v.rows()[[2, 0]].reshape(64, HEADS, DIM // 2)[:59], reference.pack(codes.transpose(2, 0, 1)[:59]))
    got = frame.zeros(x.shape)
    fp4pa.gather(cache, frame.array(slots), v=got)
    np.testing.assert_array_equal(frame.numpy(got), reference.decode(codes, scales, format).transpose(2, 0, 1)[:59])
    assert len(scales[0, 0]) == 64 // group


@pytest.mark.parametrize("form", ["number", "one", "heads", "column"])
@pytest.mark.parametrize("format", ["nvfp4", "fp8_e4m3"])
def test_global_scale(frame, rng, format, form):
    per_head = np.array([0.375, 3.0], np.float32) if form in ("heads", "column") else np.array([0.375, 0.375], np.float32)
    given = {"number": 0.375, "one": frame.array(per_head[:1]), "heads": frame.array(per_head), "column": frame.array(per_head[:, None])}[form]
    k = Pool(frame, format, "nhd", global_scale=given)
    cache = fp4pa.KvCache(k.tensor, Pool(frame, "f16", "nhd").tensor, order="nhd")
    x = new_rows(rng, PAGES * PAGE_SIZE)
    slots, got = frame.array(np.arange(len(x), dtype=np.int64)), frame.zeros(x.shape)
    fp4pa.append(cache, frame.array(x), frame.array(x), slots)
    fp4pa.gather(cache, slots, k=got)
    for head, scale in enumerate(per_head):
        data, scales, values = expected_bytes(x[:, head], format, global_scale=scale)
        np.testing.assert_array_equal(k.rows()[:, :, head].reshape(data.shape), data)
        np.testing.assert_array_equal(frame.numpy(got)[:, head], values)


@pytest.mark.parametrize("block", [16, 32, 64])
def test_rotation(frame, block):
    """Unit vectors come back as the rows of a Hadamard matrix: K is rotated, V is not."""
    cache = fp4pa.KvCache(*(Pool(frame, "f16", "hnd").tensor for _ in "kv"), rotation=block)
    unit = np.repeat(np.eye(DIM, dtype=np.float32)[:, None], HEADS, 1)
    slots = frame.array(np.arange(DIM, dtype=np.int32))
    k, v = frame.zeros(unit.shape), frame.zeros(unit.shape)
    fp4pa.append(cache, frame.array(unit), frame.array(unit), slots)
    fp4pa.gather(cache, slots, k, v)
    np.testing.assert_array_equal(frame.numpy(v), unit)
    for head in range(HEADS):
        rotated = frame.numpy(k)[:, head].astype(np.float64)
        np.testing.assert_array_equal(rotated, reference.hadamard(DIM, block).astype(np.float16))
        np.testing.assert_allclose(rotated @ rotated.T, np.eye(DIM), atol=2.0**-10)  # 1 / sqrt(32) in f16 is off by 2^-12 of itself


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_row_dtypes_and_strides(frame, rng, dtype):
    """K as every other head and V as the last heads of one fused projection; rows come back into every other head of a wider array."""
    if dtype not in frame.dtypes:
        pytest.skip("NumPy has no bf16")
    cache = fp4pa.KvCache(Pool(frame, "mxfp4", "hnd").tensor, Pool(frame, "mxfp8", "hnd").tensor)
    fused = frame.array(new_rows(rng, 20, heads=4 * HEADS), dtype)
    slots = frame.array(np.arange(20, dtype=np.int32))
    fp4pa.append(cache, fused[:, : 2 * HEADS : 2], fused[:, 3 * HEADS :], slots)
    wide = [frame.array(np.full((20, 2 * HEADS, DIM), 7, np.float32), dtype) for _ in "kv"]
    fp4pa.gather(cache, slots, *(w[:, ::2] for w in wide))
    rows = frame.numpy(fused).astype(np.float32)
    for got, x, format in ((wide[0], rows[:, : 2 * HEADS : 2], "mxfp4"), (wide[1], rows[:, 3 * HEADS :], "mxfp8")):
        values = frame.numpy(frame.array(expected_bytes(x, format)[2], dtype))
        np.testing.assert_array_equal(frame.numpy(got)[:, ::2], values)
        assert (frame.numpy(got)[:, 1::2] == 7).all()


def test_copy_pages(frame, rng):
    k, v = Pool(frame, "nvfp4", "nhd"), Pool(frame, "f16", "nhd")
    cache = fp4pa.KvCache(k.tensor, v.tensor, order="nhd")
    x = new_rows(rng, PAGES * PAGE_SIZE)
    fp4pa.append(cache, frame.array(x), frame.array(x), frame.array(np.arange(len(x), dtype=np.int32)))
    before = [k.rows(), k.rows("scales"), v.rows()]
    fp4pa.copy_pages(cache, int32(frame, 4, 1), int32(frame, 0, 2))
    for was, now in zip(before, (k.rows(), k.rows("scales"), v.rows())):
        np.testing.assert_array_equal(now, was[[4, 1, 1, 3, 4]])


def test_no_tokens(frame):
    cache = fp4pa.KvCache(*(kv_tensor(frame, "mxfp4", PAGES, PAGE_SIZE, HEADS, DIM) for _ in "kv"))
    none = frame.zeros((0, HEADS, DIM))
    fp4pa.append(cache, none, none, frame.zeros(0, np.int32))
    fp4pa.gather(cache, frame.zeros(0, np.int64), none, none)
    fp4pa.copy_pages(cache, frame.zeros(0, np.int32), frame.zeros(0, np.int32))


def test_properties(frame):
    k, v = kv_tensor(frame, "mxfp4", 7, 32, 3, 96, "nhd"), kv_tensor(frame, "nvfp4", 7, 32, 3, 96, "nhd", "tokens")
    cache = fp4pa.KvCache(k, v, order="nhd")
    assert (cache.num_pages, cache.page_size, cache.num_kv_heads, cache.head_dim, cache.order) == (7, 32, 3, 96, "nhd")
    assert [(t.format, t.scale_axis) for t in (k, v)] == [("mxfp4", "head_dim"), ("nvfp4", "tokens")]
    assert fp4pa.kv_shapes("nvfp4", 7, 32, 3, 96, scale_axis="tokens", order="nhd") == ((7, 32, 3, 48), (7, 2, 3, 96))
    assert fp4pa.kv_shapes("bf16", 7, 32, 3, 96) == ((7, 3, 32, 192), None)
