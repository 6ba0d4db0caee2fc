"""Conversion of an ONNX model to OpenVINO.

First, every split is rewritten for OpenVINO: usually as a node of domain ``openvino`` with the inputs and
attributes of OpenVINO's layer, otherwise as Slices. If all other operators mean the same in OpenVINO, the
model is then written directly. Otherwise OpenVINO's frontend converts it. An extension creates the layers of
the splits, so that the frontend's own conversion of splits is never used.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import onnx.inliner
import onnx_ir as ir

from splitops.errors import ModelError, Rule, SplitError, Where
from splitops.models.convert.onnx_to_onnx import ModelConversion, annotate_for
from splitops.models.convert.openvino_layers import declare_input, find_unwritable, write_model
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
from splitops.models.graph.onnx import find_shape
from splitops.models.graph.op_builder import OnnxOpBuilder
from splitops.models.quirks import find, may_be_in
from splitops.models.simplify.driver import annotate_model, rewrite
from splitops.models.simplify.registry import REWRITES
from splitops.models.split_nodes.styles import ConversionTarget, SplitStyle
from splitops.spec.operators import SCHEMAS, OperatorSchema
from splitops.spec.sizes.dims import Dim, Shape, to_exact

_DOMAIN: Final = "openvino"
_PREVENT_FUSION: Final = (REWRITES["prevent-fusion"],)
"""The rewrites of splits that OpenVINO would fuse wrongly."""


def convert_onnx(
    model: CheckedModel, edited: ir.Model, target: ConversionTarget, style: SplitStyle
) -> Conversion:
    """Convert ``edited``, a copy of the ONNX model ``model``, to OpenVINO."""
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
        style = SplitStyle.SAME  # OpenVINO would fuse the splits again if they set a number of parts
    converting = ModelConversion(edited, where)
    converting.lower(edited.graph, Rule.OPERATOR_UNKNOWN)
    converting.rewrite_splits([node for _, node in iter_nodes(edited.graph)], target, opset, style)
    _replace_flatten(edited, converting.editor.names, opset)
    changes = tuple(converting.changes)
    if any(change.status is Status.REJECTED for change in changes):
        return Conversion(str(target), changes, None)
    try:
        unwritable = find_unwritable(edited, converting.split_nodes)
        if unwritable:
            converted = _convert_by_openvino(model, edited, converting.split_nodes, unwritable, where)
        else:
            converted = write_model(edited, opset, where)
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


def _replace_flatten(model: ir.Model, names: FreshNames, opset: int) -> None:
    """Replace Flattens that merge possibly empty leading axes: OpenVINO's frontend converts them wrongly."""
    for node in [
        node for _, node in iter_nodes(model.graph) if node.op_type == "Flatten" and not node.domain
    ]:
        data, declared = node.inputs[0], node.attributes.get("axis")
        shape = None if data is None else find_shape(data)
        axis = 1 if declared is None else declared.as_int()
        axis += len(shape) if shape is not None and axis < 0 else 0
        if data is None or shape is None or axis < 2 or all(_is_positive(size) for size in shape[:axis]):
            continue
        builder = OnnxOpBuilder(opset, names, make_stem(node))
        sizes = [_multiply(builder, data, shape, span) for span in (range(axis), range(axis, len(shape)))]
        inputs, attributes = [data, builder.add("Concat", sizes, {"axis": 0})], {"special_zero": 0}
        rows = builder.add("Reshape", inputs, attributes)
        builder.nodes[-1].domain = _DOMAIN
        builder.replace(node, [rows])


def _is_positive(size: Dim) -> bool:
    return (size if isinstance(size, int) else size.lo) > 0


def _multiply(builder: OnnxOpBuilder, data: ir.Value, shape: Shape, axes: range) -> ir.Value:
    """Return the product of the sizes of ``axes`` as a value of shape [1]."""
    sizes = to_exact(shape[axes.start : axes.stop])
    if sizes is not None:
        return builder.add_ints([math.prod(sizes)])
    return builder.add("ReduceProd", [builder.add_size(data, builder.add_ints(axes))])


def _convert_by_openvino(
    model: CheckedModel, edited: ir.Model, splits: set[ir.Node], operators: list[str], where: Where
) -> OpenVINOModel:
    """Convert a model with OpenVINO's frontend. Its splits must already be nodes of domain ``openvino``."""
    if not is_installed("openvino"):
        raise ModelError(
            f"OpenVINO's converter is needed for {', '.join(operators[:8])}: pip install splitops[openvino]",
            where,
        )
    edited.graph.opset_imports[_DOMAIN] = 1
    proto = model.to_proto(edited)
    replace_empty_constants(proto)
    rows = [
        (schema.name, schema.since_version, tuple(attribute.name for attribute in schema.attributes))
        for schema in _find_used_versions(splits)
    ]
    rows.append(("Reshape", 1, ("special_zero",)))
    return _add_inputs(from_bytes(*to_ir(proto.SerializeToString(), where, extensions=rows)), edited, where)


def _add_inputs(converted: OpenVINOModel, model: ir.Model, where: Where) -> OpenVINOModel:
    """Add the unused inputs of an ONNX model, which OpenVINO's frontend drops, in their original order."""
    by_name = {name: layer for layer in converted.inputs for name in (layer.name, *layer.outputs[0].names)}
    wanted = [value for value in model.graph.inputs if not value.is_initializer()]
    missing = [value for value in wanted if value.name not in by_name]
    if not missing:
        return converted
    builder = Builder()
    for value in missing:
        declare_input(builder, value, where)
    first = 1 + max((layer.id for layer in converted.graph.layers), default=-1)
    for number, layer in enumerate(builder.model().graph.layers):
        by_name[layer.name] = replace(layer, id=first + number)
    layers = dict.fromkeys(by_name[value.name or ""].id for value in wanted)
    by_id = {layer.id: layer for layer in (*converted.graph.layers, *by_name.values())}
    order = dict.fromkeys((*layers, *by_id))
    graph = replace(converted.graph, layers=tuple(by_id[id_] for id_ in order))
    return converted.with_graph(graph)


def _find_used_versions(nodes: set[ir.Node]) -> list[OperatorSchema]:
    """Return the schemas of the OpenVINO split operators among ``nodes``."""
    named = {(node.op_type, node.version) for node in nodes if node.domain == _DOMAIN}
    return [
        schema
        for schema in SCHEMAS
        if schema.domain == _DOMAIN and (schema.name, schema.since_version) in named
    ]
