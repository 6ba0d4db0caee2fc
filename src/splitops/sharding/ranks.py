"""The tensors of one rank: mapped files, as arrays of NumPy, and of PyTorch if it is loaded."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.errors import ArrayError, FileError, PlanError, shown_path
from splitops.files.formats import Contents, get_format
from splitops.files.lazy import LazyTensor, TensorFile
from splitops.files.sources import LocalFile, Source
from splitops.files.tensors import StoredTensor
from splitops.ground.reading import DataFolder
from splitops.sharding.checkpoint import read_checkpoint
from splitops.sharding.documents import read_inside
from splitops.sharding.layouts.hf import folder_name
from splitops.sharding.manifest import MARK


class RankTensor(LazyTensor):
    """A tensor of a rank, mapped as a whole; a box of it is a lazy tensor like those of other files.

    Attributes:
        stored: its name, type and shape, and where its bytes are.
    """

    __slots__ = ("_mapped",)

    def __init__(self, source: Source, stored: StoredTensor, mapped: mmap.mmap) -> None:
        super().__init__(source, stored)
        self._mapped = mapped

    def numpy(self) -> npt.NDArray[Any]:
        """Return a read-only view of the mapped file.

        Raises:
            FileError: no array holds its elements.
        """
        dtype, count = self.stored.dtype, self.size
        if dtype is None:
            raise FileError(
                f"{self.stored.label} is of type {self.stored.code}, whose elements no array holds"
            )
        if not count:
            return np.empty(self.shape, dtype)
        found = np.frombuffer(self._mapped, dtype, count, self.stored.offset).reshape(self.shape)
        found.flags.writeable = False
        return found

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return :meth:`numpy`, or a copy."""
        found = self.numpy()
        return found.astype(dtype or found.dtype, copy=bool(copy))

    def torch(self) -> Any:
        """Return a ``torch.Tensor`` of the mapped file; what is written to it stays in memory.

        Raises:
            ArrayError: PyTorch is not loaded, or has no such type.
        """
        library = sys.modules.get("torch")
        if library is None:
            raise ArrayError("torch is not loaded: import it first")
        dtype = getattr(library, str(self.stored.element_type), None)
        if dtype is None:
            raise ArrayError(f"{self.stored.label} is of type {self.stored.code}, which torch does not have")
        count = self.size
        if not count:
            return library.empty(self.shape, dtype=dtype)
        return library.frombuffer(self._mapped, dtype=dtype, count=count, offset=self.stored.offset).reshape(
            self.shape
        )


class Rank(TensorFile):
    """The tensors of a rank by name.

    Attributes:
        folder: where they are.
        config: what its ``config.json`` says.
    """

    def __init__(self, folder: Path, *, allow_links: bool = False) -> None:
        found = read_checkpoint(folder, allow_links=allow_links)
        super().__init__(Contents(get_format("safetensors"), found.tensors, found.sources))
        self.folder, self.config = folder, found.config
        self._maps = [_mapped(source.find_local()) for source in found.sources]

    def __getitem__(self, name: str) -> RankTensor:
        stored = self._stored[name]
        return RankTensor(self.contents.sources[stored.file], stored, self._maps[stored.file])

    def __repr__(self) -> str:
        return f"Rank({self.folder.name!r}, {len(self)} tensors)"


def _mapped(file: LocalFile | None) -> mmap.mmap:
    assert file is not None  # safetensors of a folder
    try:
        return mmap.mmap(file.descriptor, 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise FileError(f"cannot map {file.name}: {(error.strerror or str(error)).lower()}") from error


def rank(path: str | os.PathLike[str], number: int, *, allow_links: bool = False) -> Rank:
    """Open one rank of a folder that ``splitops shard`` wrote with the layout ``hf``.

    It does not read the files of the other ranks, which may be on other machines. As long as tensors are in
    use, the files must stay as they are.

    Args:
        path: the folder of the ranks.
        number: the rank, from 0 on.
        allow_links: whether links in the folder may lead out of it.

    Returns:
        A mapping of names to tensors, which map the rank's files: ``numpy()`` gives a read-only view,
        ``torch()`` a tensor.

    Raises:
        PlanError: there is no such rank.
        FileError: a file of it is missing or malformed.

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
            f"{shown_path(folder)} holds {what} of rank {number}, such as {folder_name(number, 8)}"
        )
    mark = read_inside(DataFolder(found[0], allow_links), MARK, limit=1 << 16)
    if not isinstance(mark, dict) or mark.get("rank") != number:
        raise PlanError(f"{shown_path(found[0])} is not of rank {number} by its {MARK}")
    return Rank(found[0], allow_links=allow_links)
