"""Read ONNX model files, which may be hostile, and write them atomically."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, TensorProto, numpy_helper

from splitops.common.atomic_write import StagedFiles, write_atomically
from splitops.common.untrusted_files import DataFolder, make_location, read_buffer
from splitops.errors import NOWHERE, ModelError, Where, shown, shown_path
from splitops.models.formats.onnx.structure import check_model, iter_tensors
from splitops.models.formats.onnx.tensors import (
    check_external,
    compute_byte_count,
    is_external,
    is_marked,
    iter_data_blocks,
    load_external,
    locate_external_data,
    mark_external,
    read_tensor,
    unmark_external,
)
from splitops.spec.elements.types import from_onnx

if TYPE_CHECKING:
    import onnx_ir

MAX_MODEL_BYTES: Final = (1 << 31) - 1
"""Maximum size of a model file: protobuf's limit for one message."""
_EXTERNAL_BYTES: Final = 1024
"""Minimum size in bytes of tensors that are moved to a data file. Runtimes infer shapes from smaller ones."""
_TRACKED_BYTES: Final = 1 << 15
"""Maximum bytes of tensors whose elements inference may track. :func:`open_model` reads all of these."""
_ALIGNMENT: Final = 4096
"""External data of each tensor begins on a memory page, so that runtimes can map it."""
_RESERVE: Final = 1 << 24
"""Bytes that are reserved for everything except tensors when the size of a file is estimated."""


def read(path: str | os.PathLike[str], *, allow_links: bool = False) -> ModelProto:
    """Read an ONNX model with its external data, which has to be inside the folder of the model.

    With ``allow_links``, a file of external data may be a link that leads out of the folder.
    """
    file = Path(path)
    model = parse(file, allow_links=allow_links)
    load_external(iter_tensors(model), make_location(path), DataFolder(file.parent, allow_links))
    return model


def parse(path: Path, *, allow_links: bool = False, attributes: bool = True) -> ModelProto:
    """Read and check an ONNX model without the external data of initializers.

    External data of node attributes is read, unless ``attributes`` is False.
    """
    where = make_location(path)
    content = read_buffer(path, limit=MAX_MODEL_BYTES, where=where)
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, UnicodeDecodeError, ValueError) as error:
        raise ModelError(f"this is not an ONNX model: {str(error)[:200]}", where) from error
    external = check_model(model, where)
    load_external(external if attributes else (), where, DataFolder(path.parent, allow_links))
    return model


def copy_proto(model: ModelProto) -> ModelProto:
    """Return a deep copy of a model."""
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def find_weight_files(path: Path) -> set[Path]:
    """Return the paths of the external data files that an ONNX model names. They are not checked.

    The set is empty if the file cannot be read as an ONNX model.
    """
    model = ModelProto()
    with contextlib.suppress(DecodeError, UnicodeDecodeError, ValueError, ModelError):
        model.ParseFromString(read_buffer(path, limit=MAX_MODEL_BYTES))
    external = (entry for t in iter_tensors(model) if is_external(t) for entry in t.external_data)
    found = {entry.value for entry in external if entry.key == "location"}
    return {
        path.parent / location for location in found if isinstance(location, str) and "\0" not in location
    }


def open_model(
    model: str | os.PathLike[str] | ModelProto | onnx_ir.Model,
    where: Where | None = None,
    *,
    weights: bool = True,
    allow_links: bool = False,
    kept: dict[str, tuple[TensorProto, TensorProto]] | None = None,
) -> ModelProto:
    """Return a checked ONNX model, given a path or a model in memory. A ModelProto is returned itself.

    External data of a model at a path is read. If the model exceeds 2 GB, or without ``weights``, external
    initializers of more than 32 KiB are not read: their files are checked, and their locations are marked
    with their folder, so that the model can be written to any folder. In this case, ``kept`` receives, by
    name, the external initializers that were read and their external forms, for :func:`keep_external`.
    """
    where = where or make_location(model)
    if not isinstance(model, str | os.PathLike):
        proto = to_proto(model)
        check_model(proto, where)
        return proto
    file = Path(model)
    folder = DataFolder(file.parent, allow_links)
    proto = parse(file, allow_links=allow_links)
    if weights and _count_bytes(proto, where) <= MAX_MODEL_BYTES - _RESERVE:
        load_external(iter_tensors(proto), where, folder)
        return proto
    for tensor in iter_tensors(proto):
        if not is_external(tensor):
            continue
        if compute_byte_count(tensor, where) <= _TRACKED_BYTES:
            if kept is not None:
                kept[tensor.name] = tensor, (outside := TensorProto())
                outside.CopyFrom(tensor)
                mark_external(outside, folder)
            load_external([tensor], where, folder)
        else:
            check_external(tensor, where, folder)
            mark_external(tensor, folder)
    return proto


def _count_bytes(model: ModelProto, where: Where) -> int:
    return sum(compute_byte_count(tensor, where) for tensor in iter_tensors(model))


def to_proto(model: ModelProto | onnx_ir.Model) -> ModelProto:
    """Convert a model in memory to protobuf. A ModelProto is returned itself.

    External initializers of an onnx-ir model are marked with their folder.
    """
    if isinstance(model, ModelProto):
        return model
    import onnx_ir

    if not isinstance(model, onnx_ir.Model):
        kind = type(model).__name__
        repair = "; pass its .model" if hasattr(model, "model") else ""
        raise ModelError(f"{kind} is neither a path, an onnx.ModelProto nor an onnx_ir.Model{repair}")
    proto = serialize_with_onnx_ir(model)
    folders = {
        value.name: DataFolder(Path(value.const_value.base_dir))
        for graph in model.graphs()
        for value in graph.initializers.values()
        if isinstance(value.const_value, onnx_ir.ExternalTensor)
    }
    for tensor in iter_tensors(proto):
        if is_external(tensor) and tensor.name in folders:
            mark_external(tensor, folders[tensor.name])
    return proto


def serialize_with_onnx_ir(model: onnx_ir.Model) -> ModelProto:
    """Convert an onnx-ir model to protobuf. Any error is raised as ModelError."""
    import onnx_ir

    try:
        return onnx_ir.to_proto(model)
    except Exception as error:  # SerdeError, or any error from serializing an attribute
        raise make_onnx_ir_error("write", error, NOWHERE) from error


def make_onnx_ir_error(what: str, error: Exception, where: Where) -> ModelError:
    """Return a ModelError with the root cause of ``error``. ``what`` is the failed action: read or write."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return ModelError(f"onnx-ir cannot {what} the model: {reason[0][:200]}", where)


def keep_external(model: ModelProto, kept: Mapping[str, tuple[TensorProto, TensorProto]]) -> None:
    """Replace unchanged tensors that were read from other files with references to their data.

    ``kept`` has each tensor as it was read and its external form, keyed by name.
    """
    for tensor in iter_tensors(model):
        before, outside = kept.get(tensor.name, (None, None))
        if outside is not None and tensor == before:
            tensor.CopyFrom(outside)


def write(
    model: ModelProto | onnx_ir.Model,
    path: str | os.PathLike[str],
    *,
    external: bool | None = None,
    keep_data: bool = False,
) -> tuple[Path, ...]:
    """Write an ONNX model atomically, and return the paths of the written files.

    With ``external``, external data and the main graph's initializers of at least 1024 bytes, except strings,
    are written to a second file, with ``.data`` appended to the name. The default is True if one file might
    exceed 2 GiB. With ``keep_data``, external data stays in its files, which have to be in the same folder,
    and ``external`` has no effect.
    """
    file = Path(path)
    where = make_location(path)
    model = to_proto(model)
    check_model(model, where)
    for tensor in iter_tensors(model):
        if is_external(tensor):
            if not is_marked(tensor):
                name = shown(tensor.name)
                raise ModelError(f"tensor {name} is in another file: load the model with its data", where)
            check_external(tensor, where)
    if keep_data:
        write_atomically(file, _encode(_copy_with_kept_data(model, file, where), where))
        return (file,)
    if external is None:
        external = _count_bytes(model, where) > MAX_MODEL_BYTES - _RESERVE
    if external:
        data = file.with_name(file.name + ".data")
        with StagedFiles() as files:
            with files.open(data) as data_file:
                slim = _write_external_data(model, data_file, data.name, where)
            with files.open(file) as model_file:
                model_file.write(_encode(slim, where))
        return data, file
    if any(is_external(tensor) for tensor in iter_tensors(model)):
        model = copy_proto(model)
        load_external(iter_tensors(model), where, None)
    write_atomically(file, _encode(model, where))
    return (file,)


def _copy_with_kept_data(model: ModelProto, file: Path, where: Where) -> ModelProto:
    """Return a copy in which the locations of external data are relative to the folder of ``file``.

    Raise ModelError unless the data is in this folder, but not in ``file`` itself.
    """
    copy = copy_proto(model)
    for tensor in iter_tensors(copy):
        if not is_external(tensor):
            continue
        holder, location, *_ = locate_external_data(tensor, where, None)
        data = holder.path / location
        folder = unmark_external(tensor)
        if folder is None or folder.path != file.parent.resolve():
            raise ModelError(
                f"the data of tensor {shown(tensor.name)} stays in {shown_path(data)}, to which a model in "
                "another folder cannot refer: write the model into the folder of its data, or do not keep "
                "the data",
                where,
            )
        if data.resolve() == file.resolve():
            raise ModelError(f"{shown_path(file)} contains data that should be kept: use another name", where)
    return copy


def _encode(model: ModelProto, where: Where) -> bytes:
    try:
        content: bytes = model.SerializeToString(deterministic=True)
    except (EncodeError, ValueError, MemoryError) as error:
        raise ModelError(f"the model cannot be written as one file: {str(error)[:200]}", where) from error
    if len(content) > MAX_MODEL_BYTES:
        raise ModelError(
            f"the model has {len(content)} bytes without its external data, but a file may have "
            f"{MAX_MODEL_BYTES} at most",
            where,
        )
    return content


def strip_weights(model: ModelProto) -> ModelProto:
    """Return a copy in which large or external initializers of the main graph are inputs.

    Onnx's checker, which limits the size of a model, accepts the copy.
    """
    slim = ModelProto()
    _copy_fields(model, slim, but="graph")
    _copy_fields(model.graph, slim.graph, but="initializer")
    inputs = {value.name for value in slim.graph.input}
    for tensor in model.graph.initializer:
        if is_external(tensor) or len(tensor.raw_data) > _TRACKED_BYTES:
            if tensor.name not in inputs:
                kind = slim.graph.input.add(name=tensor.name).type.tensor_type
                kind.elem_type = tensor.data_type
                kind.shape.SetInParent()
                for size in tensor.dims:
                    kind.shape.dim.add(dim_value=size)
        else:
            slim.graph.initializer.append(tensor)
    return slim


def _write_external_data(model: ModelProto, file: BinaryIO, location: str, where: Where) -> ModelProto:
    """Write large initializers and all external data to ``file``, and return a copy that refers to them."""
    slim = ModelProto()
    _copy_fields(model, slim, but="graph")
    _copy_fields(model.graph, slim.graph, but="initializer")
    for tensor in iter_tensors(slim):
        if is_external(tensor):  # a tensor of a subgraph or an attribute
            tensor.CopyFrom(_write_data(tensor, file, location, where))
    for tensor in model.graph.initializer:
        slim.graph.initializer.append(_write_data(tensor, file, location, where))
    return slim


def _write_data(tensor: TensorProto, file: BinaryIO, location: str, where: Where) -> TensorProto:
    """Write a tensor's data to ``file``, and return its external form.

    Small tensors and strings in the model are not written, but returned unchanged.
    """
    blocks: Iterable[bytes | memoryview]
    if is_external(tensor):
        blocks = iter_data_blocks(tensor, where)
    else:
        data = _read_data(tensor, where)
        if data is None or len(data) < _EXTERNAL_BYTES:
            return tensor
        blocks = [data]
    file.write(bytes(-file.tell() % _ALIGNMENT))
    offset = file.tell()
    for block in blocks:
        file.write(block)
    outside = TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        doc_string=tensor.doc_string,
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in (("location", location), ("offset", offset), ("length", file.tell() - offset)):
        outside.external_data.add(key=key, value=str(value))
    return outside


def _copy_fields(source: ModelProto | GraphProto, target: Any, *, but: str) -> None:
    for descriptor, _ in source.ListFields():
        if (name := descriptor.name) != but:
            partial = getattr(source, name)
            if isinstance(partial, int | str | bytes | float):
                setattr(target, name, partial)
            else:
                getattr(target, name).MergeFrom(partial)


def _read_data(tensor: TensorProto, where: Where) -> bytes | None:
    """Return the tensor's data as raw bytes, or None for strings, which ``raw_data`` cannot hold."""
    element_type = from_onnx(tensor.data_type)
    if element_type is None or element_type.name == "string":
        return None
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    return numpy_helper.from_array(read_tensor(tensor, where)).raw_data
