"""Parameter types, and decorators that add several options to a command."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from splitops.errors import SplitError, nearest

_UNITS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


if TYPE_CHECKING:
    _ParamType = click.ParamType[Any, Any]
else:
    _ParamType = click.ParamType  # not generic in older versions of click


class Read(_ParamType):
    """Parameter type with the parser ``read``, whose errors are usage errors. ``words`` lists completions."""

    def __init__(
        self, name: str, read: Callable[[str], Any], words: Callable[[], Iterable[str]] = tuple
    ) -> None:
        self.name = name
        self._read, self._words = read, words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._read(value) if isinstance(value, str) else value
        except SplitError as error:
            self.fail(error.message, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(word) for word in self._words() if word.startswith(incomplete)]


def _parse_bytes(text: str) -> int:
    """Parse a size in bytes: ``64M`` and ``64MiB`` are 64 x 1024 x 1024, ``64MB`` is 64,000,000."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a number of bytes, such as 64M")
    thousand = 1000 if (found[3] or "").upper() == "B" else 1024
    return int(Decimal(found[1]) * thousand ** _UNITS[found[2].upper()])


BYTES: Final = Read("bytes", _parse_bytes)


def suggest(word: str, words: Iterable[str]) -> str:
    """Return a space and a question that names the most similar of ``words``, or "" if none is similar.

    Examples:
        >>> suggest("chekc", ["check", "fix"])
        " Did you mean 'check'?"
    """
    found = nearest(word, words)
    return f" Did you mean {found!r}?" if found else ""


_Function = TypeVar("_Function", bound=Callable[..., Any])


def add_options(*options: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Return a decorator that adds options to a command. The help lists them in this order."""

    def decorate(function: _Function) -> _Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def collect_options(name: str, kind: Any, *options: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Return a decorator that adds options to a command, which receives ``kind(**values)`` as ``name``."""

    def decorate(function: _Function) -> _Function:
        before = len(getattr(function, "__click_params__", ()))

        @wraps(function)
        def command(*args: Any, **kwargs: Any) -> Any:
            kwargs[name] = kind(**{option.name: kwargs.pop(option.name) for option in own})
            return function(*args, **kwargs)

        found: Any = add_options(*options)(command)
        own = found.__click_params__[before:]
        return cast(_Function, found)

    return decorate
