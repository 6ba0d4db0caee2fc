"""ONNX models on an engine: what it would not do as specified is done here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir
from onnx import ModelProto

from splitops.models.engines.emptiness import EMPTY_TENSOR, EmptyTensorError
from splitops.models.engines.engine import Compiled, Engine, EngineError, Program
from splitops.models.formats.onnx.structure import functions_of
from splitops.models.graph.onnx import INITIALIZERS_OF_THEIR_OWN
from splitops.models.graph.onnx_model import as_graph
from splitops.models.infer.onnx_types import types_of_values
from splitops.models.running.declared import onnx_inputs
from splitops.models.running.onnx.model import Model, read_to_run
from splitops.models.running.onnx.regions import Partition
from splitops.models.sessions.fragile import Watch, fragile_nodes, has_fragile
from splitops.models.sessions.legality import (
    Analysis,
    Borders,
    OwnNodes,
    Place,
    analyse,
    complex_values,
    find_borders,
    legal_model,
    located_nodes,
    nodes_made_of,
)
from splitops.models.sessions.program import SessionProgram, reject_invalid
from splitops.onnx.reference import node_label

_ATTEMPTS: Final = 16
"""How often a model is cut anew, each time because of another operator that a runtime lacks."""
_LACKING: Final = "no implementation"


class OnnxProgram(SessionProgram):
    """An ONNX model that is ready to run on an engine.

    Attributes:
        borders: what is evaluated here.
        partition: the regions of the engine; None where it has the whole file.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | ModelProto | ir.Model,
        engine: Engine | None,
        *,
        fallback: bool,
        max_body_runs: int | None,
        allow_links: bool,
    ) -> None:
        super().__init__(engine, fallback=fallback, max_body_runs=max_body_runs)
        self._source = model
        self._allow_links = allow_links
        self._compiled: list[Compiled] = []
        self.partition: Partition | None = None
        self.borders = Borders()
        proto = self._read()
        self.inputs = onnx_inputs(proto.graph)
        found = analyse(proto, self._where, engine)
        self.sites = found.sites
        reject_invalid(found.sites, {value.name for value in proto.graph.input})
        self.outputs = tuple(value.name for value in proto.graph.output)
        if proto.ir_version < INITIALIZERS_OF_THEIR_OWN:
            self._constants = {tensor.name for tensor in proto.graph.initializer}
        self._start(lambda engine: self._on_engine(proto, engine, found), lambda: Model(proto, self._where))

    @property
    def programs(self) -> list[Compiled]:
        """What the engine has compiled so far."""
        return self._compiled if self.partition is None else self.partition.programs

    def close(self) -> None:
        """Close what the engine has compiled, and drop the regions, which hold the partition in turn."""
        super().close()
        self._compiled.clear()
        if self.partition is not None:
            self.partition.regions.clear()

    def _nodes(self) -> ir.Model:
        return as_graph(self._read(), self._where)

    def _undecided(self, error: EmptyTensorError) -> set[Place]:
        names = set(error.undecided)
        return {
            (None, node_label(node))
            for node in self._read().graph.node
            if names.intersection(node.output) and names.isdisjoint(node.input)
        }

    def _prepared_anew(self, engine: Engine) -> Model:
        proto = self._read()
        return self._on_engine(proto, engine, analyse(proto, self._where, engine))

    def _without_engine(self) -> Model:
        return Model(self._read(), self._where)

    # Reading

    def _read(self) -> ModelProto:
        """Read the model; large weights in other files stay there."""
        proto, self._where = read_to_run(self._source, allow_links=self._allow_links)
        return proto

    # Preparing

    def _on_engine(self, proto: ModelProto, engine: Engine, found: Analysis) -> Model:
        given = proto
        if found.reasons or found.fused:
            proto, self.rewritten, found = legal_model(proto, found, self._where, engine)
        self.borders = find_borders(proto, found, count_bodies=self._counts)
        self.reasons = self.borders.nodes
        self.borders.add(self._apart, EMPTY_TENSOR)
        if engine.name == "onnxruntime" and has_fragile(proto):
            fragile = fragile_nodes(as_graph(proto, self._where), self._where, {})
            self.borders.add(fragile.met, "onnxruntime.empty-tensor")
            self.borders.guarded = fragile.perhaps
            self._foresee = Watch(self._read, self._where, always=fragile.inside).met
        for _ in range(_ATTEMPTS):
            try:
                if given is proto and not self.borders:
                    whole = self._from_file(proto, engine)
                    if whole is not None:
                        return whole
                return self._cut(proto, engine)
            except EngineError as error:
                if not self._learned(proto, error):
                    raise
        return self._cut(proto, engine)

    def _learned(self, proto: ModelProto, error: EngineError) -> bool:
        """Return whether a rejection tells of something more that is to be evaluated here."""
        borders = self.borders
        if error.lacks and error.node:
            named = [place for place, _, _ in located_nodes(proto) if place[1] == error.node]
            if borders.add(named or [(None, error.node)], _LACKING):
                return True
        if error.lacks and error.operator and not error.node:  # it has made it of another one
            groups = nodes_made_of(proto, self._where, error.operator)
            if any(borders.add(group, _LACKING) for group in groups):
                return True
        if error.lacks and error.operator and error.operator not in borders.operators:
            borders.operators |= {error.operator}
            return True
        if not borders.values:
            borders.values = complex_values(proto, self._where)
            return bool(borders.values)
        return False

    def _from_file(self, proto: ModelProto, engine: Engine) -> Model | None:
        """Let an engine read the model from its file; None where it may not, or lacks an operator."""
        if not isinstance(self._source, str | os.PathLike) or self._allow_links:
            return None
        try:
            compiled = engine.compile(Program(Path(self._source), tuple(self.outputs), self._where))
        except EngineError as error:
            if not error.lacks:
                raise
            return None
        self._compiled = [compiled]
        return Model(proto, self._where, foreign=compiled.run)

    def _cut(self, proto: ModelProto, engine: Engine) -> Model:
        types = types_of_values(proto, self._where) if self.borders else _declared(proto)
        partition = Partition(
            engine,
            OwnNodes(self.borders, proto),
            types,
            functions_of(proto),
            proto.ir_version,
            self.borders.guarded,
        )
        model = Model(proto, self._where, partition)
        self.partition = partition
        return model


def _declared(proto: ModelProto) -> dict[tuple[str | None, str], Any]:
    """Return the types that the main graph declares of its ends."""
    return {
        (None, value.name): value.type
        for value in (*proto.graph.input, *proto.graph.output)
        if value.HasField("type")
    }
