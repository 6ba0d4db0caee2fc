"""An ONNX model as an OpenVINO model.

First every split becomes a node of domain ``openvino`` that declares what OpenVINO's layer is to state. A
model of splits and data movers is then written as it is; one with other operators goes through
OpenVINO's own frontend, where an extension turns these nodes into the layers: its reading of ONNX's
splits is never asked.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import onnx.inliner
import onnx_ir as ir

from splitops.errors import ModelError, Rule, SplitError, Where
from splitops.models.convert.onnx_to_onnx import ModelConversion, annotate_for
from splitops.models.convert.openvino_layers import declare_input, unwritable, written_model
from splitops.models.convert.report import Conversion, Status
from splitops.models.engines import is_installed
from splitops.models.engines.openvino import replace_empty_constants
from splitops.models.engines.openvino_process import to_ir
from splitops.models.formats.model import CheckedModel
from splitops.models.formats.onnx.structure import find_inlining_problem
from splitops.models.formats.openvino import Builder, OpenVINOModel, from_bytes
from splitops.models.formats.openvino.nodes import from_nodes, to_nodes
from splitops.models.formats.walk import FreshNames, get_opset_imports, iter_nodes, make_stem
from splitops.models.graph.editors import make_editor
from splitops.models.graph.onnx import shape_of
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.quirks import find, may_be_in
from splitops.models.simplify.driver import annotate_model, rewrite
from splitops.models.simplify.registry import REWRITES
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.spec.operators import SCHEMAS, OperatorSchema
from splitops.spec.sizes.dims import Dim, Shape

_DOMAIN: Final = "openvino"
_PREVENT_FUSION: Final = (REWRITES["prevent-fusion"],)
"""What is done where OpenVINO would fuse splits wrongly."""


def convert_onnx(
    model: CheckedModel, edited: ir.Model, target: ConversionTarget, style: SplitStyle
) -> Conversion:
    """Convert a copy of an ONNX model to OpenVINO."""
    where = model.where
    if edited.functions:
        reason = find_inlining_problem(model.proto)
        if reason is not None:
            raise ModelError(reason, where)
        model = replace(CheckedModel.read(onnx.inliner.inline_local_functions(model.proto)), where=where)
        edited = model.copy()
    opset = get_opset_imports(edited.graph, edited).get("", 1)
    annotate_for(edited, where, style)
    if _has_quirk(edited, where) and rewrite(edited, _PREVENT_FUSION, {}, where):
        style = SplitStyle.SAME  # a number of parts would be fused again
    converting = ModelConversion(edited, where)
    converting.lower(edited.graph, Rule.OPERATOR_UNKNOWN)
    converting.rewrite_splits([node for _, node in iter_nodes(edited.graph)], target, opset, style)
    _state_flattening(edited, converting.editor.names, opset)
    changes = tuple(converting.changes)
    if any(change.status is Status.REJECTED for change in changes):
        return Conversion(str(target), changes, None)
    try:
        foreign = unwritable(edited, converting.made)
        if foreign:
            converted = _through_openvino(model, edited, converting.made, foreign, where)
        else:
            converted = written_model(edited, opset, where)
    except SplitError as error:
        return Conversion(str(target), changes, None, error)
    nodes = to_nodes(converted)
    if may_be_in(nodes):
        annotate_model(nodes, where)
        if _has_quirk(nodes, where) and rewrite(nodes, _PREVENT_FUSION, {}, where):
            converted = from_nodes(nodes)
    return Conversion(str(target), changes, converted)


def _has_quirk(model: ir.Model, where: Where) -> bool:
    return may_be_in(model) and bool(find(make_editor(model, where), "openvino"))


def _state_flattening(model: ir.Model, names: FreshNames, opset: int) -> None:
    """Replace each Flatten whose rows may be none: OpenVINO's frontend takes a size of 0 for another one."""
    for node in [n for _, n in iter_nodes(model.graph) if n.op_type == "Flatten" and not n.domain]:
        data, declared = node.inputs[0], node.attributes.get("axis")
        shape = None if data is None else shape_of(data)
        axis = 1 if declared is None else declared.as_int()
        axis += len(shape) if shape is not None and axis < 0 else 0
        if data is None or shape is None or axis < 2 or all(_is_positive(size) for size in shape[:axis]):
            continue
        builder = OnnxOpBuilder(opset, names, make_stem(node))
        sizes = [_product(builder, data, shape, span) for span in (range(axis), range(axis, len(shape)))]
        inputs, attributes = [data, builder.op("Concat", sizes, {"axis": 0})], {"special_zero": 0}
        rows = builder.op("Reshape", inputs, attributes)
        builder.nodes[-1].domain = _DOMAIN
        builder.replace(node, [rows])


def _is_positive(size: Dim) -> bool:
    return (size if isinstance(size, int) else size.lo) > 0


def _product(builder: OnnxOpBuilder, data: ir.Value, shape: Shape, axes: range) -> ir.Value:
    """Return the product of some sizes, of shape [1]."""
    sizes = [size for size in shape[axes.start : axes.stop] if isinstance(size, int)]
    if len(sizes) == len(axes):
        return builder.integers([math.prod(sizes)])
    return builder.op("ReduceProd", [builder.size(data, builder.integers(axes))])


def _through_openvino(
    model: CheckedModel, edited: ir.Model, own: set[ir.Node], foreign: list[str], where: Where
) -> OpenVINOModel:
    """Convert a model whose splits are set already by OpenVINO's frontend."""
    if not is_installed("openvino"):
        raise ModelError(
            f"OpenVINO's converter is needed for {', '.join(foreign[:8])}: pip install splitops[openvino]",
            where,
        )
    edited.graph.opset_imports[_DOMAIN] = 1
    proto = model.to_proto(edited)
    replace_empty_constants(proto)
    rows = [
        (schema.name, schema.since_version, tuple(attribute.name for attribute in schema.attributes))
        for schema in _versions_used(own)
    ]
    rows.append(("Reshape", 1, ("special_zero",)))
    return _with_inputs(from_bytes(*to_ir(proto.SerializeToString(), where, extensions=rows)), edited, where)


def _with_inputs(converted: OpenVINOModel, model: ir.Model, where: Where) -> OpenVINOModel:
    """Return a model with every input that ONNX has: OpenVINO's frontend drops those that no node reads."""
    found = {name: layer for layer in converted.inputs for name in (layer.name, *layer.outputs[0].names)}
    wanted = [value for value in model.graph.inputs if not value.is_initializer()]
    missing = [value for value in wanted if value.name not in found]
    if not missing:
        return converted
    builder = Builder()
    for value in missing:
        declare_input(builder, value, where)
    first = 1 + max((layer.id for layer in converted.graph.layers), default=-1)
    for number, layer in enumerate(builder.model().graph.layers):
        found[layer.name] = replace(layer, id=first + number)
    layers = dict.fromkeys(found[value.name or ""].id for value in wanted)
    by_id = {layer.id: layer for layer in (*converted.graph.layers, *found.values())}
    order = dict.fromkeys((*layers, *by_id))
    graph = replace(converted.graph, layers=tuple(by_id[id_] for id_ in order))
    return converted.with_graph(graph)


def _versions_used(own: set[ir.Node]) -> list[OperatorSchema]:
    """Return the versions that were stated."""
    named = {(node.op_type, node.version) for node in own if node.domain == _DOMAIN}
    return [
        schema
        for schema in SCHEMAS
        if schema.domain == _DOMAIN and (schema.name, schema.since_version) in named
    ]
