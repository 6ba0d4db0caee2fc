"""Access to the tensors of one rank: memory-mapped, as NumPy arrays or PyTorch tensors."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.common.untrusted_files import DataFolder
from splitops.errors import ArrayError, FileError, PlanError, shown_path
from splitops.files.formats import Contents, get_format
from splitops.files.lazy import LazyTensor, TensorFile
from splitops.files.sources import LocalFile, Source
from splitops.files.tensors import StoredTensor
from splitops.sharding.checkpoint import read_checkpoint
from splitops.sharding.documents import read_inside
from splitops.sharding.layouts.hf import make_folder_name
from splitops.sharding.manifest import MARK


class RankTensor(LazyTensor):
    """A memory-mapped tensor of a rank. Slices of it are lazy tensors.

    Attributes:
        stored: name, type, shape and place of the tensor.
    """

    __slots__ = ("_mapped",)

    def __init__(self, source: Source, stored: StoredTensor, mapped: mmap.mmap) -> None:
        super().__init__(source, stored)
        self._mapped = mapped

    def numpy(self) -> npt.NDArray[Any]:
        """Return a read-only view of the mapped file, or a new array if there are no elements.

        Raises:
            FileError: NumPy has no dtype for the elements.
        """
        dtype, count = self.stored.dtype, self.size
        if dtype is None:
            raise FileError(f"NumPy has no dtype for {self.stored.label} of type {self.stored.code}")
        if not count:
            return np.empty(self.shape, dtype)
        found = np.frombuffer(self._mapped, dtype, count, self.stored.offset).reshape(self.shape)
        found.flags.writeable = False
        return found

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the result of :meth:`numpy`, converted and copied if requested."""
        return np.array(self.numpy(), dtype, copy=copy)

    def torch(self) -> Any:
        """Return a ``torch.Tensor`` backed by the mapped file, or a new one if there are no elements.

        Writing to it changes the memory, but not the file.

        Raises:
            ArrayError: PyTorch has not been imported, or has no dtype for the elements.
        """
        library = sys.modules.get("torch")
        if library is None:
            raise ArrayError("torch has not been imported: import it first")
        dtype = getattr(library, str(self.stored.element_type), None)
        if dtype is None:
            raise ArrayError(f"torch has no dtype for {self.stored.label} of type {self.stored.code}")
        count = self.size
        if not count:
            return library.empty(self.shape, dtype=dtype)
        return library.frombuffer(self._mapped, dtype=dtype, count=count, offset=self.stored.offset).reshape(
            self.shape
        )


class Rank(TensorFile):
    """The tensors of one shard rank, keyed by name.

    Attributes:
        folder: folder of the rank.
        config: content of its ``config.json``.
    """

    def __init__(self, folder: Path, *, allow_links: bool = False) -> None:
        found = read_checkpoint(folder, allow_links=allow_links)
        super().__init__(Contents(get_format("safetensors"), found.tensors, found.sources))
        self.folder, self.config = folder, found.config
        self._maps = [_map(source.find_local()) for source in found.sources]

    def __getitem__(self, name: str) -> RankTensor:
        stored = self._stored[name]
        return RankTensor(self.contents.sources[stored.file], stored, self._maps[stored.file])

    def __repr__(self) -> str:
        return f"Rank({self.folder.name!r}, {len(self)} tensors)"


def _map(file: LocalFile | None) -> mmap.mmap:
    assert file is not None  # the files of a rank are local
    try:
        return mmap.mmap(file.descriptor, 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise FileError(f"cannot map {file.name}: {(error.strerror or str(error)).lower()}") from error


def rank(path: str | os.PathLike[str], number: int, *, allow_links: bool = False) -> Rank:
    """Open one rank in a folder that ``splitops shard`` has written with the layout ``hf``.

    The files of other ranks are not read, and may be on other machines. The files must not change while
    tensors are in use.

    Args:
        path: folder of the ranks.
        number: number of the rank, from 0.
        allow_links: whether links may lead out of the folder.

    Returns:
        A mapping of names to memory-mapped tensors. ``numpy()`` of a tensor returns a read-only view, and
        ``torch()`` returns a PyTorch tensor.

    Raises:
        PlanError: there is no such rank.
        FileError: a file of the rank is missing or malformed.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np, splitops
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.save(folder / "w.npy", np.arange(6.0).reshape(3, 2))
        >>> form = splitops.files.get_format("safetensors")
        >>> _ = splitops.files.merge([folder / "w.npy"], folder / "model.safetensors", to=form)
        >>> everything = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
        >>> _ = splitops.sharding.plan(folder, everything, ranks=2).run(folder / "ranks")
        >>> [tensor.numpy().tolist() for tensor in splitops.sharding.rank(folder / "ranks", 1).values()]
        [[[4.0, 5.0]]]
    """
    folder = Path(path)
    found = sorted(folder.glob(f"rank-{number:05}-of-*")) if number >= 0 else []
    if len(found) != 1:
        what = "no folder" if not found else "more than one folder"
        raise PlanError(
            f"{shown_path(folder)} contains {what} of rank {number}, such as {make_folder_name(number, 8)}"
        )
    mark = read_inside(DataFolder(found[0], allow_links), MARK, limit=1 << 16)
    if not isinstance(mark, dict) or mark.get("rank") != number:
        raise PlanError(f"{shown_path(found[0])} does not belong to rank {number}, according to its {MARK}")
    return Rank(found[0], allow_links=allow_links)
