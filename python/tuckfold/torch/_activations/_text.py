"""Rules and plans as text: the part of TOML that they need, with errors that point at the place."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuckfold._spec import CodecSpec

_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}


class Pattern(str):
    """The type of keys whose text matches names; it is not empty."""


class OrCodec(tuple[str, ...]):
    """Words, or the text of a codec."""

    __slots__ = ()


class PlanError(ValueError):
    """A plan or a file of rules that cannot be read."""


@dataclass
class Table:
    """One `[[name]]` with its values."""

    name: str
    line: int
    values: dict[str, str | int | bool] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)  # where each value is


class _Reader:
    def __init__(self, path: str, text: str) -> None:
        self.path, self.lines, self.number = path, text.splitlines(), 0

    def error(self, column: int, problem: str) -> PlanError:
        line = self.lines[self.number - 1]
        return PlanError(
            f"[plan] {self.path}:{self.number}:{column + 1}: {problem}\n  {line}\n  {' ' * column}^"
        )

    def tables(self) -> list[Table]:
        found: list[Table] = []
        for number, line in enumerate(self.lines, 1):
            self.number = number
            bare = line.strip()
            if not bare or bare.startswith("#"):
                continue
            start = line.index(bare[0])
            if bare.startswith("["):
                head = bare.split("#")[0].strip()
                if not (head.startswith("[[") and head.endswith("]]")):
                    raise self.error(start, "a table is written [[rule]] or [[tensor]]")
                found.append(Table(head[2:-2].strip(), self.number))
                continue
            key, equals, _ = bare.partition("=")
            if not equals:
                raise self.error(start, 'expected a line like store = "keep"')
            if not found:
                raise self.error(start, "values come after a line [[rule]] or [[tensor]]")
            name = key.strip()
            if name in found[-1].values:
                raise self.error(start, f"{name} is given twice")
            found[-1].values[name] = self._value(line, line.index("=") + 1)
            found[-1].lines[name] = number
        return found

    def _value(self, line: str, at: int) -> str | int | bool:
        while at < len(line) and line[at] == " ":
            at += 1
        if at == len(line):
            raise self.error(at, "expected a value: text in quotes, a whole number, true or false")
        if line[at] == '"':
            return self._string(line, at)
        word = line[at:].split("#")[0].strip()
        if word in ("true", "false"):
            return word == "true"
        try:
            return int(word)
        except ValueError:
            raise self.error(
                at, "expected a value: text in quotes, a whole number, true or false"
            ) from None

    def _string(self, line: str, start: int) -> str:
        text, at = "", start + 1
        while at < len(line) and line[at] != '"':
            if line[at] == "\\":
                at += 1
                if at == len(line) or line[at] not in _ESCAPES:
                    raise self.error(at - 1, 'an escape is one of \\" \\\\ \\n \\t')
                text += _ESCAPES[line[at]]
            else:
                text += line[at]
            at += 1
        if at == len(line):
            raise self.error(start, "the text has no closing quote")
        rest = line[at + 1 :].strip()
        if rest and not rest.startswith("#"):
            raise self.error(line.index(rest, at + 1), "nothing may follow a value on its line")
        return text


def read(path: str | Path, known: dict[str, dict[str, type | tuple[str, ...]]]) -> list[Table]:
    """The tables of a file. known: the keys of each kind of table, and their types or words."""
    try:
        reader = _Reader(str(path), Path(path).read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise PlanError(f"[plan] {path}: the file is not UTF-8: {error}") from None
    tables = reader.tables()
    for table in tables:
        reader.number = table.line
        if table.name not in known:
            raise reader.error(0, f"unknown table {table.name}, expected {' or '.join(known)}")
        keys = known[table.name]
        for key, value in table.values.items():
            reader.number = table.lines[key]
            if key not in keys:
                raise reader.error(0, f"unknown key {key}, expected one of {', '.join(keys)}")
            expected = keys[key]
            if isinstance(expected, tuple):
                problem = _word_problem(value, expected)
                if problem:
                    raise reader.error(0, f"{key} must be one of {problem}")
            elif expected is Pattern:
                if not isinstance(value, str) or not value:
                    raise reader.error(
                        0, f'{key} must be text in quotes, "*" for any, got {value!r}'
                    )
            elif type(value) is not expected:
                raise reader.error(0, f"{key} must be {_TYPES[expected]}, got {value!r}")
    return tables


def _word_problem(value: object, words: tuple[str, ...]) -> str:
    if value in words:
        return ""
    text = ", ".join(words)
    if not isinstance(words, OrCodec):
        return f"{text}, got {value!r}"
    if isinstance(value, str):
        try:
            CodecSpec(value)
            return ""
        except ValueError as error:
            reason = str(error).splitlines()[0].removeprefix("[codec] ")
            return f"{text}, or a codec, got {value!r}: {reason}"
    return f"{text}, or a codec, got {value!r}"


_TYPES = {str: "text in quotes", int: "a whole number", bool: "true or false"}


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def bytes_text(n: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.2f} GiB"
