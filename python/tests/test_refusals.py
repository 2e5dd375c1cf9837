"""What the library and the module refuse by value: each status with the sentence that names the value, and nothing written."""

import copy
import pickle

import numpy as np
import pytest

import fp4pa
from calls import Call, HEADS, Q_HEADS, DIM, PAGE
from scenes import int32, kv_tensor


@pytest.fixture(params=[False, True], ids=["", "validate"])
def validate(frame, request):
    """On a GPU what lies in device memory is looked at only where that is asked for."""
    if frame.backend != "cpu" and not request.param:
        pytest.skip("GPUs trust it")
    return request.param


def refused(call, status, detail):
    with pytest.raises(fp4pa.Error, match=detail) as raised:
        call()
    error = raised.value
    assert error.status == status and str(error) == f"{status}: {error.detail}"


def refused_by_value(frame, name, argument, values, status, detail, dtype=np.int32, **more):
    """One tensor's values replaced; every byte of the call's memory stays."""
    call = Call(frame, name)
    before = call.memory()
    refused(lambda: call.run(**{argument: frame.array(np.array(values, dtype))}, **more), status, detail)
    for was, now in zip(before, call.memory()):
        np.testing.assert_array_equal(now, was)


LAST = 8 * PAGE


@pytest.mark.parametrize("name, argument, values, status, detail", [
    ("append", "slots", [0, 3, 9, 64, LAST], "kSlotOutOfRange", f"token 4 has slot {LAST}; allowed: 0 to {LAST - 1}"),
    ("gather", "slots", [LAST + 7, 3, 9, 64, 0], "kSlotOutOfRange", f"token 0 has slot {LAST + 7}"),
    ("copy_pages", "src", [0, 8], "kBlockIdOutOfRange", "8"),
    ("copy_pages", "dst", [4, -1], "kBlockIdOutOfRange", "-1"),
    ("copy_pages", "dst", [4, 4], "kInvalidArgument", "page 4 is a destination twice"),
    ("copy_pages", "dst", [4, 0], "kInvalidArgument", "page 0"),
    ("append_two_tier", "indptr", [1, 2, 5], "kInvalidIndptr", "indptr\\[0\\].* 1;"),
    ("append_two_tier", "indptr", [0, 6, 5], "kInvalidIndptr", "indptr"),
    ("append_two_tier", "indptr", [0, 2, 6], "kInvalidIndptr", "6"),
    ("append_two_tier", "seq_lens", [63, -1], "kInvalidSize", "-1"),
    ("append_two_tier", "seq_lens", [127, 0], "kLengthExceedsTable", "129|3 pages"),
    ("append_two_tier", "old_table", [[8, 1], [2, 3]], "kBlockIdOutOfRange", "old_table of sequence 0 .* 8 "),
    ("append_two_tier", "recent_table", [[0, 1], [-2, 3]], "kBlockIdOutOfRange", "recent_table of sequence 1 .* -2 "),
])
def test_values_in_memory(frame, validate, name, argument, values, status, detail):
    refused_by_value(frame, name, argument, values, status, detail, validate=validate)


@pytest.mark.parametrize("name, argument, values, status, detail", [
    ("run", "block_table", [[0, 1], [2, 8]], "kBlockIdOutOfRange", "sequence 1 names page 8 at position 1; allowed: 0 to 7"),
    ("run", "seq_lens", [40, 65], "kPlanMismatch", "seq_lens\\[1\\] is 65; allowed: 0 to the plan's max_kv_len 64"),
    ("run", "block_table", [[0], [2]], "kLengthExceedsTable", "sequence 0 has 40 keys"),
    ("run", "qo_indptr", [0, 4, 3], "kPlanMismatch|kInvalidIndptr", "qo_indptr|4 query tokens"),
    ("run", "qo_indptr", [1, 2, 5], "kInvalidIndptr", "qo_indptr\\[0\\] is 1; allowed: 0"),
    ("run_csr", "kv_indices", [0, 1, 2, 8], "kBlockIdOutOfRange", "page 8"),
    ("run_csr", "kv_indptr", [0, 1, 4], "kLengthExceedsTable", "sequence 0 has 40 keys"),
    ("run_csr", "kv_indptr", [0, 9, 4], "kInvalidIndptr", "kv_indptr"),
    ("run_csr", "kv_indptr", [1, 2, 4], "kInvalidIndptr", "kv_indptr\\[0\\].* 1;"),
    ("run_two_tier", "recent_table", [[0, 1], [2, 9]], "kBlockIdOutOfRange", "page 9"),
    ("dense", "q_indptr", [0, 6, 5], "kPlanMismatch|kInvalidIndptr", "q_indptr"),
    ("dense", "kv_indptr", [0, 6, 8], "kInvalidIndptr", "kv_indptr ends at 8; allowed: kv_tokens, which is 9"),
    ("mxfp8", "kv_indptr", [0, 10, 9], "kPlanMismatch|kInvalidIndptr", "kv_indptr"),
])
@pytest.mark.parametrize("frame", ["numpy", "torch"], indirect=True)  # plans of a GPU are asked for it when they are made: test_plans_that_validate
def test_values_that_runs_read(frame, name, argument, values, status, detail):
    call = Call(frame, name)
    before = call.memory()
    with pytest.raises(fp4pa.Error, match=detail) as raised:
        call.run(**{argument: int32(frame, *values)})
    assert raised.value.status in status.split("|")
    for was, now in zip(before, call.memory()):
        np.testing.assert_array_equal(now, was)


def test_plans_that_validate(frame):
    cache = fp4pa.KvCache(*(kv_tensor(frame, "mxfp4", 8, PAGE, HEADS, DIM) for _ in "kv"))
    plan = fp4pa.AttentionPlan(cache, Q_HEADS, max_batch=1, max_q_tokens=1, max_q_len=1, max_kv_len=64, q_dtype="f32", o_dtype="f32", validate=True)
    o = frame.array(np.full((1, Q_HEADS, DIM), 7, np.float32))
    run = lambda length, *pages: plan.run(frame.zeros((1, Q_HEADS, DIM)), o, qo_indptr=int32(frame, 0, 1), seq_lens=int32(frame, length),
                                          block_table=int32(frame, pages), workspace=frame.zeros(plan.workspace_bytes, np.uint8))
    refused(lambda: run(40, 0, 8), "kBlockIdOutOfRange", "page 8")
    refused(lambda: run(40, 0), "kLengthExceedsTable", "40 keys")
    refused(lambda: run(65, 0, 1), "kPlanMismatch", "65")
    assert (frame.numpy(o) == 7).all()
    run(40, 0, 1)
    assert (frame.numpy(o) == 0).all()


@pytest.mark.parametrize("frame", ["numpy", "torch"], indirect=True)
def test_tables_end_where_their_tensors_do(frame):
    """A view's row has as many pages as the view, whatever lies behind it; kv_indices has as many as it has."""
    for name, argument in (("run", "block_table"), ("append_two_tier", "old_table")):
        call = Call(frame, name)
        more = dict(seq_lens=int32(frame, 100, 40)) if name == "append_two_tier" else {}
        narrow = call.tensors[argument][:, :1]
        with pytest.raises((ValueError, fp4pa.Error), match="row"):
            call.run(**{argument: narrow}, **more)
    call = Call(frame, "run_csr")
    with pytest.raises((ValueError, fp4pa.Error), match="kv_indices|kv_indptr"):
        call.run(kv_indices=call.tensors["kv_indices"][:3])


@pytest.mark.parametrize("frame", ["numpy", "torch"], indirect=True)
def test_queries_end_where_q_does(frame):
    call = Call(frame, "run")
    with pytest.raises(ValueError, match="qo_indptr ends at 6; allowed: at most the 5 rows of q"):
        call.run(qo_indptr=int32(frame, 0, 3, 6))


@pytest.mark.parametrize("name", ["run", "linear", "matmul", "dense", "mxfp8"])
def test_workspace(frame, name):
    call = Call(frame, name)
    before = call.memory()
    for short in (call.tensors["workspace"][: 1 << 9], call.tensors["workspace"][:100], call.tensors["workspace"][7:9]):
        refused(lambda: call.run(workspace=short), "kWorkspaceTooSmall", "workspace_bytes is \\d+; .*at least \\d+")
    refused(lambda: call.run(workspace=None), "kWorkspaceTooSmall" if name in ("linear", "matmul") else "kNullPointer", "workspace")
    for was, now in zip(before, call.memory()):
        np.testing.assert_array_equal(now, was)


def make_cache(frame, k="mxfp4", v="nvfp4", size=(8, PAGE, HEADS, DIM), axes=("head_dim", "head_dim"), scales=(1.0, 1.0), **more):
    return fp4pa.KvCache(*(kv_tensor(frame, f, *size, scale_axis=a, global_scale=g) for f, a, g in zip((k, v), axes, scales)), **more)


def test_numbers_that_the_library_does_not_have(frame):
    """Too large for its integers, and too small for a float, where a 0 would stand for something else."""
    cache = fp4pa.KvCache(*(kv_tensor(frame, "mxfp4", 8, PAGE, HEADS, DIM) for _ in "kv"))
    limits = dict(max_batch=1, max_q_tokens=1, max_q_len=1, max_kv_len=64)
    dense = dict(max_batch=1, max_q_tokens=1, max_q_len=1, max_kv_tokens=64, max_kv_len=64)
    for name, value in (("max_kv_len", 2**31), ("max_batch", -2**31 - 1), ("sliding_window", 2**40), ("num_threads", 2**31)):
        with pytest.raises(ValueError, match=f"{name} is {value}; allowed: -2\\^31 to 2\\^31 - 1"):
            fp4pa.AttentionPlan(cache, Q_HEADS, **limits | {name: value})
    for kind in (fp4pa.DenseAttentionPlan, fp4pa.Mxfp8AttentionPlan):
        with pytest.raises(ValueError, match="max_kv_tokens is 4294967296"):
            kind(Q_HEADS, HEADS, DIM, **dense | dict(max_kv_tokens=2**32))
        with pytest.raises(ValueError, match="sm_scale is 1e-46"):
            kind(Q_HEADS, HEADS, DIM, **dense, sm_scale=1e-46)
    for name in ("sm_scale", "softcap"):
        with pytest.raises(ValueError, match=f"{name} is 1e-50, which is no float32 but 0; allowed: 0, or"):
            fp4pa.AttentionPlan(cache, Q_HEADS, **limits, **{name: 1e-50})
    with pytest.raises(ValueError, match="rotation is 2147483648"):
        fp4pa.KvCache(*(kv_tensor(frame, "mxfp4", 8, PAGE, HEADS, DIM) for _ in "kv"), rotation=2**31)


@pytest.mark.parametrize("arguments, status, detail", [
    (dict(size=(0, 16, 2, 64)), "kInvalidSize", "num_pages is 0"),
    (dict(size=(4, 16, 0, 64)), "kInvalidSize", "num_kv_heads is 0"),
    (dict(size=(4, 2048, 2, 64)), "kInvalidSize", "page_size is 2048"),
    (dict(size=(4, 16, 2, 288)), "kUnsupportedHeadDim", "head_dim is 288; allowed: multiples of 32 from 32 to 256"),
    (dict(axes=("tokens", "head_dim")), "kUnsupportedFormat", "k.scale_axis is 1"),
    (dict(v="bf16", axes=("head_dim", "tokens")), "kUnsupportedFormat", "v.scale_axis is 1"),
    (dict(v="mxfp4", size=(4, 16, 2, 64), axes=("head_dim", "tokens")), "kInvalidSize", "page_size is 16"),
    (dict(rotation=5), "kUnsupportedFormat", "rotation is 5"),
    (dict(rotation=128), "kUnsupportedFormat|kInvalidSize|kUnsupportedHeadDim", "rotation"),
    (dict(scales=(2.0, 1.0)), "kInvalidGlobalScale", "k.global_scale is 2; allowed for format mxfp4: 1"),
    (dict(scales=(1.0, float("nan"))), "kInvalidGlobalScale", "v.global_scale is nan"),
    (dict(scales=(1.0, -1)), "kInvalidGlobalScale", "v.global_scale is -1"),
], ids=str)
def test_caches(frame, arguments, status, detail):
    with pytest.raises(fp4pa.Error, match=detail) as raised:
        make_cache(frame, **arguments)
    assert raised.value.status in status.split("|")


def test_memory_that_no_cache_has(frame):
    """Arrays that overlap, that begin or continue where no row may, that have too few axes or a scale too many."""
    data, (_, scales_shape) = frame.zeros((8, 2, 16, 128), np.uint8), fp4pa.kv_shapes("mxfp4", 8, 16, 2, 64)
    good = kv_tensor(frame, "bf16", 8, 16, 2, 64)
    flat = frame.zeros(data.reshape(-1).shape[0] + 4096, np.uint8)
    dense = (4096, 2048, 128, 1)
    for strides, status in (((2048, 2048, 128, 1), "kInvalidStrides"), ((4096, 2048, 64, 1), "kInvalidStrides"), ((4096, 2048, 129, 1), "kMisalignedPointer")):
        bad = frame.strided(flat, (8, 2, 16, 128), strides) if strides != (4096, 2048, 129, 1) else frame.strided(flat, (8, 2, 8, 128), strides)
        other = good if bad.shape[2] == 16 else kv_tensor(frame, "bf16", 8, 8, 2, 64)
        refused(lambda: fp4pa.KvCache(fp4pa.KvTensor("bf16", bad), other), status, "k\\.\\w+_stride")
    refused(lambda: fp4pa.KvCache(fp4pa.KvTensor("bf16", frame.strided(flat[8:], (8, 2, 16, 128), dense)), good), "kMisalignedPointer", "k.data")
    refused(lambda: fp4pa.KvCache(fp4pa.KvTensor("bf16", data), fp4pa.KvTensor("bf16", data)), "kInvalidStrides", "share bytes")
    refused(lambda: fp4pa.KvCache(good, fp4pa.KvTensor("mxfp4", data[..., :32])), "kNullPointer", "v.scales is null")
    for build, words in (
        (lambda: fp4pa.KvCache(good, fp4pa.KvTensor("bf16", data, frame.zeros(scales_shape, np.uint8))), 'scales are given with format "bf16"'),
        (lambda: fp4pa.KvCache(good, fp4pa.KvTensor("bf16", data[0])), "data has shape \\[2, 16, 128\\]"),
        (lambda: fp4pa.KvCache(fp4pa.KvTensor("bf16", data.reshape(-1)), good), "data has shape \\[32768\\]"),
        (lambda: fp4pa.KvCache(good, fp4pa.KvTensor("bf16", data[:7])), "data has shape \\[7, 2, 16, 128\\].*\\[8, 2, 16, 128\\]"),
        (lambda: fp4pa.KvCache(good, fp4pa.KvTensor("mxfp4", data[..., :32], frame.zeros(scales_shape, np.uint8)[..., :1])), "scales has shape"),
        (lambda: fp4pa.KvCache(good, fp4pa.KvTensor("bf16", data[..., ::2])), "data has a stride of 2"),
        (lambda: kv_tensor(frame, "nvfp4", 8, 16, 2, 64, global_scale=frame.zeros(1, np.float64)), "global_scale has elements of .*float64"),
        (lambda: make_cache(frame, scales=(1.0, frame.zeros(3))), "global_scale has shape \\[3\\]; allowed: .*\\[2\\]"),
    ):
        with pytest.raises(ValueError, match=words):
            build()


def test_incomplete_groups(frame, validate):
    """V along tokens comes in whole groups: one may not begin inside."""
    cache = make_cache(frame, axes=("head_dim", "tokens"))
    x = frame.zeros((8, HEADS, DIM))
    refused(lambda: fp4pa.append(cache, x, x, int32(frame, *range(4, 12)), validate=validate), "kIncompleteGroup", "slot 4|row 4|4")


def test_error_can_be_copied():
    """As pools of processes do with exceptions."""
    error = fp4pa.Error("kInvalidSize", "rows is 0")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert isinstance(other, fp4pa.Error) and isinstance(other, RuntimeError)
        assert (other.status, other.detail, str(other)) == ("kInvalidSize", "rows is 0", "kInvalidSize: rows is 0")
