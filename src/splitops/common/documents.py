"""Parse untrusted JSON and TOML documents, whose size and nesting are limited.

Every fault is a ValueError. The readers of each kind of document add the file name and the location.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from splitops.errors import shown

MAX_RANK: Final = 64
"""Maximum rank of a tensor, as in NumPy."""
MAX_DEPTH: Final = 127
"""Maximum nesting of JSON, as in the reference implementation of safetensors."""
_MAX_VALUES: Final = 1 << 23
"""Maximum number of JSON values, counted as opening brackets and commas outside of strings.

The three bytes ``{},`` take about 72 bytes of memory.
"""
_MAX_TOML: Final = 1 << 20
"""Maximum size of a TOML document in bytes. A table of 6 bytes may need almost a kilobyte of memory."""
_MAX_PARTS: Final = 16
"""Maximum number of parts of a TOML key. The time of tomllib grows with the square of this number."""

_JSON_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_NO_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"[]{}")))
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_PART: Final = r"""(?:[\w-]++|"(?:[^"\\\n]|\\[^\n])*+"?|'[^'\n]*+'?)"""
_TOML_TOKENS: Final = re.compile(
    rf'''"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)|\'\'\'(?:[^']|'(?!\'\'))*+(?:\'\'\'|\Z)|\#[^\n]*+'''
    rf"""|(?P<key>{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+)""",
    re.DOTALL,
)
"""Matches comments, multi-line strings and, as ``key``, other strings and words, alone or joined by dots.

These include values, such as 1.5, which have few parts.
"""


class DocumentError(ValueError):
    """A document exceeds a limit, or has a duplicate key or an unpaired surrogate."""


def parse_json(
    content: bytes,
    *,
    parse_int: Callable[[str], Any] | None = None,
    parse_float: Callable[[str], Any] | None = None,
    infinite: bool = False,
) -> Any:
    """Parse a JSON document in UTF-8.

    Duplicate keys and unpaired surrogates are errors, and so are ``NaN`` and ``Infinity`` unless ``infinite``
    is set. A float that is too large, such as ``1e999``, becomes infinity unless ``parse_float`` is set.

    Args:
        content: the document.
        parse_int: as in :func:`json.loads`.
        parse_float: as in :func:`json.loads`.
        infinite: whether to accept ``NaN``, ``Infinity`` and ``-Infinity``, as Python writes them.

    Raises:
        ValueError: the document is not JSON.
        DocumentError: it has too many values or levels, a duplicate key or an unpaired surrogate.

    Examples:
        >>> parse_json(b'{"a": [1, "b"]}')
        {'a': [1, 'b']}
    """
    text = content.decode()
    _check_structure(content)
    try:
        found = json.loads(
            text,
            object_pairs_hook=_make_object,
            parse_constant=None if infinite else _reject_constant,
            parse_int=parse_int,
            parse_float=parse_float,
        )
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:  # the caller's stack may be deep
        raise DocumentError("values are nested too deeply") from None
    except UnicodeEncodeError as error:
        raise DocumentError(f"{shown(error.object[error.start])} is an unpaired surrogate") from None
    return found


def parse_toml(content: bytes) -> dict[str, Any]:
    """Parse a TOML document in UTF-8.

    Raises:
        ValueError: the document is not TOML.
        DocumentError: it is too long, too deeply nested, or has a key with too many parts.

    Examples:
        >>> parse_toml(b"a.b = 1")
        {'a': {'b': 1}}
    """
    if len(content) > _MAX_TOML:
        raise DocumentError(f"it has {len(content)} bytes, more than the limit of {_MAX_TOML}")
    import tomllib  # only plans, targets and expectations need it

    text = content.decode()
    for token in _TOML_TOKENS.finditer(text):
        key = token["key"]
        if key is not None and key.count(".") >= _MAX_PARTS:
            parts = len(re.findall(_PART, key))
            if parts > _MAX_PARTS:
                line = text.count("\n", 0, token.start()) + 1
                raise DocumentError(
                    f"a key has {parts} parts, more than the limit of {_MAX_PARTS} (at line {line})"
                )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise DocumentError("values are nested too deeply") from None


def _check_structure(content: bytes) -> None:
    """Raise DocumentError if a JSON document has too many values or levels, without parsing it."""
    brackets = content.count(b"[") + content.count(b"{")
    if brackets <= MAX_DEPTH and brackets + content.count(b",") <= _MAX_VALUES:
        return
    plain = _JSON_STRINGS.sub(b"", content)
    values = plain.count(b"[") + plain.count(b"{") + plain.count(b",")
    if values > _MAX_VALUES:
        raise DocumentError(f"it has {values} values, more than the limit of {_MAX_VALUES}")
    nested = np.frombuffer(plain.translate(None, _NO_BRACKETS), np.uint8)
    # Bit 1 is set in opening brackets only.
    depth = int(((nested & 2).astype(np.int8) - 1).cumsum(dtype=np.int32).max(initial=0))
    if depth > MAX_DEPTH:
        raise DocumentError(f"values are nested {depth} levels deep, more than the limit of {MAX_DEPTH}")


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise DocumentError(f"key {shown(twice)} appears twice")
    return found


def _reject_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
