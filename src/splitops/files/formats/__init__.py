"""File formats: each reads the names, types and places of the tensors in a file, and lays out new files.

Formats do not copy tensors. To add a format, write a module in this package with an object named ``FORMAT``
that follows :class:`Format`, and name the module in :data:`FORMATS` and, if it can be written, in
:data:`WRITTEN`.
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

from splitops.errors import FileError, format_list, shown
from splitops.files.extents import Table
from splitops.files.pickles import advise_on_pickles
from splitops.files.sources import Source
from splitops.files.tensors import StoredTensor, iter_field

WRITTEN: Final = ("npy", "npz", "safetensors", "gguf", "onnx", "hdf5", "zarr", "raw")
"""Names of the formats that can be written."""
FORMATS: Final = ("npy", "npz", "safetensors", "gguf", "onnx", "openvino", "hdf5", "zarr")
"""Names of the formats that are detected by file extension, and of their modules, imported on first use."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The tensors and metadata that a file declares.

    Attributes:
        format: the format that read the file.
        tensors: the tensors, in the order of the file.
        sources: the files with their bytes; the first is the file that was opened.
        metadata: other declarations, with keys of the format. New files of the same format get them, too.
    """

    format: Format
    tensors: tuple[StoredTensor, ...]
    sources: tuple[Source, ...]
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        """Reject tensor names that are not valid UTF-8. Names in HDF5 files may have any bytes."""
        try:
            "".join(iter_field(self.tensors, "name")).encode()
        except UnicodeEncodeError:
            names = iter_field(self.tensors, "name")
            name = next(name for name in names if name.encode(errors="replace").decode() != name)
            raise FileError(
                f"{self.sources[0].name}: the tensor name {shown(name)} is not valid UTF-8"
            ) from None

    def get_tensor(self, name: str | None) -> StoredTensor:
        """Return the tensor with a name or, for None, the only tensor.

        Raises:
            FileError: there is no such tensor, or None was passed and there are several.
        """
        file = self.sources[0].name
        if name is None:
            if len(self.tensors) == 1:
                return self.tensors[0]
            if not self.tensors:
                raise FileError(f"{file} has no tensors")
            raise FileError(
                f"{file} has {len(self.tensors)} tensors. Choose one with --tensor: {self._list_names()}"
            )
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise FileError(f"{file} has no tensor {shown(name)}; it has {self._list_names() or 'none'}")

    def _list_names(self) -> str:
        names = [shown(tensor.name) for tensor in self.tensors[:8]]
        return format_list(names, len(self.tensors))


@dataclass(frozen=True, slots=True)
class TargetFile:
    """A file to be written.

    Attributes:
        name: name in the target folder.
        size: size in bytes; 0 if only the run knows it.
        literals: bytes that belong to no tensor, with their offsets.
        scratch: whether it is a temporary file for ``finish`` of the layout.
        folder: whether it is a folder, such as a zarr array.
        copied: name of the original in messages, if the file is a copy of one.
    """

    name: str
    size: int
    literals: tuple[tuple[int, bytes], ...] = ()
    scratch: bool = False
    folder: bool = False
    copied: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """Files for given tensors, and the place of each tensor in them.

    Attributes:
        files: the files.
        places: one row per tensor, in the given order: index of the file, and offset in it.
        finish: called with the paths of the files after all tensors are copied, to write what depends on
            their bytes, such as checksums. It is repeatable. None if there is nothing to do.
        check: called with the same paths after that if the run verifies, to read the files back with another
            reader. Raises a :class:`FileError` if the files do not have the right tensors.
    """

    files: tuple[TargetFile, ...]
    places: Table
    finish: Callable[[Sequence[Path]], None] | None = None
    check: Callable[[Sequence[Path]], None] | None = None


def make_places(found: Iterable[tuple[int, int]]) -> Table:
    """Build the ``places`` of a :class:`Layout` from pairs of a file index and an offset."""
    return np.array([*found], np.int64).reshape(-1, 2)


class Format(Protocol):
    """A file format, which reads tensor files and lays out new ones."""

    @property
    def name(self) -> str:
        """Name of the format in messages and options."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """File extensions in lower case; the first is the usual one."""
        ...

    def read(self, source: Source) -> Contents:
        """Read the contents of a file, without the bytes of its tensors.

        The file is not trusted: every tensor is checked to be inside its file.

        Raises:
            FileError: the file is malformed.
        """
        ...

    def adapt(self, tensor: StoredTensor) -> StoredTensor:
        """Describe how this format stores a tensor, which may come from a file of any format.

        Its ``code`` is this format's name for the element type.

        Raises:
            FileError: the format does not support the type or the memory order.
        """
        ...

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        """Lay out new files for tensors.

        Args:
            tensors: tensors that :meth:`adapt` returned. Their places are those in the source, not in the new
                files.
            like: contents that the tensors come from. If it has this format, its metadata is copied.
            name: name of the file. Names of further files, such as data files of ONNX, are made from it.

        Raises:
            FileError: the format does not support the tensors.
        """
        ...


@runtime_checkable
class ShardedFormat(Format, Protocol):
    """A format that can spread tensors over several files, with each tensor in one file."""

    def read_all_shards(self, source: Source) -> Contents:
        """Read all files of a sharded checkpoint, given its index or a numbered file, in GGUF the first one.

        Raises:
            FileError: a file is missing or malformed, or the files do not match.
        """
        ...

    def describe_shard(self, like: Contents, number: int, count: int) -> Contents:
        """Return contents with the metadata for file ``number`` (from 0) of ``count`` new files."""
        ...

    def compute_max_entry_bytes(self, tensor: StoredTensor, like: Contents) -> int:
        """Return the maximum number of bytes that a tensor needs in a file in addition to its elements."""
        ...

    def make_index(self, stem: str, where: Mapping[str, str], total: int) -> TargetFile | None:
        """Make the index file, or return None if the format has none.

        Args:
            stem: start of the file names.
            where: file name of each tensor.
            total: size of all tensors in bytes.
        """
        ...


@cache
def get_format(name: str) -> Format:
    """Return a format, given its name.

    Raises:
        FileError: there is no such format.

    Examples:
        >>> get_format("npy").suffixes
        ('.npy',)
    """
    if name not in (*FORMATS, *WRITTEN):
        raise FileError(f"unknown format {shown(name)}: use {', '.join(FORMATS)} or raw")
    found: Format = import_module(f"{__name__}.{name}").FORMAT
    return found


def to_format(form: Format | str | None) -> Format | None:
    """Return the format with a name. A format or None is returned unchanged."""
    return get_format(form) if isinstance(form, str) else form


def detect_format(path: Path) -> Format:
    """Return the format of a file, judged by its name.

    Raises:
        FileError: no format has its extension.
    """
    found = _find_by_ending(path)
    if found is None:
        advice = advise_on_pickles([path.name]) or "Read other files with --raw"
        raise FileError(f"{shown(path.name)} does not end with one of {_list_endings()}. {advice}")
    return found


def has_format(path: Path) -> bool:
    """Return whether a file name has the extension of a format."""
    return _find_by_ending(path) is not None


def choose_format(path: Path, to: Format | None, source: Format | None = None) -> Format:
    """Choose the format of a file that will be written.

    Args:
        path: the file.
        to: the requested format, which takes precedence over the name.
        source: format of the source. Raw bytes may have any extension that belongs to no other format.

    Raises:
        FileError: neither ``to`` nor the name determines the format, or the format cannot be written.
    """
    found = to or _find_by_ending(path)
    if found is None and (path.name.lower().endswith(".bin") or (source and source.name == "raw")):
        found = source if source and source.name == "raw" else get_format("raw")
    if found is None:
        raise FileError(
            f"unknown format for {shown(path.name)}: use a name that ends with one of "
            f"{_list_endings(WRITTEN)}, or choose the format with --to (in Python: to=)"
        )
    if found.name not in WRITTEN:
        raise FileError(
            f"{shown(path.name)}: {found.name} cannot be written. Choose another format with --to"
        )
    if to is None and path.name.lower().endswith(".json"):
        raise FileError(f"{shown(path.name)} is the name of an index, not of a file with tensors")
    return found


def _find_by_ending(path: Path) -> Format | None:
    ending = path.name.lower()
    formats = (get_format(name) for name in FORMATS)
    return next((found for found in formats if ending.endswith(found.suffixes)), None)


def _list_endings(names: Sequence[str] = FORMATS) -> str:
    return ", ".join(get_format(name).suffixes[0] for name in names)
