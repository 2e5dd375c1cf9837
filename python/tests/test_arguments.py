"""Tensors that no call takes, in the place of every tensor of every call. What is refused is named, and nothing has been written."""

import ctypes

import numpy as np
import pytest

import fp4pa
from calls import NAMES, Call


@pytest.fixture(params=NAMES)
def call(frame, request):
    return Call(frame, request.param)


class Elsewhere:
    """A host array that says it lies in a GPU's memory."""

    def __init__(self, array, device_type=2):
        self.array, self.device_type = array, device_type

    def __dlpack_device__(self):
        return self.device_type, 0

    def __dlpack__(self, **_):
        return self.array.__dlpack__()


def refuse_each(call, spoil, kinds=(ValueError,), words="", only=None, except_for=(), named=True):
    """Replaces one tensor after the other by spoil(tensor), where that is not None. `named`: messages begin with the argument that has been replaced."""
    before, tried = call.memory(), 0
    for name, tensor in call.tensors.items():
        bad = None if name in except_for or (only is not None and name not in only) else spoil(tensor)
        if bad is None:
            continue
        tried += 1
        try:
            call.run(**{name: bad})
        except kinds as error:
            message = str(error)
            if isinstance(error, fp4pa.Error):  # the library has its own names for some arguments; it says what it allows
                assert "allowed" in message or error.status in ("kNullPointer", "kWorkspaceTooSmall"), message
            else:
                assert words in message and "allowed: " in message, f"{name}: {message}"
                assert not named or message.startswith(call.name_in_messages(name) + " "), f"{name}: {message}"
        else:
            pytest.fail(f"{name} has been accepted")
    for was, now in zip(before, call.memory()):
        np.testing.assert_array_equal(now, was)
    return tried


def test_the_calls_are_good(call):
    """The others would be refused for another reason, if these were."""
    before = call.memory()
    call.run()
    assert any((was != now).any() for was, now in zip(before, call.memory())) or call.pools  # copy_pages moves zeros


def test_no_tensor(call):
    assert refuse_each(call, lambda t: [1, 2, 3], (TypeError,), "a tensor with DLPack")
    assert refuse_each(call, lambda t: "q", (TypeError,), "a tensor with DLPack")
    assert refuse_each(call, lambda t: object(), (TypeError,), "a tensor with DLPack")


def test_memory_elsewhere(call):
    """Of another device than the rest of the call, or of one that no back end has."""
    host = call.frame.backend == "cpu"
    assert refuse_each(call, lambda t: Elsewhere(t) if host else call.frame.numpy(t), words="memory", named=False) == len(call.tensors)
    assert refuse_each(call, lambda t: Elsewhere(call.frame.numpy(t), 8), words="device")  # 8: Metal


def test_element_types(call):
    assert refuse_each(call, lambda t: call.frame.array(call.frame.numpy(t).astype(np.float64)), words="float64", except_for=("workspace",))
    assert refuse_each(call, lambda t: call.frame.array(call.frame.numpy(t).astype(np.int16)), words="int16", except_for=("workspace",))
    assert refuse_each(call, lambda t: call.frame.array(call.frame.numpy(t).astype(np.uint64)), words="uint64", except_for=("workspace", "tree_mask"))


def test_axes(call):
    one_more = lambda t: t[None] if len(t.shape) < 8 else None
    flat = ("x", "codes", "scales", "workspace", "w", "y", "a", "b", "out", "global_scales")  # any shape, or a batch of one
    assert refuse_each(call, one_more, words="shape", except_for=flat) == len([n for n in call.tensors if n not in flat])
    assert refuse_each(call, lambda t: t.reshape((1,) * (9 - len(t.shape)) + tuple(t.shape)), words="9 axes") == len(call.tensors)
    assert refuse_each(call, lambda t: t.reshape(-1)[0:1].reshape(()), (ValueError, fp4pa.Error)) == len(call.tensors)


def test_extents(call):
    """One row less, one column less; what does not fit them is named, or they are."""
    shorter = lambda t: call.frame.array(call.frame.numpy(t)[:-1])
    whole = ("kv_indices", "workspace")  # kv_indices may be longer than a call needs, as the workspace may: test_refusals.py
    assert refuse_each(call, shorter, (ValueError, fp4pa.Error), except_for=whole, named=False)
    narrower = lambda t: call.frame.array(call.frame.numpy(t)[..., :-1]) if len(t.shape) > 1 else None
    free = ("block_table", "old_table", "w")  # pages: test_refusals.py; 63 columns of w have the groups of 64
    assert refuse_each(call, narrower, (ValueError, fp4pa.Error), except_for=free, named=False) or call.name == "copy_pages"


def test_gaps_in_the_last_axis(call):
    frame = call.frame
    every_other = lambda t: frame.array(np.repeat(frame.numpy(t), 2, -1))[..., ::2]
    assert refuse_each(call, every_other, words="stride of 2") == len(call.tensors)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_that_are_one_row(call, axis):
    """Strides of 0, as expand() and broadcast_to() make them: the library takes 0 for "dense", and would read what lies behind."""

    def broadcast(t):
        shape = tuple(t.shape)
        if len(shape) <= axis or shape[axis] == 1 or (axis == 1 and len(shape) == 2):  # gaps in the last axis are another test's
            return None
        return call.frame.strided(t, shape, [0 if i == axis else int(np.prod(shape[i + 1 :])) for i in range(len(shape))])

    assert refuse_each(call, broadcast, (ValueError, fp4pa.Error)) or axis == 1


def test_negative_strides(call):
    if call.frame.name != "numpy":
        pytest.skip("PyTorch has none")
    assert refuse_each(call, lambda t: t[::-1], (ValueError, fp4pa.Error)) == len(call.tensors)


def test_outputs_that_may_not_be_written(call):
    if call.frame.name != "numpy":
        pytest.skip("test_torch.py has PyTorch's")

    def read_only(t):
        t = t.view()
        t.flags.writeable = False
        return t

    assert refuse_each(call, read_only, words="may not be written", only=call.outputs) == len(call.outputs)
    if not call.pools:
        call.run(**{n: read_only(t) for n, t in call.tensors.items() if n not in call.outputs})  # what is only read may be so


@pytest.mark.parametrize("dtype", [">f4", object, [("a", "f4")], "M8[s]", "U4"], ids=str)
@pytest.mark.parametrize("frame", ["numpy"], indirect=True)
def test_what_numpy_cannot_share(frame, dtype):
    with pytest.raises((TypeError, ValueError), match="^k "):
        Call(frame, "append").run(k=np.zeros((5, 2, 64), dtype))


class Minimal:
    """No more than DLPack asks of a tensor, as one of a framework that this module does not know."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)


@pytest.mark.parametrize("wrap", [Minimal, memoryview], ids=lambda w: w.__name__)
def test_any_tensor(call, wrap):
    """Objects with DLPack, or on the host the buffer protocol, are as good as arrays; results are theirs."""
    if wrap is memoryview and call.frame.name != "numpy":
        pytest.skip("a host array's")
    want = Call(call.frame, call.name)
    want.run()
    call.run(**{name: wrap(t) for name, t in call.tensors.items()})
    for (name, got), expected in zip([*call.tensors.items(), *((None, p) for p in call.pools)], [*want.tensors.values(), *want.pools]):
        if name != "workspace":  # it may begin elsewhere within its 256 bytes
            np.testing.assert_array_equal(call.frame.numpy(got), call.frame.numpy(expected))


class Subbyte(Minimal):
    """Says that its elements have 4 bits, as DLPack's packed FP4 does: half the memory that as many bytes would have."""

    def __dlpack__(self, **_):
        capsule = self.tensor.__dlpack__()  # a DLManagedTensor: data (8 bytes), device (8), ndim (4), then code and bits of the type
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        (ctypes.c_uint8 * 2).from_address(get(capsule, b"dltensor") + 20)[:] = 17, 4  # kDLFloat4_e2m1fn
        return capsule


@pytest.mark.parametrize("frame", ["numpy"], indirect=True)
def test_elements_of_less_than_a_byte(frame):
    with pytest.raises(ValueError, match="^codes has elements of"):
        fp4pa.dequantize(Subbyte(np.zeros(32, np.uint8)), np.zeros(2, np.uint8), np.zeros((1, 64), np.float32))
    with pytest.raises(ValueError, match="^data has elements of"):
        fp4pa.KvTensor("mxfp4", Subbyte(np.zeros((4, 2, 16, 64), np.uint8)), np.zeros((4, 2, 16, 2), np.uint8))
