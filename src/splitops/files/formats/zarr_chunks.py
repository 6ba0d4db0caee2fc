"""The encoded chunks of a zarr 3 array, one file each, and the checksums in them.

A part has the metadata of its source except the shape, so that both encode chunks in the same way. A part
that is narrower than a chunk gets narrower chunks, unless it is a last chunk that can be copied undecoded, or
a codec around shards may transpose them. An attribute then records the chunks before the split, and a merge
restores them.

Source: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html, and its pages on the codecs
``sharding_indexed`` and ``crc32c``.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from splitops.common.documents import parse_json
from splitops.common.untrusted_files import DataFolder, read_open_file
from splitops.errors import FileError, ModelError, shown, shown_path
from splitops.files.boxes import Box
from splitops.files.tensors import StoredTensor

_DESCRIPTION: Final = "zarr.json"
MAX_DESCRIPTION: Final = 64 << 20
"""Maximum bytes of a metadata document."""
_CHUNK_OVERHEAD: Final = 1 << 20
"""Maximum bytes of a stored chunk beyond twice the bytes of its elements."""
_INNER_OVERHEAD: Final = 128
"""Maximum bytes for each inner chunk of a shard in addition to its elements, including its index entry."""
_CRC_BYTES: Final = 4
_ABSENT: Final = (1 << 64) - 1
"""Offset and size of an inner chunk that is not stored."""
_RECORDS: Final = "splitops.chunks_before_split"
"""Name of the zarr attribute in which a part records its chunk shapes before each split, latest last."""

Levels: TypeAlias = tuple[tuple[int, ...], ...]
"""Chunk shapes from the outside in: of the shards, if there are any, then of the chunks in them."""


def find_chunks(array: Any) -> tuple[int, ...] | None:
    """Return the shape of an array's shards or chunks, or None if their bytes cannot be copied."""
    description = array.metadata.to_dict()
    if description["zarr_format"] != 3 or description.get("storage_transformers"):
        return None
    return get_outer_chunks(array) if description["chunk_grid"]["name"] == "regular" else None


def create(path: Path, tensors: Sequence[StoredTensor], source: DataFolder) -> None:
    """Create an array for each tensor, with the metadata of its array in ``source`` except the shapes."""
    for tensor in tensors:
        described = _read_description(source, tensor.name)
        assert tensor.chunks is not None  # the caller copies chunk by chunk
        places, levels = _find_grids(described), _get_levels(described)
        levels, attributes = rechunk(
            levels,
            described.get("attributes", {}),
            described["shape"],
            tensor.shape,
            narrow=tensor.chunks != levels[0],
        )
        for place, shape in zip(places, (tensor.chunks, *levels[1:]), strict=True):
            place["chunk_shape"] = list(shape)
        if "attributes" in described or attributes:
            described["attributes"] = attributes
        _write_description(path / tensor.name, described | {"shape": list(tensor.shape)})
        for folder in Path(tensor.name).parents if tensor.name else ():
            # Consolidated metadata describes the arrays of the source, so it is wrong for a part.
            group = _read_description(source, folder.as_posix())
            _write_description(
                path / folder, {k: v for k, v in group.items() if k != "consolidated_metadata"}
            )


def choose_chunks(
    tensor: StoredTensor, before: StoredTensor, source: DataFolder, offset: int
) -> tuple[int, ...]:
    """Return the shape of the outer chunks of a target that gets the metadata of the array ``before``.

    A part begins at index ``offset`` of the split axis. Raise FileError if the metadata is inconsistent.
    """
    described = _read_description(source, before.name)
    levels = _get_levels(described)
    if tuple(described["shape"]) != before.shape or levels[0] != before.chunks:
        raise FileError(
            f"{shown_path(source.path / before.name)}: the shape or the chunks of this array differ between "
            "its zarr.json and the metadata of its group. Call zarr.consolidate_metadata() on the group first"
        )
    attributes = described.get("attributes", {})
    as_stored = _can_check(described["codecs"]) and _is_last_chunk(tensor, before, offset)
    narrow = not as_stored and _can_read_levels(described)
    return rechunk(levels, attributes, before.shape, tensor.shape, narrow=narrow)[0][0]


def _is_last_chunk(part: StoredTensor, whole: StoredTensor, offset: int) -> bool:
    """Return whether a part, which begins at ``offset``, is exactly the last chunk or chunks of an axis."""
    assert whole.chunks is not None
    return any(
        0 < size < before and offset % chunk == 0 and offset + size == before
        for size, before, chunk in zip(part.shape, whole.shape, whole.chunks, strict=True)
    )


def rechunk(
    levels: Levels, attributes: Any, before: Sequence[int], after: Sequence[int], *, narrow: bool = True
) -> tuple[Levels, dict[str, Any]]:
    """Return the chunk shapes and the attributes for the target of a split or merge.

    ``levels``, ``attributes`` and the shape ``before`` are those of the array whose metadata the target gets.
    Its shape ``after`` is smaller along one axis for a part, larger for a merge. With ``narrow``, the chunks
    of a part may become narrower.
    """
    if not isinstance(attributes, dict):
        raise ValueError(f"the attributes are not an object: {shown(attributes)}")
    records = _read_records(attributes, levels)
    axis = next((i for i, sizes in enumerate(zip(before, after, strict=True)) if sizes[0] != sizes[1]), None)
    if axis is None:
        return levels, attributes
    if after[axis] < before[axis]:
        narrowed = _narrow(levels, axis, after[axis]) if narrow else levels
        if narrowed != levels or records:
            records = [*records, {"axis": axis, "chunk_shapes": [list(shape) for shape in levels]}]
        levels = narrowed
    elif records and records[-1]["axis"] == axis:
        levels = tuple(tuple(shape) for shape in records[-1]["chunk_shapes"])
        records = records[:-1]
    others = {key: value for key, value in attributes.items() if key != _RECORDS}
    return levels, others | ({_RECORDS: records} if records else {})


def _narrow(levels: Levels, axis: int, size: int) -> Levels:
    """Limit chunks to ``size`` along an axis. A shard stays a whole number of chunks."""
    made: list[tuple[int, ...]] = []
    inner = 1
    for shape in reversed(levels):
        inner = -(-max(1, min(shape[axis], size)) // inner) * inner
        made.insert(0, (*shape[:axis], inner, *shape[axis + 1 :]))
    return tuple(made)


def _read_records(attributes: dict[str, Any], levels: Levels) -> list[dict[str, Any]]:
    """Return the records of the chunks before each split. Raise ValueError if the last one is malformed."""
    found = attributes.get(_RECORDS, [])
    if not isinstance(found, list) or (found and not _is_record(found[-1], levels)):
        raise ValueError(
            f"the attribute {_RECORDS} does not match the chunks {levels}: {shown(json.dumps(found), 200)}"
        )
    return found


def _is_record(found: Any, levels: Levels) -> bool:
    if not isinstance(found, dict) or set(found) != {"axis", "chunk_shapes"}:
        return False
    axis, shapes = found["axis"], found["chunk_shapes"]
    if type(axis) is not int or not 0 <= axis < len(levels[0]) or not isinstance(shapes, list):
        return False
    if len(shapes) != len(levels):
        return False
    for shape, level in zip(shapes, levels, strict=True):
        if not isinstance(shape, list) or len(shape) != len(level):
            return False
        if any(type(size) is not int for size in shape) or shape[axis] < level[axis]:
            return False
        if (*shape[:axis], *shape[axis + 1 :]) != (*level[:axis], *level[axis + 1 :]):
            return False
    return all(outer[axis] % inner[axis] == 0 for outer, inner in pairwise(shapes))


def read_levels(folder: DataFolder, name: str) -> Levels:
    """Return the chunk shapes of an array in a folder, from its metadata document."""
    return _get_levels(_read_description(folder, name))


def _get_levels(description: dict[str, Any]) -> Levels:
    """Return the chunk shapes in the metadata of an array."""
    return tuple(replace_zeros(place["chunk_shape"]) for place in _find_grids(description))


def _find_grids(description: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of the metadata that have a ``chunk_shape``, from the outside in."""
    places, codecs = [description["chunk_grid"]["configuration"]], description["codecs"]
    while codecs[0]["name"] == "sharding_indexed":
        places.append(codecs[0]["configuration"])
        codecs = places[-1]["codecs"]
    return places


def _can_read_levels(description: dict[str, Any]) -> bool:
    """Return whether all chunk shapes are known: no shards are inside a codec that may transpose them."""
    codecs = _find_grids(description)[-1].get("codecs", description["codecs"])
    return all(codec["name"] != "sharding_indexed" for codec in codecs)


@contextlib.contextmanager
def open_inside(folder: DataFolder, key: str) -> Iterator[BinaryIO | None]:
    """Open the file at the path ``key`` in a folder. Yield it, or None if it does not exist."""
    try:
        file = folder.open(key)
    except ModelError as error:
        if not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise FileError(f"{shown_path(folder.path)}: {error.message.partition(';')[0]}") from error
        yield None
        return
    with file:
        yield file


def _read_description(folder: DataFolder, name: str) -> dict[str, Any]:
    path = folder.path / name
    try:
        found = parse_json(folder.read((Path(name) / _DESCRIPTION).as_posix(), limit=MAX_DESCRIPTION))
    except ValueError as error:  # includes ModelError
        raise FileError(f"{shown_path(path)} is not an array or group of zarr 3: {error}") from error
    if not isinstance(found, dict):
        raise FileError(f"{shown_path(path / _DESCRIPTION)} is not a JSON object: {shown(found)}")
    return found


def _write_description(folder: Path, description: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DESCRIPTION).write_text(json.dumps(description, indent=2))


def get_outer_chunks(array: Any) -> tuple[int, ...]:
    """Return the shape of the shards of an array or, without shards, of its chunks. A size of 0 becomes 1."""
    return replace_zeros(array.shards or array.chunks)


def compute_max_bytes(array: Any) -> int:
    """Return the maximum size in bytes of a stored chunk (or shard) of an array."""
    outer = get_outer_chunks(array)
    inner: int = math.prod(-(-size // max(1, chunk)) for size, chunk in zip(outer, array.chunks, strict=True))
    return 2 * math.prod(outer) * int(array.dtype.itemsize) + _INNER_OVERHEAD * inner + _CHUNK_OVERHEAD


def replace_zeros(chunks: Iterable[int]) -> tuple[int, ...]:
    """Replace chunk sizes of 0, which arrays may declare along an axis of size 0, with 1."""
    return tuple(max(1, size) for size in chunks)


class ZarrArray:
    """See :class:`splitops.files.chunk_tasks.ChunkedArray`."""

    def __init__(self, folder: DataFolder, name: str, array: Any) -> None:
        self._folder, self._name, self._array = folder, name, array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.chunks = get_outer_chunks(array)
        self.written: list[Path] = []
        description = _read_description(folder, name)
        self._codecs: list[dict[str, Any]] = description["codecs"]
        keys = ("data_type", "fill_value", "chunk_grid", "codecs")
        self.coding = json.dumps([description[k] for k in keys]) if _can_check(self._codecs) else None

    def read(self, box: Box) -> npt.NDArray[Any]:
        """See :class:`splitops.files.chunk_tasks.ChunkedArray`."""
        return np.asarray(self._array[box])

    def write(self, box: Box, elements: npt.NDArray[Any]) -> None:
        """See :class:`splitops.files.chunk_tasks.ChunkedArray`."""
        self._array[box] = elements
        index = tuple(side.start // chunk for side, chunk in zip(box, self.chunks, strict=True))
        if (path := self._find_path(index)).exists():  # chunks of nothing but fill values are not stored
            self.written.append(path)

    def read_stored(self, index: tuple[int, ...]) -> bytes | None:
        """See :class:`splitops.files.chunk_tasks.ChunkedArray`."""
        path = self._find_path(index)
        with open_inside(self._folder, path.relative_to(self._folder.path).as_posix()) as file:
            if file is None:
                return None
            data = bytes(read_open_file(file, path, limit=compute_max_bytes(self._array)))
        if not _has_valid_checksums(data, self._codecs, self.chunks):
            raise FileError(f"cannot read {shown_path(path)}: its CRC-32C does not match its bytes")
        return data

    def store(self, index: tuple[int, ...], data: bytes) -> None:
        """See :class:`splitops.files.chunk_tasks.ChunkedArray`."""
        path = self._find_path(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.written.append(path)

    def _find_path(self, index: tuple[int, ...]) -> Path:
        return self._folder.path / self._name / str(self._array.metadata.encode_chunk_key(index))


# Checksums ----------------------------------------------------------------------------------------------


def _can_check(codecs: Sequence[dict[str, Any]]) -> bool:
    """Return whether the checksums of a chunk, if it has any, can be checked without decoding it."""
    names = [codec["name"] for codec in codecs]
    if "sharding_indexed" in names:
        return len(names) == 1 and _index_of(codecs[0]) is not None
    return "crc32c" not in names[:-1]


def _index_of(codec: dict[str, Any]) -> str | None:
    """Return the position of a shard's index, ``"start"`` or ``"end"``, or None if its codecs are unusual."""
    found = codec["configuration"]
    names = [each["name"] for each in found["index_codecs"]]
    little = found["index_codecs"][0].get("configuration", {}).get("endian", "little") == "little"
    if names != ["bytes", "crc32c"] or not little or not _can_check(found["codecs"]):
        return None
    return str(found.get("index_location", "end"))


def _has_valid_checksums(data: bytes, codecs: Sequence[dict[str, Any]], shape: Sequence[int]) -> bool:
    """Return whether all checksums in an encoded chunk of shape ``shape`` match its bytes."""
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
    if len(index) != size or not _has_valid_checksums(index, [{"name": "crc32c"}], ()):
        return False
    places = np.frombuffer(index, "<u8", 2 * count).reshape(-1, 2)
    for offset, length in places.tolist():
        if (offset, length) == (_ABSENT, _ABSENT):
            continue
        inside = offset + length <= len(data)
        if not inside or not _has_valid_checksums(
            data[offset : offset + length], configuration["codecs"], inner
        ):
            return False
    return True
