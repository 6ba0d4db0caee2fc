"""Warnings about stray tensor files: files in a folder that are not part of the model or split in it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from splitops.common.untrusted_files import DataFolder
from splitops.errors import FileError, count_of, one_line, shown, shown_path
from splitops.files.folders import INDEX
from splitops.files.formats import detect_format
from splitops.files.plan import FilePlan
from splitops.files.sources import LocalFile
from splitops.files.urls import is_url

_MAX_NAMED: Final = 100
"""Maximum number of stray files that are described. Others are only counted."""


def warn_of_strays(
    folder: DataFolder, strays: Sequence[str], main: str, tensors: Collection[str], *, strict: bool
) -> tuple[str, ...]:
    """Return warnings about stray files. They name a tensor of each file that the model lacks, if it has one.

    Args:
        folder: the folder of the model.
        strays: names of the stray files; see :class:`~splitops.files.folders.OtherFiles`.
        main: name, for messages, of the file that lists the tensors of the model, such as its index.
        tensors: names of the tensors of the model.
        strict: whether a stray file is an error.

    Raises:
        FileError: ``strict`` is set, and there is a stray file.
    """
    named = strays[:_MAX_NAMED]
    found = [f"{shown(name)} is left out: {_explain(folder, name, main, tensors)}" for name in named]
    if len(strays) > _MAX_NAMED:
        found.append(f"{count_of(len(strays) - _MAX_NAMED, 'more tensor file')} are left out in the same way")
    if found and strict:
        others = f" The same is true of {count_of(len(strays) - 1, 'more file')}." if len(strays) > 1 else ""
        raise FileError(
            f"{found[0]}.{others} Move it to another folder, or leave out --strict (in Python: strict=True)"
        )
    return tuple(found)


def warn_of_leftovers(plan: FilePlan, pattern: str) -> FilePlan:
    """Return the plan, with a warning if other files in its folder match the regex ``pattern``.

    Such files, for example those of an earlier split into more files, look as if they belonged to the new
    ones. Sources of the plan do not count. A folder at a URL is not searched.
    """
    if is_url(plan.folder):
        return plan
    try:
        names = os.listdir(plan.folder)
    except OSError:  # it does not exist yet, or the run will report why it cannot be used
        return plan
    written = {target.name for target in plan.targets}
    sources = {os.path.realpath(source.path) for source in plan.sources}
    found = [
        name
        for name in sorted(set(names) - written)
        if re.fullmatch(pattern, name) and os.path.realpath(plan.folder / name) not in sources
    ]
    if not found:
        return plan
    some = ", ".join(map(shown, found[:_MAX_NAMED]))
    more = f" and {count_of(len(found) - _MAX_NAMED, 'more file')}" if len(found) > _MAX_NAMED else ""
    what = f"{shown_path(plan.folder)} also has {some}{more}"
    why = "which are not among the new files: delete them if an earlier run has left them"
    return replace(plan, warnings=(*plan.warnings, f"{what}, {why}"))


def _explain(folder: DataFolder, name: str, main: str, tensors: Collection[str]) -> str:
    unlisted = f"it is not part of the model of {main}"
    if name.endswith(INDEX):
        return unlisted
    try:
        source = LocalFile(name, folder)
        own = [tensor.name for tensor in detect_format(source.path).read(source).tensors]
    except FileError as error:
        return f"{unlisted}, and it cannot be read ({one_line(error.message, 200)})"
    new = [tensor for tensor in own if tensor not in tensors]
    if not new:
        return f"{unlisted}; the model has tensors with all of its names"
    return f"{unlisted}, and no file of the model has its tensor {shown(new[0])}{_count_more(len(new) - 1)}"


def _count_more(count: int) -> str:
    return f" (and {count_of(count, 'more tensor')})" if count else ""
