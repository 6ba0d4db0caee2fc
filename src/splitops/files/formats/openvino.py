"""OpenVINO IR, which is only read: the constants of a model, named after their layers.

The name of a constant in a subgraph begins with the path of the subgraph. If several layers have the same
name, ``#2`` and so on is appended to all but the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from splitops.common.untrusted_files import DataFolder
from splitops.errors import FileError, SplitError, shown
from splitops.files.formats import Contents, Layout
from splitops.files.sources import LocalFile, Source
from splitops.files.tensors import StoredTensor, make_packed_tensor


class _OpenVINO:
    name = "openvino"
    suffixes = (".xml",)

    def read(self, source: Source) -> Contents:
        from splitops.models.formats.openvino import read

        tensors: list[StoredTensor] = []
        seen: Counter[str] = Counter()
        try:
            model = read(source.path, allow_links=source.allow_links)
        except SplitError as error:
            raise FileError(str(error)) from error
        for path, graph in model.iter_graphs():
            for layer in graph.list_layers("Const"):
                constant = layer.constant
                assert constant is not None  # a Const without a value is not read
                name = layer.name if path is None else f"{path}/{layer.name}"
                seen[name] += 1
                if seen[name] > 1:
                    name = f"{name}#{seen[name]}"
                kind = constant.element_type
                place = constant.offset, constant.size
                tensors.append(make_packed_tensor(name, constant.shape, kind, place, 1))
        weights = source
        if any(tensor.size for tensor in tensors):
            folder = DataFolder(source.path.parent, source.allow_links)
            weights = LocalFile(source.path.with_suffix(".bin").name, folder)
        return Contents(self, tuple(tensors), (source, weights))

    def adapt(self, tensor: StoredTensor) -> StoredTensor:
        raise FileError(f"{tensor.label}: OpenVINO IR cannot be written")

    def lay_out(self, tensors: Sequence[StoredTensor], like: Contents, name: str) -> Layout:
        raise FileError(
            f"{shown(name)}: OpenVINO IR cannot be written. Choose another format for the parts: --to npy, "
            "--to safetensors or --to raw"
        )


FORMAT: Final = _OpenVINO()
