"""The frameworks whose tensors every test is run with: the fixture `frame`.

FP4PA_PYTHON_REQUIRE=numpy,torch,torch-cuda makes a framework that cannot run here a failure instead of a skip: for a machine that is known to have it.
"""

import os

import ml_dtypes
import numpy as np
import pytest

import fp4pa

REQUIRED = set(filter(None, os.environ.get("FP4PA_PYTHON_REQUIRE", "").split(",")))
NUMPY_DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


class NumpyFrame:
    name, backend, dtypes = "numpy", "cpu", ("f32", "f16", "bf16")

    def array(self, a, dtype=None):
        """A copy, so that no test shares memory with the library by accident."""
        return np.array(a, dtype=NUMPY_DTYPES.get(dtype, dtype), order="C")

    def zeros(self, shape, dtype=np.float32):
        return np.zeros(shape, NUMPY_DTYPES.get(dtype, dtype))

    def numpy(self, tensor):
        """A copy; bf16, which reference.py computes nothing in, as float32."""
        return np.array(tensor, dtype=np.float32 if tensor.dtype == ml_dtypes.bfloat16 else None)

    def address(self, tensor):
        return tensor.ctypes.data

    def strided(self, tensor, shape, strides):
        """A view, of strides in elements."""
        return np.lib.stride_tricks.as_strided(tensor, shape, [s * tensor.itemsize for s in strides])


class TorchFrame:
    dtypes = ("f32", "f16", "bf16")

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.name = "torch" if device == "cpu" else "torch-cuda"
        self.backend = "cpu" if device == "cpu" else "cuda" if torch.version.hip is None else "hip"

    def _dtype(self, dtype):
        named = {"f32": self.torch.float32, "f16": self.torch.float16, "bf16": self.torch.bfloat16}
        return named[dtype] if isinstance(dtype, str) and dtype in named else self.torch.from_numpy(np.zeros(1, dtype)).dtype

    def array(self, a, dtype=None):
        tensor = self.torch.from_numpy(np.array(a, order="C"))
        return tensor.to(self.device, self._dtype(dtype) if dtype is not None else tensor.dtype)

    def zeros(self, shape, dtype=np.float32):
        return self.torch.zeros(tuple(shape) if np.iterable(shape) else (shape,), dtype=self._dtype(dtype), device=self.device)

    def numpy(self, tensor):
        """Waits for the current stream, which is where the library has put its work. bf16, which NumPy does not have, as float32."""
        tensor = tensor.detach()
        return (tensor.float() if tensor.dtype == self.torch.bfloat16 else tensor).cpu().numpy().copy()

    def address(self, tensor):
        return tensor.data_ptr()

    def strided(self, tensor, shape, strides):
        return tensor.as_strided(shape, strides)


def make_frame(name):
    """The framework, or the reason why it cannot run here."""
    if name == "numpy":
        return NumpyFrame()
    try:
        import torch
    except ImportError as error:
        return str(error)
    frame = TorchFrame(torch, "cpu" if name == "torch" else "cuda")
    if name == "torch-cuda" and not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    found = {b.name: b for b in fp4pa.backends()}
    if frame.backend not in found:
        return f"this build has no back end {frame.backend}"
    return frame if found[frame.backend].available else f"back end {frame.backend}: {found[frame.backend].detail}"


def frame_or_skip(name):
    made = make_frame(name)
    if isinstance(made, str):
        (pytest.fail if name in REQUIRED else pytest.skip)(f"{name}: {made}")
    return made


@pytest.fixture(scope="session", params=["numpy", "torch", "torch-cuda"])
def frame(request):
    return frame_or_skip(request.param)


@pytest.fixture(scope="session", params=["torch", "torch-cuda"])
def torch_frame(request):
    return frame_or_skip(request.param)


@pytest.fixture(scope="session")
def cuda_frame():
    return frame_or_skip("torch-cuda")


@pytest.fixture
def rng():
    return np.random.default_rng(1)
