"""As much of PyTorch as perf/peers.py takes for products, without a GPU: tensors are their shapes, and time is a clock that a product
moves by a nanosecond for every KiB of its weight, a sum by a second. Found through PYTHONPATH by test_perf_scripts.cpp."""
import contextlib
import types

__version__ = "made up"
bfloat16, float16, uint8, int32 = "bfloat16", "float16", "uint8", "int32"
version = types.SimpleNamespace(cuda="made up")
_now_ms = 0.0
_recording = None


def _takes(ms):
    global _now_ms
    if _recording is not None:
        _recording.append(ms)
    else:
        _now_ms += ms


class Tensor:
    def __init__(self, *shape):
        self.shape = shape

    def t(self):
        return Tensor(*reversed(self.shape))

    def sum(self):
        _takes(1000.0)


def randn(*shape, device=None, dtype=None):
    return Tensor(*shape)


ones = empty = randn


def matmul(x, w, out):
    assert x.shape[1] == w.shape[0] and out.shape == (x.shape[0], w.shape[1])
    _takes(1e-6 * 2 * w.shape[0] * w.shape[1] / 1024)


class _Event:
    def __init__(self, enable_timing):
        self.ms = None

    def record(self):
        self.ms = _now_ms

    def synchronize(self):
        assert self.ms is not None

    def elapsed_time(self, end):
        return end.ms - self.ms


class _Graph:
    def __init__(self):
        self.recorded = []

    def replay(self):
        for ms in self.recorded:
            _takes(ms)


@contextlib.contextmanager
def _record(graph):
    global _recording
    _recording = graph.recorded
    yield
    _recording = None


cuda = types.SimpleNamespace(is_available=lambda: True, get_device_name=lambda: "a made-up card", synchronize=lambda: None,
                             empty_cache=lambda: None, Event=_Event, CUDAGraph=_Graph, graph=_record)
