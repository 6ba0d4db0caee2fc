"""File formats: each names the tensors of a file and where their bytes are, and lays new files out.

A format copies nothing. To add one, write a module beside this one with an object that follows
:class:`Format`, and name the module in :data:`FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from splitops.errors import FileError, shown
from splitops.files.extents import Table
from splitops.files.pickles import pickle_advice
from splitops.files.sources import Source
from splitops.files.tensors import StoredTensor, column

WRITTEN: Final = ("npy", "npz", "safetensors", "gguf", "onnx", "hdf5", "zarr", "raw")
"""The formats that are written, by name."""
FORMATS: Final = ("npy", "npz", "safetensors", "gguf", "onnx", "openvino", "hdf5", "zarr")
"""One module each, with the format in ``FORMAT``; imported when a file's name asks for it."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds.

    Attributes:
        format: the format that read it.
        tensors: in the order of the file.
        sources: the files that hold their bytes; the first is the one that was opened.
        metadata: what else the file declares, in the format's own terms; new files like it have it too.
    """

    format: Format
    tensors: tuple[StoredTensor, ...]
    sources: tuple[Source, ...]
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        """Reject names that are not text, such as those of HDF5 files, which can have any bytes."""
        try:
            "".join(column(self.tensors, "name")).encode()
        except UnicodeEncodeError:
            names = column(self.tensors, "name")
            name = next(name for name in names if name.encode(errors="replace").decode() != name)
            raise FileError(
                f"{self.sources[0].name}: the name {shown(name)} of a tensor is not text in UTF-8"
            ) from None

    def tensor(self, name: str | None) -> StoredTensor:
        """Return a tensor by its name; the only one for None.

        Raises:
            FileError: there is no such tensor, or more than one to choose from.
        """
        file = self.sources[0].name
        if name is None:
            if len(self.tensors) == 1:
                return self.tensors[0]
            if not self.tensors:
                raise FileError(f"{file} has no tensors")
            raise FileError(
                f"{file} has {len(self.tensors)} tensors. Choose one with --tensor: {self._names()}"
            )
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise FileError(f"{file} has no tensor {shown(name)}; it has {self._names() or 'none'}")

    def _names(self) -> str:
        names = [shown(tensor.name) for tensor in self.tensors[:8]]
        more = len(self.tensors) - len(names)
        return ", ".join(names) + (f" and {more} more" if more else "")


@dataclass(frozen=True, slots=True)
class TargetFile:
    """A file to be written.

    Attributes:
        name: its name in the folder that it goes to.
        size: its bytes.
        literals: by offset, the bytes that are not a tensor's.
        scratch: whether it is only there for ``finish`` of the layout.
        folder: whether it is a folder, which ``finish`` makes.
        copied: what messages call the file that it is a copy of, if it is one.
    """

    name: str
    size: int
    literals: tuple[tuple[int, bytes], ...] = ()
    scratch: bool = False
    folder: bool = False
    copied: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """Files that hold given tensors.

    Attributes:
        files: the files.
        places: of each tensor, in the given order, a row: the position of its file, and the offset in it.
        finish: called with the paths of the files once all tensors are in their places, for what follows
            from their bytes, such as checksums; it can be called again after a stop. None: nothing does.
        check: called with the same paths after that, to read the files back as their readers do. It raises a
            :class:`FileError` where one does not hold the tensors that it was made from.
    """

    files: tuple[TargetFile, ...]
    places: Table
    finish: Callable[[Sequence[Path]], None] | None = None
    check: Callable[[Sequence[Path]], None] | None = None


def places(found: Iterable[tuple[int, int]]) -> Table:
    """Return positions of files and offsets as the places of a layout."""
    return np.array([*found], np.int64).reshape(-1, 2)


class Format(Protocol):
    """One file format."""

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The endings of its files' names, in lower case; the first is the usual one."""
        ...

    def read(self, source: Source) -> Contents:
        """Read what a file holds, without its tensors' bytes. Nothing that it says is believed unproved:
        every tensor lies within its file.

        Raises:
            FileError: the file is malformed.
        """
        ...

    def taken(self, tensor: StoredTensor) -> StoredTensor:
        """Return a tensor of any format as this one names its type.

        Raises:
            FileError: this format has no such type or memory order.
        """
        ...

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        """Lay out files that hold tensors.

        Args:
            tensors: names, types (as :meth:`taken` gives them), shapes and sizes; their places are not those
                of the new files.
            like: the contents that they come from; of this format, the files take their metadata over.
            name: of the file, or of the first one where they are several.

        Raises:
            FileError: the format cannot hold them.
        """
        ...


@runtime_checkable
class ShardedFormat(Format, Protocol):
    """A format whose tensors may be in several files, each of them whole in one."""

    def whole(self, source: Source) -> Contents:
        """Read all files that a file belongs to: their index, or one of those that are numbered.

        Raises:
            FileError: a file is missing or malformed, or they do not fit together.
        """
        ...

    def like_shard(self, like: Contents, number: int, count: int) -> Contents:
        """Return what file ``number`` of ``count``, from 0 on, says besides its tensors."""
        ...

    def entry_bytes(self, tensor: StoredTensor, like: Contents) -> int:
        """Return at most how many bytes a file has for a tensor besides those of its elements."""
        ...

    def index(self, stem: str, where: Mapping[str, str], total: int) -> TargetFile | None:
        """Return the file that names the file of each tensor; None where the format has none.

        Args:
            stem: what the names of the files begin with.
            where: of each tensor, the name of its file.
            total: the bytes of all tensors.
        """
        ...


@cache
def format_named(name: str) -> Format:
    """Return a format by its name.

    Raises:
        FileError: there is no such format.

    Examples:
        >>> format_named("npy").suffixes
        ('.npy',)
    """
    if name not in (*FORMATS, *WRITTEN):
        raise FileError(f"{shown(name)} is not a format; these are {', '.join(FORMATS)} and raw")
    found: Format = import_module(f"{__name__}.{name}").FORMAT
    return found


def chosen_format(form: Format | str | None) -> Format | None:
    """Return the format of a name."""
    return format_named(form) if isinstance(form, str) else form


def format_of(path: Path) -> Format:
    """Return the format of a file, by its name.

    Raises:
        FileError: no format has such names.
    """
    found = _by_ending(path)
    if found is None:
        advice = pickle_advice([path.name]) or "Read other files with --raw"
        raise FileError(f"{shown(path.name)} has no ending of a tensor file: {_endings()}. {advice}")
    return found


def has_format(path: Path) -> bool:
    """Return whether the name of a file is that of a format."""
    return _by_ending(path) is not None


def target_format(path: Path, to: Format | None, source: Format | None = None) -> Format:
    """Return the format of a file that is to be written.

    Args:
        path: the file.
        to: the format that was asked for, which decides over the name.
        source: the format of what it is made from. A file of raw bytes may have any ending that is not one
            of another format.

    Raises:
        FileError: neither ``to`` nor the name says it, or the format is not written.
    """
    found = to or _by_ending(path)
    if found is None and (path.name.lower().endswith(".bin") or (source and source.name == "raw")):
        found = source if source and source.name == "raw" else format_named("raw")
    if found is None:
        raise FileError(
            f"the name {shown(path.name)} does not say in which format to write it: end it with one of "
            f"{_endings(WRITTEN)}, or choose the format with --to (in Python: to=)"
        )
    if found.name not in WRITTEN:
        raise FileError(f"{shown(path.name)}: {found.name} is read, and not written")
    if to is None and path.name.lower().endswith(".json"):
        raise FileError(f"{shown(path.name)} is the name of an index, not of a file with tensors")
    return found


def _by_ending(path: Path) -> Format | None:
    ending = path.name.lower()
    formats = (format_named(name) for name in FORMATS)
    return next((found for found in formats if ending.endswith(found.suffixes)), None)


def _endings(names: Sequence[str] = FORMATS) -> str:
    return ", ".join(format_named(name).suffixes[0] for name in names)
