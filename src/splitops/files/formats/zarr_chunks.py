"""The chunks of a zarr 3 array as they are stored, a file each, and the checksums in them.

A part has the description of its source but for the shape, so the chunks of both are coded alike.

Source: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html, the codecs ``sharding_indexed`` and
``crc32c`` beside it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.errors import FileError, ModelError, shown, shown_path
from splitops.files.boxes import Box
from splitops.files.tensors import StoredTensor
from splitops.ground.reading import read_whole

_DESCRIPTION: Final = "zarr.json"
_MAX_DESCRIPTION: Final = 64 << 20
_CRC_BYTES: Final = 4
_ABSENT: Final = (1 << 64) - 1
"""Offset and size of an inner chunk that a shard does not hold."""


def chunks_of(array: Any) -> tuple[int, ...] | None:
    """Return the shape of an array's chunks, or shards; None where they cannot be copied as they are."""
    description = array.metadata.to_dict()
    if description["zarr_format"] != 3 or description.get("storage_transformers"):
        return None
    return outer_chunks(array) if description["chunk_grid"]["name"] == "regular" else None


def create(path: Path, tensors: Sequence[StoredTensor], source: Path) -> None:
    """Make a folder with arrays that are described as those of another are, but for their shapes."""
    for tensor in tensors:
        described = _description(source / tensor.name) | {"shape": list(tensor.shape)}
        assert tensor.chunks is not None  # only what is copied chunk by chunk comes here
        described["chunk_grid"]["configuration"]["chunk_shape"] = list(tensor.chunks)
        _describe(path / tensor.name, described)
        for folder in Path(tensor.name).parents if tensor.name else ():
            # The copy of the descriptions of its members would be wrong for a part.
            group = _description(source / folder)
            _describe(path / folder, {k: v for k, v in group.items() if k != "consolidated_metadata"})


def _description(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_whole(folder / _DESCRIPTION, limit=_MAX_DESCRIPTION))
    except (ModelError, ValueError, RecursionError) as error:
        raise FileError(f"{shown_path(folder)} is not an array or group of zarr 3: {error}") from error
    if not isinstance(found, dict):
        raise FileError(f"{shown_path(folder / _DESCRIPTION)} is not a description: {shown(found)}")
    return found


def _describe(folder: Path, description: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DESCRIPTION).write_text(json.dumps(description, indent=2))


def outer_chunks(array: Any) -> tuple[int, ...]:
    """Return the shape of the blocks in which an array is stored: its shards, or else its chunks."""
    return without_zeros(array.shards or array.chunks)


def without_zeros(chunks: Iterable[int]) -> tuple[int, ...]:
    """Return the shape of chunks that hold something: along axes of size 0, arrays may state 0."""
    return tuple(max(1, size) for size in chunks)


class ZarrArray:
    """See :class:`splitops.files.chunks.ChunkedArray`."""

    def __init__(self, folder: Path, array: Any) -> None:
        self._folder, self._array = folder, array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.chunks = outer_chunks(array)
        self.written: list[Path] = []
        description = _description(folder)
        self._codecs: list[dict[str, Any]] = description["codecs"]
        keys = ("data_type", "fill_value", "chunk_grid", "codecs")
        self.coding = json.dumps([description[k] for k in keys]) if _provable(self._codecs) else None

    def read(self, box: Box) -> npt.NDArray[Any]:
        """See :class:`splitops.files.chunks.ChunkedArray`."""
        return np.asarray(self._array[box])

    def write(self, box: Box, elements: npt.NDArray[Any]) -> None:
        """See :class:`splitops.files.chunks.ChunkedArray`."""
        self._array[box] = elements
        index = tuple(side.start // chunk for side, chunk in zip(box, self.chunks, strict=True))
        if (path := self._path(index)).exists():  # chunks of nothing but fill values are not stored
            self.written.append(path)

    def stored(self, index: tuple[int, ...]) -> bytes | None:
        """See :class:`splitops.files.chunks.ChunkedArray`."""
        path = self._path(index)
        if not path.exists():
            return None
        data = path.read_bytes()
        if not _proved(data, self._codecs, self.chunks):
            raise FileError(f"cannot read {shown_path(path)}: its CRC-32C is not that of its bytes")
        return data

    def store(self, index: tuple[int, ...], data: bytes) -> None:
        """See :class:`splitops.files.chunks.ChunkedArray`."""
        path = self._path(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.written.append(path)

    def _path(self, index: tuple[int, ...]) -> Path:
        return self._folder / str(self._array.metadata.encode_chunk_key(index))


# Checksums ----------------------------------------------------------------------------------------------


def _provable(codecs: Sequence[dict[str, Any]]) -> bool:
    """Return whether the checksums of a chunk, if it has any, can be found without decoding it."""
    names = [codec["name"] for codec in codecs]
    if "sharding_indexed" in names:
        return len(names) == 1 and _index_of(codecs[0]) is not None
    return "crc32c" not in names[:-1]


def _index_of(codec: dict[str, Any]) -> str | None:
    """Return where the index of a shard is; None where it is not coded as usual."""
    found = codec["configuration"]
    names = [each["name"] for each in found["index_codecs"]]
    little = found["index_codecs"][0].get("configuration", {}).get("endian", "little") == "little"
    if names != ["bytes", "crc32c"] or not little or not _provable(found["codecs"]):
        return None
    return str(found.get("index_location", "end"))


def _proved(data: bytes, codecs: Sequence[dict[str, Any]], shape: Sequence[int]) -> bool:
    """Return whether the checksums in a chunk are those of its bytes."""
    last = codecs[-1]
    if last["name"] == "crc32c":
        import google_crc32c  # zarr-python needs it, too

        body, found = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
        return len(found) == _CRC_BYTES and google_crc32c.value(body) == int.from_bytes(found, "little")
    if last["name"] != "sharding_indexed":
        return True
    configuration = last["configuration"]
    inner = configuration["chunk_shape"]
    count = math.prod(size // chunk for size, chunk in zip(shape, inner, strict=True))
    size = 16 * count + _CRC_BYTES
    index = data[:size] if _index_of(last) == "start" else data[-size:]
    if len(index) != size or not _proved(index, [{"name": "crc32c"}], ()):
        return False
    places = np.frombuffer(index, "<u8", 2 * count).reshape(-1, 2)
    for offset, length in places.tolist():
        if (offset, length) == (_ABSENT, _ABSENT):
            continue
        inside = offset + length <= len(data)
        if not inside or not _proved(data[offset : offset + length], configuration["codecs"], inner):
            return False
    return True
