"""Globs of whole names: ``*`` is any text, ``?`` one character, ``{e}`` a captured part between dots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from splitops.errors import PlanError, shown

_TOKEN: Final = re.compile(r"\*+|\?|\{([A-Za-z_][A-Za-z0-9_]*)\}|[^*?{}]+|[{}]")


class Globs:
    """Globs, of which the first one that matches a name counts: one regular expression for all of them.

    Raises a PlanError for a brace that does not belong to a name, or a name that appears twice.
    """

    def __init__(self, globs: Iterable[str]) -> None:
        patterns = []
        self._keys: dict[int, tuple[int, list[str]]] = {}
        """By the group of a glob its position, and what the groups behind it capture."""
        group = 1
        for number, glob in enumerate(globs):
            pattern, keys = _pattern(glob)
            patterns.append(f"({pattern})")
            self._keys[group] = number, keys
            group += 1 + len(keys)
        self._pattern = re.compile("|".join(patterns) or "(?!)", re.DOTALL)

    def first(self, name: str) -> int | None:
        """Return the position of the glob."""
        found = self._pattern.match(name)
        return None if found is None else self._keys[found.lastindex or 0][0]

    def find(self, name: str) -> tuple[int, dict[str, str]] | None:
        """Return the position of the glob and what it captures, with the text of its last ``*``."""
        found = self._pattern.match(name)
        if found is None or found.lastindex is None:
            return None
        number, keys = self._keys[found.lastindex]
        return number, dict(zip(keys, found.groups()[found.lastindex :], strict=False))


def _pattern(glob: str) -> tuple[str, list[str]]:
    """Return a regular expression that takes linear time for each ``*``, never goes back, and its groups."""
    pieces, keys = [""], list[str]()
    for token in _TOKEN.finditer(glob):
        text, name = token[0], token[1]
        if text.startswith("*"):
            pieces.append("")
        elif text == "?":
            pieces[-1] += "."
        elif name is not None and name not in keys:
            keys.append(name)
            pieces[-1] += "([^.]+)"
        elif text in "{}" or name is not None:
            raise PlanError(f"glob {shown(glob)}: braces hold a name, each name once, such as {{e}}")
        else:
            pieces[-1] += re.escape(text)
    first, *rest = pieces
    if not rest:
        return rf"{first}\Z", keys
    *middle, last = rest
    keys.insert(len(keys) - last.count("([^.]+)"), "*")
    # The first place of a middle piece is as good as any later one: what stands between is any text.
    return first + "".join(f"(?>.*?{piece})" for piece in middle) + rf"(.*){last}\Z", keys


_alone = lru_cache(maxsize=4096)(lambda glob: Globs([glob]))


def matched(glob: str, name: str) -> dict[str, str] | None:
    """Return what a glob captures of a name; None where it does not match.

    Examples:
        >>> matched("*.experts.{e}.up_proj.weight", "model.layers.0.mlp.experts.17.up_proj.weight")
        {'*': 'model.layers.0.mlp', 'e': '17'}
        >>> matched("*.o_proj", "model.o_proj.weight") is None
        True
    """
    found = _alone(glob).find(name)
    return None if found is None else found[1]


@lru_cache(maxsize=4096)
def _words(glob: str) -> list[tuple[str, str]]:
    """Return the tokens of a glob: the key of what each captures, or its text."""
    return [(t[1] or t[0][0] * (t[0][0] == "*"), t[0]) for t in _TOKEN.finditer(glob)]


def filled(glob: str, captures: Mapping[str, str]) -> str:
    """Return the name that a glob with captured texts is.

    Examples:
        >>> filled("*.mlp.up.{leaf}", {"leaf": "weight", "*": "layers.3"})
        'layers.3.mlp.up.weight'
    """
    return "".join([captures[key] if key else text for key, text in _words(glob)])


def tokens(glob: str) -> list[str]:
    """Return the tokens of a glob that stand for texts, in their order.

    Examples:
        >>> tokens("*.mlp.{leaf}")
        ['*', '{leaf}']
    """
    return [text for _, text in _words(glob) if text[0] in "*?{}"]
