"""The Python exception for each status of the C API."""


class CorruptDataError(ValueError):
    """Packed bytes are truncated, or contradict themselves."""


_CLASSES: dict[int, type[Exception]] = {
    2: ValueError,
    3: CorruptDataError,
    4: NotImplementedError,
    5: OSError,
}


def error_of(status: int, message: str) -> Exception:
    """The exception for a status; what is no known failure is a bug, and a RuntimeError."""
    return _CLASSES.get(status, RuntimeError)(message)
