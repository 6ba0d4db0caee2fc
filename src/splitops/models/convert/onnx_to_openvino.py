"""An ONNX model as an OpenVINO model.

First every split becomes a node of domain ``openvino`` that states what OpenVINO's layer is to state. A model
of splits and data movers is then written as it stands; one with other operators goes through OpenVINO's own
frontend, where an extension turns these nodes into the layers: its reading of ONNX's splits is never asked.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx.inliner
import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import ModelError, Rule, SplitError, Where, rule_error
from splitops.models.convert.forms import Form, Method, Restatement, Target
from splitops.models.convert.graph_arithmetic import lengths_of_size
from splitops.models.convert.onnx_graph import Tape, graphs_of, replace_node, type_of
from splitops.models.convert.onnx_splits import given_lengths, read_site
from splitops.models.convert.onnx_to_onnx import (
    Rewriting,
    describe_before,
    describe_restated,
    editable,
    finished,
    is_split,
    model_opset,
    status_of,
)
from splitops.models.convert.openvino_layers import unwritable, written_model
from splitops.models.convert.report import Change, Conversion, Status
from splitops.models.convert.restating import restate
from splitops.models.onnx_model import check_model
from splitops.models.openvino_ir import OpenVINOModel, from_bytes

__all__ = ["convert"]

_DOMAIN: Final = "openvino"
_TARGET: Final = Target(_DOMAIN)


def convert(model: ModelProto, form: Form, where: Where) -> Conversion:
    """Convert a well-formed ONNX model to OpenVINO."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
        check_model(model, where)
    opset = model_opset(model) or 1
    rewriting = Rewriting(editable(model, where, form), where)
    own = _state_splits(rewriting, opset, form)
    changes = tuple(rewriting.changes)
    if any(change.status is Status.REFUSED for change in changes):
        return Conversion(str(_TARGET), changes, None)
    try:
        foreign = unwritable(rewriting.model, own)
        if foreign:
            converted = _through_openvino(rewriting.model, model, foreign, where)
        else:
            converted = written_model(rewriting.model, opset, where)
    except SplitError as error:
        return Conversion(str(_TARGET), changes, None, error)
    return Conversion(str(_TARGET), changes, converted)


def _state_splits(rewriting: Rewriting, opset: int, form: Form) -> set[ir.Node]:
    """Replace every split by a node of domain openvino; return all nodes that were made for it."""
    owner = rewriting.model.graph
    lowered = rewriting.lower(owner, None, opset, Rule.OPERATOR_UNKNOWN)
    made: set[ir.Node] = set()
    for path, graph in list(graphs_of(owner)):
        for node in [node for node in graph if is_split(node)]:
            where = rewriting.place(path, node)
            before = lowered.get(node, str(node.op_type))
            try:
                if node in rewriting.refused:
                    raise rewriting.refused[node]
                site = read_site(node, opset, where)
                before = lowered.get(node) or describe_before(site)
                restated = restate(site, _TARGET, form)
                if site.overridable and restated.division is None:
                    names = ", ".join(sorted(site.overridable))
                    raise rule_error(
                        str(restated.row),
                        Rule.LENGTHS_MISSING,
                        f"the lengths {names} are a default that the caller can replace",
                        "OpenVINO has no defaults for inputs",
                        where=where,
                    )
                tape = Tape(opset, rewriting.names, node.name or node.outputs[0].name or "split")
                _state(node, restated, given_lengths(node, site, tape), tape)
                made.update(tape.nodes)
            except SplitError as error:
                rewriting.changes.append(Change(where, Status.REFUSED, before, error=error))
                continue
            status = Status.REWRITTEN if node in lowered else status_of(restated)
            after = f"openvino {describe_restated(restated)}"
            rewriting.changes.append(Change(where, status, before, after))
    return made


def _state(node: ir.Node, restated: Restatement, lengths: ir.Value | None, tape: Tape) -> None:
    data, row = node.inputs[0], restated.row
    assert data is not None
    assert row is not None
    axis = restated.axis or 0
    inputs: list[ir.Value] = [data, tape.constant(np.array(axis, np.int64), "axis")]
    attributes: dict[str, Any] = {}
    division = restated.division
    if restated.method is Method.COMPUTED and division is not None:
        inputs.append(lengths_of_size(division, tape.size(data, tape.integers([axis])), tape))
    elif division is None:
        assert lengths is not None
        kind = restated.lengths_type
        if kind is not None and kind is not type_of(lengths):
            lengths = tape.cast(lengths, kind)
        inputs.append(lengths)
    elif row.count is not None:
        attributes[row.count.name] = division.count
    else:
        inputs.append(tape.integers(division.lengths))
    outputs = [ir.Value(name=tape.name("part")) for _ in range(restated.outputs)]
    made = ir.convenience.convert_attributes(attributes)
    name = tape.name(row.name)
    tape.nodes.append(ir.Node(_DOMAIN, row.name, inputs, made, outputs=outputs, name=name))
    read = [part if old.name else None for part, old in zip(outputs, node.outputs, strict=False)]
    replace_node(node, tape.nodes, read)


def _through_openvino(
    edited: ir.Model, original: ModelProto, foreign: list[str], where: Where
) -> OpenVINOModel:
    """Convert a model whose splits are stated already by OpenVINO's frontend."""
    if importlib.util.find_spec("openvino") is None:
        raise ModelError(
            f"OpenVINO's converter is needed for {', '.join(foreign[:8])}: pip install splitops[openvino]",
            where,
        )
    openvino: Any = importlib.import_module("openvino")
    edited.graph.opset_imports[_DOMAIN] = 1
    proto = finished(edited, original)
    try:
        extensions = _extensions()
        converted = openvino.convert_model(io.BytesIO(proto.SerializeToString()), extension=extensions)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.xml"
            openvino.save_model(converted, path, compress_to_fp16=False)
            return from_bytes(path.read_bytes(), path.with_suffix(".bin").read_bytes())
    except SplitError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"OpenVINO cannot convert the model: {reason[:300]}", where) from error


def _extensions() -> list[Any]:
    frontend: Any = importlib.import_module("openvino.frontend.onnx")
    opset: Any = importlib.import_module("openvino.opset1")

    def split(node: Any) -> list[Any]:
        made = opset.split(node.get_input(0), node.get_input(1), node.get_attribute("num_splits"))
        return list(made.outputs())

    def variadic_split(node: Any) -> list[Any]:
        made = opset.variadic_split(node.get_input(0), node.get_input(1), node.get_input(2))
        return list(made.outputs())

    return [
        frontend.ConversionExtension("Split", _DOMAIN, split),
        frontend.ConversionExtension("VariadicSplit", _DOMAIN, variadic_split),
    ]
