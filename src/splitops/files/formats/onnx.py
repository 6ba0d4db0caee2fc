"""ONNX models with external data: the initializers whose bytes are in files next to the model.

A part is a model, too. If it has all tensors, it keeps the graph of the original. Otherwise its graph has
only the initializers. Their bytes are in one data file or in several of limited size, in the order of the
source, or in the initializers themselves. In data files, tensors of more than 1 MiB are aligned to 64 KiB, as
onnx-ir aligns them. All keep the alignment that they share in an ONNX source, up to 64 KiB.

External data of other tensors, such as those of subgraphs, node attributes and functions, is written into
the model, because their names need not be unique.

Source: ``TensorProto.external_data`` in ``onnx.proto``, and https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from splitops.errors import FileError, SplitError, Where
from splitops.files.folders import name_piece
from splitops.files.formats import Contents, Layout, TargetFile, make_places
from splitops.files.sources import LocalFile, Source
from splitops.files.tensors import StoredTensor, make_packed_tensor, to_row_major
from splitops.spec.elements.types import from_onnx

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

_ALIGNED: Final = 1 << 20
_ALIGNMENT: Final = 1 << 16
_MAX_ENTRY: Final = 1 << 10
"""Maximum bytes by which the entry of an initializer in the model grows if its data moves."""
_HOLDERS: Final = frozenset(
    f"{kind}Proto" for kind in ("Graph", "Node", "Attribute", "Function", "TrainingInfo", "SparseTensor")
)
"""Messages that can contain tensors."""


class _Onnx:
    name = "onnx"
    suffixes = (".onnx",)

    def read(self, source: Source) -> Contents:
        from splitops.common.untrusted_files import DataFolder
        from splitops.models.formats.onnx.storage import parse
        from splitops.models.formats.onnx.tensors import check_tensor, is_external, locate_external_data

        tensors = []
        folder, where = DataFolder(source.path.parent, source.allow_links), Where(model=str(source.path))
        try:
            model = parse(source.path, allow_links=source.allow_links, attributes=False)
            protos = list(filter(is_external, model.graph.initializer))
            main = len(protos)
            protos += filter(is_external, _iter_inner_tensors(model))
            for proto in protos[main:]:
                check_tensor(proto, where)
            extents = [locate_external_data(proto, where, folder)[1:] for proto in protos]
            # Numbered files are in the order of their numbers.
            files = sorted({file for file, _, _ in extents}, key=lambda file: (len(file), file))
            sources: list[Source] = [source, *(LocalFile(file, folder) for file in files)]
            indices = {file: index for index, file in enumerate(files, 1)}
            places = [(indices[file], offset, size) for file, offset, size in extents]
            for proto, place in zip(protos[:main], places[:main], strict=True):
                tensors.append(_read_tensor(proto, *place))
        except SplitError as error:
            raise error if isinstance(error, FileError) else FileError(str(error)) from error
        _reject_overlaps(tensors, source)
        return Contents(self, tuple(tensors), tuple(sources), {"model": model, "inner": places[main:]})

    def adapt(self, tensor: StoredTensor) -> StoredTensor:
        element_type = tensor.element_type
        return to_row_major(tensor, element_type.onnx if element_type is not None else None, "ONNX")

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        return self.lay_out_data_files(tensors, like, name, None)

    def lay_out_data_files(
        self, tensors: Sequence[StoredTensor], like: Contents, name: str, max_size: int | None
    ) -> Layout:
        """Lay out a model and its data files of at most ``max_size`` bytes, or one data file if that is None.

        A larger tensor gets a data file of its own. Tensors that share bytes continue to share them.
        """
        ends, found = [0], {}
        offsets = [tensor.offset for tensor in tensors if tensor.size and tensor.offset]
        small = math.gcd(_ALIGNMENT, *offsets) if offsets and like.format is self else 1
        for tensor in sorted(tensors, key=lambda tensor: (tensor.file, tensor.offset)):
            key = _identify_bytes(tensor)
            if key in found:
                continue
            alignment = _ALIGNMENT if tensor.size > _ALIGNED else small
            begin = -(-ends[-1] // alignment) * alignment
            if max_size is not None and ends[-1] and begin + tensor.size > max_size:
                ends.append(0)
                begin = 0
            found[key] = len(ends) - 1, begin
            ends[-1] = begin + tensor.size
        places = [found[_identify_bytes(tensor)] for tensor in tensors]
        stem, count = name.removesuffix(".onnx"), len(ends)
        names = [name_piece(stem, number, count, ".onnx.data") for number in range(1, count + 1)]
        names = names if count > 1 else [f"{name}.data"] if tensors else []
        model = _build_model(tensors, like, name)
        protos = {proto.name: proto for proto in model.graph.initializer}
        for tensor, (file, offset) in zip(tensors, places, strict=True):
            _set_external_data(protos[tensor.name], tensor, names[file], offset)
        content = model.SerializeToString(deterministic=True)
        files = [*map(TargetFile, names, ends[: len(names)]), TargetFile(name, len(content), ((0, content),))]
        return Layout(tuple(files), make_places(places))

    def lay_out_embedded(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout | None:
        """Lay out a model that contains its tensors, or return None if it is too large for an ONNX file."""
        from splitops.models.formats.onnx.storage import MAX_MODEL_BYTES

        model = _build_model(tensors, like, name)
        numbers = {tensor.name: number for number, tensor in enumerate(tensors)}
        inside: list[bytes | int] = []  # an integer represents the bytes of the tensor with this number
        size = 0
        for proto in model.graph.initializer:
            number, data = numbers.get(proto.name), 0
            before, after = proto.SerializeToString(deterministic=True), b""
            if number is not None:
                proto.ClearField("external_data")
                proto.ClearField("data_location")
                data = tensors[number].size
                before, after = _serialize_around(proto, "raw_data", data)
            head = _encode_tag(model.graph, "initializer", len(before) + data + len(after))
            inside += [head + before, after] if number is None else [head + before, number, after]
            size += len(head) + len(before) + data + len(after)
        model.graph.ClearField("initializer")
        before, after = _serialize_around(model.graph, "initializer", None)
        head, tail = _serialize_around(model, "graph", len(before) + size + len(after))
        if len(head) + len(before) + size + len(after) + len(tail) > MAX_MODEL_BYTES:
            return None
        literals, places, end = [], {}, 0
        for piece in (head, before, *inside, after, tail):
            if isinstance(piece, int):
                places[piece] = 0, end
                end += tensors[piece].size
            elif piece:
                literals.append((end, piece))
                end += len(piece)
        files = (TargetFile(name, end, tuple(literals)),)
        return Layout(files, make_places(places[number] for number in range(len(tensors))))


FORMAT: Final = _Onnx()


def _read_tensor(proto: TensorProto, file: int, offset: int, size: int) -> StoredTensor:
    element_type = from_onnx(proto.data_type)
    assert element_type is not None  # checked by the parser
    assert element_type.onnx is not None
    stored = make_packed_tensor(proto.name, tuple(proto.dims), element_type, (offset, size), file)
    return stored._replace(code=element_type.onnx)


def _reject_overlaps(tensors: Sequence[StoredTensor], source: Source) -> None:
    """Reject tensors that overlap, unless they have exactly the same bytes."""
    ordered = sorted((t for t in tensors if t.size), key=lambda t: (t.file, t.offset, t.size))
    for before, tensor in pairwise(ordered):
        same = (before.offset, before.size) == (tensor.offset, tensor.size)
        if tensor.file == before.file and tensor.offset < before.offset + before.size and not same:
            raise FileError(f"{source.name}: {tensor.label} overlaps {before.label}")


def _build_model(tensors: Sequence[StoredTensor], like: Contents, name: str) -> ModelProto:
    """Build the model to write. The caller must set type, shape and location of each initializer."""
    from onnx import ModelProto

    model = ModelProto()
    if like.format is FORMAT:
        whole: ModelProto = like.metadata["model"]
        if {tensor.name for tensor in tensors} >= {tensor.name for tensor in like.tensors}:
            model.CopyFrom(whole)
            _load_inner_tensors(model, like)
            return model
        model.ir_version = whole.ir_version
        model.opset_import.extend(whole.opset_import)
    else:
        from onnx import IR_VERSION, helper

        model.ir_version = IR_VERSION
        model.opset_import.append(helper.make_opsetid("", 18))
    model.graph.name = name
    for tensor in tensors:
        model.graph.initializer.add(name=tensor.name)
    return model


def _load_inner_tensors(model: ModelProto, like: Contents) -> None:
    """Read the external data of all tensors, except initializers of the main graph, into a copy of a model.

    Raises:
        FileError: the model would be larger than an ONNX file can be.
    """
    from splitops.models.formats.onnx.storage import MAX_MODEL_BYTES
    from splitops.models.formats.onnx.tensors import is_external

    places: list[tuple[int, int, int]] = like.metadata["inner"]
    if not places:
        return
    inner = sum(size for _, _, size in places)
    total = inner + model.ByteSize() + _MAX_ENTRY * len(like.tensors)
    if total > MAX_MODEL_BYTES:
        raise FileError(
            f"{like.sources[0].name}: {inner} bytes of external data belong to tensors of subgraphs, "
            "functions or node attributes, which are written into the model. It would have about "
            f"{total} bytes, but ONNX allows {MAX_MODEL_BYTES}. Make these tensors initializers of the "
            "main graph, which its subgraphs can read"
        )
    protos = list(filter(is_external, _iter_inner_tensors(model)))
    for proto, (file, offset, size) in zip(protos, places, strict=True):
        proto.ClearField("external_data")
        proto.ClearField("data_location")
        proto.raw_data = like.sources[file].read(offset, size)


def _iter_inner_tensors(message: Any) -> Iterator[TensorProto]:
    """Yield every tensor in a model or a part of one, except the initializers of a model's main graph."""
    for field, value in message.ListFields():
        name = field.message_type.name if field.message_type else ""
        each = [value] if hasattr(value, "ListFields") else value
        if name == "TensorProto":
            yield from each
        elif field.name == "graph":  # only models have this field
            for node in value.node:
                yield from _iter_inner_tensors(node)
        elif name in _HOLDERS:
            for part in each:
                yield from _iter_inner_tensors(part)


def _set_external_data(proto: TensorProto, tensor: StoredTensor, location: str, offset: int) -> None:
    assert tensor.element_type is not None
    proto.data_type = tensor.element_type.onnx_number or 0
    del proto.dims[:]
    proto.dims.extend(tensor.shape)
    proto.data_location = proto.EXTERNAL
    del proto.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", tensor.size)):
        proto.external_data.add(key=key, value=str(value))


def _identify_bytes(tensor: StoredTensor) -> tuple[object, ...]:
    """Return a key that is equal for tensors with the same bytes of the source. Empty tensors share none."""
    return (tensor.file, tensor.offset, tensor.size) if tensor.size else (tensor.name,)


def _serialize_around(message: Any, name: str, size: int | None) -> tuple[bytes, bytes]:
    """Serialize a message without the field ``name``. Return the bytes before it and those after it.

    Fields are in the order of their numbers. The first bytes end with its tag and ``size``, unless ``size``
    is None.
    """
    number = message.DESCRIPTOR.fields_by_name[name].number
    lower, higher = type(message)(), type(message)()
    lower.CopyFrom(message)
    lower.DiscardUnknownFields()
    higher.CopyFrom(message)
    for field, _ in message.ListFields():
        if field.number >= number:
            lower.ClearField(field.name)
        if field.number <= number:
            higher.ClearField(field.name)
    tag = b"" if size is None else _encode_tag(message, name, size)
    return lower.SerializeToString(deterministic=True) + tag, higher.SerializeToString(deterministic=True)


def _encode_tag(message: Any, name: str, size: int) -> bytes:
    """Encode the tag and the size of a field that contains a byte string or a message."""
    return _encode_varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | 2) + _encode_varint(size)


def _encode_varint(value: int) -> bytes:
    """Encode an integer as protobuf does.

    Examples:
        >>> _encode_varint(300).hex()
        'ac02'
    """
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])
