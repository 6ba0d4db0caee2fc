"""Options that several commands share, gathered into one argument."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import wraps
from typing import Any, Final, TypeVar, cast

import click

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class _Bytes(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number of bytes: 64M, 1.5G."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([KMG]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
        if found is None:
            self.fail(f"{value!r} is not a number of bytes, such as 64M", param, ctx)
        return int(float(found[1]) * _UNITS[found[2].upper()])


BYTES: Final = _Bytes()


def nearest(word: str, words: Iterable[str]) -> str:
    """Return a sentence that names the nearest known word, behind a space; nothing if none is near.

    Examples:
        >>> nearest("chekc", ["check", "fix"])
        " Did you mean 'check'?"
    """
    found = difflib.get_close_matches(word, sorted(words), n=1)
    return f" Did you mean {found[0]!r}?" if found else ""


_Function = TypeVar("_Function", bound=Callable[..., Any])


def added(*options: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Return a decorator that adds options to a command, in the order in which the help lists them."""

    def decorate(function: _Function) -> _Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def gathered(name: str, kind: Any, *options: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Return a decorator that adds options to a command, which gets them as one argument.

    Args:
        name: of the argument.
        kind: the dataclass that it is of, whose fields are called as what the options give.
        *options: in the order in which the help lists them.
    """

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def command(*args: Any, **kwargs: Any) -> Any:
            kwargs[name] = kind(**{field.name: kwargs.pop(field.name) for field in fields(kind)})
            return function(*args, **kwargs)

        found: Any = added(*options)(command)
        return cast(_Function, found)

    return decorate
