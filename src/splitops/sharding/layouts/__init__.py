"""Layouts: which files the ranks get, and where each tensor lies in them. A layout copies nothing."""

from __future__ import annotations

from importlib import import_module
from typing import Final, Protocol

from splitops.errors import PlanError, shown
from splitops.sharding.placements import Laid, Placements

LAYOUTS: Final = ("hf", "dcp", "vllm")
"""One module each, with the layout in ``LAYOUT``."""


class CheckpointLayout(Protocol):
    """How the files of ranks are written. A manifest has no places: they are laid out again to be read."""

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    def homes(self, ranks: int) -> tuple[str, ...]:
        """Return the folders that get the small files, such as the configuration; ``""`` is that of all."""
        ...

    def lay_out(self, placements: Placements) -> Laid:
        """Lay out the files of all ranks.

        Raises:
            PlanError: the layout cannot hold them.
        """
        ...


def layout_named(name: str) -> CheckpointLayout:
    """Return a layout by its module's name.

    Raises:
        PlanError: there is none of this name.
    """
    if name not in LAYOUTS:
        raise PlanError(f"layout {shown(name)} is none of {', '.join(LAYOUTS)}")
    found: CheckpointLayout = import_module(f"{__name__}.{name}").LAYOUT
    return found
