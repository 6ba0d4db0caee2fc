"""Layouts: which files the ranks get, and where each tensor lies in them. A layout copies nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final, NamedTuple

from splitops.errors import PlanError, shown
from splitops.sharding.placements import Laid, LaidFile, Placements

LAYOUTS: Final = ("hf", "dcp", "vllm")
"""One module each, with the functions of the layout."""


class CheckpointLayout(NamedTuple):
    """How the files of ranks are written. A manifest has no places: they are laid out again to be read.

    ``homes`` returns the folders of so many ranks that get the small files; ``""`` is that of all ranks.
    ``files`` yields the files one by one, so that a reader can stop at the first that is missing.
    """

    name: str
    homes: Callable[[int], tuple[str, ...]]
    files: Callable[[Placements], Iterator[LaidFile]]

    def lay_out(self, placements: Placements) -> Laid:
        """Lay out the files of all ranks."""
        return Laid.of(self.files(placements))


def layout_named(name: str) -> CheckpointLayout:
    """Return a layout by its module's name."""
    if name not in LAYOUTS:
        raise PlanError(f"layout {shown(name)} is none of {', '.join(LAYOUTS)}")
    module = import_module(f"{__name__}.{name}")
    return CheckpointLayout(name, module.homes, module.files)
