"""What is PyTorch's own: its element types, gradients, streams, graphs and current device."""

import numpy as np
import pytest

import fp4pa
import reference
from calls import NAMES, Call
from conftest import NumpyFrame
from scenes import Scene, int32, kv_tensor


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("frame", ["torch"], indirect=True)
def test_the_bits_of_numpy(frame, name):
    """On the CPU a tensor and an array are the same memory to the library."""
    calls = Call(frame, name), Call(NumpyFrame(), name)
    for call in calls:
        call.run()
    for argument, a, b in zip([*calls[0].tensors, *(["pool"] * len(calls[0].pools))], *(c.memory() for c in calls)):
        if argument != "workspace":
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(torch_frame, name):
    """What is read may require one, and gets none; what is written may not."""
    call = Call(torch_frame, name)
    grad = {n: t.requires_grad_() for n, t in call.tensors.items() if t.is_floating_point() and n not in call.outputs}
    call.run(**grad)
    assert all(t.grad is None and t.grad_fn is None for t in grad.values())
    assert grad or name in ("copy_pages", "gather", "dequantize", "mxfp8")
    before = call.memory()
    for output in call.outputs:
        if call.tensors[output].is_floating_point():
            with pytest.raises(ValueError, match=f"^{output} requires a gradient"):
                call.run(**{output: call.tensors[output].clone().requires_grad_()})
    for was, now in zip(before, call.memory()):
        np.testing.assert_array_equal(now, was)


def test_parameters_and_non_contiguous_results(torch_frame):
    """A subclass of Tensor is one; a transposed weight is refused, not copied."""
    torch = torch_frame.torch
    call = Call(torch_frame, "quantize_weight")
    call.run(w=torch.nn.Parameter(call.tensors["w"]))
    with pytest.raises(ValueError, match="w has a stride"):
        call.run(w=call.tensors["w"].transpose(1, 2))


POOLS = [("fp8_e4m3", "float8_e4m3fn", None), ("mxfp8", "float8_e4m3fn", "float8_e8m0fnu"), ("bf16", "bfloat16", None), ("f16", "float16", None),
         ("nvfp4", "float4_e2m1fn_x2", "float8_e4m3fn"), ("mxfp4", "int64", "int8")]


@pytest.mark.parametrize("format, data_dtype, scale_dtype", POOLS)
def test_pools_in_types_of_their_own(torch_frame, format, data_dtype, scale_dtype):
    """Pages in the elements that they hold, or in any others of a row's size: the bytes are those of a pool of uint8."""
    torch, arrays, pools = torch_frame.torch, [], []
    for typed in (False, True):
        made = []
        plain = kv_tensor(torch_frame, format, 4, 16, 2, 64, arrays=made)
        dtypes = [getattr(torch, d) for d in (data_dtype, scale_dtype) if d is not None]
        tensor = fp4pa.KvTensor(format, *(a.view(d) for a, d in zip(made, dtypes))) if typed else plain
        cache = fp4pa.KvCache(tensor, kv_tensor(torch_frame, "f16", 4, 16, 2, 64))
        assert cache.head_dim == 64
        x = torch_frame.array(np.random.default_rng(2).standard_normal((20, 2, 64)).astype(np.float32))
        fp4pa.append(cache, x, x, torch_frame.array(np.arange(20, dtype=np.int32)))
        arrays.append([torch_frame.numpy(a) for a in made])
        pools.append(cache)
    for a, b in zip(*arrays):
        np.testing.assert_array_equal(a, b)
        assert a.any()


def test_codes_in_types_of_their_own(torch_frame, rng):
    torch = torch_frame.torch
    x = rng.standard_normal((4, 64)).astype(np.float32)
    codes, scales = (torch.zeros(n, dtype=torch.uint8, device=torch_frame.device) for n in (256, 8))
    fp4pa.quantize(torch_frame.array(x), codes.view(torch.float8_e4m3fn), scales.view(torch.float8_e8m0fnu), format="mxfp8")
    want = reference.encode(x, "mxfp8")
    np.testing.assert_array_equal(torch_frame.numpy(codes), want[0].reshape(-1))
    values = codes.view(torch.float8_e4m3fn).float().reshape(4, 2, 32) * scales.view(torch.float8_e8m0fnu).float().reshape(4, 2, 1)  # PyTorch's own decoding
    y = torch_frame.zeros((4, 64))
    fp4pa.dequantize(codes.view(torch.float8_e4m3fn), scales.view(torch.float8_e8m0fnu), y, format="mxfp8")
    np.testing.assert_array_equal(torch_frame.numpy(y), torch_frame.numpy(values.reshape(4, 64)))


def test_tensors_without_memory(torch_frame):
    torch, call = torch_frame.torch, Call(torch_frame, "append")
    with pytest.raises(ValueError, match="^k is on meta; allowed: cpu, cuda"):
        call.run(k=call.tensors["k"].to("meta"))
    with pytest.raises((ValueError, RuntimeError)):
        call.run(k=call.tensors["k"].to_sparse())
    assert isinstance(call.tensors["k"], torch.Tensor)


def test_lazy_negation(torch_frame):
    """The imaginary part of a conjugate is a view whose numbers are the negatives of those in memory."""
    call = Call(torch_frame, "append")
    lazy = torch_frame.torch._neg_view(call.tensors["k"])
    assert lazy.is_neg() and lazy.data_ptr() == call.tensors["k"].data_ptr()
    with pytest.raises(ValueError, match="^k "):
        call.run(k=lazy)


# --- On a GPU ---


def given_streams(torch):
    stream = torch.cuda.Stream()
    return {"torch": (stream, stream), "number": (stream, stream.cuda_stream), "current": (stream, None)}


@pytest.mark.parametrize("form", ["torch", "number", "current"])
def test_streams(cuda_frame, form):
    """The work is behind what the stream holds already, and the call does not wait for it."""
    torch = cuda_frame.torch
    scene = Scene(cuda_frame, [70, 33])
    q, q_lens = scene.queries(4, [1, 1]), [1, 1]
    plan, tables = scene.plan(4, q_lens), scene.tables(q_lens)
    workspace = cuda_frame.zeros(plan.workspace_bytes, np.uint8)
    o = cuda_frame.array(np.full((2, 4, 64), 7, np.float32))
    plan.run(q, torch.empty_like(o), workspace=workspace, **tables)  # loads kernels, which may wait
    torch.cuda.synchronize()
    stream, given = given_streams(torch)[form]
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1 << 29)  # a quarter of a second
        if form == "current":
            plan.run(q, o, workspace=workspace, **tables)
    if form != "current":
        plan.run(q, o, workspace=workspace, stream=given, **tables)
    assert not stream.query()
    assert (cuda_frame.numpy(o) == 7).all()  # the default stream does not wait for this one (torch.cuda.Stream's do not block)
    stream.synchronize()
    assert reference.distance(cuda_frame.numpy(o), scene.expected(q, q_lens)[0]) < reference.bounds(cuda_frame.backend)[0]


@pytest.mark.parametrize("bad", ["stream", object(), 1.5], ids=str)
def test_what_is_no_stream(cuda_frame, bad):
    with pytest.raises(TypeError, match="stream"):
        Call(cuda_frame, "append").run(stream=bad)


def test_graphs(cuda_frame):
    """append and run are captured once; replays follow the slots, lengths and tables that the tensors then hold."""
    if cuda_frame.backend != "cuda":
        pytest.skip("CUDA graphs")
    torch, f = cuda_frame.torch, cuda_frame
    cache = fp4pa.KvCache(kv_tensor(f, "mxfp4", 16, 16, 2, 64), kv_tensor(f, "nvfp4", 16, 16, 2, 64))
    plan = fp4pa.AttentionPlan(cache, 4, max_batch=2, max_q_tokens=2, max_q_len=1, max_kv_len=96, q_dtype="f32", o_dtype="f32")
    k, v, q, o, lse = (f.zeros(s) for s in ((2, 2, 64), (2, 2, 64), (2, 4, 64), (2, 4, 64), (2, 4)))
    table = np.arange(16, dtype=np.int32)[::-1].copy().reshape(2, 8)[:, :6]
    slots, lens, indptr, tables = int32(f, 0, 16), int32(f, 1, 1), int32(f, 0, 1, 2), f.array(table)
    workspace = f.zeros(plan.workspace_bytes, np.uint8)

    def step():
        fp4pa.append(cache, k, v, slots)
        plan.run(q, o, qo_indptr=indptr, seq_lens=lens, block_table=tables, lse=lse, workspace=workspace)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    rng = np.random.default_rng(6)
    slots_of = lambda b, n: (table[b, np.arange(n) // 16] * 16 + np.arange(n) % 16).astype(np.int32)
    for b, n in ((0, 90), (1, 20)):  # what the steps begin with
        rows = [f.array(rng.standard_normal((n, 2, 64)).astype(np.float32)) for _ in "kv"]
        fp4pa.append(cache, *rows, f.array(slots_of(b, n)))
    for lengths in ([91, 21], [92, 22], [93, 4]):
        for t in (k, v, q):
            t.copy_(f.array(rng.standard_normal(tuple(t.shape)).astype(np.float32)))
        slots.copy_(int32(f, *(slots_of(b, n)[-1] for b, n in enumerate(lengths))))
        lens.copy_(int32(f, *lengths))
        graph.replay()
        want = []
        for b, n in enumerate(lengths):
            held = [f.zeros((n, 2, 64)) for _ in "kv"]
            fp4pa.gather(cache, f.array(slots_of(b, n)), *held)
            want.append(reference.attention(f.numpy(q)[b : b + 1], *(f.numpy(t) for t in held)))
        o_bound, lse_bound = reference.bounds(f.backend)
        assert reference.distance(f.numpy(o), np.concatenate([w[0] for w in want])) < o_bound
        assert reference.lse_distance(f.numpy(lse), np.concatenate([w[1] for w in want])) < lse_bound


def test_another_current_device(cuda_frame):
    torch = cuda_frame.torch
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    call = Call(cuda_frame, "append")
    before = call.memory()
    with torch.cuda.device(1), pytest.raises(ValueError, match="current device is 1"):
        call.run()
    with pytest.raises(ValueError, match="device 1.*one device"):
        call.run(k=call.tensors["k"].to("cuda:1"))
    for was, now in zip(before, call.memory()):
        np.testing.assert_array_equal(now, was)
    call.run()
