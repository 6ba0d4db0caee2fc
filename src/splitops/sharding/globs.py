"""Globs for tensor names: ``*`` matches any text, ``?`` one character; ``{e}`` captures text without dots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from splitops.errors import PlanError, shown

_TOKEN: Final = re.compile(r"\*+|\?|\{([A-Za-z_][A-Za-z0-9_]*)\}|[^*?{}]+|[{}]")


class Globs:
    """A list of globs as one regular expression. The first glob that matches a name wins.

    Raises PlanError if a brace is not part of a capture, or if a capture is repeated.
    """

    def __init__(self, globs: Iterable[str]) -> None:
        patterns = []
        self._keys: dict[int, tuple[int, list[str]]] = {}
        """The index and the captures of each glob, keyed by the number of its regular-expression group."""
        group = 1
        for number, glob in enumerate(globs):
            pattern, keys = _compile(glob)
            patterns.append(f"({pattern})")
            self._keys[group] = number, keys
            group += 1 + len(keys)
        self._pattern = re.compile("|".join(patterns) or "(?!)", re.DOTALL)

    def find_index(self, name: str) -> int | None:
        """Return the index of the glob that matches a name, or None."""
        found = self._pattern.match(name)
        return None if found is None else self._keys[found.lastindex or 0][0]

    def find(self, name: str) -> tuple[int, dict[str, str]] | None:
        """Return the index and the captures of the matching glob, or None. The last ``*`` is a capture."""
        found = self._pattern.match(name)
        if found is None or found.lastindex is None:
            return None
        number, keys = self._keys[found.lastindex]
        return number, dict(zip(keys, found.groups()[found.lastindex :], strict=False))


def _compile(glob: str) -> tuple[str, list[str]]:
    """Return the regular expression of a glob, and the names of its captures."""
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
            raise PlanError(f"glob {shown(glob)}: braces must contain different names such as {{e}}")
        else:
            pieces[-1] += re.escape(text)
    first, *rest = pieces
    if not rest:
        return rf"{first}\Z", keys
    *middle, last = rest
    keys.insert(len(keys) - last.count("([^.]+)"), "*")
    # Matching a middle piece at its first place is enough, since any text may follow it.
    return first + "".join(f"(?>.*?{piece})" for piece in middle) + rf"(.*){last}\Z", keys


_make_globs = lru_cache(maxsize=4096)(lambda glob: Globs([glob]))


def match_glob(glob: str, name: str) -> dict[str, str] | None:
    """Return the captures of a glob in a name, or None if the name does not match.

    Examples:
        >>> match_glob("*.experts.{e}.up_proj.weight", "model.layers.0.mlp.experts.17.up_proj.weight")
        {'*': 'model.layers.0.mlp', 'e': '17'}
        >>> match_glob("*.o_proj", "model.o_proj.weight") is None
        True
    """
    found = _make_globs(glob).find(name)
    return None if found is None else found[1]


@lru_cache(maxsize=4096)
def _tokenise(glob: str) -> list[tuple[str, str]]:
    """Return the tokens of a glob, each as the name of its capture ("" if it has none) and its text."""
    return [(t[1] or t[0][0] * (t[0][0] == "*"), t[0]) for t in _TOKEN.finditer(glob)]


def fill_glob(glob: str, captures: Mapping[str, str]) -> str:
    """Replace each ``*`` and each capture in braces of a glob with its captured text.

    Examples:
        >>> fill_glob("*.mlp.up.{leaf}", {"leaf": "weight", "*": "layers.3"})
        'layers.3.mlp.up.weight'
    """
    return "".join([captures[key] if key else text for key, text in _tokenise(glob)])


def list_wildcards(glob: str) -> list[str]:
    """Return the wildcards of a glob, in order.

    Examples:
        >>> list_wildcards("*.mlp.{leaf}")
        ['*', '{leaf}']
    """
    return [text for _, text in _tokenise(glob) if text[0] in "*?{}"]
