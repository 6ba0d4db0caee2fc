"""What each array library gives: the one source of the documentation's table, proved by the tests."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend gives.

    Attributes:
        views: ``copy=None`` gives parts that share memory with the data.
        copies: ``copy=True`` gives independent parts; contiguous ones where the library has such a notion.
        out: ``out=`` fills the caller's buffers.
        lazy: nothing is computed before the user asks for it.
        read_only: read-only data give read-only views.
        gradients: derivatives flow through the parts.
        compiled: the library's tracers and compilers that a split works inside.
        devices: where the arrays may live.
        element_types: which element types the arrays may have.
    """

    views: bool
    copies: bool
    out: bool
    lazy: bool = False
    read_only: bool = False
    gradients: bool = False
    compiled: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("CPU",)
    element_types: str = "all"


def capability_rows(named: dict[str, Capabilities]) -> tuple[tuple[str, ...], ...]:
    """Return a table of capabilities as text: a heading, then one row for each backend.

    Examples:
        >>> heading, row = capability_rows({"numpy": Capabilities(views=True, copies=True, out=False)})
        >>> dict(zip(heading, row))["out"]
        'no'
    """
    names = [field.name for field in fields(Capabilities)]
    rows = [("backend", *(name.replace("_", " ") for name in names))]
    rows += [
        (name, *(_cell(getattr(capabilities, column)) for column in names))
        for name, capabilities in named.items()
    ]
    return tuple(rows)


def _cell(value: bool | str | tuple[str, ...]) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case tuple():
            return ", ".join(value) or "no"
