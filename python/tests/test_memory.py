"""Layouts that are strides and not modes, and a workspace that starts anywhere."""

import numpy as np
import pytest

import fp4pa
from scenes import Scene, kv_tensor


def interleaved(frame, pages, page_size, heads, dim, order="hnd", gap=16, fill=0xA5):
    """Pages [K codes, K scales, gap, V codes, V scales] of one pool: MXFP4 and NVFP4. (pool, KvTensors, bytes of K and V)"""
    parts, at = [], 0
    for format in ("mxfp4", "nvfp4"):
        for shape in fp4pa.kv_shapes(format, pages, page_size, heads, dim, order=order):
            parts.append((format, shape, at))
            at += -(-int(np.prod(shape[1:])) // 16) * 16
        at += gap
    pool = frame.array(np.full((pages, at), fill, np.uint8))
    views = [pool[:, start : start + int(np.prod(shape[1:]))].reshape(shape) for _, shape, start in parts]
    covered = sum(int(np.prod(shape)) for _, shape, _ in parts)
    return pool, [fp4pa.KvTensor("mxfp4", *views[:2]), fp4pa.KvTensor("nvfp4", *views[2:])], covered


@pytest.mark.parametrize("order", ["hnd", "nhd"])
@pytest.mark.parametrize("heads", [1, 2])
def test_interleaved_pages(frame, order, heads):
    pool, tensors, covered = interleaved(frame, 11, 16, heads, 64, order)
    inter = Scene(frame, [70, 33], heads=heads, cache=fp4pa.KvCache(*tensors, order=order))
    dense = Scene(frame, [70, 33], heads=heads, order=order)
    np.testing.assert_array_equal(np.concatenate(inter.k), np.concatenate(dense.k))
    np.testing.assert_array_equal(np.concatenate(inter.v), np.concatenate(dense.v))
    q = inter.queries(4, [1, 2])
    inter.same(inter.run(inter.plan(4, [1, 2]), q, [1, 2]), dense.run(dense.plan(4, [1, 2]), q, [1, 2]))
    bytes_a_token = heads * (32 + 2 + 32 + 4)
    written = (frame.numpy(pool) != 0xA5).sum()
    assert 0.95 * bytes_a_token * 103 < written <= bytes_a_token * 103 < covered  # a code may be 0xA5 itself


def test_a_view_of_every_other_page(frame):
    """Pages with a stride of two: what lies between is another's."""
    make = lambda format, shape: frame.array(np.full((2 * shape[0], *shape[1:]), 0xA5, np.uint8))
    tensors, rest = [], []
    for format in ("mxfp4", "nvfp4"):
        arrays = [make(format, shape) for shape in fp4pa.kv_shapes(format, 11, 16, 2, 64)]
        tensors.append(fp4pa.KvTensor(format, *(a[::2] for a in arrays)))
        rest += [a[1::2] for a in arrays]
    scene, dense = Scene(frame, [70, 33], cache=fp4pa.KvCache(*tensors)), Scene(frame, [70, 33])
    np.testing.assert_array_equal(np.concatenate(scene.k), np.concatenate(dense.k))
    assert all((frame.numpy(r) == 0xA5).all() for r in rest)


@pytest.mark.parametrize("pages, page_size, heads", [(1, 16, 2), (4, 16, 1), (1, 16, 1), (40, 1, 2), (1, 1, 1)])
@pytest.mark.parametrize("order", ["hnd", "nhd"])
def test_strides_of_axes_of_one_element(frame, rng, pages, page_size, heads, order):
    """They may be anything: 13 is what no axis may have that is used."""
    tensors = []
    for format in ("mxfp4", "nvfp4"):
        arrays = []
        for shape in fp4pa.kv_shapes(format, pages, page_size, heads, 64, order=order):
            strides = [13 if n == 1 else int(np.prod(shape[i + 1 :])) for i, n in enumerate(shape)]
            strides[3] = 1
            arrays.append(frame.strided(frame.zeros(shape, np.uint8), shape, strides))
        tensors.append(fp4pa.KvTensor(format, *arrays))
    cache = fp4pa.KvCache(*tensors, order=order)
    dense = fp4pa.KvCache(*(kv_tensor(frame, f, pages, page_size, heads, 64, order) for f in ("mxfp4", "nvfp4")), order=order)
    tokens = min(pages * page_size, 20)
    rows = rng.standard_normal((tokens, heads, 64)).astype(np.float32)
    strides = [13 if tokens == 1 else heads * 64, 13 if heads == 1 else 64, 1]
    x = frame.strided(frame.array(rows), rows.shape, strides)
    slots, got = frame.array(np.arange(tokens, dtype=np.int32)), []
    for c in (cache, dense):
        out = [frame.strided(frame.zeros(rows.shape), rows.shape, strides) for _ in "kv"]
        fp4pa.append(c, x, x, slots)
        fp4pa.gather(c, slots, *out)
        got.append([frame.numpy(t) for t in out])
    np.testing.assert_array_equal(got[0], got[1])
    assert np.linalg.norm(got[0][0] - rows) < 0.2 * np.linalg.norm(rows)  # MXFP4 leaves 0.11 of such rows


def test_queries_and_outputs_with_gaps(frame):
    """q and o as slices of wider arrays, in either order of tokens and heads; nothing is written between their rows."""
    scene = Scene(frame, [70, 33])
    q_lens, q = [3, 2], scene.queries(4, [3, 2])
    plan = scene.plan(4, q_lens)
    want = scene.run(plan, q, q_lens)
    workspace = frame.zeros(plan.workspace_bytes, np.uint8)
    wide = np.full((5, 4, 192), 7, np.float32)
    wide[..., 64:128] = frame.numpy(q)
    for axes in ((0, 1, 2), (1, 0, 2)):  # [tokens, heads, ..] and [heads, tokens, ..] in memory
        source, target = frame.array(wide.transpose(axes)), frame.array(np.full_like(wide, 7).transpose(axes))
        q_view, o_view = ((t if axes[0] == 0 else t.swapaxes(0, 1))[..., 64:128] for t in (source, target))
        plan.run(q_view, o_view, workspace=workspace, **scene.tables(q_lens))
        scene.same([frame.numpy(o_view)], want[:1])
        assert (frame.numpy(target)[..., :64] == 7).all() and (frame.numpy(target)[..., 128:] == 7).all()


def test_page_table_with_gaps(frame):
    scene = Scene(frame, [70, 33])
    q = scene.queries(4, [1, 1])
    plan = scene.plan(4, [1, 1])
    wide = np.full((2, 40), -1, np.int32)
    wide[:, 20 : 20 + scene.table.shape[1]] = scene.table
    got = scene.run(plan, q, [1, 1], block_table=frame.array(wide)[:, 20 : 20 + scene.table.shape[1]])
    scene.same(got, scene.run(plan, q, [1, 1]))


@pytest.mark.parametrize("offset", [1, 8, 17, 255])
def test_workspace_that_starts_anywhere(frame, offset):
    """workspace_bytes suffice wherever they begin, and nothing beside them is written."""
    scene = Scene(frame, [700, 33])
    q = scene.queries(4, [1, 1])
    plan = scene.plan(4, [1, 1], kv_split_tokens=64)  # partial results go through the workspace
    memory = frame.array(np.full(plan.workspace_bytes + 512, 0xA5, np.uint8))
    got = scene.run(plan, q, [1, 1], workspace=memory[offset : offset + plan.workspace_bytes])
    scene.check(got, scene.expected(q, [1, 1]))
    after = frame.numpy(memory)
    assert (after[:offset] == 0xA5).all() and (after[offset + plan.workspace_bytes :] == 0xA5).all()
    assert (after != 0xA5).any()


def test_a_workspace_a_byte_short(frame):
    """At an address of the worst kind all of workspace_bytes are needed."""
    scene = Scene(frame, [70, 33])
    q = scene.queries(4, [1, 1])
    plan = scene.plan(4, [1, 1])
    memory = frame.zeros(plan.workspace_bytes + 256, np.uint8)
    start = (1 - frame.address(memory)) % 256
    scene.check(scene.run(plan, q, [1, 1], workspace=memory[start : start + plan.workspace_bytes]), scene.expected(q, [1, 1]))
    with pytest.raises(fp4pa.Error, match="kWorkspaceTooSmall"):
        scene.run(plan, q, [1, 1], workspace=memory[start : start + plan.workspace_bytes - 1])
