"""Globs of whole names: ``*`` is any text, ``?`` one character, ``{e}`` a captured part between dots."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from splitops.errors import PlanError, shown

_TOKEN: Final = re.compile(r"\*+|\?|\{([A-Za-z_][A-Za-z0-9_]*)\}|[^*?{}]+|[{}]")


def matched(glob: str, name: str) -> dict[str, str] | None:
    """Return what a glob captures of a name, with the text of its last ``*``; None where it does not match.

    Examples:
        >>> matched("*.experts.{e}.up_proj.weight", "model.layers.0.mlp.experts.17.up_proj.weight")
        {'e': '17', '*': 'model.layers.0.mlp'}
        >>> matched("*.o_proj", "model.o_proj.weight") is None
        True
    """
    pattern = compiled(glob)
    found = pattern.match(name)
    if found is None:
        return None
    named = pattern.groupindex
    if pattern.groups == len(named):
        return found.groupdict()
    star = next(number for number in range(1, pattern.groups + 1) if number not in named.values())
    return {**found.groupdict(), "*": found[star]}


def filled(glob: str, captures: Mapping[str, str]) -> str:
    """Return the name that a glob with captured texts is.

    Examples:
        >>> filled("*.mlp.up.{leaf}", {"leaf": "weight", "*": "layers.3"})
        'layers.3.mlp.up.weight'
    """
    return "".join(
        captures[token[1] or "*"] if token[1] or token[0] == "*" else token[0]
        for token in _TOKEN.finditer(glob)
    )


def tokens(glob: str) -> list[str]:
    """Return the tokens of a glob that stand for texts, in their order.

    Examples:
        >>> tokens("*.mlp.{leaf}")
        ['*', '{leaf}']
    """
    return [token[0] for token in _TOKEN.finditer(glob) if token[0][0] in "*?{}"]


@lru_cache(maxsize=4096)
def compiled(glob: str) -> re.Pattern[str]:
    """Return the regular expression of a glob; it takes linear time for each ``*``, and never goes back.

    Raises:
        PlanError: a brace does not belong to a name, or a name appears twice.
    """
    pieces = [""]
    names: set[str] = set()
    for token in _TOKEN.finditer(glob):
        text, name = token[0], token[1]
        if text.startswith("*"):
            pieces.append("")
        elif text == "?":
            pieces[-1] += "."
        elif name is not None and name not in names:
            names.add(name)
            pieces[-1] += f"(?P<{name}>[^.]+)"
        elif text in "{}" or name is not None:
            raise PlanError(f"glob {shown(glob)}: braces hold a name, each name once, such as {{e}}")
        else:
            pieces[-1] += re.escape(text)
    first, *rest = pieces
    if not rest:
        return re.compile(rf"{first}\Z", re.DOTALL)
    *middle, last = rest
    # The first place of a middle piece is as good as any later one: what stands between is any text.
    return re.compile(first + "".join(f"(?>.*?{piece})" for piece in middle) + rf"(.*){last}\Z", re.DOTALL)
