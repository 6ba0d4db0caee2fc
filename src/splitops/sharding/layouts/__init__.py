"""Layouts: the names and contents of the files of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final, NamedTuple

from splitops.errors import PlanError, shown
from splitops.sharding.placements import FileLayout, LaidFile, Placements

LAYOUTS: Final = ("hf", "dcp", "vllm")
"""Names of the layouts. Each is a module of this package."""


class CheckpointLayout(NamedTuple):
    """The functions of a layout. Writers and readers of ranks lay out their files with them.

    ``list_sidecar_folders`` returns the folders for sidecar files, given the number of ranks; ``""`` is the
    common folder. ``iter_files`` yields one file at a time, so that a reader can stop at the first missing
    one. Manifests do not store offsets in the files of ranks, so readers compute them again.
    """

    name: str
    list_sidecar_folders: Callable[[int], tuple[str, ...]]
    iter_files: Callable[[Placements], Iterator[LaidFile]]

    def lay_out(self, placements: Placements) -> FileLayout:
        """Lay out the files of all ranks."""
        return FileLayout.from_files(self.iter_files(placements))


def get_layout(name: str) -> CheckpointLayout:
    """Return a layout, given its name. Raise PlanError if there is no such layout."""
    if name not in LAYOUTS:
        raise PlanError(f"unknown layout {shown(name)}: use {', '.join(LAYOUTS)}")
    module = import_module(f"{__name__}.{name}")
    return CheckpointLayout(name, module.list_sidecar_folders, module.iter_files)
