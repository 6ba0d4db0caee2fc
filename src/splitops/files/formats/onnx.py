"""ONNX models with external data: the initializers whose bytes are in files next to the model.

A part is a model, too. If it has all tensors, it keeps the graph of the original. Otherwise its graph has
only the initializers. Their bytes are in one file, in which tensors of more than 1 MiB are aligned to 64 KiB,
as onnx-ir aligns them.

Source: ``TensorProto.external_data`` in ``onnx.proto``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from splitops.errors import FileError, SplitError, Where
from splitops.files.formats import Contents, Layout, TargetFile, make_places
from splitops.files.sources import LocalFile, Source
from splitops.files.tensors import StoredTensor, make_packed_tensor, to_row_major
from splitops.spec.elements.types import from_onnx

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

_ALIGNED: Final = 1 << 20
_ALIGNMENT: Final = 1 << 16


class _Onnx:
    name = "onnx"
    suffixes = (".onnx",)

    def read(self, source: Source) -> Contents:
        from splitops.common.untrusted_files import DataFolder
        from splitops.models.formats.onnx.storage import parse
        from splitops.models.formats.onnx.tensors import is_external, locate_external_data

        sources: list[Source] = [source]
        files: dict[str, int] = {}
        tensors = []
        folder, where = DataFolder(source.path.parent, source.allow_links), Where(model=str(source.path))
        try:
            model = parse(source.path, allow_links=source.allow_links)
            for proto in filter(is_external, model.graph.initializer):
                _, location, offset, size = locate_external_data(proto, where, folder)
                if location not in files:
                    files[location] = len(sources)
                    sources.append(LocalFile(location, folder))
                tensors.append(_read_tensor(proto, files[location], offset, size))
        except SplitError as error:
            raise error if isinstance(error, FileError) else FileError(str(error)) from error
        _reject_overlaps(tensors, source)
        return Contents(self, tuple(tensors), tuple(sources), {"model": model})

    def adapt(self, tensor: StoredTensor) -> StoredTensor:
        element_type = tensor.element_type
        return to_row_major(tensor, element_type.onnx if element_type is not None else None, "ONNX")

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        location = f"{name}.data"
        offsets, end = [], 0
        for tensor in tensors:
            if tensor.size > _ALIGNED:
                end = -(-end // _ALIGNMENT) * _ALIGNMENT
            offsets.append(end)
            end += tensor.size
        model = _build_model(tensors, like, name)
        protos = {proto.name: proto for proto in model.graph.initializer}
        for tensor, offset in zip(tensors, offsets, strict=True):
            _set_external_data(protos[tensor.name], tensor, location, offset)
        content = model.SerializeToString(deterministic=True)
        files = TargetFile(location, end), TargetFile(name, len(content), ((0, content),))
        return Layout(files, make_places((0, offset) for offset in offsets))


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


def _set_external_data(proto: TensorProto, tensor: StoredTensor, location: str, offset: int) -> None:
    assert tensor.element_type is not None
    proto.data_type = tensor.element_type.onnx_number or 0
    del proto.dims[:]
    proto.dims.extend(tensor.shape)
    proto.data_location = proto.EXTERNAL
    del proto.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", tensor.size)):
        proto.external_data.add(key=key, value=str(value))
