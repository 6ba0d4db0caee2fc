"""An ONNX model as an OpenVINO model.

First every split becomes a node of domain ``openvino`` that declares what OpenVINO's layer is to state. A
model of splits and data movers is then written unchanged; one with other operators goes through
OpenVINO's own frontend, where an extension turns these nodes into the layers: its reading of ONNX's
splits is never asked.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import onnx.inliner
import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import ModelError, Rule, SplitError, Where, rule_error
from splitops.ground.progress import counted
from splitops.models.convert.onnx_to_onnx import (
    Rewriting,
    editable,
    status_of,
)
from splitops.models.convert.openvino_layers import declare_input, unwritable, written_model
from splitops.models.convert.report import Change, Conversion, Status
from splitops.models.engines import is_installed
from splitops.models.engines.openvino_process import to_ir
from splitops.models.formats.onnx import check_model
from splitops.models.formats.onnx.structure import opset_imports
from splitops.models.formats.openvino import Builder, OpenVINOModel, from_bytes
from splitops.models.graph.fusions import may_be_fused_in
from splitops.models.graph.onnx import graphs_of, shape_of, stem
from splitops.models.graph.onnx_model import written
from splitops.models.graph.onnx_splits import write_site
from splitops.models.graph.openvino import from_nodes, to_nodes
from splitops.models.graph.pen import OnnxPen
from splitops.models.graph.sites import is_split
from splitops.models.simplify.registry import REWRITES
from splitops.models.simplify.rounds import note_known, rewrite
from splitops.models.sites import Origin
from splitops.models.sites.forms import Form, Target
from splitops.models.sites.restating import restate
from splitops.spec.operators import SCHEMAS, OperatorSchema
from splitops.spec.sizes.dims import Dim, Shape

_DOMAIN: Final = "openvino"
_APART: Final = (REWRITES["kept-apart"],)
"""What is done where OpenVINO would fuse splits wrongly."""


def convert_onnx(model: ModelProto, target: Target, form: Form, where: Where) -> Conversion:
    """Convert a well-formed ONNX model to OpenVINO."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
        check_model(model, where)
    opset = opset_imports(model).get("", 1)
    rewriting = Rewriting(editable(model, where, form), where)
    if may_be_fused_in(rewriting.model) and rewrite(rewriting.model, _APART, {}, where):
        form = Form.SAME  # a number of parts would be fused again
    own = _state_splits(rewriting, opset, target, form)
    _state_flattening(rewriting, opset)
    changes = tuple(rewriting.changes)
    if any(change.status is Status.REJECTED for change in changes):
        return Conversion(str(target), changes, None)
    try:
        foreign = unwritable(rewriting.model, own)
        if foreign:
            converted = _through_openvino(rewriting.model, model, own, foreign, where)
        else:
            converted = written_model(rewriting.model, opset, where)
    except SplitError as error:
        return Conversion(str(target), changes, None, error)
    nodes = to_nodes(converted)
    if may_be_fused_in(nodes):
        note_known(nodes, where)
        rewrite(nodes, _APART, {}, where)
        converted = from_nodes(nodes)
    return Conversion(str(target), changes, converted)


def _state_splits(rewriting: Rewriting, opset: int, target: Target, form: Form) -> set[ir.Node]:
    """Replace every split by a node of domain openvino; return all nodes that were made for it."""
    owner = rewriting.model.graph
    lowered = rewriting.lower(owner, None, opset, Rule.OPERATOR_UNKNOWN)
    made: set[ir.Node] = set()
    for path, graph in list(graphs_of(owner)):
        for node in counted([node for node in graph if is_split(node)], "convert splits"):
            where = rewriting.place(path, node)
            site = rewriting.read(node, opset, where)
            before = lowered.get(node) or str(site)
            try:
                if node in rewriting.rejected:
                    raise rewriting.rejected[node]
                rewritten = restate(site, target, form)
                inputs = zip(site.inputs[1:], site.origins[1:], strict=True)
                names = ", ".join(sorted(name for name, origin in inputs if origin is Origin.DEFAULT))
                if names and rewritten.division is None:
                    raise rule_error(
                        str(rewritten.row),
                        Rule.LENGTHS_MISSING,
                        f"the lengths {names} are a default that the caller can replace",
                        "OpenVINO has no defaults for inputs",
                        where=where,
                    )
                pen = OnnxPen(opset, rewriting.names, stem(node))
                write_site(node, site, rewritten, pen)
                made.update(pen.nodes, [node])
            except SplitError as error:
                rewriting.changes.append(Change(where, Status.REJECTED, before, error=error))
                continue
            status = Status.REWRITTEN if node in lowered else status_of(rewritten)
            after = f"openvino {rewritten}"
            rewriting.changes.append(Change(where, status, before, after))
    return made


def _state_flattening(rewriting: Rewriting, opset: int) -> None:
    """Replace each Flatten whose rows may be none: OpenVINO's frontend takes a size of 0 for another one."""
    for _, graph in list(graphs_of(rewriting.model.graph)):
        for node in [node for node in graph if node.op_type == "Flatten" and not node.domain]:
            data, declared = node.inputs[0], node.attributes.get("axis")
            shape = None if data is None else shape_of(data)
            axis = 1 if declared is None else declared.as_int()
            axis += len(shape) if shape is not None and axis < 0 else 0
            if data is None or shape is None or axis < 2 or all(_is_positive(size) for size in shape[:axis]):
                continue
            pen = OnnxPen(opset, rewriting.names, stem(node))
            sizes = [_product(pen, data, shape, span) for span in (range(axis), range(axis, len(shape)))]
            inputs, attributes = [data, pen.op("Concat", sizes, {"axis": 0})], {"special_zero": 0}
            rows = pen.op("Reshape", inputs, attributes)
            pen.nodes[-1].domain = _DOMAIN
            pen.replace(node, [rows])


def _is_positive(size: Dim) -> bool:
    return (size if isinstance(size, int) else size.lo) > 0


def _product(pen: OnnxPen, data: ir.Value, shape: Shape, axes: range) -> ir.Value:
    """Return the product of some sizes, of shape [1]."""
    sizes = [size for size in shape[axes.start : axes.stop] if isinstance(size, int)]
    if len(sizes) == len(axes):
        return pen.integers([math.prod(sizes)])
    return pen.op("ReduceProd", [pen.size(data, pen.integers(axes))])


def _through_openvino(
    edited: ir.Model, original: ModelProto, own: set[ir.Node], foreign: list[str], where: Where
) -> OpenVINOModel:
    """Convert a model whose splits are set already by OpenVINO's frontend."""
    if not is_installed("openvino"):
        raise ModelError(
            f"OpenVINO's converter is needed for {', '.join(foreign[:8])}: pip install splitops[openvino]",
            where,
        )
    edited.graph.opset_imports[_DOMAIN] = 1
    proto = written(edited, original)
    rows = [
        (row.name, row.since_version, tuple(attribute.name for attribute in row.attributes))
        for row in _rows_of(own)
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
    first = 1 + max(layer.id for layer in converted.graph.layers)
    for number, layer in enumerate(builder.model().graph.layers):
        found[layer.name] = replace(layer, id=first + number)
    layers = dict.fromkeys(found[value.name or ""].id for value in wanted)
    by_id = {layer.id: layer for layer in (*converted.graph.layers, *found.values())}
    order = dict.fromkeys((*layers, *by_id))
    graph = replace(converted.graph, layers=tuple(by_id[id_] for id_ in order))
    return converted.with_graph(graph)


def _rows_of(own: set[ir.Node]) -> list[OperatorSchema]:
    """Return the versions that were stated."""
    named = {(node.op_type, node.version) for node in own if node.domain == _DOMAIN}
    return [row for row in SCHEMAS if row.domain == _DOMAIN and (row.name, row.since_version) in named]
