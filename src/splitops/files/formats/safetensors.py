"""safetensors: the length of the header, the header in JSON, then the bytes of the tensors without gaps.

Every header that the reference implementation rejects is rejected. So are some that it accepts: headers with
duplicate keys, ranks above 64, space before the first brace, or entries that are arrays. Files are written as
in the reference implementation: wider types first, then by name, with the header padded to 8 bytes.

Source: the format's description and ``safetensors/src/tensor.rs`` at
https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, repeat
from json.encoder import encode_basestring as _quoted
from typing import Any, Final

import numpy as np

from splitops.common.documents import MAX_RANK, DocumentError, parse_json
from splitops.errors import FileError, brief, shown
from splitops.files.descriptors import raise_file_limit
from splitops.files.folders import INDEX, PIECE, format_index, name_piece, open_sibling, stem_of
from splitops.files.formats import Contents, Layout, TargetFile
from splitops.files.sources import Source
from splitops.files.streams import resolve_size
from splitops.files.tensors import StoredTensor, get_unit, iter_field, locate_tensors, to_row_major
from splitops.files.urls import is_url
from splitops.native.files import read_header
from splitops.spec.elements.types import ELEMENT_TYPES

_MAX_HEADER: Final = 100_000_000
_MAX_INDEX: Final = 256 << 20
_MAX_DATA: Final = (1 << 63) - 1 - _MAX_HEADER - 8
"""Maximum bytes of the tensors in a file: offsets have 63 bits."""
_ALIGNMENT: Final = 8
_METADATA: Final = "__metadata__"
_UINT64: Final = 1 << 64
_DIGITS: Final = 20
"""Maximum characters of an integer of 64 bits, including a sign."""
_ENTRY: Final = len(f',:{{"dtype":"F8_E4M3FNUZ","shape":,"data_offsets":[{_UINT64},{_UINT64}]}}')
"""Maximum bytes of the header entry of a tensor, without its name and shape."""

# In the order of the reference implementation, which writes tensors of later types first.
_TYPES: Final = {
    code: ELEMENT_TYPES[name]
    for code, name in {
        "BOOL": "bool",
        "F4": "float4_e2m1fn",
        "F6_E2M3": "float6_e2m3fn",
        "F6_E3M2": "float6_e3m2fn",
        "U8": "uint8",
        "I8": "int8",
        "F8_E5M2": "float8_e5m2",
        "F8_E4M3": "float8_e4m3fn",
        "F8_E8M0": "float8_e8m0fnu",
        "F8_E4M3FNUZ": "float8_e4m3fnuz",
        "F8_E5M2FNUZ": "float8_e5m2fnuz",
        "I16": "int16",
        "U16": "uint16",
        "F16": "float16",
        "BF16": "bfloat16",
        "I32": "int32",
        "U32": "uint32",
        "F32": "float32",
        "C64": "complex64",
        "F64": "float64",
        "I64": "int64",
        "U64": "uint64",
    }.items()
}
_CODES: Final = {element_type.name: code for code, element_type in _TYPES.items()}
_KINDS: Final = {
    code: (kind, get_unit(kind), None if kind.packed else kind.numpy) for code, kind in _TYPES.items()
}
_BITS: Final = {code: kind.bits for code, kind in _TYPES.items()}
_RANKS: Final = {code: rank for rank, code in enumerate(_TYPES)}


class _MalformedError(ValueError):
    """The header is malformed. The message does not name the file, because the caller does."""


class _Safetensors:
    name = "safetensors"
    suffixes = (".safetensors", INDEX)

    def read(self, source: Source) -> Contents:
        if source.path.name.endswith(INDEX):
            return join_contents(read_shards(source)[0], source)
        try:
            raw = _read_header(source)
            start = 8 + len(raw)
            tensors, metadata = _parse_usual(raw, start) or _parse_any(raw, start)
            _reject_other_size(tensors, start, source)
        except _MalformedError as error:
            raise FileError(f"{source.name}: {error}") from error
        return Contents(self, tuple(tensors), (source,), metadata)

    def adapt(self, tensor: StoredTensor) -> StoredTensor:
        code = tensor.code if tensor.code in _TYPES else _CODES.get(str(tensor.element_type))
        if len(tensor.shape) > MAX_RANK or _count_bits(tensor.shape, 1) is None:
            raise FileError(f"{tensor.label} has shape {brief(tensor.shape)}, which safetensors cannot have")
        return to_row_major(tensor, code, "safetensors")

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        names = list(iter_field(tensors, "name"))
        if len({_METADATA, *names}) <= len(names):
            [(twice, _)] = Counter([_METADATA, *names]).most_common(1)
            tensor = tensors[names.index(twice)]
            raise FileError(f"{shown(name)} cannot have {tensor.label}: its header has this key already")
        order = sorted(range(len(tensors)), key=names.__getitem__)  # equals the order of the UTF-8 bytes
        order.sort(key=[-_RANKS[code] for code in iter_field(tensors, "code")].__getitem__)
        ordered = [tensors[index] for index in order]
        total = sum(iter_field(ordered, "size"))
        if total > _MAX_DATA:
            raise FileError(f"{shown(name)} would have {total} bytes of tensors, more than a file can have")
        sizes = locate_tensors(ordered)[:, 2]
        ends = np.cumsum(sizes)
        begins = ends - sizes
        quoted, shapes = (
            map(_quoted, iter_field(ordered, "name")),
            map(_format_shape, iter_field(ordered, "shape")),
        )
        rows = zip(quoted, iter_field(ordered, "code"), shapes, begins.tolist(), ends.tolist(), strict=True)
        entries = [
            f'{key}:{{"dtype":"{code}","shape":{shape},"data_offsets":[{begin},{end}]}}'
            for key, code, shape, begin, end in rows
        ]
        metadata = like.metadata if like.format is self else {}
        if metadata:
            said = json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":"))
            entries.insert(0, f'"{_METADATA}":{said}')
        text = f"{{{','.join(entries)}}}".encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        if len(text) > _MAX_HEADER:
            raise FileError(
                f"{shown(name)} would have a header of {len(text)} bytes, over the limit of {_MAX_HEADER}"
            )
        start = 8 + len(text)
        head = len(text).to_bytes(8, "little") + text
        size = start + total
        made = np.zeros((len(tensors), 2), np.int64)
        made[order, 1] = start + begins
        return Layout((TargetFile(name, size, ((0, head),)),), made)

    def read_all_shards(self, source: Source) -> Contents:
        return join_contents(read_shards(source)[0], source)

    def describe_shard(self, like: Contents, number: int, count: int) -> Contents:
        return like

    def compute_max_entry_bytes(self, tensor: StoredTensor, like: Contents) -> int:
        return len(_quoted(tensor.name).encode()) + len(_format_shape(tensor.shape)) + _ENTRY

    def make_index(self, stem: str, where: Mapping[str, str], total: int) -> TargetFile | None:
        text = format_index(where, total)
        return TargetFile(stem + INDEX, len(text), ((0, text),))


FORMAT: Final = _Safetensors()


def read_shards(source: Source) -> tuple[dict[str, Contents], list[str]]:
    """Read the files of a checkpoint. Return their contents by file name, and warnings about the index.

    The source is the index, or one of several numbered files, which may have an index next to them. Any other
    file is read alone. Raise FileError if the index and the files do not have the same tensors.
    """
    piece = PIECE.fullmatch(source.path.name)
    if piece is not None:
        index = source.path.with_name(stem_of(source.path) + INDEX)
        if not is_url(index) and index.exists():
            source = open_sibling(source, index.name)
    if not source.path.name.endswith(INDEX):
        count = int(piece[3]) if piece is not None else 1
        names = [source.path.name]
        if piece is not None:
            names = [name_piece(piece[1], number + 1, count, piece[4]) for number in range(count)]
        return _read_files(source, names), []
    stated, total = read_index(source)
    contents = _read_files(source, sorted(set(stated.values())))
    for name, found in contents.items():
        for tensor in found.tensors:
            if stated.get(tensor.name) == name:
                continue
            said = f"lists {shown(stated[tensor.name])}" if tensor.name in stated else "does not list it"
            raise FileError(f"{tensor.label} is in {shown(name)}, but {source.name} {said}")
    held = {name for found in contents.values() for name in iter_field(found.tensors, "name")}
    missing = next((name for name in stated if name not in held), None)
    if missing is not None:
        raise FileError(
            f"{source.name} lists tensor {shown(missing)} in {shown(stated[missing])}, but it is not there"
        )
    size = sum(sum(iter_field(found.tensors, "size")) for found in contents.values())
    if total is None or total == size:
        return contents, []
    return contents, [f"{source.name} has total_size = {shown(total)}, but its tensors have {size} bytes"]


def _read_files(source: Source, names: Sequence[str]) -> dict[str, Contents]:
    raise_file_limit(len(names))
    return {name: FORMAT.read(open_sibling(source, name)) for name in names}


def read_index(source: Source) -> tuple[dict[str, str], Any]:
    """Read an index. Return the file of each tensor, and its ``total_size``, which is unchecked or None."""
    if source.size > _MAX_INDEX:
        raise FileError(f"{source.name} has {source.size} bytes; the limit for an index is {_MAX_INDEX}")
    try:
        document = _parse(source.read(0, source.size), "it")
    except _MalformedError as error:
        raise FileError(f"{source.name}: {error}") from error
    stated = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(stated, dict) or not all(isinstance(file, str) for file in stated.values()):
        raise FileError(f"{source.name} has no weight_map of names to files")
    metadata = document.get("metadata")
    return stated, metadata.get("total_size") if isinstance(metadata, dict) else None


def join_contents(found: Mapping[str, Contents], opened: Source) -> Contents:
    """Combine the contents of files. ``opened``, the file that the user named, is the first source."""
    metadata: dict[str, str] = {}
    names: set[str] = set()
    tensors: list[StoredTensor] = []
    first = next(iter(found.values())).sources[0] if found else opened
    sources = [] if first.path == opened.path else [opened]
    for name, contents in found.items():
        for key, value in contents.metadata.items():
            if metadata.setdefault(key, value) != value:
                raise FileError(f"{name} and other files differ in their metadata for {shown(key)}")
        if not names.isdisjoint(iter_field(contents.tensors, "name")):
            tensor = next(tensor for tensor in contents.tensors if tensor.name in names)
            other = next(
                other for other, each in found.items() if tensor.name in {t.name for t in each.tensors}
            )
            raise FileError(f"{tensor.label} is in {shown(other)} and in {shown(name)}")
        names.update(iter_field(contents.tensors, "name"))
        tensors += [tensor.move_to_file(len(sources)) for tensor in contents.tensors]
        sources += contents.sources
    return Contents(FORMAT, tuple(tensors), tuple(sources), metadata)


def _read_header(source: Source) -> bytes:
    if source.size < 8:
        raise _MalformedError(f"it has {source.size} bytes, but a safetensors file has at least 8")
    length = int.from_bytes(source.read(0, 8), "little")
    if length > _MAX_HEADER:
        raise _MalformedError(f"its header has {length} bytes, more than the format's limit of {_MAX_HEADER}")
    if 8 + length > source.size:
        raise _MalformedError(f"its header ends at byte {8 + length}, but the file has {source.size} bytes")
    raw = source.read(8, length)
    if not raw.startswith(b"{"):
        raise _MalformedError("its header does not begin with {")
    return raw


_Read = tuple[list[StoredTensor], Mapping[str, str]]


def _parse_usual(raw: bytes, start: int) -> _Read | None:
    """Parse a header of the usual form quickly. Return tensors and metadata, or None for other headers."""
    found = read_header(raw, _BITS, start)
    if found is None:
        return None
    names, shapes, codes, offsets, sizes, said = found
    if len(set(names)) < len(names):
        return None
    try:
        metadata = _check_metadata(None if said is None else _parse(said, _METADATA))
    except _MalformedError:
        return None
    kinds, units, dtypes = ([_KINDS[code][field] for code in codes] for field in range(3))
    rest = repeat(0), repeat(False), repeat(None)
    rows = zip(names, shapes, codes, units, offsets, sizes, kinds, dtypes, *rest, strict=False)
    return list(map(partial(tuple.__new__, StoredTensor), rows)), metadata


def _parse_any(raw: bytes, start: int) -> _Read:
    """Parse any header. Return its tensors, in the order of their bytes, and its metadata."""
    header = _parse(raw, "its header", parse_int=_parse_integer, parse_float=_parse_float)
    metadata = _check_metadata(header.pop(_METADATA, None))
    tensors = [_read_entry(name, entry, start) for name, entry in header.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.size))
    end = start
    for tensor in tensors:
        if tensor.offset != end:
            what = "a hole before" if tensor.offset > end else "an overlap with"
            raise _MalformedError(f"its data has {what} tensor {shown(tensor.name)}, at byte {end}")
        end += tensor.size
    return tensors, metadata


def _parse(
    raw: bytes,
    what: str,
    parse_int: Callable[[str], Any] | None = None,
    parse_float: Callable[[str], Any] | None = None,
) -> Any:
    try:
        return parse_json(raw, parse_int=parse_int, parse_float=parse_float)
    except DocumentError as error:
        raise _MalformedError(f"{error} in {what}") from error
    except ValueError as error:
        raise _MalformedError(f"{what} is not JSON: {shown(str(error), 200)}") from error


def _parse_integer(text: str) -> int | float:
    """Parse an integer. As in the reference, -0 and integers that are too long for 64 bits become floats."""
    return int(text) if text != "-0" and len(text) <= _DIGITS else _parse_float(text)


def _parse_float(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{shown(text, 40)} is too large for a number")
    return found


def _check_metadata(found: Any) -> Mapping[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise _MalformedError(f"{_METADATA} is not a mapping of strings to strings")
    return found


def _read_entry(name: str, entry: Any, start: int) -> StoredTensor:
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise _MalformedError(f"the entry of tensor {shown(name)} lacks dtype, shape or data_offsets")
    offsets = entry["data_offsets"]
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _MalformedError(f"the data_offsets of tensor {shown(name)} are not a begin and an end")
    begin, end = offsets
    tensor = make_tensor(name, entry["dtype"], entry["shape"], start + begin)
    if end - begin != tensor.size:
        raise _MalformedError(
            f"tensor {shown(name)}: {tensor.code} of shape {shown(entry['shape'])} needs {tensor.size} "
            f"bytes, but its data_offsets are {shown(offsets)}"
        )
    return tensor


@lru_cache(maxsize=4096)
def _format_shape(shape: tuple[int, ...]) -> str:
    return json.dumps(shape, separators=(",", ":"))


def make_tensor(name: str, code: Any, shape: Any, offset: int) -> StoredTensor:
    """Describe the tensor at ``offset`` of a file, from the name, type and shape that a document declares.

    Raises:
        ValueError: the type or the shape is malformed, or safetensors does not support it.
    """
    if not isinstance(code, str) or code not in _TYPES:
        raise _MalformedError(
            f"tensor {shown(name)} has dtype {shown(code)}, which safetensors does not support"
        )
    if not _are_sizes(shape):
        raise _MalformedError(f"the shape of tensor {shown(name)} is not a list of sizes")
    if len(shape) > MAX_RANK:
        raise _MalformedError(
            f"tensor {shown(name)} has rank {len(shape)}, more than the limit of {MAX_RANK}"
        )
    element_type, unit, dtype = _KINDS[code]
    bits = _count_bits(shape, element_type.bits)
    if bits is None:
        raise _MalformedError(
            f"shape {shown(shape)} of tensor {shown(name)} has a size in bits of 2**64 or more"
        )
    if bits % 8:
        raise _MalformedError(
            f"tensor {shown(name)}: {code} of shape {shown(shape)} does not fill its last byte"
        )
    return StoredTensor(name, tuple(shape), code, unit, offset, bits // 8, element_type, dtype)


def _count_bits(shape: Sequence[int], bits: int) -> int | None:
    """Return the size of a tensor in bits, or None if it or a product of the first sizes exceeds 64 bits.

    The reference implementation multiplies the sizes in order, so a later 0 does not undo an overflow.
    """
    products = [*accumulate(shape, operator.mul, initial=1)]
    return None if max(*products, products[-1] * bits) >= _UINT64 else products[-1] * bits


def _are_sizes(value: Any) -> bool:
    if type(value) is not list or not set(map(type, value)) <= {int}:
        return False
    return not value or (min(value) >= 0 and max(value) < _UINT64)


def _reject_other_size(tensors: Sequence[StoredTensor], start: int, source: Source) -> None:
    end = tensors[-1].offset + tensors[-1].size if tensors else start
    size = resolve_size(source, end)
    if end != size:
        what = "is truncated" if size < end else "has bytes after its data"
        raise _MalformedError(f"it {what}: its header describes {end} bytes, but the file has {size} bytes")
