"""ONNX model files: parsing what may be hostile, and writing whole models or none."""

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
from splitops.models.formats.onnx.structure import check_model, model_tensors
from splitops.models.formats.onnx.tensors import (
    byte_count,
    check_external,
    data_blocks,
    external_extent,
    is_external,
    is_marked,
    load_external,
    mark_external,
    tensor_array,
    unmark_external,
)
from splitops.spec.elements.types import from_onnx

if TYPE_CHECKING:
    import onnx_ir

MAX_MODEL_BYTES: Final = (1 << 31) - 1
"""Protobuf's own limit for one message."""
_EXTERNAL_BYTES: Final = 1024
"""Smaller tensors stay in the model: shape arithmetic needs them at hand."""
_AT_HAND: Final = 1 << 15
"""The largest tensors whose numbers inference follows."""
_ALIGNMENT: Final = 4096
"""Tensors begin on a memory page, so that runtimes can map them."""
_ROOM: Final = 1 << 24
"""Left free for the structure around the tensors when sizes are estimated."""


def read(path: str | os.PathLike[str], *, allow_links: bool = False) -> ModelProto:
    """Read an ONNX model, with its external data.

    External data must be inside its folder; a link there may lead out of it if ``allow_links``.
    """
    file = Path(path)
    model = parse(file, allow_links=allow_links)
    load_external(model_tensors(model), make_location(path), DataFolder(file.parent, allow_links))
    return model


def parse(path: Path, *, allow_links: bool = False) -> ModelProto:
    """Read an ONNX model and prove it well formed; external initializers stay where they are."""
    where = make_location(path)
    content = read_buffer(path, limit=MAX_MODEL_BYTES, where=where)
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, UnicodeDecodeError, ValueError) as error:
        raise ModelError(f"this is not an ONNX model: {str(error)[:200]}", where) from error
    load_external(check_model(model, where), where, DataFolder(path.parent, allow_links))
    return model


def weight_files(path: Path) -> set[Path]:
    """Return the files next to an ONNX model that hold its external data, as the model names them.

    A file that is not a model has none.
    """
    model = ModelProto()
    with contextlib.suppress(DecodeError, UnicodeDecodeError, ValueError, ModelError):
        model.ParseFromString(read_buffer(path, limit=MAX_MODEL_BYTES))
    external = (entry for t in model_tensors(model) if is_external(t) for entry in t.external_data)
    found = {entry.value for entry in external if entry.key == "location"}
    return {
        path.parent / location for location in found if isinstance(location, str) and "\0" not in location
    }


def opened(
    model: str | os.PathLike[str] | ModelProto | onnx_ir.Model,
    where: Where | None = None,
    *,
    weights: bool = True,
    allow_links: bool = False,
    kept: dict[str, tuple[TensorProto, TensorProto]] | None = None,
) -> ModelProto:
    """Return an ONNX model to work on, proved well formed: of a path as :func:`read` where it is one file.

    Of a larger one, initializers of more than 32 KiB stay in their files, proved to be there, and name their
    folder in this process: what is made of the model can be written without having been read.

    A model in memory is not changed. Without ``weights``, such initializers stay where they are in
    smaller models too. In ``kept`` come the others, as they name their data, for :func:`keep_external`.
    """
    where = where or make_location(model)
    if not isinstance(model, str | os.PathLike):
        proto = as_proto(model)
        check_model(proto, where)
        return proto
    file = Path(model)
    folder = DataFolder(file.parent, allow_links)
    proto = parse(file, allow_links=allow_links)
    if weights and _bytes(proto, where) <= MAX_MODEL_BYTES - _ROOM:
        load_external(model_tensors(proto), where, folder)
        return proto
    for tensor in model_tensors(proto):
        if not is_external(tensor):
            continue
        if byte_count(tensor, where) <= _AT_HAND:
            if kept is not None:
                kept[tensor.name] = tensor, (outside := TensorProto())
                outside.CopyFrom(tensor)
                mark_external(outside, folder)
            load_external([tensor], where, folder)
        else:
            check_external(tensor, where, folder)
            mark_external(tensor, folder)
    return proto


def _bytes(model: ModelProto, where: Where) -> int:
    return sum(byte_count(tensor, where) for tensor in model_tensors(model))


def as_proto(model: ModelProto | onnx_ir.Model) -> ModelProto:
    """Return a model in memory as protobuf; external data names its folder, where the model knows one."""
    if isinstance(model, ModelProto):
        return model
    import onnx_ir

    if not isinstance(model, onnx_ir.Model):
        kind = type(model).__name__
        repair = "; give its .model" if hasattr(model, "model") else ""
        raise ModelError(f"{kind} is neither a path, an onnx.ModelProto nor an onnx_ir.Model{repair}")
    proto = written_by_onnx_ir(model)
    folders = {
        value.name: DataFolder(Path(value.const_value.base_dir))
        for graph in model.graphs()
        for value in graph.initializers.values()
        if isinstance(value.const_value, onnx_ir.ExternalTensor)
    }
    for tensor in model_tensors(proto):
        if is_external(tensor) and tensor.name in folders:
            mark_external(tensor, folders[tensor.name])
    return proto


def written_by_onnx_ir(model: onnx_ir.Model) -> ModelProto:
    """Return a model of onnx-ir as protobuf."""
    import onnx_ir

    try:
        return onnx_ir.to_proto(model)
    except Exception as error:  # SerdeError, and what its writers of attributes raise
        raise unusable("write", error, NOWHERE) from error


def unusable(what: str, error: Exception, where: Where) -> ModelError:
    """Return the error of a model that onnx-ir cannot read or write, with the first reason of all."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return ModelError(f"onnx-ir cannot {what} the model: {reason[0][:200]}", where)


def keep_external(model: ModelProto, kept: Mapping[str, tuple[TensorProto, TensorProto]]) -> None:
    """Let tensors that were read from other files name their data there again, if it was not changed.

    Each is ``kept`` as it was read, and as it names its data.
    """
    for tensor in model_tensors(model):
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
    """Write an ONNX model: whole, or not at all; return the files.

    With ``external``, initializers of the main graph of 1024 bytes and more go to a file beside it, named
    like it with ``.data`` appended. None does so where one file would exceed 2 GiB. With ``keep_data``, data
    that is in other files of the same folder stays there.
    """
    file = Path(path)
    where = make_location(path)
    model = as_proto(model)
    check_model(model, where)
    for tensor in model_tensors(model):
        if is_external(tensor):
            if not is_marked(tensor):
                name = shown(tensor.name)
                raise ModelError(f"tensor {name} is in another file: read the model with it", where)
            check_external(tensor, where)
    if keep_data:
        write_atomically(file, _encoded(_with_kept_data(model, file, where), where))
        return (file,)
    if external is None:
        external = _bytes(model, where) > MAX_MODEL_BYTES - _ROOM
    if external:
        data = file.with_name(file.name + ".data")
        with StagedFiles() as files:
            with files.open(data) as data_file:
                slim = _with_external_data(model, data_file, data.name, where)
            with files.open(file) as model_file:
                model_file.write(_encoded(slim, where))
        return data, file
    if any(is_external(tensor) for tensor in model_tensors(model)):
        whole = ModelProto()
        whole.CopyFrom(model)
        load_external(model_tensors(whole), where, None)
        model = whole
    write_atomically(file, _encoded(model, where))
    return (file,)


def _with_kept_data(model: ModelProto, file: Path, where: Where) -> ModelProto:
    """Return a model that names its external data from the folder that it is written to."""
    made = ModelProto()
    made.CopyFrom(model)
    for tensor in model_tensors(made):
        if not is_external(tensor):
            continue
        holder, location, *_ = external_extent(tensor, where, None)
        data = holder.path / location
        folder = unmark_external(tensor)
        if folder is None or folder.path != file.parent.resolve():
            raise ModelError(
                f"the data of tensor {shown(tensor.name)} stays in {shown_path(data)}, which a model in "
                "another folder cannot name: write the model into the folder of its data, or do not keep "
                "the data",
                where,
            )
        if data.resolve() == file.resolve():
            raise ModelError(f"{shown_path(file)} holds data that is to be kept: use another name", where)
    return made


def _encoded(model: ModelProto, where: Where) -> bytes:
    try:
        content: bytes = model.SerializeToString(deterministic=True)
    except (EncodeError, ValueError, MemoryError) as error:
        raise ModelError(f"the model cannot be written as one file: {str(error)[:200]}", where) from error
    if len(content) > MAX_MODEL_BYTES:
        raise ModelError(
            f"the model takes {len(content)} bytes, more than the {MAX_MODEL_BYTES} of one file; "
            "write it with external=True",
            where,
        )
    return content


def without_weights(model: ModelProto) -> ModelProto:
    """Return a model for onnx's checker, of any size: what is large or in another file is an input of it."""
    slim = ModelProto()
    _copy_fields(model, slim, but="graph")
    _copy_fields(model.graph, slim.graph, but="initializer")
    inputs = {value.name for value in slim.graph.input}
    for tensor in model.graph.initializer:
        if is_external(tensor) or len(tensor.raw_data) > _AT_HAND:
            if tensor.name not in inputs:
                kind = slim.graph.input.add(name=tensor.name).type.tensor_type
                kind.elem_type = tensor.data_type
                kind.shape.SetInParent()
                for size in tensor.dims:
                    kind.shape.dim.add(dim_value=size)
        else:
            slim.graph.initializer.append(tensor)
    return slim


def _with_external_data(model: ModelProto, file: BinaryIO, location: str, where: Where) -> ModelProto:
    """Return the model without its large initializers, which are written to the file one by one."""
    slim = ModelProto()
    _copy_fields(model, slim, but="graph")
    _copy_fields(model.graph, slim.graph, but="initializer")
    for tensor in model_tensors(slim):
        if is_external(tensor):  # of a subgraph
            tensor.CopyFrom(_outside(tensor, file, location, where))
    for tensor in model.graph.initializer:
        slim.graph.initializer.append(_outside(tensor, file, location, where))
    return slim


def _outside(tensor: TensorProto, file: BinaryIO, location: str, where: Where) -> TensorProto:
    """Write a tensor's data to a file and return the tensor without it; a small one stays as it is."""
    blocks: Iterable[bytes | memoryview]
    if is_external(tensor):
        blocks = data_blocks(tensor, where)
    else:
        data = _data_of(tensor, where)
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


def _data_of(tensor: TensorProto, where: Where) -> bytes | None:
    """Return the tensor's data as raw bytes; None for strings, which have none."""
    element_type = from_onnx(tensor.data_type)
    if element_type is None or element_type.name == "string":
        return None
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    return numpy_helper.from_array(tensor_array(tensor, where)).raw_data
