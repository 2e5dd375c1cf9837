class Error(RuntimeError):
    """What the library refuses, or a device's runtime reports.

    status: the library's name of it, as "kInvalidStrides" (fp4pa/status.hpp has the list).
    detail: the sentence that names the offending value and the allowed set.
    """

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(status, detail)  # both, so that a copy can be made of it
        self.status = status
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.status}: {self.detail}"
