"""A griffe extension: roles in docstrings (``:func:`plan```) link to what the reference has of that name."""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

_ROLE: Final = re.compile(r":(?:attr|class|data|func|meth|mod):`(~?)([\w.]+)`")


class Roles(griffe.Extension):
    """Rewrites the roles of each docstring as links that may lead nowhere."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(lambda role: _link(obj, role[1], role[2]), obj.docstring.value)


def _link(scope: griffe.Object, short: str, name: str) -> str:
    shown = name.rpartition(".")[2] if short else name.lstrip(".")
    return f'<autoref identifier="{_path(scope, name)}" optional>`{shown}`</autoref>'


def _path(scope: griffe.Object, name: str) -> str:
    try:
        return scope.resolve(name)
    except griffe.NameResolutionError:
        return name.lstrip(".")
