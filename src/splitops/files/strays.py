"""Tensor files in a model's folder that do not belong to the model: named, never copied."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from splitops.errors import FileError, count_of, one_line, shown
from splitops.files.folders import INDEX
from splitops.files.formats import format_of
from splitops.files.sources import LocalFile
from splitops.ground.reading import DataFolder

_MAX_NAMED: Final = 100
"""The number of strays whose tensors are read; more are counted."""


def warnings_of_strays(
    folder: DataFolder, strays: Sequence[str], main: str, tensors: Collection[str], *, strict: bool
) -> tuple[str, ...]:
    """Return a warning for each stray, which names its tensors that are not in the model.

    Args:
        folder: the folder of the model.
        strays: their names; see :class:`~splitops.files.folders.Beside`.
        main: the name, for messages, of the file that lists the model's tensors, such as its index.
        tensors: the names of the model's tensors.
        strict: whether a stray is an error.

    Raises:
        FileError: ``strict``, and there is a stray.
    """
    named = strays[:_MAX_NAMED]
    found = [f"{shown(name)} is left out: {_reason(folder, name, main, tensors)}" for name in named]
    if len(strays) > _MAX_NAMED:
        found.append(f"{count_of(len(strays) - _MAX_NAMED, 'more tensor file')} are left out in the same way")
    if found and strict:
        others = f" The same is true of {count_of(len(strays) - 1, 'more file')}." if len(strays) > 1 else ""
        raise FileError(
            f"{found[0]}.{others} Move it to another folder, or leave out --strict (in Python: strict=True)"
        )
    return tuple(found)


def _reason(folder: DataFolder, name: str, main: str, tensors: Collection[str]) -> str:
    apart = f"it is not part of the model of {main}"
    if name.endswith(INDEX):
        return apart
    try:
        source = LocalFile(name, folder)
        own = [tensor.name for tensor in format_of(source.path).read(source).tensors]
    except FileError as error:
        return f"{apart}, and it cannot be read ({one_line(error.message, 200)})"
    new = [tensor for tensor in own if tensor not in tensors]
    if not new:
        return f"{apart}; all its tensors have names of the model's own"
    return f"{apart}, and its tensor {shown(new[0])}{_and_more(len(new) - 1)} is in no file of the model"


def _and_more(count: int) -> str:
    return f" (and {count_of(count, 'more tensor')})" if count else ""
