"""Prepare models in OpenVINO IR for the OpenVINO engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from splitops.errors import Where
from splitops.models.convert.openvino_to_onnx import convert_for_evaluator
from splitops.models.engines.engine import Engine, EngineError, Program
from splitops.models.formats.openvino import OpenVINOModel, make_output_names, open_model
from splitops.models.formats.openvino.model import Edge, Endpoint, Layer, Port, remove_tensor_names
from splitops.models.formats.openvino.nodes import from_nodes, get_layer, get_port, to_nodes
from splitops.models.formats.openvino.port_maps import read_loop
from splitops.models.formats.openvino.splits import is_misspelt
from splitops.models.formats.openvino.writer import to_bytes
from splitops.models.formats.walk import iter_all_nodes
from splitops.models.graph.onnx import annotate
from splitops.models.graph.split_nodes import is_split, iter_split_nodes
from splitops.models.infer.layers import get_initial_value
from splitops.models.running.input_specs import read_openvino_inputs
from splitops.models.running.inputs import Inputs
from splitops.models.running.onnx.model import Model
from splitops.models.sessions.fallback import COUNTED, REPEATING, find_part_sizes, find_refusal, make_key
from splitops.models.sessions.program import Prepared, SessionProgram, reject_invalid


class OpenVINOIRProgram(SessionProgram):
    """A model of OpenVINO IR, prepared for OpenVINO or for the reference evaluator."""

    def __init__(
        self,
        model: str | os.PathLike[str] | OpenVINOModel,
        engine: Engine | None,
        *,
        fallback: bool,
        max_iterations: int | None,
        isolated: Callable[[], Engine],
        allow_links: bool,
    ) -> None:
        super().__init__(engine, fallback=fallback, max_iterations=max_iterations, isolated=isolated)
        self._model = open_model(model, allow_links=allow_links)
        self._where = Where(model=self._model.file)
        nodes = to_nodes(self._model)
        inputs = _annotate_sources(nodes, self._where)
        split_nodes = list(iter_split_nodes(nodes, self._where))
        needed = self._model.graph.live_ids
        reject_invalid(
            (split_node for split_node in split_nodes if get_layer(split_node.node).id in needed), inputs
        )
        self.splits = tuple(replace(split_node, node=None) for split_node in split_nodes)
        self.inputs = read_openvino_inputs(self._model, self._where)
        self.outputs = make_output_names(self._model)
        self._start()

    def _make_nodes(self) -> ir.Model:
        return to_nodes(self._model)

    def _prepare_reference(self) -> Prepared:
        source = self._model.with_graph(self._model.graph.drop_unused())
        proto = convert_for_evaluator(source, self._where)
        named = [(f"input{at}", spec) for at, spec in enumerate(self.inputs)]
        return Model(proto, self._where, Inputs(named), self.outputs)

    def _prepare_engine(self, engine: Engine, *, guarded: bool = False) -> Prepared:
        source = self._model.with_graph(self._model.graph.drop_unused())
        nodes = to_nodes(source)
        repeats = any(node.op_type in REPEATING for node in iter_all_nodes(nodes))
        refusal = COUNTED if self._counts and repeats else find_refusal(nodes)
        for layer in (layer for _, graph in source.iter_graphs() for layer in graph.layers):
            if layer.type == "TensorIterator" and not _has_used_slices(layer):
                refusal = f"{layer} does not read its sliced inputs, and OpenVINO would run it only once"
            if layer.type == "Parameter" and layer.has_dynamic_type:
                refusal = f"{layer} has no element type"
            if is_misspelt(layer):
                refusal = f"{layer} has a misspelt type that only OpenVINO accepts, without checks"
        if refusal is not None:
            raise EngineError(engine.name, f"cannot run the model: {refusal}", self._where)
        checks, split_nodes = self._rewrite(nodes, engine)
        given = from_nodes(nodes)
        document, weights = to_bytes(_add_result(given, checks.numbers))
        needed = {path: graph.live_ids for path, graph in given.iter_graphs()}
        settled = [
            (make_key(split_node)[1] or "", sizes)
            for split_node in split_nodes
            if get_layer(split_node.node).id in needed[split_node.where.graph]
            and (sizes := find_part_sizes(split_node))
        ]
        program = Program(
            document,
            (*self.outputs, *(["checks"] if checks.numbers is not None else [])),
            self._where,
            binary=np.frombuffer(weights, np.uint8),
            sizes=settled,
            guarded=guarded,
        )
        runner = self._get_child() if guarded else engine
        return self._compile(runner, program, Inputs(list(enumerate(self.inputs))), checks.rules)


def _has_used_slices(iterator: Layer) -> bool:
    ports = read_loop(iterator, iterator.where)
    sliced = {entry.inner for entry in ports.inputs if entry.slicing is not None}
    return any(edge.source.layer in sliced for edge in ports.body.edges)


def _annotate_sources(model: ir.Model, where: Where) -> set[str]:
    """Annotate the Parameters and Consts of the main graph that splits read.

    Return the names of the outputs of these Parameters.
    """
    parameters: set[str] = set()
    for node in model.graph:
        if node.op_type in ("Parameter", "Const"):
            (value,) = node.outputs
            if any(is_split(use.node) for use in value.uses()):
                annotate(value, get_initial_value(get_layer(node), replace(where, node=node.name)))
                parameters.update([value.name or ""] if node.op_type == "Parameter" else ())
    return parameters


def _add_result(model: OpenVINOModel, numbers: ir.Value | None) -> OpenVINOModel:
    """Return a model without tensor names in the main graph, since they may repeat.

    ``numbers``, if any, become its last output.
    """
    graph, layers, edges = model.graph, [*map(remove_tensor_names, model.graph.layers)], [*model.graph.edges]
    node = None if numbers is None else numbers.producer()
    if numbers is not None and node is not None:
        result = Layer(max(graph.by_id) + 1, "checks", "Result", "opset1", inputs=(Port(0, "I64"),))
        layers.append(result)
        edges.append(Edge(Endpoint(get_layer(node).id, get_port(numbers).id), Endpoint(result.id, 0)))
    ordered = sorted(layers, key=lambda layer: layer.type == "Result")
    made = replace(graph, layers=tuple(ordered), edges=tuple(edges))
    return replace(model, version=max(model.version, 11)).with_graph(made)
