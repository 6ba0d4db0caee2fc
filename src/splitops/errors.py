"""The exception tree: every error is a :class:`SplitError` and carries its data before its prose."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

__all__ = [
    "NOWHERE",
    "ArrayError",
    "AxisError",
    "ChunkError",
    "FileError",
    "KeepdimsError",
    "LengthsError",
    "ModelError",
    "OperatorError",
    "OutputsError",
    "PartsError",
    "PlanError",
    "RemainderError",
    "Rule",
    "RuleError",
    "SplitError",
    "TypeUnsupportedError",
    "Where",
    "brief",
    "count_of",
    "nearest",
    "one_line",
    "rule_error",
    "shown",
    "shown_path",
    "without_addresses",
    "without_passwords",
]


class Rule(StrEnum):
    """The closed set of rule codes. ``str(Rule.LENGTHS_SUM) == "lengths.sum"``."""

    AXIS_RANGE = "axis.range"
    AXIS_RANK = "axis.rank"
    AXIS_DTYPE = "axis.dtype"
    LENGTHS_SUM = "lengths.sum"
    LENGTHS_NEGATIVE = "lengths.negative"
    LENGTHS_RANK = "lengths.rank"
    LENGTHS_DTYPE = "lengths.dtype"
    LENGTHS_COUNT = "lengths.count"
    LENGTHS_VALUE = "lengths.value"
    LENGTHS_CONFLICT = "lengths.conflict"
    LENGTHS_MISSING = "lengths.missing"
    PARTS_DIVISIBLE = "parts.divisible"
    PARTS_COUNT = "parts.count"
    CHUNK_POSITIVE = "chunk.positive"
    REMAINDER_NEGATIVE = "remainder.negative"
    REMAINDER_REPEATED = "remainder.repeated"
    KEEPDIMS_VALUE = "keepdims.value"
    TYPE_UNSUPPORTED = "type.unsupported"
    OUTPUTS_COUNT = "outputs.count"
    OPERATOR_UNKNOWN = "op.unknown"
    OPERATOR_VERSION = "op.version"


@dataclass(frozen=True, slots=True)
class Where:
    """The place an error was found: only what is known of it is set.

    Examples:
        >>> Where("model.onnx", node="split").as_dict()
        {'model': 'model.onnx', 'node': 'split'}
    """

    model: str | None = None
    """Path of the model's file as it was given; of an ONNX model in memory that runs, the graph's name."""
    graph: str | None = None
    """Path of the subgraph or function inside the model; None is the main graph."""
    node: str | None = None
    """Name of the node or layer."""
    input: str | None = None
    """Name of the operator's input."""
    attribute: str | None = None
    """Name of the operator's attribute."""

    def __str__(self) -> str:
        # A call has no place but its own arguments, which the message names already.
        if self.model is None and self.graph is None and self.node is None:
            return ""
        return ", ".join(f"{name} {one_line(repr(value), 200)}" for name, value in self.as_dict().items())

    def as_dict(self) -> dict[str, str]:
        """Return what is known of it by name, from the model inwards, as values for JSON."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


NOWHERE = Where()
"""The place of a call: none but its own arguments."""


class SplitError(ValueError):
    """Root of every error that splitops raises on purpose.

    Attributes:
        where: the place it was found.
    """

    where: Where

    def __init__(self, message: str, where: Where | None = None) -> None:
        # Foreign errors quote addresses of both kinds.
        self.message = one_line(without_passwords(without_addresses(message)), 1000)
        self.where = where or NOWHERE
        super().__init__(self.message)

    def __str__(self) -> str:
        place = str(self.where)
        return f"{self.message} ({place})" if place else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), dict(self.__dict__))


def _rebuild(cls: type[SplitError], state: dict[str, Any]) -> SplitError:
    error = cls.__new__(cls, state["message"])
    error.__dict__.update(state)
    if isinstance(error, RuleError):
        error.values = MappingProxyType(dict(error.values))
    return error


class ArrayError(SplitError):
    """An array cannot be used: ``out=`` buffers that do not fit or overlap, an unknown array library."""


class ModelError(SplitError):
    """A file or model cannot be read, written or run: truncated, malformed, unsafe or unsupported."""


class FileError(SplitError):
    """A tensor file cannot be read, split, merged or written: malformed, changed meanwhile, in the way."""


class PlanError(SplitError):
    """A plan for ranks cannot be read or carried out: malformed, unfit, a cut inside of a unit."""


class RuleError(SplitError):
    """A rule of the operator's definition is broken.

    Raised as the subclass that belongs to the rule's family, for example :class:`LengthsError` for
    every ``lengths.*`` rule.

    Attributes:
        operator: operator and version, for example ``"Split-18"``.
        rule: the :class:`Rule` that is broken.
        got: what was found, in words.
        expected: what the rule asks for, in words.
        values: the offending values by name.

    Examples:
        >>> import numpy as np, splitops
        >>> splitops.onnx.split(np.zeros((4, 6)), [2, 3], axis=1)
        Traceback (most recent call last):
        ...
        splitops.errors.LengthsError: Split-18 [lengths.sum]: split = [2, 3] sums to 5, but axis 1 of \
data (4, 6) has size 6
    """

    def __init__(
        self,
        operator: str,
        rule: Rule,
        got: str,
        expected: str,
        values: Mapping[str, Any] | None = None,
        where: Where | None = None,
    ) -> None:
        self.operator = operator
        self.rule = rule
        self.got = got
        self.expected = expected
        self.values: Mapping[str, Any] = MappingProxyType(dict(values or {}))
        parts = one_line(operator, 60), one_line(got, 400), one_line(expected, 400)
        super().__init__(f"{parts[0]} [{rule}]: {parts[1]}, but {parts[2]}", where)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__ | {"values": dict(self.values)})


class AxisError(RuleError):
    """``axis.*``: the axis is out of range, or of a wrong rank or dtype."""


class LengthsError(RuleError):
    """``lengths.*``: the lengths do not fit the data, the outputs or their own constraints."""


class PartsError(RuleError):
    """``parts.*``: the number of parts is not positive or does not divide the axis."""


class ChunkError(RuleError):
    """``chunk.*``: the scalar chunk size is not positive."""


class RemainderError(RuleError):
    """``remainder.*``: the -1 of ``split_lengths`` is repeated or would be negative."""


class KeepdimsError(RuleError):
    """``keepdims.*``: ``keepdims`` is neither 0 nor 1."""


class TypeUnsupportedError(RuleError):
    """``type.*``: the version does not take this element type."""


class OutputsError(RuleError):
    """``outputs.*``: more or fewer outputs are declared than the operator gives."""


class OperatorError(RuleError):
    """``op.*``: there is no such operator, or not in this version."""


_FAMILIES: dict[str, type[RuleError]] = {
    "axis": AxisError,
    "lengths": LengthsError,
    "parts": PartsError,
    "chunk": ChunkError,
    "remainder": RemainderError,
    "keepdims": KeepdimsError,
    "type": TypeUnsupportedError,
    "outputs": OutputsError,
    "op": OperatorError,
}


def rule_error(
    operator: str,
    rule: Rule,
    got: str,
    expected: str,
    *,
    where: Where | None = None,
    **values: Any,
) -> RuleError:
    """Make the error of a broken rule, as the subclass of the rule's family."""
    return _FAMILIES[rule.partition(".")[0]](operator, rule, got, expected, values, where)


def shown(value: Any, limit: int = 80) -> str:
    """Write any value for a message, in one line of bounded length.

    Examples:
        >>> shown("axis")
        "'axis'"
        >>> shown([0] * 1000)
        '[0, 0, 0, 0, 0, 0, ...]'
    """
    return one_line(_REPR.repr(value), limit)


def shown_path(path: str | os.PathLike[str]) -> str:
    """Write a path for a message, as it was given, in one line of bounded length.

    Examples:
        >>> shown_path("models/halves.onnx")
        "'models/halves.onnx'"
    """
    return shown(os.fspath(path), 200)


class _Repr(reprlib.Repr):
    def repr_instance(self, x: Any, level: int) -> str:
        try:
            text = without_addresses(repr(x))
        except Exception:  # whatever a stranger's class may raise
            return f"<{type(x).__name__} instance>"
        return one_line(text, self.maxother)

    def repr_int(self, x: int, level: int) -> str:
        # Python rejects to write more than 4300 digits.
        return f"<integer of {x.bit_length()} bits>" if x.bit_length() > 128 else super().repr_int(x, level)


_REPR = _Repr()
_REPR.maxstring = 400  # shown cuts what is too long; cut twice, a path would lose its end


def without_addresses(text: str) -> str:
    """Leave out where in memory an object lies, which tells a reader nothing and changes with every run.

    Examples:
        >>> without_addresses("<ast.Call object at 0x7f06afd4f2b0>")
        '<ast.Call object>'
    """
    return _ADDRESS.sub("", text)


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")


def without_passwords(text: str) -> str:
    """Leave out the user and password of addresses of files, which end up in logs.

    Examples:
        >>> without_passwords("cannot read ftp://me:secret@host/x.npy")
        'cannot read ftp://...@host/x.npy'
    """
    return _PASSWORD.sub("...@", text)


_PASSWORD = re.compile(r"(?<=://)[^\s/@'\":]*:[^\s/@'\"]*@")


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the known word that is nearest to another one; None if none is near.

    Examples:
        >>> nearest("chekc", ["check", "fix"])
        'check'
    """
    import difflib  # only what goes wrong needs it

    return next(iter(difflib.get_close_matches(word, sorted(words), n=1)), None)


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun.

    Examples:
        >>> count_of(1, "part"), count_of(2000, "part")
        ('1 part', '2,000 parts')
    """
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def format_bytes(size: int) -> str:
    """Write a number of bytes for people, in the largest unit that it fills.

    Examples:
        >>> format_bytes(1000), format_bytes(3 << 29)
        ('1000 B', '1.5 GiB')
    """
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def one_line(text: str, limit: int) -> str:
    """Fold a text into one line of bounded length, the middle of a long one left out.

    Examples:
        >>> one_line("a" * 100, 40)
        'aaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaa'
    """
    text = " ".join(text.split())
    return (
        text
        if len(text) <= limit
        else f"{text[: limit * 2 // 3]}...{text[len(text) + limit * 2 // 3 + 3 - limit :]}"
    )


def brief(values: Any, limit: int = 8) -> str:
    """Write a list of numbers for a message, the middle of a long one left out.

    Examples:
        >>> brief(range(3))
        '[0, 1, 2]'
        >>> brief(range(1000))
        '[0, 1, 2, 3, 4, 5, ..., 999] (1000 values)'
    """
    count = len(values)
    if count <= limit:
        return f"[{', '.join(str(value) for value in values)}]"
    head = ", ".join(str(values[i]) for i in range(limit - 2))
    return f"[{head}, ..., {values[count - 1]}] ({count} values)"
