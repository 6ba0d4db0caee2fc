"""Prepare ONNX models for an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from onnx import ModelProto, TensorProto

from splitops.errors import Where
from splitops.models.engines.empty_tensors import make_crash_error
from splitops.models.engines.engine import Engine, EngineError, Program
from splitops.models.formats.model import CheckedModel
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.formats.onnx.structure import find_inlining_problem, iter_located_graphs, iter_nodes
from splitops.models.formats.onnx.tensors import find_folder, is_external, locate_external_data, read_tensor
from splitops.models.formats.walk import MIN_IR_VERSION_OF_CONSTANTS, iter_all_nodes
from splitops.models.running.input_specs import read_onnx_inputs
from splitops.models.running.inputs import Inputs
from splitops.models.running.onnx.model import Model, read_to_run
from splitops.models.sessions.crashing_ops import find_crash_risk, has_crashing_op
from splitops.models.sessions.fallback import (
    COUNTED,
    REPEATING,
    Analysis,
    analyse,
    find_refusal,
    may_not_iterate,
)
from splitops.models.sessions.program import Prepared, SessionProgram, reject_invalid
from splitops.onnx.reference import node_label
from splitops.spec.elements.types import from_onnx

_INLINE: Final = 1024
"""Minimum size in bytes of an embedded initializer that is passed to the engine outside the model."""
_IN_MEMORY: Final = "weights"
"""The file name in the model for weights that are passed in memory."""


class OnnxProgram(SessionProgram):
    """An ONNX model, prepared for an engine or for the reference evaluator."""

    def __init__(
        self,
        model: str | os.PathLike[str] | ModelProto | ir.Model,
        engine: Engine | None,
        *,
        fallback: bool,
        max_iterations: int | None,
        isolated: Callable[[], Engine],
        allow_links: bool,
    ) -> None:
        super().__init__(engine, fallback=fallback, max_iterations=max_iterations, isolated=isolated)
        self._source = model
        self._allow_links = allow_links
        proto = self._read()
        self.inputs = read_onnx_inputs(proto.graph)
        analysis = analyse(proto, self._where, engine)
        self.splits = analysis.split_nodes
        reject_invalid(analysis.split_nodes, {value.name for value in proto.graph.input})
        self.outputs = tuple(value.name for value in proto.graph.output)
        if proto.ir_version < MIN_IR_VERSION_OF_CONSTANTS:
            self._constants = {tensor.name for tensor in proto.graph.initializer}
        self._analysed: tuple[ModelProto, Analysis] | None = (proto, analysis)
        self._start()
        self._analysed = None

    def _make_nodes(self) -> ir.Model:
        return deserialize_model(self._read(), self._where)

    def _prepare_reference(self) -> Model:
        return Model(self._read(), self._where)

    def _read(self) -> ModelProto:
        """Read and check the model, and set its location. Large weights in other files are not read."""
        proto, self._where = read_to_run(self._source, allow_links=self._allow_links)
        return proto

    def _prepare_engine(self, engine: Engine, *, guarded: bool = False) -> Prepared:
        proto, analysis = self._analysed or (proto := self._read(), analyse(proto, self._where, engine))
        runner = self._get_child() if guarded else engine
        repeats = any(node.op_type in REPEATING for node in iter_nodes(proto))
        refusal, has_loops, whole = find_inlining_problem(proto), False, proto
        reject: Callable[[Mapping[Any, Any]], None] | None = None
        if self._counts and (repeats or proto.functions):
            refusal = COUNTED
        elif refusal is None and repeats:
            whole = inline_functions(proto)
            nodes = deserialize_model(whole, self._where)
            refusal = find_refusal(nodes)
            has_loops = any(may_not_iterate(node, engine.name) for node in iter_all_nodes(nodes))
        if refusal is not None:
            raise EngineError(engine.name, f"cannot run the model: {refusal}", self._where)
        if engine.name == "onnxruntime" and has_crashing_op(proto):
            risk = find_crash_risk(deserialize_model(proto, self._where), self._where)
            if risk.certain:
                raise make_crash_error(risk.certain, self._where)
            reject = partial(_reject_empty, risk.operators, self._where)
            runner = self._get_child() if risk.possible else engine
        rewritten, rules, outputs = proto, None, self.outputs
        if analysis.reasons or analysis.fused or analysis.unchecked or has_loops:
            whole = inline_functions(whole)
            opened = CheckedModel(self._where, whole)
            edited = opened.copy(name_unread=False)
            rules = self._rewrite(edited, engine)[0].rules
            rewritten = opened.to_proto(edited)
            outputs = tuple(value.name for value in rewritten.graph.output)
        defaults: dict[str, Any] = {}
        if engine.name == "openvino" and proto.ir_version >= MIN_IR_VERSION_OF_CONSTANTS:
            rewritten, defaults = _remove_defaults(rewritten, self._where)
        from_file = rewritten is proto and not self._allow_links
        if from_file and isinstance(self._source, str | os.PathLike):
            program = Program(Path(self._source), outputs, self._where)
        else:
            program = make_program(rewritten, outputs, self._where)
        inputs = Inputs([(declared.name, declared) for declared in self.inputs])
        program = replace(program, guarded=guarded)
        return self._compile(runner, program, inputs, rules, defaults=defaults, check_feeds=reject)


def inline_functions(model: ModelProto) -> ModelProto:
    """Return a model with all calls of functions inlined."""
    if not model.functions:
        return model
    from onnx.inliner import inline_local_functions

    return inline_local_functions(model)


def _reject_empty(operators: tuple[str, ...], where: Where, feeds: Mapping[Any, Any]) -> None:
    """Raise EmptyTensorError if an input, or an element of a sequence, is empty: ``operators`` may crash."""
    for value in feeds.values():
        arrays = value if isinstance(value, list) else [value]
        if any(isinstance(array, np.ndarray) and not array.size for array in arrays):
            raise make_crash_error(operators, where)


def _remove_defaults(proto: ModelProto, where: Where) -> tuple[ModelProto, dict[str, Any]]:
    """Return a model without the defaults of its inputs, and the defaults. OpenVINO would freeze them."""
    inputs = {value.name for value in proto.graph.input}
    defaults = {tensor.name: tensor for tensor in proto.graph.initializer if tensor.name in inputs}
    if not defaults:
        return proto, {}
    made = ModelProto()
    made.CopyFrom(proto)
    kept = [tensor for tensor in made.graph.initializer if tensor.name not in defaults]
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    return made, {name: read_tensor(tensor, where) for name, tensor in defaults.items()}


# Serialise a model for an engine


def make_program(proto: ModelProto, outputs: tuple[str, ...], where: Where) -> Program:
    """Make the program of a model.

    Most large weights are not serialised: they stay in memory or in their file. Those with packed elements,
    and those that are not stored as raw data, are.
    """
    slim = ModelProto(ir_version=max(proto.ir_version, 8), opset_import=proto.opset_import)
    slim.functions.extend(proto.functions)
    slim.graph.name = proto.graph.name
    for field in ("node", "input", "output", "value_info", "sparse_initializer", "quantization_annotation"):
        getattr(slim.graph, field).extend(getattr(proto.graph, field))
    slim.metadata_props.extend(proto.metadata_props)
    for _, graph in iter_located_graphs(slim):
        _name_nodes(graph.node)
    for function in slim.functions:
        _name_nodes(function.node)
    weights, folder = _add_initializers(proto, slim, where)
    return Program(slim.SerializeToString(), outputs, where, weights, folder=folder)


def _name_nodes(nodes: Any) -> None:
    """Set the name of each node to its label in splitops' messages, so that runtimes report the same name."""
    for node in nodes:
        node.name = node_label(node)


def _add_initializers(proto: ModelProto, slim: ModelProto, where: Where) -> tuple[dict[str, Any], str | None]:
    """Add the initializers to ``slim``. Return the arrays outside of it, and the folder of its external data.

    The arrays are large initializers, and external ones that are not in that folder or may be links.
    """
    weights: dict[str, Any] = {}
    folder: str | None = None
    inputs = {value.name for value in proto.graph.input}
    for tensor in proto.graph.initializer:
        declared: TensorProto = slim.graph.initializer.add()
        if is_external(tensor):
            place = _find_file(tensor, where)
            if place is not None and folder in (None, place[0]):
                folder, location = place
                declared.CopyFrom(tensor)
                for entry in declared.external_data:
                    if entry.key == "location":
                        entry.value = location
                continue
        elif not _is_large(tensor) or tensor.name in inputs:
            declared.CopyFrom(tensor)
            continue
        array = read_tensor(tensor, where)
        weights[tensor.name] = array
        declared.name, declared.data_type = tensor.name, tensor.data_type
        declared.dims.extend(tensor.dims)
        declared.data_location = TensorProto.EXTERNAL
        for key, value in (("location", _IN_MEMORY), ("offset", 0), ("length", array.nbytes)):
            declared.external_data.add(key=key, value=str(value))
    return weights, folder


def _find_file(tensor: TensorProto, where: Where) -> tuple[str, str] | None:
    """Return the folder of external data and the path in it.

    Return None if the data has no known folder, or if links may lead out of it.
    """
    locate_external_data(tensor, where, None)
    location = next(entry.value for entry in tensor.external_data if entry.key == "location")
    folder, inner = find_folder(location)
    return None if folder is None or folder.allow_links else (str(folder.path), inner)


def _is_large(tensor: TensorProto) -> bool:
    kind = from_onnx(tensor.data_type)
    packed = kind is None or kind.packed or kind.bits == 0
    return not packed and tensor.HasField("raw_data") and tensor.ByteSize() >= _INLINE
