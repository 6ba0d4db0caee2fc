"""Parse and format the partial shapes in the ``shape`` attribute of Parameter and Const layers.

``2,3`` is exact, ``?`` and ``-1`` are unknown sizes, ``2..6``, ``..3`` and ``2..`` are ranges, and ``...`` is
an unknown rank.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from splitops.common.documents import MAX_RANK
from splitops.common.integers import INT64_MAX, INT64_MIN
from splitops.errors import ModelError, Where
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, Shape

_INTEGER: Final = re.compile(r"\s*(-?[0-9]{1,20})(?:\.0*)?\s*")
_NUMBER: Final = re.compile(r"\s*([+-]?[0-9]{1,20})")
_SIZE: Final = re.compile(r"(-?[0-9]{1,20})")
_RANGE: Final = re.compile(r"([0-9]{0,20})\.\.([0-9]{0,20})")


def parse_integer(text: str, what: str, where: Where, *, minimum: int | None = None) -> int:
    """Parse the operation attribute or port size ``what``. Some converters write ``3.0`` for 3."""
    return _parse(_INTEGER, text, what, where, minimum)


def parse_number(text: str, what: str, where: Where, *, minimum: int | None = None) -> int:
    """Parse an id, a version, an offset, a size or another number that has to be exact.

    As in OpenVINO, spaces may come before the digits, but nothing after them.

    Examples:
        >>> parse_number(" 8", "offset", Where())
        8
        >>> parse_number("8.0", "offset", Where())
        Traceback (most recent call last):
        splitops.errors.ModelError: offset = '8.0' is not a 64-bit integer
    """
    return _parse(_NUMBER, text, what, where, minimum)


def _parse(form: re.Pattern[str], text: str, what: str, where: Where, minimum: int | None) -> int:
    match = form.fullmatch(text)
    value = int(match[1]) if match else None
    if value is None or not INT64_MIN <= value <= INT64_MAX:
        raise ModelError(f"{what} = {text[:80]!r} is not a 64-bit integer", where)
    if minimum is not None and value < minimum:
        raise ModelError(f"{what} = {value} is less than {minimum}", where)
    return value


def parse_shape(text: str, where: Where) -> Shape | None:
    """Parse a partial shape. Return None if the rank is unknown.

    Examples:
        >>> parse_shape("2..6,?,4", Where())
        (Range(lo=2, hi=6, name=None), Range(lo=0, hi=None, name=None), 4)
        >>> parse_shape("", Where()), parse_shape("...", Where())
        ((), None)
    """
    text = text.strip().removeprefix("[").removesuffix("]").strip()
    if text == "...":
        return None
    if not text:
        return ()
    if text.count(",") >= MAX_RANK:
        raise ModelError(f"shape has more than {MAX_RANK} dimensions", where)
    return tuple(_parse_dimension(part.strip(), where) for part in text.split(","))


def _parse_dimension(text: str, where: Where) -> Dim:
    if text in {"?", "-1"}:
        return UNKNOWN
    match = _RANGE.fullmatch(text)
    if match is None:
        return _parse(_SIZE, text, "a dimension of shape", where, minimum=0)
    lo = int(match[1] or 0)
    hi = int(match[2]) if match[2] else None
    if hi is not None and hi >= INT64_MAX:
        hi = None  # OpenVINO writes this for an unbounded size
    if lo > INT64_MAX or (hi is not None and hi < lo):
        raise ModelError(f"the range {text!r} of shape contains no size", where)
    return lo if lo == hi else Range(lo, hi)


def format_shape(shape: Shape | None) -> str:
    """Format a partial shape as OpenVINO does.

    Examples:
        >>> format_shape((Range(2, 6), Range(), 4, Range(0, 3), Range(2))), format_shape(None)
        ('2..6,?,4,..3,2..', '...')
    """
    if shape is None:
        return "..."
    return ",".join(_format_dimension(dim) for dim in shape)


def _format_dimension(dim: Dim) -> str:
    if isinstance(dim, int):
        return str(dim)
    if dim.lo == 0 and dim.hi is None:
        return "?"
    return f"{dim.lo or ''}..{'' if dim.hi is None else dim.hi}"


def is_match(shape: tuple[int, ...], partial: Shape | None) -> bool:
    """Return whether the exact ``shape`` matches the ``partial`` shape. None matches every shape."""
    if partial is None:
        return True
    if len(shape) != len(partial):
        return False
    return all(
        size == dim if isinstance(dim, int) else dim.lo <= size and (dim.hi is None or size <= dim.hi)
        for size, dim in zip(shape, partial, strict=True)
    )


def compute_element_count(shape: Sequence[int], bits: int, where: Where) -> int:
    """Return the number of elements of an exact shape. Raise ModelError if no memory could hold them.

    ``bits`` is the size of an element; 0 for strings.
    """
    # NumPy multiplies the dimensions that are not zero even if the array is empty.
    if math.prod(size or 1 for size in shape) * max(bits, 64) // 8 > INT64_MAX:
        raise ModelError(f"shape = {list(shape)} is larger than any memory", where)
    return math.prod(shape)
