"""libfp4pa from Python through its C interface, as far as the benchmarks need it."""
import ctypes


class QuantizeConfig(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("format", ctypes.c_int32), ("scale_layout", ctypes.c_int32),
                ("scale_mode", ctypes.c_int32), ("nvfp4_scale", ctypes.c_int32), ("global_scale", ctypes.c_float)]


class Exec(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("backend", ctypes.c_char_p), ("stream", ctypes.c_void_p),
                ("num_threads", ctypes.c_int32)]


class Library:
    """Raises OSError where `path` is no library, AttributeError where it is not libfp4pa."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        self._library.fp4pa_quantize.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64,
                                                 ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self._library.fp4pa_version_string.restype = ctypes.c_char_p
        self._library.fp4pa_last_error_detail.restype = ctypes.c_char_p
        self._config = QuantizeConfig()  # MXFP4, linear scales, floor
        self._init("quantize_config", self._config)

    def _init(self, name, struct):
        getattr(self._library, f"fp4pa_{name}_init_sized")(ctypes.byref(struct), ctypes.c_size_t(ctypes.sizeof(struct)))

    def version(self):
        return self._library.fp4pa_version_string().decode()

    def quantize_mxfp4(self, backend, stream, rows, cols, x, codes, scales):
        """x [rows, cols] f32 to codes [rows, cols / 2] and scales [rows, cols / 32]: addresses in the back end's memory."""
        where = Exec()
        self._init("exec", where)
        where.backend = backend.encode()
        where.stream = stream
        status = self._library.fp4pa_quantize(ctypes.byref(self._config), x, 0, rows, cols, codes, scales, ctypes.byref(where))
        if status != 0:
            raise RuntimeError(f"fp4pa_quantize: {self._library.fp4pa_last_error_detail().decode()}")
