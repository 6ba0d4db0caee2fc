"""Options that several commands share, gathered into one argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar, cast

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
