"""Paged attention against double precision over what the cache holds."""

import numpy as np
import pytest

import fp4pa
import reference
from scenes import Scene, int32

RAGGED = ([100, 1, 37, 64], [1, 1, 5, 3])  # lengths, query tokens: decode, a first token, a few drafts, the end of a page


def attend(scene, q_heads, q_lens, run=None, masks=None, **plan):
    """Runs a call and compares it; `masks` are the reference's arguments."""
    dtypes = plan.get("q_dtype", "f32"), plan.get("o_dtype", "f32")
    q = scene.queries(q_heads, q_lens, dtypes[0])
    got = scene.run(scene.plan(q_heads, q_lens, **plan), q, q_lens, dtypes[1], **(run or {}))
    scene.check(got, scene.expected(q, q_lens, **(masks or {})), dtypes[1])
    return got


@pytest.mark.parametrize("k, v", [("mxfp4", "nvfp4"), ("nvfp4", "mxfp4"), ("e8m0_per_token", "e8m0_per_token"), ("fp8_e4m3", "mxfp4"), ("mxfp8", "mxfp8"),
                                  ("bf16", "nvfp4"), ("f16", "f16"), ("mxfp4", "bf16")])
def test_formats(frame, k, v):
    attend(Scene(frame, RAGGED[0], k, v), 8, RAGGED[1])


@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 256])
@pytest.mark.parametrize("order", ["hnd", "nhd"])
def test_head_dims_and_orders(frame, head_dim, order):
    attend(Scene(frame, RAGGED[0], head_dim=head_dim, order=order), 4, RAGGED[1])


@pytest.mark.parametrize("heads, q_heads", [(1, 1), (1, 16), (2, 14), (4, 4)])
def test_groups_of_query_heads(frame, heads, q_heads):
    attend(Scene(frame, RAGGED[0], heads=heads), q_heads, RAGGED[1])


@pytest.mark.parametrize("page_size", [1, 7, 64])
def test_page_sizes(frame, page_size):
    attend(Scene(frame, RAGGED[0], page_size=page_size), 4, RAGGED[1])


@pytest.mark.parametrize("v, page_size", [("mxfp4", 32), ("nvfp4", 16)])
def test_v_scaled_along_tokens(frame, v, page_size):
    attend(Scene(frame, [96, 32, 70], "nvfp4", v, page_size=page_size, axis="tokens"), 4, [1, 2, 3])


@pytest.mark.parametrize("q_dtype, o_dtype", [("f16", "f16"), ("bf16", "bf16"), ("f32", "bf16"), ("bf16", "f32")])
def test_dtypes(frame, q_dtype, o_dtype):
    if {q_dtype, o_dtype} - set(frame.dtypes):
        pytest.skip("NumPy has no bf16")
    attend(Scene(frame, RAGGED[0]), 8, RAGGED[1], q_dtype=q_dtype, o_dtype=o_dtype)


@pytest.mark.parametrize("block", [16, 32, 64])
@pytest.mark.parametrize("k", ["nvfp4", "f16"])
def test_rotation(frame, block, k):
    """Q is rotated on load as K was on append, so that products are those of the unrotated vectors, up to what quantising K loses."""
    rotated, plain = Scene(frame, [100], k, rotation=block), Scene(frame, [100], k)
    o, _ = attend(rotated, 4, [2])
    if k == "f16":  # K's elements are off by up to 2^-11 of themselves, which makes 3e-4 of O
        want, _ = plain.expected(plain.queries(4, [2]), [2])
        assert reference.distance(o, want) < 6e-4 + reference.bounds(frame.backend)[0]


@pytest.mark.parametrize("plan, masks", [
    (dict(causal=False), dict(causal=False)),
    (dict(sliding_window=20), dict(window=20)),
    (dict(sliding_window=1), dict(window=1)),
    (dict(softcap=2.0), dict(softcap=2.0)),
    (dict(sm_scale=0.3), dict(scale=0.3)),
    (dict(sm_scale=-0.3), dict(scale=-0.3)),
    (dict(kv_split_tokens=64), {}),
    (dict(batch_invariant=True), {}),
    (dict(matrix_path="decode"), {}),
], ids=str)
def test_masks_and_options(frame, plan, masks):
    attend(Scene(frame, RAGGED[0]), 4, RAGGED[1], masks=masks, **plan)


@pytest.mark.parametrize("frame", ["numpy"], indirect=True)
def test_the_scalar_back_end(frame):
    attend(Scene(frame, RAGGED[0]), 4, RAGGED[1], backend="cpu-scalar")


def test_sinks(frame, rng):
    sinks = rng.standard_normal(4).astype(np.float32) + 2  # large enough to matter beside 100 keys
    attend(Scene(frame, RAGGED[0]), 4, RAGGED[1], run=dict(sinks=frame.array(sinks)), masks=dict(sinks=sinks), sinks=True)


def test_alibi(frame):
    slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    attend(Scene(frame, RAGGED[0]), 4, RAGGED[1], run=dict(alibi_slopes=frame.array(slopes)), masks=dict(slopes=slopes), alibi=True)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("window", [0, 20])
def test_tree_mask(frame, signed, window):
    # A root with two branches (1, 3 and 2, 4), a query that sees nothing but the past, and bits from q_len on, which mean nothing.
    tree = np.array([0b00001, 0b00011, 0b00101, 0b01011, 0b10101, 0, 1 << 63 | 1, 0b11], np.uint64)
    attend(Scene(frame, [40, 33]), 4, [5, 3], run=dict(tree_mask=frame.array(tree.view(np.int64) if signed else tree)), masks=dict(tree=tree, window=window),
           tree_mask=True, sliding_window=window)


def test_csr_tables(frame):
    scene = Scene(frame, RAGGED[0])
    q = scene.queries(4, RAGGED[1])
    want = scene.run(scene.plan(4, RAGGED[1]), q, RAGGED[1])
    indices = np.concatenate([row[:n] for row, n in zip(scene.table, scene.counts)])
    got = scene.run(scene.plan(4, RAGGED[1], table_kind="csr"), q, RAGGED[1], block_table=None, kv_indices=frame.array(indices),
                    kv_indptr=frame.array(np.cumsum([0, *scene.counts]).astype(np.int32)))
    scene.check(got, scene.expected(q, RAGGED[1]))
    scene.same(got, want)


def test_more_queries_than_keys(frame):
    """The first queries stand before key 0: they see nothing, and O is 0 there."""
    scene = Scene(frame, [3, 20])
    o, lse = attend(scene, 4, [5, 1])
    assert np.isneginf(lse[:2]).all() and np.isfinite(lse[2:]).all()
    assert (o[:2] == 0).all()


def test_a_smaller_call_than_planned_and_rows_without_a_sequence(frame):
    scene = Scene(frame, [50, 40])
    plan = fp4pa.AttentionPlan(scene.cache, 4, max_batch=9, max_q_tokens=64, max_q_len=32, max_kv_len=500, q_dtype="f32", o_dtype="f32")
    q = scene.queries(4, [2, 3, 2])  # qo_indptr ends before the last two rows: padding
    o, lse = frame.array(np.full(q.shape, 7, np.float32)), frame.array(np.full(q.shape[:2], 7, np.float32))
    plan.run(q, o, lse=lse, workspace=frame.zeros(plan.workspace_bytes, np.uint8), **scene.tables([2, 3]))
    scene.check((frame.numpy(o)[:5], frame.numpy(lse)[:5]), scene.expected(q[:5], [2, 3]))
    assert (frame.numpy(o)[5:] == 7).all() and (frame.numpy(lse)[5:] == 7).all()


def test_calls_without_work(frame):
    scene = Scene(frame, [50])
    plan = scene.plan(4, [1])
    none = frame.zeros((0, 4, 64))
    workspace = frame.zeros(plan.workspace_bytes, np.uint8)
    plan.run(none, frame.zeros((0, 4, 64)), workspace=workspace, **scene.tables([0]))
    plan.run(none, frame.zeros((0, 4, 64)), workspace=workspace, qo_indptr=int32(frame, 0), seq_lens=frame.zeros(0, np.int32),
             block_table=frame.zeros((0, 3), np.int32))
    o = frame.array(np.full((1, 4, 64), 7, np.float32))  # no keys, one query
    lse = frame.zeros((1, 4))
    plan.run(scene.queries(4, [1]), o, lse=lse, workspace=workspace, qo_indptr=int32(frame, 0, 1), seq_lens=int32(frame, 0),
             block_table=frame.array(scene.table))
    assert (frame.numpy(o) == 0).all() and np.isneginf(frame.numpy(lse)).all()


def test_batch_invariance(frame):
    """A sequence alone has the bits that it has in a batch."""
    scene = Scene(frame, [300, 17, 90], page_size=32)
    q = scene.queries(4, [1, 1, 1])
    plan = scene.plan(4, [1, 1, 1], batch_invariant=True)
    whole = scene.run(plan, q, [1, 1, 1])
    for b in range(3):
        o, lse = frame.zeros((1, 4, 64)), frame.zeros((1, 4))
        plan.run(q[b : b + 1], o, lse=lse, workspace=frame.zeros(plan.workspace_bytes, np.uint8), qo_indptr=int32(frame, 0, 1),
                 seq_lens=int32(frame, scene.lengths[b]), block_table=frame.array(scene.table[b : b + 1]))
        np.testing.assert_array_equal(frame.numpy(o), whole[0][b : b + 1])
        np.testing.assert_array_equal(frame.numpy(lse), whole[1][b : b + 1])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("in_place", [False, True])
def test_merge_states(frame, dtype, in_place):
    """Two halves of the keys, merged, are the whole."""
    if dtype not in frame.dtypes:
        pytest.skip("NumPy has no bf16")
    scene = Scene(frame, [64])
    q = scene.queries(4, [2])
    plan = scene.plan(4, [2], causal=False, o_dtype=dtype)
    halves = []
    for pages in ([0, 1], [2, 3]):
        o, lse = frame.zeros(q.shape, dtype), frame.zeros(q.shape[:2])
        plan.run(q, o, lse=lse, workspace=frame.zeros(plan.workspace_bytes, np.uint8), qo_indptr=int32(frame, 0, 2), seq_lens=int32(frame, 32),
                 block_table=frame.array(scene.table[:, pages]))
        halves += [o, lse]
    out = halves[:2] if in_place else [frame.zeros(q.shape, dtype), frame.zeros(q.shape[:2])]
    fp4pa.merge_states(*halves, *out)
    o_bound, lse_bound = reference.bounds(frame.backend, dtype)
    want = scene.expected(q, [2], causal=False)
    assert reference.distance(frame.numpy(out[0]), want[0]) < 2 * o_bound  # the halves, larger than the whole, have been rounded to dtype, too
    assert reference.lse_distance(frame.numpy(out[1]), want[1]) < lse_bound


def test_merge_with_nothing(frame, rng):
    """A state with LSE = -inf contributes nothing, not even its O."""
    a = rng.standard_normal((3, 2, 64)).astype(np.float32)
    lse_a = rng.standard_normal((3, 2)).astype(np.float32)
    o, lse = frame.zeros(a.shape), frame.zeros(lse_a.shape)
    fp4pa.merge_states(frame.array(np.zeros_like(a)), frame.array(np.full_like(lse_a, -np.inf)), frame.array(a), frame.array(lse_a), o, lse)
    np.testing.assert_array_equal(frame.numpy(o), a)
    np.testing.assert_array_equal(frame.numpy(lse), lse_a)
