"""A paged cache with sequences in it, on shuffled pages, and attention over them."""

import numpy as np

import fp4pa
import reference


def kv_tensor(frame, format, pages, page_size, heads, head_dim, order="hnd", scale_axis="head_dim", arrays=None, **more):
    """The K or V of a cache, of dense arrays of zeros; `arrays` is a list that receives them."""
    shapes = fp4pa.kv_shapes(format, pages, page_size, heads, head_dim, scale_axis=scale_axis, order=order)
    made = [frame.zeros(shape, np.uint8) for shape in shapes if shape is not None]
    if arrays is not None:
        arrays += made
    return fp4pa.KvTensor(format, *made, scale_axis=scale_axis, **more)


def int32(frame, *values):
    return frame.array(np.array(values, np.int32))


class Scene:
    """`lengths` tokens of each sequence, standard normal, appended; the last page of each is partly filled."""

    def __init__(self, frame, lengths, k="mxfp4", v="nvfp4", heads=2, head_dim=64, page_size=16, order="hnd", axis="head_dim", rotation=0, seed=7,
                 cache=None):
        self.frame, self.lengths, self.head_dim = frame, list(lengths), head_dim
        rng = np.random.default_rng(seed)
        self.counts = [-(-n // page_size) for n in self.lengths]
        pages = sum(self.counts) + 3
        if cache is None:
            size = (pages, page_size, heads, head_dim)
            cache = fp4pa.KvCache(kv_tensor(frame, k, *size, order=order), kv_tensor(frame, v, *size, order=order, scale_axis=axis), order=order,
                                  rotation=rotation)
        self.cache = cache
        ids = rng.permutation(cache.num_pages)[: sum(self.counts)].astype(np.int32)
        self.table = np.full((len(self.lengths), max(self.counts) + 1), -1, np.int32)  # what no sequence needs is no page
        self.slots = []
        for b, (n, count) in enumerate(zip(self.lengths, self.counts)):
            self.table[b, :count], ids = ids[:count], ids[count:]
            self.slots.append((self.table[b, :count, None] * page_size + np.arange(page_size)).reshape(-1)[:n].astype(np.int32))
        slots = np.concatenate(self.slots)
        rows = rng.standard_normal((2, len(slots), heads, head_dim)).astype(np.float32)
        fp4pa.append(cache, frame.array(rows[0]), frame.array(rows[1]), frame.array(slots))
        gathered = [frame.zeros(rows[0].shape), frame.zeros(rows[0].shape)]
        fp4pa.gather(cache, frame.array(slots), *gathered)
        splits = np.cumsum(self.lengths)[:-1]
        self.k, self.v = (np.split(frame.numpy(t), splits) for t in gathered)  # what the cache holds, K as it is stored
        self.rotate = reference.hadamard(head_dim, rotation) if rotation else np.eye(head_dim)

    def plan(self, q_heads, q_lens, o_dtype="f32", q_dtype="f32", **more):
        plan = fp4pa.AttentionPlan(self.cache, q_heads, max_batch=len(q_lens), max_q_tokens=sum(q_lens), max_q_len=max(q_lens),
                                   max_kv_len=max(self.lengths), q_dtype=q_dtype, o_dtype=o_dtype, **more)
        assert plan.backend == more.get("backend", self.frame.backend)
        return plan

    def queries(self, q_heads, q_lens, q_dtype="f32", seed=8):
        q = np.random.default_rng(seed).standard_normal((sum(q_lens), q_heads, self.head_dim)).astype(np.float32)
        return self.frame.array(q, q_dtype)

    def tables(self, q_lens):
        """The keyword arguments of run() that say which tokens are whose."""
        f = self.frame
        return dict(qo_indptr=f.array(np.cumsum([0, *q_lens]).astype(np.int32)), seq_lens=f.array(np.array(self.lengths, np.int32)),
                    block_table=f.array(self.table))

    def run(self, plan, q, q_lens, o_dtype="f32", **more):
        """O and LSE in NumPy."""
        f = self.frame
        o, lse = f.zeros(q.shape, o_dtype), f.zeros(q.shape[:2])
        plan.run(q, o, **{"lse": lse, "workspace": f.zeros(plan.workspace_bytes, np.uint8), **self.tables(q_lens), **more})
        return f.numpy(o), f.numpy(lse)

    def expected(self, q, q_lens, tree=None, **masks):
        """O and LSE in double precision over what the cache holds."""
        q = self.frame.numpy(q).astype(np.float64) @ self.rotate
        starts = np.cumsum([0, *q_lens])
        parts = [reference.attention(q[a:b], k, v, tree=None if tree is None else tree[a:b], **masks)
                 for a, b, k, v in zip(starts, starts[1:], self.k, self.v)]
        return tuple(np.concatenate(part) for part in zip(*parts))

    def check(self, got, want, o_dtype="f32"):
        o_bound, lse_bound = reference.bounds(self.frame.backend, o_dtype)
        assert reference.distance(got[0], want[0]) < o_bound
        assert reference.lse_distance(got[1], want[1]) < lse_bound

    def same(self, got, want):
        """Results of the same work by other strides or tables: equal bits on the CPU; a GPU may choose another kernel, whose sums have another order."""
        for a, b in zip(got, want):
            if self.frame.backend == "cpu":
                np.testing.assert_array_equal(a, b)
            else:
                np.testing.assert_allclose(a, b, atol=5e-3)
