"""The part of an ONNX model that its splits depend on: all that deciding about them needs to look at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, ValueInfoProto

from splitops.errors import OperatorError
from splitops.models.formats.onnx.structure import (
    FunctionKey,
    callees_first,
    canonical,
    function_key,
    functions_of,
    nodes_inside,
    nodes_of,
    opset_imports,
    subgraphs,
)
from splitops.models.formats.onnx.tensors import is_external
from splitops.models.running.onnx.regions import reads
from splitops.spec.operators import FAMILY, SCHEMAS, schema
from splitops.spec.operators.schemas import Given

_LARGE: Final = 1 << 12
"""Initializers of more bytes are not lengths: they stand as inputs of their type."""
_COUNTING: Final = frozenset(
    source.name
    for row in SCHEMAS
    if row.domain == ""
    for source in (row.count, *row.lengths)
    if source is not None and source.given is Given.ATTRIBUTE
)
"""The attributes that tell a split how many parts it makes."""


def is_site(node: NodeProto) -> bool:
    """Return whether a node is of the split family."""
    return node.op_type in FAMILY[""] and not canonical(node.domain)


def cone_of_sites(model: ModelProto, *, sizes: bool = False) -> ModelProto | None:
    """Return the part of a model that what a runtime does with its splits depends on.

    The lengths of a split count, and where it divides its data by a number or makes a sequence, the data.
    A value of which the model declares type and shape becomes an input of that type: what makes it does not
    matter then.

    Args:
        model: a well-formed model.
        sizes: whether the data of every split counts.

    Returns:
        A model with every split of the original, at its place; None where there is no split.
    """
    sites = [node for node in nodes_of(model) if is_site(node)]
    return _Cone(model, sites, sizes).model() if sites else None


class _Cone:
    def __init__(self, model: ModelProto, sites: Iterable[NodeProto], sizes: bool) -> None:
        self._source = model
        self._sizes = sizes
        self._functions = functions_of(model)
        self._holding = self._functions_with_sites()
        self._opset = opset_imports(model).get("", 1)
        # Of splits that may be taken for one another, it matters how their data is computed.
        counts = {len(node.output) for node in sites if _is_bare(node)}
        self._whole: frozenset[str] = frozenset()
        self._compared = len(counts) > 1
        if not self._compared:
            self._whole = frozenset(value.name for value in model.graph.value_info if _is_whole(value))

    def _functions_with_sites(self) -> frozenset[FunctionKey]:
        """Return the functions that hold a split, or call one that does."""
        holding: set[FunctionKey] = set()
        for key in callees_first(self._functions):
            nodes = nodes_inside(self._functions[key].node)
            if any(is_site(node) or function_key(node) in holding for node in nodes):
                holding.add(key)
        return frozenset(holding)

    def model(self) -> ModelProto:
        source = self._source.graph
        cone = ModelProto(ir_version=self._source.ir_version)
        cone.opset_import.extend(self._source.opset_import)
        cone.functions.extend(function for key, function in self._functions.items() if key in self._holding)
        kept, open_names = self._needed()
        graph = cone.graph
        graph.node.extend(kept)
        stated = _stated_types(source, open_names)
        made = {name for node in kept for name in node.output}
        for tensor in source.initializer:
            if tensor.name in open_names and not _is_large(tensor):
                graph.initializer.append(tensor)
                made.add(tensor.name)
        inputs = {value.name for value in source.input}
        for name in open_names:
            if name not in made or name in inputs:
                graph.input.append(stated.get(name) or ValueInfoProto(name=name))
        graph.output.extend(
            value for value in source.output if value.name in made or value.name in open_names
        )
        return cone

    def _needed(self) -> tuple[list[NodeProto], set[str]]:
        """Return the nodes of the cone in their order, and the names that they and the splits read."""
        source = self._source.graph
        needed: set[str] = set()
        read: set[str] = set()
        kept: list[NodeProto] = []
        for node in reversed(source.node):
            asked = self._asked(node)
            if asked is None and not any(name in needed for name in node.output):
                continue
            kept.append(node)
            names = set(reads(node))
            read |= names
            needed |= (names if asked is None else set(asked)) - self._whole
        return kept[::-1], read

    def _asked(self, node: NodeProto) -> list[str] | None:
        """Return the values on which it depends what becomes of a node; None where it holds no split."""
        if is_site(node):
            return list(node.input) if self._matters(node) else list(node.input[1:])
        holds = function_key(node) in self._holding or any(
            is_site(inner) or function_key(inner) in self._holding
            for _, graph in subgraphs(node)
            for inner in nodes_inside(graph.node)
        )
        return list(reads(node)) if holds else None

    def _matters(self, node: NodeProto) -> bool:
        """Return whether the data of a split matters, and not its lengths alone."""
        if self._sizes or self._compared:
            return True
        try:
            row = schema(node.op_type, self._opset)
        except OperatorError:
            return False
        counted = any(attribute.name == row.count_attribute for attribute in node.attribute)
        return counted or row.gives_sequence


def _is_bare(node: NodeProto) -> bool:
    """Return whether the outputs of a split alone tell the number of parts."""
    return not any(node.input[1:]) and not any(one.name in _COUNTING for one in node.attribute)


def _is_whole(value: ValueInfoProto) -> bool:
    """Return whether a model declares type and shape of a value that is not a number of a shape."""
    tensor = value.type.tensor_type
    if tensor.elem_type in _NUMBERS or not tensor.elem_type or not tensor.HasField("shape"):
        return False
    return all(dim.HasField("dim_value") or dim.dim_param for dim in tensor.shape.dim)


_NUMBERS: Final = frozenset({TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL})
"""What shapes are computed in: their numbers may matter."""


def _is_large(tensor: TensorProto) -> bool:
    return is_external(tensor) or tensor.ByteSize() > _LARGE


def _stated_types(graph: GraphProto, names: set[str]) -> dict[str, ValueInfoProto]:
    """Return what a graph declares of some of its values, of its initializers too."""
    infos = (*graph.value_info, *graph.output, *graph.input)
    stated = {value.name: value for value in infos if value.name in names}
    for tensor in graph.initializer:
        if tensor.name in names and tensor.name not in stated:
            made = stated[tensor.name] = ValueInfoProto(name=tensor.name)
            made.type.tensor_type.elem_type = tensor.data_type
            sizes = [TensorShapeProto.Dimension(dim_value=size) for size in tensor.dims]
            made.type.tensor_type.shape.CopyFrom(TensorShapeProto(dim=sizes))
    return stated
