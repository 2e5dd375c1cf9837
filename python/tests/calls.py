"""Every call of the package with small tensors that it accepts, so that tests can spoil one tensor at a time."""

import numpy as np

import fp4pa
from scenes import kv_tensor

NAMES = ["append", "append_two_tier", "gather", "copy_pages", "run", "run_csr", "run_tree", "run_two_tier", "merge_states", "quantize", "dequantize",
         "quantize_weight", "linear", "matmul", "dense", "mxfp8"]
HEADS, Q_HEADS, DIM, PAGE = 2, 4, 64, 32


class Call:
    """`tensors` by argument; run() makes the call with some of them replaced. `outputs` are the names that it writes, `pools` the caches' memory."""

    def __init__(self, frame, name):
        self.frame, self.name, self.pools, self.outputs = frame, name, [], ()
        self.tensors, self._run = getattr(self, "_" + name)(np.random.default_rng(5))

    def run(self, **replaced):
        return self._run(**{**self.tensors, **replaced})

    def name_in_messages(self, argument):
        return {"q_codes": "q's codes", "q_scales": "q's scales", "k_codes": "k's codes", "k_scales": "k's scales", "v_codes": "v's codes",
                "v_scales": "v's scales"}.get(argument, argument)

    def memory(self):
        """Copies of everything that a call could have written."""
        return [self.frame.numpy(t) for t in [*self.tensors.values(), *self.pools]]

    # --- What the calls are made of ---

    def _cache(self, k="mxfp4", v="nvfp4", pages=8):
        return fp4pa.KvCache(*(kv_tensor(self.frame, f, pages, PAGE, HEADS, DIM, arrays=self.pools) for f in (k, v)))

    def _floats(self, rng, *shape):
        return self.frame.array(rng.standard_normal(shape).astype(np.float32))

    def _ints(self, values):
        return self.frame.array(np.array(values, np.int32))

    def _bytes(self, *shape):
        return self.frame.zeros(shape, np.uint8)

    # --- The cache ---

    def _append(self, rng):
        cache = self._cache()
        tensors = dict(k=self._floats(rng, 5, HEADS, DIM), v=self._floats(rng, 5, HEADS, DIM), slots=self._ints([0, 3, 9, 64, 70]))
        return tensors, lambda **t: fp4pa.append(cache, **t)

    def _gather(self, rng):
        self.outputs = ("k", "v")
        cache = self._cache()
        tensors = dict(k=self._floats(rng, 5, HEADS, DIM), v=self._floats(rng, 5, HEADS, DIM), slots=self._ints([0, 3, 9, 64, 70]))
        return tensors, lambda **t: fp4pa.gather(cache, **t)

    def _copy_pages(self, rng):
        cache = self._cache()
        return dict(src=self._ints([0, 1]), dst=self._ints([4, 5])), lambda **t: fp4pa.copy_pages(cache, **t)

    def _tiers(self):
        return fp4pa.TwoTierKvCache(self._cache(), self._cache("bf16", "bf16"), window_tokens=32, group_tokens=32)

    def _append_two_tier(self, rng):
        tiers = self._tiers()
        tensors = dict(k=self._floats(rng, 5, HEADS, DIM), v=self._floats(rng, 5, HEADS, DIM), indptr=self._ints([0, 2, 5]), seq_lens=self._ints([63, 0]),
                       old_table=self._ints([[0, 1], [2, 3]]), recent_table=self._ints([[0, 1], [2, 3]]))
        return tensors, lambda **t: fp4pa.append_two_tier(tiers, **t)

    # --- Attention ---

    def _attention(self, rng, cache, tables, **features):
        self.outputs = ("o", "lse", "workspace")
        plan = fp4pa.AttentionPlan(cache, Q_HEADS, max_batch=2, max_q_tokens=5, max_q_len=3, max_kv_len=64, q_dtype="f32", o_dtype="f32", **features)
        tensors = dict(q=self._floats(rng, 5, Q_HEADS, DIM), o=self._floats(rng, 5, Q_HEADS, DIM), qo_indptr=self._ints([0, 2, 5]),
                       seq_lens=self._ints([40, 64]), lse=self._floats(rng, 5, Q_HEADS), workspace=self._bytes(plan.workspace_bytes), **tables)
        return tensors, lambda **t: plan.run(**t)

    def _run(self, rng):
        tables = dict(block_table=self._ints([[0, 1], [2, 3]]), sinks=self._floats(rng, Q_HEADS), alibi_slopes=self._floats(rng, Q_HEADS))
        return self._attention(rng, self._cache(), tables, sinks=True, alibi=True)

    def _run_csr(self, rng):
        return self._attention(rng, self._cache(), dict(kv_indptr=self._ints([0, 2, 4]), kv_indices=self._ints([0, 1, 2, 3])), table_kind="csr")

    def _run_tree(self, rng):
        tree = self.frame.array(np.array([1, 3, 1, 3, 5], np.uint64))
        return self._attention(rng, self._cache(), dict(block_table=self._ints([[0, 1], [2, 3]]), tree_mask=tree), tree_mask=True)

    def _run_two_tier(self, rng):
        tables = dict(block_table=self._ints([[0, 1], [2, 3]]), recent_table=self._ints([[0, 1], [2, 3]]))
        return self._attention(rng, self._tiers(), tables)

    def _merge_states(self, rng):
        self.outputs = ("o", "lse")
        o, lse = (lambda: self._floats(rng, 5, Q_HEADS, DIM)), (lambda: self._floats(rng, 5, Q_HEADS))
        return dict(oa=o(), lse_a=lse(), ob=o(), lse_b=lse(), o=o(), lse=lse()), lambda **t: fp4pa.merge_states(**t)

    # --- Quantising and products ---

    def _quantize(self, rng):
        self.outputs = ("codes", "scales")
        return dict(x=self._floats(rng, 3, 64), codes=self._bytes(3, 32), scales=self._bytes(3, 2)), lambda **t: fp4pa.quantize(**t)

    def _dequantize(self, rng):
        self.outputs = ("y",)
        return dict(codes=self._bytes(3, 32), scales=self._bytes(3, 2), y=self._floats(rng, 3, 64)), lambda **t: fp4pa.dequantize(**t)

    def _quantize_weight(self, rng):
        self.outputs = ("codes", "scales", "global_scales")
        tensors = dict(w=self._floats(rng, 2, 8, 64), codes=self._bytes(2, 8, 32), scales=self._bytes(2, 8, 4), global_scales=self.frame.zeros(2))
        return tensors, lambda **t: fp4pa.quantize_weight(format="nvfp4", **t)

    def _linear(self, rng):
        self.outputs = ("out", "workspace")
        weight = fp4pa.Fp4Weight(self._bytes(8, 32), self._bytes(8, 2), 8, 64)
        tensors = dict(x=self._floats(rng, 3, 64), out=self._floats(rng, 3, 8), bias=self._floats(rng, 8))
        tensors["workspace"] = self._bytes(fp4pa.linear_workspace_bytes(weight=weight, activations="a4", **tensors) + 64)
        return tensors, lambda **t: fp4pa.linear(weight=weight, activations="a4", **t)

    def _matmul(self, rng):
        self.outputs = ("out", "workspace")
        tensors = dict(a=self._floats(rng, 3, 64), b=self._floats(rng, 8, 64), out=self._floats(rng, 3, 8))
        tensors["workspace"] = self._bytes(fp4pa.matmul_workspace_bytes(**tensors) + 64)
        return tensors, lambda **t: fp4pa.matmul(**t)

    # --- Dense attention ---

    def _dense_tensors(self, rng, plan):
        self.outputs = ("o", "lse", "workspace")
        return dict(o=self._floats(rng, 5, Q_HEADS, DIM), q_indptr=self._ints([0, 2, 5]), kv_indptr=self._ints([0, 6, 9]), lse=self._floats(rng, 5, Q_HEADS),
                    workspace=self._bytes(plan.workspace_bytes))

    LIMITS = dict(max_batch=2, max_q_tokens=5, max_q_len=5, max_kv_tokens=9, max_kv_len=9, o_dtype="f32")

    def _dense(self, rng):
        plan = fp4pa.DenseAttentionPlan(Q_HEADS, HEADS, DIM, q_dtype="f32", kv_dtype="f32", backend=self.frame.backend, **self.LIMITS)
        tensors = dict(q=self._floats(rng, 5, Q_HEADS, DIM), k=self._floats(rng, 9, HEADS, DIM), v=self._floats(rng, 9, HEADS, DIM))
        return tensors | self._dense_tensors(rng, plan), lambda **t: plan.run(batch=2, **t)

    def _mxfp8(self, rng):
        plan = fp4pa.Mxfp8AttentionPlan(Q_HEADS, HEADS, DIM, backend=self.frame.backend, **self.LIMITS)
        tensors = {}
        for x, tokens, heads in (("q", 5, Q_HEADS), ("k", 9, HEADS), ("v", 9, HEADS)):
            tensors |= {f"{x}_codes": self._bytes(tokens, heads, DIM), f"{x}_scales": self._bytes(tokens, heads, DIM // 32)}
        pairs = lambda t: {x: (t.pop(f"{x}_codes"), t.pop(f"{x}_scales")) for x in "qkv"}
        return tensors | self._dense_tensors(rng, plan), lambda **t: plan.run(batch=2, **pairs(t), **t)
