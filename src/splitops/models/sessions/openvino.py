"""OpenVINO IR on OpenVINO: what it would not do as specified is done here."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, Final, cast

import onnx_ir as ir

from splitops.errors import Where
from splitops.models.check.checking import find_fusions, find_limits, fusion_words
from splitops.models.check.conditions import Surroundings
from splitops.models.check.limits import Limit
from splitops.models.check.targets import Target
from splitops.models.engines.emptiness import EMPTY_TENSOR, EmptyTensorError, takes_empty_list
from splitops.models.engines.engine import Compiled, Engine, EngineError
from splitops.models.fix import SplitReport, fix
from splitops.models.formats.openvino import OpenVINOModel, opened, output_names
from splitops.models.formats.openvino.model import Endpoint, Layer
from splitops.models.graph.fusions import Fused, may_be_fused_in
from splitops.models.graph.openvino import layer_of, port_of, to_nodes
from splitops.models.graph.openvino_editor import OpenVINOEditor
from splitops.models.graph.sites import split_sites
from splitops.models.infer.walk import Found, Upstream
from splitops.models.known import Tensor
from splitops.models.movers import mover_of
from splitops.models.running.bodies import MAX_BODY_RUNS
from splitops.models.running.declared import openvino_inputs
from splitops.models.running.openvino.bodies import holds_split
from splitops.models.running.openvino.evaluator import Prepared, is_evaluated
from splitops.models.running.openvino.foreign import Settled, Sizes
from splitops.models.sessions.foretold import foretold_ir
from splitops.models.sessions.invalid import certain_ir_sites, reject_invalid
from splitops.models.sessions.rescue import LastRun, rescued
from splitops.models.sessions.settled import is_settled, known_sizes
from splitops.models.sites import Site
from splitops.spec.operators import FAMILY

_NARROWED: Final = ("int64", "uint64", "float64")
_ATTEMPTS: Final = 8
"""How often a model is prepared anew, each time without other layers that give or read empty tensors."""


class OpenVINOIRProgram:
    """A model of OpenVINO IR that is ready to run on OpenVINO.

    Args:
        model: a path or a model.
        engine: OpenVINO; None evaluates here what can be.
        fallback: whether everything that can be is evaluated here where OpenVINO rejects or fails.
        max_body_runs: how often bodies run at most; None is the usual bound.
        allow_links: of a path, whether links in its folder may lead out of it.

    Attributes:
        engine, rejection, last, rewritten, inputs, outputs, sites: as those of
            :class:`~splitops.models.sessions.onnx.OnnxProgram`.

    Raises:
        ModelError: the model is not well formed.
        RuleError: no run can make one of its splits valid.
        EngineError: OpenVINO rejects it.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | OpenVINOModel,
        engine: Engine | None,
        *,
        fallback: bool,
        max_body_runs: int | None,
        allow_links: bool,
    ) -> None:
        read = opened(model, allow_links=allow_links)
        self._model = read
        self._fallback = fallback
        self._most = MAX_BODY_RUNS if max_body_runs is None else max_body_runs
        self._where = Where(model=read.file)
        nodes = to_nodes(read)
        found = split_sites(nodes, self._where)
        self.sites: tuple[Site, ...] = tuple(replace(site, node=None) for site in found)
        self.inputs = openvino_inputs(read, self._where)
        self.outputs = output_names(read)
        self.rejection: EngineError | None = None
        self.last = LastRun()
        self.engine = engine
        self._borders: dict[str, str] = {}
        self.rewritten: tuple[SplitReport, ...] = ()
        self._here: Prepared | None = None
        self._lock = threading.Lock()
        reject_invalid(certain_ir_sites(nodes, self._where))
        if engine is not None:
            try:
                self._prepared = self._on_engine(engine, nodes, count_bodies=max_body_runs is not None)
            except EngineError as error:
                if not fallback:
                    raise
                self.rejection, self.engine = error, None
        if self.engine is None:
            self._prepared = self._here = Prepared(read)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model; see :meth:`Session.run`."""
        self.last.failure = None
        while True:
            prepared = self._prepared
            try:
                return prepared.run(inputs, max_body_runs=self._most)
            except EngineError as error:
                if self.engine is None or not (self._fallback or isinstance(error, EmptyTensorError)):
                    raise
                if not self._set_apart(prepared, error):
                    return self._rescued(inputs, error)

    def _set_apart(self, prepared: Prepared, error: EngineError) -> bool:
        """Prepare the model anew where other layers are to be run first; return whether that is done."""
        if not (isinstance(error, EmptyTensorError) and error.undecided):
            return False
        with self._lock:
            assert self.engine is not None
            if self._prepared is not prepared:  # by another thread
                return True
            survey = self._survey
            found = {layer.id for layer in survey.model.graph.layers if layer.name in error.layers}
            if found <= self._apart:
                return False
            self._apart |= found
            self._prepared = self._without(survey, self._apart, self.engine, count_bodies=self._counts)
        return True

    def _rescued(self, inputs: Mapping[str, Any], error: EngineError) -> dict[str, Any]:
        with self._lock:
            self._here = self._here or Prepared(self._model)
        here = self._here
        found = rescued(lambda: here.run(inputs, max_body_runs=self._most), error)
        self.last.failure = error
        return found

    def border(self, site: Site) -> str | None:
        """Return why a split node is evaluated here and not by OpenVINO; None where it is not."""
        if site.where.graph is not None:
            return "it is in a body"
        return self._borders.get(site.where.node or "")

    def foretold(self, inputs: Mapping[str, Any]) -> Iterator[Site]:
        """Yield what inference knows of the splits that OpenVINO evaluates, on some inputs."""
        if self.engine is not None and self.last.failure is None:
            for site in foretold_ir(self._model, self._where, inputs):
                if self.border(site) is None:
                    yield site

    @property
    def programs(self) -> list[Compiled]:
        """What OpenVINO has compiled so far."""
        return self._prepared.programs

    def close(self) -> None:
        """Close what OpenVINO has compiled."""
        for program in self.programs:
            program.close()

    def _on_engine(self, engine: Engine, nodes: ir.Model, *, count_bodies: bool) -> Prepared:
        survey = _Survey(self._model, nodes, self._where)
        if survey.reasons or survey.fused:
            survey, self.rewritten = survey.fixed()
        self._survey, self._counts = survey, count_bodies
        self._apart = apart = set(survey.apart) | survey.unfused()
        for _ in range(_ATTEMPTS):
            try:
                return self._without(survey, apart, engine, count_bodies=count_bodies)
            except EmptyTensorError as error:  # OpenVINO knows more shapes than we do
                found = {layer.id for layer in survey.model.graph.layers if layer.name in error.layers}
                if found <= apart:
                    raise
                apart |= found
        return self._without(survey, apart, engine, count_bodies=count_bodies)

    def _without(self, survey: _Survey, apart: Set[int], engine: Engine, *, count_bodies: bool) -> Prepared:
        """Prepare a model of which OpenVINO is not given some layers together with others."""
        self._borders = {layer.name: reason for layer, reason in survey.reasons}
        own = {layer.id for layer, _ in survey.reasons}
        for layer in survey.model.graph.layers:
            if layer.id in apart and layer.type in FAMILY["openvino"]:
                self._borders.setdefault(layer.name, EMPTY_TENSOR)

        def is_own(layer: Layer) -> bool:
            if layer.type in ("Parameter", "Const", "Result") or layer.id in apart:
                return True
            if layer.type in FAMILY["openvino"]:
                return layer.id in own
            if holds_split(layer) or (layer.bodies and (count_bodies or layer.type == "Loop")):
                return is_evaluated(layer)
            return _is_narrowed(layer, survey.values)

        return Prepared(survey.model, engine, is_own, Settled(survey.values, survey.sizes))


class _Survey:
    """What is known of a model, and which splits of its main graph are not left to OpenVINO.

    Args:
        model: the model.
        nodes: its nodes.
        where: its place.

    Attributes:
        values: what is known of each output port of the main graph.
        reasons: the splits that are done here, and why.
        sizes: the parts of the others, by the ids of their layers.
        apart: the ids of the layers that give or read a tensor without elements.
        settled: the names of the splits of the main graph that are valid in every run.
        fused: what OpenVINO would fuse wrongly.
    """

    def __init__(self, model: OpenVINOModel, nodes: ir.Model, where: Where) -> None:
        self.model = model
        self._where = where
        visited: list[Site] = []
        found = Upstream(nodes, where, visited.append).run()
        self.values = {
            Endpoint(layer_of(node).id, port_of(value).id): known
            for node in nodes.graph
            for value in node.outputs
            if isinstance(known := found.values[value], Tensor)
        }
        self.apart = frozenset(_around_empty_tensors(nodes.graph, found))
        self.reasons: list[tuple[Layer, str]] = []
        self.sizes: dict[int, Sizes] = {}
        open_names: set[str | None] = set()
        surroundings = Surroundings.of(nodes)
        for site in visited:
            if site.where.graph is not None:
                continue
            sizes = known_sizes(site)
            reason = _reason(site, surroundings) or ("sizes that a run decides" if sizes is None else None)
            if sizes is not None:
                self.sizes[layer_of(site.node).id] = sizes
            if not is_settled(site):
                open_names.add(site.where.node)
            if reason is not None:
                self.reasons.append((layer_of(site.node), reason))
        self.settled = {site.where.node for site in visited if site.where.graph is None} - open_names
        self.fused: list[tuple[Limit, Fused]] = []
        if may_be_fused_in(nodes, found.values.get):
            found.note()
            self.fused += find_fusions(OpenVINOEditor(nodes, where), (Target.load("openvino"),))

    def unfused(self) -> set[int]:
        """Return the ids of layers that are evaluated here, so that OpenVINO does not fuse them.

        Raises:
            EngineError: one is in a body of a layer that OpenVINO would run.
        """
        outside = self.model.graph.by_id
        found: set[int] = set()
        for limit, fused in self.fused:
            layer = layer_of(fused.join)
            if outside.get(layer.id) is not layer:
                problem = f"is not given {fusion_words(limit, fused)} [{limit.code}]"
                raise EngineError("openvino", problem, self._where)
            found.add(layer.id)
        return found

    def fixed(self) -> tuple[_Survey, tuple[SplitReport, ...]]:
        """Return the same of a model with the same results whose splits OpenVINO does as specified.

        A split that a run may find invalid is not rewritten: its broken rule would go unseen.
        """
        report = fix(self.model, "openvino", partial=True, report=True)
        places = [(site.where.graph, site.where.node) for site in report.rewritten]
        splits = {layer.name for layer in self.model.graph.layers if layer.type in FAMILY["openvino"]}
        unsettled = splits - self.settled
        if not places or any(graph is not None or node in unsettled for graph, node in places):
            return self, ()
        made = cast(OpenVINOModel, report.model)
        return _Survey(made, to_nodes(made), self._where), report.rewritten


def _reason(site: Site, model: Surroundings) -> str | None:
    if site.error is not None:
        return "it breaks a rule"
    return next((limit.code for limit, _ in find_limits(site, model, (Target.load("openvino"),))), None)


def _around_empty_tensors(graph: ir.Graph, found: Found) -> Iterator[int]:
    """Yield the ids of the layers that give or read a tensor without elements, in their bodies too."""
    for value, known in found.values.items():
        if not isinstance(known, Tensor) or known.shape is None or 0 not in known.shape:
            continue
        path, maker = found.paths[value], value.producer()
        readers = [layer_of(use.node) for use in value.uses()]
        if path is None and len(known.shape) == 1 and known.value is not None:  # of sizes or axes
            yield from (reader.id for reader in readers if not takes_empty_list(reader.type))
            continue
        if path is not None:
            yield from (
                layer_of(node).id for node in graph if node.attributes and path.startswith(f"{node.name}/")
            )
            continue
        yield from (layer.id for layer in readers)
        yield from (layer_of(node).id for node in (maker,) if node is not None)


def _is_narrowed(layer: Layer, values: Mapping[Endpoint, Tensor]) -> bool:
    """Return whether a data mover has 64-bit numbers that are not sizes, which OpenVINO would narrow."""
    mover = mover_of(layer)
    if mover is None or mover.evaluate is None:
        return False
    for port in layer.outputs:
        known = values.get(Endpoint(layer.id, port.id), Tensor())
        if known.type is not None and known.type.name in _NARROWED and known.value is None:
            return True
    return False
