"""GGUF: keys and values, a table of tensors, then their data, with each tensor aligned.

GGUF declares shapes with the fastest axis first; here they are reversed. Quantised types are stored in
blocks, and a split inside a block is rejected. A model in several files, such as ``m-00001-of-00003.gguf``,
is opened through its first file.

Source: ``docs/gguf.md`` of https://github.com/ggml-org/ggml and the tables of its package ``gguf``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from splitops.errors import FileError, shown
from splitops.files.folders import PIECE, name_piece, open_sibling
from splitops.files.formats import Contents, Layout, TargetFile, make_places
from splitops.files.sources import Source
from splitops.files.tensors import StoredTensor, Unit, to_row_major
from splitops.spec.elements.types import ELEMENT_TYPES

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_MAX_HEADER: Final = 100_000_000
"""Maximum bytes of a header, as in safetensors. The longest in use have a tenth of that, for a vocabulary."""
_MAX_ITEMS: Final = 1 << 22
"""Maximum number of items in an array of strings or arrays: ten times the largest vocabularies."""
_MAX_RANK: Final = 4
_MAX_DEPTH: Final = 8
_ALIGNMENT: Final = "general.alignment"
_DEFAULT_ALIGNMENT: Final = 32
_MAX_PIECES: Final = (1 << 16) - 1
_CHUNK: Final = 1 << 20

_STRING: Final = 8
_ARRAY: Final = 9
_WIDTHS: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value of each type except strings and arrays."""

_BLOCKS: Final = {
    number: (name, Unit(*unit))
    for number, (name, *unit) in {
        0: ("F32", 1, 4),
        1: ("F16", 1, 2),
        2: ("Q4_0", 32, 18),
        3: ("Q4_1", 32, 20),
        6: ("Q5_0", 32, 22),
        7: ("Q5_1", 32, 24),
        8: ("Q8_0", 32, 34),
        9: ("Q8_1", 32, 40),
        10: ("Q2_K", 256, 84),
        11: ("Q3_K", 256, 110),
        12: ("Q4_K", 256, 144),
        13: ("Q5_K", 256, 176),
        14: ("Q6_K", 256, 210),
        15: ("Q8_K", 256, 292),
        16: ("IQ2_XXS", 256, 66),
        17: ("IQ2_XS", 256, 74),
        18: ("IQ3_XXS", 256, 98),
        19: ("IQ1_S", 256, 50),
        20: ("IQ4_NL", 32, 18),
        21: ("IQ3_S", 256, 110),
        22: ("IQ2_S", 256, 82),
        23: ("IQ4_XS", 256, 136),
        24: ("I8", 1, 1),
        25: ("I16", 1, 2),
        26: ("I32", 1, 4),
        27: ("I64", 1, 8),
        28: ("F64", 1, 8),
        29: ("IQ1_M", 256, 56),
        30: ("BF16", 1, 2),
        34: ("TQ1_0", 256, 54),
        35: ("TQ2_0", 256, 66),
        39: ("MXFP4", 32, 17),
    }.items()
}
_NUMBERS: Final = {name: number for number, (name, _) in _BLOCKS.items()}
_ELEMENTS: Final = {
    code: ELEMENT_TYPES[name]
    for code, name in {
        "F32": "float32",
        "F16": "float16",
        "F64": "float64",
        "BF16": "bfloat16",
        "I8": "int8",
        "I16": "int16",
        "I32": "int32",
        "I64": "int64",
    }.items()
}
_CODES: Final = {element_type.name: code for code, element_type in _ELEMENTS.items()}


class _MalformedError(ValueError):
    """The file is malformed. The message does not name the file, because :func:`_read` does."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A metadata entry. ``raw`` encodes key, type and value.

    ``number`` is the value if it is an integer or a boolean, read as unsigned, otherwise None.
    """

    key: str
    raw: bytes
    number: int | None = None


class _Gguf:
    name = "gguf"
    suffixes = (".gguf",)

    def read(self, source: Source) -> Contents:
        entries, tensors = _read(source)
        sources = [source]
        numbers = {entry.key: entry.number for entry in entries}
        pieces = numbers.get("split.count") or 1
        if pieces > 1:
            for number, piece in enumerate(_open_other_pieces(source, pieces, numbers.get("split.no")), 1):
                own, more = _read(piece)
                stated = {entry.key: entry.number for entry in own}
                if (stated.get("split.no", number), stated.get("split.count", pieces)) != (number, pieces):
                    raise FileError(
                        f"{piece.name} declares that it is file {stated.get('split.no')} (from 0) of "
                        f"{stated.get('split.count')}, not file {number} of {pieces}"
                    )
                tensors += [tensor._replace(file=len(sources)) for tensor in more]
                sources.append(piece)
            wanted = numbers.get("split.tensors.count")
            if wanted not in (None, len(tensors)):
                raise FileError(
                    f"{source.name} and its other files have {len(tensors)} tensors, but declare {wanted}"
                )
        names: set[str] = set()
        for tensor in tensors:
            if tensor.name in names:
                raise FileError(f"{source.name}: {tensor.label} appears twice")
            names.add(tensor.name)
        kept = tuple(entry for entry in entries if not entry.key.startswith("split."))
        return Contents(self, tuple(tensors), tuple(sources), {"entries": kept})

    def adapt(self, tensor: StoredTensor) -> StoredTensor:
        code = tensor.code if tensor.code in _NUMBERS else _CODES.get(str(tensor.element_type))
        if len(tensor.shape) > _MAX_RANK:
            raise FileError(f"{tensor.label} has rank {len(tensor.shape)}; GGUF has at most {_MAX_RANK}")
        return to_row_major(tensor, code, "GGUF")

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        entries: tuple[_Entry, ...] = like.metadata["entries"] if like.format is self else ()
        alignment = _get_alignment(like)
        head = _MAGIC + struct.pack("<IQQ", 3, len(tensors), len(entries))
        head += b"".join(entry.raw for entry in entries)
        offsets, end = [], 0
        for tensor in tensors:
            head += _encode_string(tensor.name) + struct.pack("<I", len(tensor.shape))
            head += struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
            head += struct.pack("<IQ", _NUMBERS[tensor.code], end)
            offsets.append(end)
            end = _align(end + tensor.size, alignment)
        start = _align(len(head), alignment)
        file = TargetFile(name, start + end, ((0, head),))
        return Layout((file,), make_places((0, start + offset) for offset in offsets))

    def read_all_shards(self, source: Source) -> Contents:
        return self.read(source)

    def describe_shard(self, like: Contents, number: int, count: int) -> Contents:
        if count > _MAX_PIECES:
            raise FileError(
                f"a GGUF model has at most {_MAX_PIECES} files, but this needs {count}: set a larger size"
            )
        entries: tuple[_Entry, ...] = like.metadata["entries"] if like.format is self else ()
        if number:  # llama.cpp reads the keys of the first file only, but the alignment of each
            entries = tuple(entry for entry in entries if entry.key == _ALIGNMENT)
        keys = (
            ("no", 2, "H", number),
            ("count", 2, "H", count),
            ("tensors.count", 5, "i", len(like.tensors)),
        )
        split = [
            _Entry(
                f"split.{key}", _encode_string(f"split.{key}") + struct.pack(f"<I{form}", kind, value), value
            )
            for key, kind, form, value in keys
        ]
        return Contents(self, (), (), {"entries": (*entries, *split)})

    def compute_max_entry_bytes(self, tensor: StoredTensor, like: Contents) -> int:
        return len(tensor.name.encode()) + 24 + 8 * len(tensor.shape) + _get_alignment(like) - 1

    def make_index(self, stem: str, where: Mapping[str, str], total: int) -> TargetFile | None:
        return None


FORMAT: Final = _Gguf()


def _get_alignment(like: Contents) -> int:
    entries: tuple[_Entry, ...] = like.metadata["entries"] if like.format is FORMAT else ()
    return next((e.number for e in entries if e.key == _ALIGNMENT), None) or _DEFAULT_ALIGNMENT


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _encode_string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


class _Reader:
    """Reads a header forwards, in blocks."""

    def __init__(self, source: Source) -> None:
        self._source, self._chunk, self._begin = source, b"", 0
        self.at = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > _MAX_HEADER:
            raise _MalformedError(f"its header extends past the limit of {_MAX_HEADER} bytes")
        if end > self._source.size:
            raise _MalformedError(
                f"its header extends to byte {end}, but the file has {self._source.size} bytes"
            )
        if end > self._begin + len(self._chunk):
            self._begin = self.at
            self._chunk = self._source.read(self.at, min(max(size, _CHUNK), self._source.size - self.at))
        data = self._chunk[self.at - self._begin : end - self._begin]
        self.at = end
        return data

    def reread(self, begin: int) -> bytes:
        """Return all bytes from ``begin`` to the current position again."""
        if begin < self._begin:
            return self._source.read(begin, self.at - begin)
        return self._chunk[begin - self._begin : self.at - self._begin]

    def read_number(self, form: str) -> int:
        [value] = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))
        return int(value)

    def read_string(self) -> str:
        try:
            return self.take(self.read_number("Q")).decode()
        except UnicodeDecodeError as error:
            raise _MalformedError("a name in its header is not valid UTF-8") from error

    def skip_value(self, kind: int, depth: int = 0) -> None:
        """Skip a value of type ``kind``, which is nested in ``depth`` arrays."""
        if kind in _WIDTHS:
            self.take(_WIDTHS[kind])
        elif kind == _STRING:
            self.take(self.read_number("Q"))
        elif kind == _ARRAY and depth < _MAX_DEPTH:
            inner, count = self.read_number("I"), self.read_number("Q")
            if inner in _WIDTHS:
                self.take(_WIDTHS[inner] * count)
                return
            if count > _MAX_ITEMS:
                raise _MalformedError(
                    f"an array in its header has {count} items, more than the limit of {_MAX_ITEMS}"
                )
            for _ in range(count):
                self.skip_value(inner, depth + 1)
        else:
            raise _MalformedError(f"a value in its header has the unknown type {kind}")


def _read(source: Source) -> tuple[list[_Entry], list[StoredTensor]]:
    try:
        return _read_header(source)
    except _MalformedError as error:
        raise FileError(f"{source.name}: {error}") from error


def _read_header(source: Source) -> tuple[list[_Entry], list[StoredTensor]]:
    reader = _Reader(source)
    if source.size < 24 or reader.take(4) != _MAGIC:
        raise _MalformedError("this is not a GGUF file")
    version = reader.read_number("I")
    if version not in _VERSIONS:
        raise _MalformedError(f"GGUF version {version} is not supported, nor are big-endian files")
    tensor_count, entry_count = reader.read_number("Q"), reader.read_number("Q")
    entries: dict[str, _Entry] = {}
    for _ in _check_count(entry_count, source):
        entry = _read_entry(reader)
        if entry.key in entries:
            raise _MalformedError(f"key {shown(entry.key)} appears twice in its header")
        entries[entry.key] = entry
    alignment = entries[_ALIGNMENT].number if _ALIGNMENT in entries else _DEFAULT_ALIGNMENT
    if alignment is None:
        raise _MalformedError(f"its key {_ALIGNMENT} is not an integer")
    if not alignment or alignment & (alignment - 1):
        raise _MalformedError(f"its alignment of {alignment} is not a power of two")
    stated: dict[str, StoredTensor] = {}
    for _ in _check_count(tensor_count, source):
        tensor = _read_tensor(reader)
        if tensor.name in stated:
            raise _MalformedError(f"{tensor.label} appears twice")
        stated[tensor.name] = tensor
    start = _align(reader.at, alignment)
    tensors, end = [], 0
    for tensor in stated.values():
        if tensor.offset != end:
            raise _MalformedError(
                f"{tensor.label} begins at byte {tensor.offset} of the data, but the next free byte is {end}"
            )
        if (last := start + end + tensor.size) > source.size:
            raise _MalformedError(f"{tensor.label} ends at byte {last}, but the file has {source.size} bytes")
        tensors.append(tensor._replace(offset=start + end))
        end = _align(end + tensor.size, alignment)
    return list(entries.values()), tensors


def _check_count(count: int, source: Source) -> range:
    if count > source.size:  # each needs at least one byte
        raise _MalformedError(f"its header declares {count} entries, but the file has {source.size} bytes")
    return range(count)


def _read_entry(reader: _Reader) -> _Entry:
    begin = reader.at
    key, kind = reader.read_string(), reader.read_number("I")
    reader.skip_value(kind)
    raw, width = reader.reread(begin), _WIDTHS.get(kind)
    number = int.from_bytes(raw[-width:], "little") if width and kind not in (6, 12) else None
    return _Entry(key, raw, number)


def _read_tensor(reader: _Reader) -> StoredTensor:
    name, rank = reader.read_string(), reader.read_number("I")
    if rank > _MAX_RANK:
        raise _MalformedError(f"tensor {shown(name)} has rank {rank}; the format has at most {_MAX_RANK}")
    shape = tuple(reader.read_number("Q") for _ in range(rank))[::-1]
    number, offset = reader.read_number("I"), reader.read_number("Q")
    if number not in _BLOCKS:
        raise _MalformedError(f"tensor {shown(name)} has the unknown type {number}")
    code, unit = _BLOCKS[number]
    count = math.prod(shape)
    if count >= 1 << 63:
        raise _MalformedError(f"shape {shown(shape)} of tensor {shown(name)} has 2**63 elements or more")
    if (shape[-1] if shape else 1) % unit.elements:
        raise _MalformedError(
            f"tensor {shown(name)}: the last size of {shown(shape)} is not a multiple of {unit.elements}"
        )
    element_type = _ELEMENTS.get(code)
    dtype = element_type.numpy if element_type is not None else None
    size = count // unit.elements * unit.bytes
    return StoredTensor(name, shape, code, unit, offset, size, element_type, dtype)


def _open_other_pieces(source: Source, count: int, number: Any) -> list[Source]:
    found = PIECE.fullmatch(source.path.name)
    if number != 0 or found is None or int(found[3]) != count or int(found[2]) != 1:
        raise FileError(
            f"{source.name} is one of {count} files. Open the first, named ...-00001-of-{count:05}.gguf"
        )
    names = [name_piece(found[1], piece, count, found[4]) for piece in range(2, count + 1)]
    return [open_sibling(source, name) for name in names]
