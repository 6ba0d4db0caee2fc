"""Exceptions, each a :class:`SplitError` with its data as attributes, and formatting of messages."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
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
    """Codes of the rules for split operators. ``str(Rule.LENGTHS_SUM) == "lengths.sum"``."""

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
    """The location of an error in a model. Unknown fields are None.

    Examples:
        >>> Where("model.onnx", node="split").as_dict()
        {'model': 'model.onnx', 'node': 'split'}
    """

    model: str | None = None
    """Path of the model file, or the name of the graph when an ONNX model is run from memory."""
    graph: str | None = None
    """Path of the subgraph or function in the model; None for the main graph."""
    node: str | None = None
    """Name of the node or layer, or ``Op -> output`` with its first named output if an ONNX node has none."""
    input: str | None = None
    """Name of the input that causes the error."""
    attribute: str | None = None
    """Name of the attribute that causes the error."""

    def __str__(self) -> str:
        # A call is located by its arguments, which the message names already.
        if self.model is None and self.graph is None and self.node is None:
            return ""
        return ", ".join(f"{name} {one_line(repr(value), 200)}" for name, value in self.as_dict().items())

    def as_dict(self) -> dict[str, str]:
        """Return the known fields by name, from the model inwards, as JSON-serialisable values."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


NOWHERE = Where()
"""The location of errors that concern no model, such as those in calls."""


class SplitError(ValueError):
    """Base class of the exceptions of splitops about arguments, models, files and shard plans.

    Attributes:
        where: location of the error.
    """

    where: Where

    def __init__(self, message: str, where: Where | None = None) -> None:
        # Messages of other libraries may contain memory addresses, and passwords in URLs.
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
    """An argument is invalid, the library of an array is unknown, or a buffer of ``out=`` cannot be used."""


class ModelError(SplitError):
    """A model is truncated, malformed, unsafe or unsupported, or cannot be processed with these arguments."""


class FileError(SplitError):
    """A tensor file cannot be read, split, merged or written, for example because it is malformed."""


class PlanError(SplitError):
    """A shard plan cannot be read or applied, for example because it would split a unit such as a head."""


class RuleError(SplitError):
    """A rule of an operator is broken.

    Each error is an instance of the subclass for the rule's group, for example :class:`LengthsError` for all
    ``lengths.*`` rules.

    Attributes:
        operator: operator and version, for example ``"Split-18"``; without a version if none was selected.
        rule: the broken :class:`Rule`.
        got: clause with the actual values.
        expected: clause with the requirement of the rule.
        values: the values in question, keyed by name.

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
    """``axis.*``: the axis is absent or out of range, or has a wrong rank or dtype."""


class LengthsError(RuleError):
    """``lengths.*``: the lengths are absent, or contradict the data, the outputs or their own constraints."""


class PartsError(RuleError):
    """``parts.*``: the number of parts is out of range or does not divide the axis."""


class ChunkError(RuleError):
    """``chunk.*``: the scalar chunk size is not positive."""


class RemainderError(RuleError):
    """``remainder.*``: there is more than one -1, or the other lengths sum to more than the axis size."""


class KeepdimsError(RuleError):
    """``keepdims.*``: ``keepdims`` is neither 0 nor 1."""


class TypeUnsupportedError(RuleError):
    """``type.*``: the operator version does not support this element type."""


class OutputsError(RuleError):
    """``outputs.*``: the node declares a number of outputs that the operator cannot have."""


class OperatorError(RuleError):
    """``op.*``: the operator, or an attribute or input, is not in this opset, or the opset is invalid."""


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
    """Make the error for a broken rule, as an instance of the subclass for the rule's group."""
    return _FAMILIES[rule.partition(".")[0]](operator, rule, got, expected, values, where)


def shown(value: Any, limit: int = 80) -> str:
    """Return any value as text for a message: one line of at most ``limit`` characters.

    Examples:
        >>> shown("axis")
        "'axis'"
        >>> shown([0] * 1000)
        '[0, 0, 0, 0, 0, 0, ...]'
    """
    return one_line(_REPR.repr(value), limit)


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return a path as text for a message: one line of at most 200 characters.

    Examples:
        >>> shown_path("models/halves.onnx")
        "'models/halves.onnx'"
    """
    return shown(os.fspath(path), 200)


class _Repr(reprlib.Repr):
    def repr_instance(self, x: Any, level: int) -> str:
        try:
            text = without_addresses(repr(x))
        except Exception:  # the repr of a user's class may raise anything
            return f"<{type(x).__name__} instance>"
        return one_line(text, self.maxother)

    def repr_int(self, x: int, level: int) -> str:
        # Python does not format integers of more than 4300 digits.
        return f"<integer of {x.bit_length()} bits>" if x.bit_length() > 128 else super().repr_int(x, level)


_REPR = _Repr()
_REPR.maxstring = 400  # longer than the limits of `shown`, so that only `shown` shortens a path


def without_addresses(text: str) -> str:
    """Remove memory addresses of objects from a text, since they differ in every run.

    Examples:
        >>> without_addresses("<ast.Call object at 0x7f06afd4f2b0>")
        '<ast.Call object>'
    """
    return _ADDRESS.sub("", text)


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")


def without_passwords(text: str) -> str:
    """Replace user names, passwords and queries of URLs by ``...``, since messages end up in logs.

    Queries may contain signatures and tokens.

    Examples:
        >>> without_passwords("cannot read ftp://me:secret@host/x.npy?token=1")
        'cannot read ftp://...@host/x.npy?...'
    """
    return _QUERY.sub(r"\1...", _PASSWORD.sub("...@", text))


_PASSWORD = re.compile(
    r"""(?<=://)(?:[^\s/?#'"]+@"""  # up to the last @ before the path
    r"""|[^\s/?#'":]*:(?!\d*(?:[/?#\s'"]|$))(?:(?!://)[^\s'"])*@)"""  # an unescaped / in the password
)
_QUERY = re.compile(r"""(?<=://)((?:(?!://)[^\s?'"])*\?)[^\s'"]+""")


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the entry of ``words`` that is most similar to ``word``, or None if none is similar.

    Examples:
        >>> nearest("chekc", ["check", "fix"])
        'check'
    """
    import difflib  # slow to import, and needed only for errors

    return next(iter(difflib.get_close_matches(word, sorted(words), n=1)), None)


def count_of(number: int, noun: str) -> str:
    """Return a number with a noun in the singular or plural.

    Examples:
        >>> count_of(1, "part"), count_of(2000, "part")
        ('1 part', '2,000 parts')
    """
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def format_bytes(size: int) -> str:
    """Return a number of bytes as text, in binary units up to TiB.

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
    """Return a text as one line of at most ``limit`` characters. The middle of a longer text is left out.

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


def format_list(names: Sequence[str], count: int | None = None, limit: int = 8) -> str:
    """Join the first ``limit`` names with commas, and add the number of the others.

    ``count`` is the number of all names if ``names`` has only the first ones.

    Examples:
        >>> format_list(["a", "b", "c", "d", "e"], limit=3)
        'a, b, c and 2 more'
    """
    more = (len(names) if count is None else count) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def brief(values: Any, limit: int = 8) -> str:
    """Return a list of numbers as text for a message. If there are more than ``limit``, leave out the middle.

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
