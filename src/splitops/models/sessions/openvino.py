"""OpenVINO IR on OpenVINO: what it would not do as specified is done here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

import onnx_ir as ir

from splitops.errors import Where
from splitops.models.check.targets import Target
from splitops.models.engines.emptiness import EMPTY_TENSOR, EmptyTensorError, takes_empty_list
from splitops.models.engines.engine import Compiled, Engine, EngineError
from splitops.models.fix import FixStatus
from splitops.models.fix.models import look_at
from splitops.models.fix.rounds import Round, fix_splits
from splitops.models.formats.openvino import OpenVINOModel, opened, output_names
from splitops.models.formats.openvino.model import Endpoint, Layer
from splitops.models.graph.fusions import may_be_fused_in
from splitops.models.graph.onnx import all_graphs, known, note
from splitops.models.graph.openvino import from_nodes, layer_of, port_of, to_nodes
from splitops.models.graph.sites import is_split, split_sites
from splitops.models.infer.layers import known_before
from splitops.models.known import Tensor
from splitops.models.movers import mover_of
from splitops.models.running.declared import openvino_inputs
from splitops.models.running.openvino.bodies import holds_split
from splitops.models.running.openvino.evaluator import Prepared, is_evaluated, needed_layers
from splitops.models.running.openvino.foreign import Settled, Sizes
from splitops.models.sessions.legality import Place, known_sizes, looked_at, place_of
from splitops.models.sessions.program import SessionProgram, reject_invalid
from splitops.spec.operators import FAMILY

_UNDECIDED: Final = "sizes that a run decides"
_NARROWED: Final = ("int64", "uint64", "float64")
_ATTEMPTS: Final = 8
"""How often a model is prepared anew, each time without other layers that give or read empty tensors."""


class OpenVINOIRProgram(SessionProgram):
    """A model of OpenVINO IR that is ready to run on OpenVINO."""

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
        inputs = _note_ends(nodes, self._where)
        sites = list(split_sites(nodes, self._where))
        needed = needed_layers(self._model.graph)
        reject_invalid((site for site in sites if layer_of(site.node).id in needed), inputs)
        self.sites = tuple(replace(site, node=None) for site in sites)
        self.inputs = openvino_inputs(self._model, self._where)
        self.outputs = output_names(self._model)
        self.reasons = {place_of(site): "it is in a body" for site in sites if site.where.graph is not None}
        self._start(lambda engine: self._on_engine(engine, nodes), self._without_engine)

    @property
    def programs(self) -> list[Compiled]:
        """What OpenVINO has compiled so far."""
        assert isinstance(self._prepared, Prepared)
        return self._prepared.programs

    def _nodes(self) -> ir.Model:
        return to_nodes(self._model)

    def _undecided(self, error: EmptyTensorError) -> set[Place]:
        return {(None, layer.name) for layer in self._look.model.graph.layers if layer.name in error.layers}

    def _without_engine(self) -> Prepared:
        return Prepared(self._model)

    def _on_engine(self, engine: Engine, nodes: ir.Model) -> Prepared:
        targets = (Target.load(engine.name),)
        first = look_at(nodes, self._where, targets)
        self._look = look = _Look.at(self._model, nodes, first, engine)
        if look.reasons or look.fused:
            looks = chain([first], iter(partial(look_at, nodes, self._where, targets), None))
            reports, last = fix_splits(partial(next, looks), targets, None)
            rewritten = tuple(report for report in reports if report.status is FixStatus.REWRITTEN)
            places = set(map(place_of, rewritten))
            # A split that a run may find invalid is not rewritten: its broken rule would go unseen.
            if places and places.isdisjoint(look.unsettled) and not any(path for path, _ in places):
                self._look, self.rewritten = _Look.at(from_nodes(nodes), nodes, last, engine), rewritten
        if self._look.rejected:
            raise EngineError("openvino", f"is not given {self._look.rejected}", self._where)
        self._apart |= {(None, name) for name in self._look.empty} | self._look.fused
        for _ in range(_ATTEMPTS):
            try:
                return self._prepared_anew(engine)
            except EmptyTensorError as error:  # OpenVINO knows more shapes than we do
                undecided = self._undecided(error)
                if undecided <= self._apart:
                    raise
                self._apart |= undecided
        return self._prepared_anew(engine)

    def _prepared_anew(self, engine: Engine) -> Prepared:
        """Prepare the model, of which OpenVINO is not given some layers together with others."""
        look, apart = self._look, self._apart
        inside = {place: text for place, text in self.reasons.items() if place[0] is not None}
        self.reasons = {**inside, **dict.fromkeys(look.splits & apart, EMPTY_TENSOR), **look.reasons}

        def is_own(layer: Layer) -> bool:
            place = (None, layer.name)
            if layer.type in ("Parameter", "Const", "Result") or place in apart:
                return True
            if layer.type in FAMILY["openvino"]:
                return place in look.reasons
            if holds_split(layer) or (layer.bodies and (self._counts or layer.type == "Loop")):
                return is_evaluated(layer)
            return _is_narrowed(layer, look.values)

        return Prepared(look.model, engine, is_own, Settled(look.values, look.sizes))


def _note_ends(model: ir.Model, where: Where) -> set[str]:
    """Note at what splits read of Parameters and Consts what these say; return the Parameters' names."""
    parameters: set[str] = set()
    for node in model.graph:
        if node.op_type in ("Parameter", "Const"):
            (value,) = node.outputs
            if any(is_split(use.node) for use in value.uses()):
                note(value, known_before(layer_of(node), replace(where, node=node.name)))
                parameters.update([value.name or ""] if node.op_type == "Parameter" else ())
    return parameters


@dataclass(frozen=True, slots=True)
class _Look:
    """What is known of a model, and which splits of its main graph are not left to OpenVINO.

    Attributes:
        model: the model.
        splits: the splits of the main graph.
        reasons: why some of them are done here.
        unsettled: those that a run may find invalid.
        values: what is known of each output port of the main graph.
        sizes: the parts of the splits that are known, by the ids of their layers.
        empty: the names of the layers that give or read a tensor without elements.
        fused: layers that are evaluated here, so that OpenVINO does not fuse them.
        rejected: what OpenVINO would fuse in a body, in words; empty where there is nothing.
    """

    model: OpenVINOModel
    splits: frozenset[Place]
    reasons: Mapping[Place, str]
    unsettled: frozenset[Place]
    values: Mapping[Endpoint, Tensor]
    sizes: Mapping[int, Sizes]
    empty: frozenset[str]
    fused: frozenset[Place]
    rejected: str

    @classmethod
    def at(cls, model: OpenVINOModel, nodes: ir.Model, seen: Round, engine: Engine) -> _Look:
        """Look at a model that a round of fixes has seen."""
        sites = [site for calls in seen.calls.values() for site in calls]
        editor = seen.forms.editor if may_be_fused_in(nodes, known) else None
        outside = {layer_of(site.node).id: site for site in sites if site.where.graph is None}
        splits = frozenset(map(place_of, outside.values()))
        found = looked_at(list(outside.values()), seen.surroundings, editor, engine, splits)
        sizes = {id_: known_sizes(site) for id_, site in outside.items()}
        undecided = {place_of(site): _UNDECIDED for id_, site in outside.items() if sizes[id_] is None}
        values = {
            Endpoint(layer_of(node).id, port_of(value).id): what
            for node in nodes.graph
            for value in node.outputs
            if isinstance(what := known(value), Tensor)
        }
        return cls(
            model,
            splits,
            {**undecided, **found.reasons},
            splits - found.settled,
            values,
            {id_: parts for id_, parts in sizes.items() if parts is not None},
            frozenset(_around_empty_tensors(nodes)),
            frozenset(found.fused),
            next((text for place, text in found.fused.items() if place[0] is not None), ""),
        )


def _around_empty_tensors(nodes: ir.Model) -> Iterator[str]:
    """Yield the names of the layers that give or read a tensor without elements, in their bodies too."""
    holders = [node.name or "" for node in nodes.graph if node.attributes]
    for path, graph in all_graphs(nodes):
        for value in (value for node in graph for value in node.outputs):
            what, maker = known(value), value.producer()
            if not isinstance(what, Tensor) or what.shape is None or 0 not in what.shape or maker is None:
                continue
            readers = [layer_of(use.node) for use in value.uses()]
            if path is not None:
                yield from (name for name in holders if path.startswith(f"{name}/"))
            elif len(what.shape) == 1 and what.value is not None:  # of sizes or axes
                yield from (reader.name for reader in readers if not takes_empty_list(reader.type))
            else:
                yield from (layer.name for layer in (layer_of(maker), *readers))


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
