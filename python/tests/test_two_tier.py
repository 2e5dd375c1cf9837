"""A cache of two tiers: how tokens get there makes no difference, and attention reads both."""

import numpy as np
import pytest

import fp4pa
import reference
from scenes import int32, kv_tensor

HEADS, DIM, OLD_PAGE, RECENT_PAGE, WINDOW, GROUP = 2, 64, 32, 16, 48, 64
LENGTHS = [190, 112, 20]  # the last never leaves its window


class Tiers:
    def __init__(self, frame, old="mxfp4", recent="bf16", axis="tokens", order="hnd", rotation=0):
        self.frame, self.arrays = frame, []

        def pool(k, v, v_axis, *size):
            tensors = (kv_tensor(frame, f, *size, HEADS, DIM, order, a, self.arrays) for f, a in ((k, "head_dim"), (v, v_axis)))
            return fp4pa.KvCache(*tensors, order=order, rotation=rotation)

        self.old, self.recent = pool("nvfp4", old, axis, 12, OLD_PAGE), pool(recent, recent, "head_dim", 24, RECENT_PAGE)
        self.cache = fp4pa.TwoTierKvCache(self.old, self.recent, window_tokens=WINDOW, group_tokens=GROUP)
        rng = np.random.default_rng(3)
        self.old_table = rng.permutation(12)[:12].reshape(3, 4).astype(np.int32)
        self.recent_table = rng.permutation(24)[: 3 * self.cache.ring_pages].reshape(3, -1).astype(np.int32)

    def append(self, rows, starts, ends):
        """Tokens starts[b] .. ends[b] - 1 of every sequence."""
        f = self.frame
        k, v = (np.concatenate([r[i, a:b] for r, a, b in zip(rows, starts, ends)]) for i in (0, 1))
        indptr = np.cumsum([0, *(b - a for a, b in zip(starts, ends))]).astype(np.int32)
        fp4pa.append_two_tier(self.cache, f.array(k), f.array(v), f.array(indptr), int32(f, *starts), f.array(self.old_table), f.array(self.recent_table))

    def contents(self, lengths):
        """What the tiers hold: K and V of every sequence, rows before quantised_tokens from the old one."""
        f, found = self.frame, []
        for b, length in enumerate(lengths):
            border = fp4pa.quantised_tokens(length, WINDOW, GROUP)
            parts = []
            for cache, table, page, tokens in ((self.old, self.old_table[b], OLD_PAGE, np.arange(border)),
                                               (self.recent, self.recent_table[b], RECENT_PAGE, np.arange(border, length))):
                slots = (table[tokens // page % len(table)] * page + tokens % page).astype(np.int32)
                k, v = f.zeros((len(tokens), HEADS, DIM)), f.zeros((len(tokens), HEADS, DIM))
                fp4pa.gather(cache, f.array(slots), k, v)
                parts.append((f.numpy(k), f.numpy(v)))
            found.append([np.concatenate(t) for t in zip(*parts)])
        return found


@pytest.fixture
def rows(rng):
    return [rng.standard_normal((2, n, HEADS, DIM)).astype(np.float32) for n in LENGTHS]


@pytest.mark.parametrize("axis", ["tokens", "head_dim"])
@pytest.mark.parametrize("order", ["hnd", "nhd"])
def test_token_by_token_is_at_once(frame, rows, axis, order):
    """Every byte of both pools is the same; in chunks, too."""
    pools = []
    for step in (1, 37, 1000):
        tiers = Tiers(frame, axis=axis, order=order)
        for start in range(0, max(LENGTHS), step):
            tiers.append(rows, [min(start, n) for n in LENGTHS], [min(start + step, n) for n in LENGTHS])
        pools.append([frame.numpy(a) for a in tiers.arrays])
    for other in pools[1:]:
        for a, b in zip(pools[0], other):
            np.testing.assert_array_equal(a, b)
    for (k, v), r in zip(tiers.contents(LENGTHS), rows):  # and they hold what was given: the ring to 2^-9, the old tier to its 4 bits
        border = fp4pa.quantised_tokens(len(k), WINDOW, GROUP)
        assert reference.distance(k[border:], r[0, border:]) < 2.0**-9 and reference.distance(v[border:], r[1, border:]) < 2.0**-9
        if border:
            assert reference.distance(k[:border], r[0, :border]) < 0.15 and reference.distance(v[:border], r[1, :border]) < 0.15


def test_the_old_tier_quantises_what_the_recent_one_holds(frame, rows):
    """V along tokens in MXFP4, of rows that have been rounded to bf16 in the ring."""
    tiers = Tiers(frame)
    tiers.append(rows, [0] * 3, LENGTHS)
    border = fp4pa.quantised_tokens(LENGTHS[0], WINDOW, GROUP)
    assert border == 128
    v = rows[0][1, :border].astype(reference.BF16).astype(np.float32).transpose(1, 2, 0).copy()
    np.testing.assert_array_equal(tiers.contents(LENGTHS)[0][1][:border], reference.decode(*reference.encode(v, "mxfp4"), "mxfp4").transpose(2, 0, 1))


@pytest.mark.parametrize("recent", ["bf16", "f16", "fp8_e4m3"])
@pytest.mark.parametrize("rotation", [0, 32])
@pytest.mark.parametrize("masks, plan", [({}, {}), (dict(window=50), dict(sliding_window=50))])
def test_attention_over_both_tiers(frame, rows, recent, rotation, masks, plan):
    tiers = Tiers(frame, recent=recent, rotation=rotation)
    tiers.append(rows, [0] * 3, LENGTHS)
    q_lens = [3, 1, 2]
    q = np.random.default_rng(4).standard_normal((6, 4, DIM)).astype(np.float32)
    made = fp4pa.AttentionPlan(tiers.cache, 4, max_batch=3, max_q_tokens=6, max_q_len=3, max_kv_len=190, q_dtype="f32", o_dtype="f32", **plan)
    assert made.backend == frame.backend
    o, lse = frame.zeros(q.shape), frame.zeros(q.shape[:2])
    made.run(frame.array(q), o, qo_indptr=int32(frame, 0, 3, 4, 6), seq_lens=int32(frame, *LENGTHS), block_table=frame.array(tiers.old_table),
             recent_table=frame.array(tiers.recent_table), lse=lse, workspace=frame.zeros(made.workspace_bytes, np.uint8))
    q = q.astype(np.float64) @ (reference.hadamard(DIM, rotation) if rotation else np.eye(DIM))
    want = [reference.attention(part, k, v, **masks) for part, (k, v) in zip(np.split(q, [3, 4]), tiers.contents(LENGTHS))]
    o_bound, lse_bound = reference.bounds(frame.backend)
    assert reference.distance(frame.numpy(o), np.concatenate([w[0] for w in want])) < o_bound
    assert reference.lse_distance(frame.numpy(lse), np.concatenate([w[1] for w in want])) < lse_bound


def test_tables_with_gaps(frame, rows):
    """Rows of the old table as a view of wider ones."""
    dense, wide = Tiers(frame), Tiers(frame)
    dense.append(rows, [0] * 3, LENGTHS)
    f, table = frame, np.full((3, 11), -1, np.int32)
    table[:, 5:9] = wide.old_table
    k, v = (np.concatenate([r[i] for r in rows]) for i in (0, 1))
    fp4pa.append_two_tier(wide.cache, f.array(k), f.array(v), int32(f, *np.cumsum([0, *LENGTHS])), int32(f, 0, 0, 0), f.array(table)[:, 5:9],
                          f.array(wide.recent_table))
    for a, b in zip(dense.arrays, wide.arrays):
        np.testing.assert_array_equal(f.numpy(a), f.numpy(b))


def test_no_new_tokens(frame, rows):
    tiers = Tiers(frame)
    tiers.append(rows, [0] * 3, LENGTHS)
    before = tiers.contents(LENGTHS)
    tiers.append(rows, LENGTHS, LENGTHS)
    for (k, v), (k_after, v_after) in zip(before, tiers.contents(LENGTHS)):
        np.testing.assert_array_equal(k_after, k)
        np.testing.assert_array_equal(v_after, v)


def test_counts(frame):
    tiers = Tiers(frame)
    cache = tiers.cache
    assert (cache.window_tokens, cache.group_tokens, cache.ring_pages) == (WINDOW, GROUP, (WINDOW + GROUP) // RECENT_PAGE)
    assert [fp4pa.quantised_tokens(n, WINDOW, GROUP) for n in (0, 48, 111, 112, 190)] == [0, 0, 0, 64, 128]
    assert [cache.old_tier_pages(n) for n in (0, 111, 112, 190)] == [0, 0, 2, 4]
    assert [fp4pa.min_ring_pages(64, 32, 16, n) for n in (0, 1, 2, 17, 18)] == [6, 6, 7, 7, 8]
    assert fp4pa.TwoTierKvCache(tiers.old, tiers.recent, window_tokens=WINDOW, group_tokens=GROUP, ring_pages=9).ring_pages == 9
