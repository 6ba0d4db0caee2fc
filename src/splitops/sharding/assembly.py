"""Assemble the file plan that shard, merge, reshard, fuse and unfuse run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from splitops.files.extent_tasks import ExtentCopies
from splitops.files.extents import Column, Extent, Extents, compose, make_contiguous, merge_adjacent
from splitops.files.formats import TargetFile
from splitops.files.plan import FilePlan
from splitops.files.plan_types import Finish
from splitops.files.sources import Source
from splitops.files.tensors import locate_tensors
from splitops.sharding.checkpoint import Checkpoint
from splitops.sharding.placements import FileLayout


def assemble_files(
    checkpoint: Checkpoint,
    layout: FileLayout,
    written: Sequence[TargetFile],
    homes: Sequence[tuple[str, bool]],
    out: Path,
    changed: Mapping[str, bytes] = MappingProxyType({}),
) -> FilePlan:
    """Return the file plan that writes the tensor files of ``layout`` and other files into ``out``.

    ``written`` lists more files to write. ``homes`` lists the folders for sidecar files, and whether each
    gets all of them or only the shared ones. ``changed`` maps names of sidecar files to new contents, which
    are written only into folders with the shared ones.
    """
    if out.name in ("", ".."):
        out = Path(os.path.abspath(out))
    sources: list[Source] = [*checkpoint.sources]
    targets = [TargetFile(out.name, 0, folder=True)]
    if checkpoint.held is None:
        table, own = layout.extents.table.copy(), locate_tensors(checkpoint.tensors)
        file, offset = own[table[:, Column.SOURCE], :2].T
        table[:, Column.OFFSET] += offset
        table[:, Column.SOURCE] = file
    else:
        table = Extents.from_extents(compose(checkpoint.held, layout.extents)).table
    table[:, Column.TARGET] += len(targets)
    targets += [*layout.files, *written]
    extents: list[Extent] = []
    for other in checkpoint.others:
        for home, everything in homes:
            if not (everything or other.shared):
                continue
            name = f"{home}/{other.name}" if home else other.name
            if not everything and (text := changed.get(other.name)) is not None:
                targets.append(TargetFile(name, len(text), ((0, text),), copied=other.source.name))
                continue
            if other.source.size:
                extents.append(make_contiguous(len(sources), 0, len(targets), 0, other.source.size))
            targets.append(TargetFile(name, other.source.size, copied=other.source.name))
        sources.append(other.source)
    inside = [replace(target, name=f"{out.name}/{target.name}", scratch=True) for target in targets[1:]]
    return FilePlan(
        out.name,
        out.parent,
        tuple(sources),
        checkpoint.tensors if checkpoint.held is None else (),
        (targets[0], *inside),
        ExtentCopies(merge_adjacent(Extents.concatenate([Extents(table), Extents.from_extents(extents)]))),
        (),
        (Finish(range(1), lambda _: None),),  # makes the folder durable; no file depends on copied bytes
        checkpoint.warnings,
    )
