"""Generation with PyTorch, as an engine does it: prompts of several lengths go into the MXFP4 caches of a few layers, then every step appends
the newest token's keys and values and attends, layer after layer. On a GPU a step is captured in a graph and replayed while lengths and slots
change in device memory. At the end the last layer's output is compared with PyTorch's own attention over what the cache holds.

    pip install . && python examples/generate_with_torch.py [cpu|cuda]
"""
import sys

import fp4pa
import torch

LAYERS, Q_HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE, STEPS = 4, 32, 8, 128, 64, 20
PROMPTS = [1000, 1, 257, 64]
BATCH, PAGES_EACH = len(PROMPTS), -(-(max(PROMPTS) + STEPS) // PAGE_SIZE)
device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1)


def make_cache():
    shapes = fp4pa.kv_shapes("mxfp4", BATCH * PAGES_EACH, PAGE_SIZE, KV_HEADS, HEAD_DIM)
    k, v = (fp4pa.KvTensor("mxfp4", *(torch.zeros(shape, dtype=torch.uint8, device=device) for shape in shapes)) for _ in "kv")
    return fp4pa.KvCache(k, v)


def random_rows(tokens, heads):
    return torch.randn(tokens, heads, HEAD_DIM, dtype=torch.bfloat16, device=device)


# Sequence b has every BATCH-th page of each layer's pool. A token's slot is its page times PAGE_SIZE plus its row there.
block_table = torch.arange(PAGES_EACH, dtype=torch.int32, device=device)[None] * BATCH + torch.arange(BATCH, dtype=torch.int32, device=device)[:, None]


def slots_of(sequence, tokens):
    return block_table[sequence, tokens // PAGE_SIZE].long() * PAGE_SIZE + tokens % PAGE_SIZE


caches = [make_cache() for _ in range(LAYERS)]
prompt_slots = torch.cat([slots_of(b, torch.arange(n, device=device)) for b, n in enumerate(PROMPTS)])
for cache in caches:
    fp4pa.append(cache, random_rows(len(prompt_slots), KV_HEADS), random_rows(len(prompt_slots), KV_HEADS), prompt_slots)

# A plan holds its cache's pointers, so each layer has one; on one stream they share a workspace. A step's tensors stay where they are: a
# graph keeps pointers.
plans = [fp4pa.AttentionPlan(cache, Q_HEADS, max_batch=BATCH, max_q_tokens=BATCH, max_q_len=1, max_kv_len=PAGES_EACH * PAGE_SIZE) for cache in caches]
workspace = torch.empty(plans[0].workspace_bytes, dtype=torch.uint8, device=device)
seq_lens = torch.tensor(PROMPTS, dtype=torch.int32, device=device)
qo_indptr = torch.arange(BATCH + 1, dtype=torch.int32, device=device)
slots = torch.zeros(BATCH, dtype=torch.int64, device=device)
q, k, v = ([random_rows(BATCH, heads) for _ in caches] for heads in (Q_HEADS, KV_HEADS, KV_HEADS))
o = [torch.zeros_like(rows) for rows in q]


def step():
    for layer, (cache, plan) in enumerate(zip(caches, plans)):
        fp4pa.append(cache, k[layer], v[layer], slots)
        # The first layer schedules the work by the lengths; the others use its schedule, which lies in the workspace.
        plan.run(q[layer], o[layer], qo_indptr=qo_indptr, seq_lens=seq_lens, block_table=block_table, workspace=workspace, same_lengths=layer > 0)


graph = None
for _ in range(STEPS):
    slots.copy_(slots_of(torch.arange(BATCH, device=device), seq_lens.long()))
    seq_lens += 1  # the newest token included
    for rows in (*q, *k, *v):
        rows.normal_()
    if device == "cpu":
        step()
        continue
    if graph is None:  # capturing does not run: the replay does
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
    graph.replay()

worst = 0.0
for b, length in enumerate(seq_lens.tolist()):
    held = [torch.zeros(length, KV_HEADS, HEAD_DIM, device=device) for _ in "kv"]
    fp4pa.gather(caches[-1], slots_of(b, torch.arange(length, device=device)), *held)
    heads_first = [rows.transpose(0, 1).repeat_interleave(Q_HEADS // KV_HEADS, dim=0).double() for rows in held]
    expected = torch.nn.functional.scaled_dot_product_attention(q[-1][b][:, None].double(), *heads_first)[:, 0]
    worst = max(worst, float((o[-1][b].double() - expected).norm() / expected.norm()))
print(f"fp4pa {fp4pa.version_string()}: {STEPS} steps of {LAYERS} layers, {BATCH} sequences in mxfp4, back end {plans[0].backend}")
print(f"the last step, relative error of the last layer: {worst:.1e}")
sys.exit(0 if worst < 2e-3 + 2**-8 else 1)  # what is promised of O before it is rounded, and the rounding to bf16
