"""One decode step over an FP4 KV cache, from nothing, with NumPy: make a cache, append a sequence's keys and values, plan once, run
for the newest token's query, and compare with the same attention written out in double precision.

    pip install . && python examples/decode_one_step.py
"""
import sys

import fp4pa
import numpy as np

Q_HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE, TOKENS = 8, 2, 64, 16, 100
PAGES = -(-TOKENS // PAGE_SIZE)


def reference(q, k, v):
    """Attention of one query [1, heads, head_dim] over keys and values [tokens, kv heads, head_dim], in double precision."""
    k, v = (np.repeat(x.astype(np.float64), Q_HEADS // KV_HEADS, axis=1) for x in (k, v))
    scores = np.einsum("qhd,thd->hqt", q.astype(np.float64), k) / np.sqrt(HEAD_DIM)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hqt,thd->qhd", weights / weights.sum(axis=-1, keepdims=True), v)


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


# A pool of NVFP4 pages, K and V in arrays of their own.
shape, scale_shape = fp4pa.kv_shapes("nvfp4", PAGES, PAGE_SIZE, KV_HEADS, HEAD_DIM)
k_pages, v_pages = (fp4pa.KvTensor("nvfp4", np.zeros(shape, np.uint8), np.zeros(scale_shape, np.uint8)) for _ in "kv")
cache = fp4pa.KvCache(k_pages, v_pages)

# The sequence owns the pages in reverse order; token t goes to row t % page_size of its page t / page_size.
block_table = np.arange(PAGES, dtype=np.int32)[::-1].reshape(1, PAGES).copy()
tokens = np.arange(TOKENS)
slots = (block_table[0, tokens // PAGE_SIZE] * PAGE_SIZE + tokens % PAGE_SIZE).astype(np.int32)
random = np.random.default_rng(1)
k, v = (random.standard_normal((TOKENS, KV_HEADS, HEAD_DIM), np.float32) for _ in "kv")
fp4pa.append(cache, k, v, slots)

# Planned once for the largest call, then used for every step.
plan = fp4pa.AttentionPlan(cache, Q_HEADS, max_batch=1, max_q_tokens=1, max_q_len=1, max_kv_len=TOKENS, q_dtype="f32", o_dtype="f32")
workspace = np.zeros(plan.workspace_bytes, np.uint8)
q = random.standard_normal((1, Q_HEADS, HEAD_DIM), np.float32)
o = np.zeros_like(q)
plan.run(q, o, qo_indptr=np.array([0, 1], np.int32), seq_lens=np.array([TOKENS], np.int32), block_table=block_table, workspace=workspace)

# Against attention over what the cache holds (the kernel's own error), and over the input (4 bits' as well).
k_held, v_held = np.zeros_like(k), np.zeros_like(v)
fp4pa.gather(cache, slots, k_held, v_held)
kernel_error = relative_error(o, reference(q, k_held, v_held))
print(f"fp4pa {fp4pa.version_string()}, back end {plan.backend}")
print(f"relative error over the cache's contents {kernel_error:.1e}, over the unquantised input {relative_error(o, reference(q, k, v)):.1e}")
sys.exit(0 if kernel_error < 2e-3 else 1)
