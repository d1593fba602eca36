"""The Python exception for each status of the C API."""


class CorruptDataError(ValueError):
    """Packed bytes are truncated, or contradict themselves."""


class DataWarning(UserWarning):
    """Samples may be missing, or values are not what was asked for."""


_CLASSES: dict[int, type[Exception]] = {
    2: ValueError,
    3: CorruptDataError,
    4: NotImplementedError,
    5: OSError,
}


# The C API has one status for all that the system refuses.
_NO_MEMORY = "there is not enough memory for this"


def error_of(status: int, message: str) -> Exception:
    """The exception for a status; what is no known failure is a bug, and a RuntimeError."""
    if status == 5 and message.startswith(_NO_MEMORY):
        return MemoryError(message)
    return _CLASSES.get(status, RuntimeError)(message)
