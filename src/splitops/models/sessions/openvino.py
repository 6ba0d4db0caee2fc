"""OpenVINO IR on OpenVINO: what it would not do as specified is done here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
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
from splitops.models.running.declared import openvino_inputs
from splitops.models.running.openvino.bodies import holds_split
from splitops.models.running.openvino.evaluator import Prepared, is_evaluated
from splitops.models.running.openvino.foreign import Settled, Sizes
from splitops.models.sessions.foretold import foretold_ir
from splitops.models.sessions.invalid import certain_ir_sites, reject_invalid
from splitops.models.sessions.program import SessionProgram
from splitops.models.sessions.settled import is_settled, known_sizes
from splitops.models.sites import Site
from splitops.spec.operators import FAMILY

_NARROWED: Final = ("int64", "uint64", "float64")
_ATTEMPTS: Final = 8
"""How often a model is prepared anew, each time without other layers that give or read empty tensors."""


class OpenVINOIRProgram(SessionProgram):
    """A model of OpenVINO IR that is ready to run on OpenVINO.

    Args:
        model: a path or a model.
        engine: OpenVINO; None evaluates here what can be.
        fallback: whether everything that can be is evaluated here where OpenVINO rejects or fails.
        max_body_runs: how often bodies run at most; None is the usual bound.
        allow_links: of a path, whether links in its folder may lead out of it.

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
        super().__init__(engine, fallback=fallback, max_body_runs=max_body_runs)
        self._model = opened(model, allow_links=allow_links)
        self._where = Where(model=self._model.file)
        nodes = to_nodes(self._model)
        self.sites = tuple(replace(site, node=None) for site in split_sites(nodes, self._where))
        self.inputs = openvino_inputs(self._model, self._where)
        self.outputs = output_names(self._model)
        self._borders: dict[str, str] = {}
        reject_invalid(certain_ir_sites(nodes, self._where))
        self._start(lambda engine: self._on_engine(engine, nodes), self._without_engine)

    def border(self, site: Site) -> str | None:
        """Return why a split node is evaluated here and not by OpenVINO; None where it is not."""
        if site.where.graph is not None:
            return "it is in a body"
        return self._borders.get(site.where.node or "")

    @property
    def programs(self) -> list[Compiled]:
        """What OpenVINO has compiled so far."""
        assert isinstance(self._prepared, Prepared)
        return self._prepared.programs

    def _inferred(self, inputs: Mapping[str, Any]) -> Iterator[Site]:
        return foretold_ir(self._model, self._where, inputs)

    def _undecided(self, error: EmptyTensorError) -> set[int]:
        return {layer.id for layer in self._survey.model.graph.layers if layer.name in error.layers}

    def _without_engine(self) -> Prepared:
        return Prepared(self._model)

    def _on_engine(self, engine: Engine, nodes: ir.Model) -> Prepared:
        survey = _Survey(self._model, nodes, self._where)
        if survey.reasons or survey.fused:
            survey, self.rewritten = survey.fixed()
        self._survey = survey
        self._apart |= survey.apart | survey.unfused()
        for _ in range(_ATTEMPTS):
            try:
                return self._prepared_anew(engine)
            except EmptyTensorError as error:  # OpenVINO knows more shapes than we do
                found = self._undecided(error)
                if found <= self._apart:
                    raise
                self._apart |= found
        return self._prepared_anew(engine)

    def _prepared_anew(self, engine: Engine) -> Prepared:
        """Prepare the model, of which OpenVINO is not given some layers together with others."""
        survey, apart = self._survey, self._apart
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
            if holds_split(layer) or (layer.bodies and (self._counts or layer.type == "Loop")):
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
