"""Runs a model: the split family and the plain data movers here, every other layer by OpenVINO if it is
installed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy.typing as npt

from splitops.calls.node import evaluate
from splitops.errors import ModelError, Where
from splitops.ground.progress import counted
from splitops.models.engines import is_installed, make_engine
from splitops.models.engines.engine import Compiled, Engine
from splitops.models.engines.recording import recorded, recorder
from splitops.models.formats.openvino.constants import Constant
from splitops.models.formats.openvino.model import Endpoint, Graph, Layer, OpenVINOModel
from splitops.models.formats.openvino.names import output_names
from splitops.models.formats.openvino.splits import family_schema, split_attributes
from splitops.models.movers import mover_of
from splitops.models.movers.evaluated import Value
from splitops.models.movers.mover import EVERY_OPSET
from splitops.models.running.bodies import MAX_BODY_RUNS, BodyRuns
from splitops.models.running.declared import openvino_inputs
from splitops.models.running.inputs import Inputs
from splitops.models.running.openvino import bodies, foreign
from splitops.models.running.stages import stages
from splitops.spec.elements.types import ElementType, element_type_of
from splitops.spec.operators import FAMILY

_Results = Mapping[int, Value]


class Prepared:
    """A model that is ready to run any number of times, from any thread.

    Layers of the main graph that are own are evaluated here, each alone. The others are left to the engine,
    by default OpenVINO, which is asked for where there are any and is given no tensor without elements. A
    model of which something is settled before it runs is compiled now, and kept for more than one run.
    """

    def __init__(
        self,
        model: OpenVINOModel,
        engine: Engine | None = None,
        is_own: Callable[[Layer], bool] | None = None,
        settled: foreign.Settled | None = None,
    ) -> None:
        self._model = model
        self._where = Where(model=model.file)
        ends = [Endpoint(layer.id, layer.outputs[0].id) for layer in model.inputs]
        declared = list(zip(ends, openvino_inputs(model, self._where), strict=True))
        self._types = {end: each.element_type for end, each in declared}
        self._inputs = Inputs(declared)
        self._outputs = [
            (name, layer.id) for name, layer in zip(output_names(model), model.outputs, strict=True)
        ]
        self._engine = engine
        self._is_own = is_own
        self._settled = settled
        self.is_kept = settled is not None
        self._lock = threading.RLock()
        self._plans: dict[int, _Plan] = {}
        if settled is not None:
            self.plan(model.graph, self._where)

    @property
    def programs(self) -> list[Compiled]:
        """What the engine has compiled."""
        runners = [
            step.runner for plan in self._plans.values() for step in plan.steps if step.runner is not None
        ]
        return [program for runner in runners for program in runner.programs]

    def run(
        self, inputs: Mapping[str, npt.ArrayLike], *, max_body_runs: int = MAX_BODY_RUNS
    ) -> dict[str, npt.NDArray[Any]]:
        """Run the model; see :func:`splitops.run`.

        Only layers that an output needs are evaluated. The bodies of If, Loop and TensorIterator are
        evaluated in the same way, once for each iteration; a split is never left to OpenVINO, whatever layer
        it is in. A loop can ask for any number of iterations: what they give is held against the memory
        before it is joined.
        """
        whole = _Run(self, self._where, BodyRuns(max_body_runs))
        arrays = self._inputs.check(inputs, self._where)
        values = {
            end: Value(array, self._types[end] or _type_of(array, self._where))
            for end, array in arrays.items()
        }
        try:
            results = whole.results(self._model.graph, self._where, values)
        except MemoryError as error:
            raise ModelError("a result does not fit into memory", whole.where) from error
        return {name: results[id_].array for name, id_ in self._outputs}

    def plan(self, graph: Graph, place: Where) -> _Plan:
        """Return the plan of a graph, made once."""
        # The model keeps the graph alive, so that no other one takes its id.
        with self._lock:
            if id(graph) not in self._plans:
                main = graph is self._model.graph
                self._plans[id(graph)] = _Plan(
                    graph,
                    place,
                    self.engine,
                    (self._is_own if main else None) or is_evaluated,
                    self._settled if main else None,
                )
            return self._plans[id(graph)]

    def engine(self, layers: str) -> Engine:
        """Return the engine for some layers."""
        with self._lock:
            if self._engine is None:
                if not is_installed("openvino"):
                    raise ModelError(
                        f"{layers}: run by OpenVINO, which is not installed; pip install splitops[openvino]",
                        self._where,
                    )
                self._engine = make_engine("openvino", {})
            return self._engine


def _type_of(array: npt.NDArray[Any], where: Where) -> ElementType:
    found = element_type_of(array.dtype)
    if found is None or found.openvino is None:
        raise ModelError(f"OpenVINO has no element type for dtype {array.dtype}", where)
    return found


@dataclass(frozen=True, slots=True)
class _Step:
    """A layer that is evaluated here, or a region.

    Attributes:
        layer: the layer; of a region, its first one.
        where: its place.
        sources: the output ports that it takes.
        dropped: those of them that nothing needs any more.
        runner: what runs the region.
    """

    layer: Layer
    where: Where
    sources: tuple[Endpoint, ...]
    dropped: tuple[Endpoint, ...]
    runner: foreign.Runner | None


class _Plan:
    """What is the same in every run of a graph: the steps to its Results, and what each of these takes."""

    def __init__(
        self,
        graph: Graph,
        place: Where,
        engine: Callable[[str], Engine],
        is_own: Callable[[Layer], bool],
        settled: foreign.Settled | None,
    ) -> None:
        needed = needed_layers(graph)
        layers = [layer for layer in graph.order if layer.id in needed]
        for layer in layers:
            if not is_evaluated(layer) and bodies.holds_split(layer):
                raise ModelError(
                    f"{layer} of {layer.version} is or holds a split, but splitops does not evaluate it; "
                    "OpenVINO would run the split unproved",
                    replace(place, node=layer.name),
                )
        self.in_body = place.graph is not None
        self._constants: dict[int, Value] = {}
        self.results = [(layer.id, graph.sources(layer)[0]) for layer in graph.layers_of_type("Result")]
        used = {source for layer in layers for source in graph.sources(layer)}
        parts = list(
            stages(
                layers,
                is_own,
                lambda layer: (source.layer for source in graph.sources(layer)),
                lambda layer: (layer.id,),
            )
        )
        inside = {layer.id for own, found in parts if not own for layer in found}
        held: set[int] = set()  # constants that regions hold once they are compiled, and nobody else reads
        if settled is not None:
            constants = (layer for layer in layers if layer.constant is not None)
            held = {layer.id for layer in constants if _feeds_only(graph, layer, inside)}
        steps: list[tuple[Layer, tuple[Endpoint, ...], foreign.Runner | None]] = []
        for own, found in parts:
            if not own:
                region = foreign.Region.of(graph, found, used)
                taken = tuple(source for source in region.inputs if source.layer not in held)
                steps.append((found[0], taken, foreign.Runner(region, engine, place, settled)))
                continue
            for layer in found:
                if layer.type in {"Parameter", "Result"} or layer.id in held:
                    continue
                runner = None
                if layer.constant is None and not is_evaluated(layer):
                    runner = foreign.Runner(foreign.Region.of(graph, [layer], used), engine, place, None)
                steps.append((layer, graph.sources(layer), runner))
        later = {source for _, source in self.results}
        self.steps: list[_Step] = []
        for layer, sources, runner in reversed(steps):
            dropped = tuple(source for source in dict.fromkeys(sources) if source not in later)
            later.update(dropped)
            where = replace(place, node=layer.name)
            self.steps.append(_Step(layer, where, sources, dropped, runner))
        self.steps.reverse()

    def constant(self, layer: Layer, constant: Constant, where: Where) -> Value:
        """Return the value of a constant; those of a body, which can run again, are kept."""
        found = self._constants.get(layer.id)
        if found is None:
            found = Value(constant.array(where), constant.element_type, constant=True)
            if self.in_body:
                self._constants[layer.id] = found
        return found


def _feeds_only(graph: Graph, layer: Layer, targets: set[int]) -> bool:
    ends = (Endpoint(layer.id, port.id) for port in layer.outputs)
    return all(target.layer in targets for end in ends for target in graph.consumers[end])


class _Run:
    """One run of a model: what its main graph and all bodies share.

    Attributes:
        where: the place of the layer that is evaluated.
    """

    def __init__(self, prepared: Prepared, where: Where, body_runs: BodyRuns) -> None:
        self.where = where
        self._prepared = prepared
        self._body_runs = body_runs

    def body(self, layer: Layer, place: Where, tag: str, graph: Graph, fed: Mapping[int, Value]) -> _Results:
        """Run a body of a layer once: values of Parameters give values of Results, both by layer id."""
        self._body_runs.count(place)
        path = f"{layer.name}/{tag}"
        inner = Where(place.model, path if place.graph is None else f"{place.graph}/{path}")
        values = dict(_fed(graph.by_id[id_], value, inner) for id_, value in fed.items())
        results = self.results(graph, inner, values)
        self.where = place
        return results

    def results(self, graph: Graph, place: Where, values: dict[Endpoint, Value]) -> _Results:
        """Evaluate the layers of a graph and return the value of each Result, by layer id.

        The values are those of its Parameters; later those that later layers still need.
        """
        plan = self._prepared.plan(graph, place)
        again = plan.in_body or self._prepared.is_kept
        for step in counted(plan.steps, "run"):
            self.where, layer = step.where, step.layer
            if step.runner is not None:
                values.update(step.runner.run(values, again=again))
            elif layer.constant is not None:
                end = Endpoint(layer.id, layer.outputs[0].id)
                values[end] = plan.constant(layer, layer.constant, step.where)
            else:
                inputs = (values[source] for source in step.sources)
                ends = (Endpoint(layer.id, port.id) for port in layer.outputs)
                values.update(zip(ends, self._evaluated(layer, list(inputs), step.where), strict=True))
            for source in step.dropped:
                values.pop(source, None)
        return {id_: values[source] for id_, source in plan.results}

    def _evaluated(self, layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
        results: Sequence[Value]
        if is_own(layer):
            events = recorder()
            with nullcontext() if events is None else recorded(events, layer.type, layer.name):
                results = evaluated(layer, inputs, where)
            constant = all(value.constant for value in inputs)
        else:
            results = bodies.evaluate(layer, inputs, partial(self.body, layer, where), where)
            constant = False
        if len(results) != len(layer.outputs):
            raise ModelError(
                f"{layer} has {len(layer.outputs)} output ports, but it gives {len(results)}", where
            )
        return [replace(value, constant=constant) for value in results]


def _fed(parameter: Layer, value: Value, place: Where) -> tuple[Endpoint, Value]:
    """Return the value of a Parameter of a body; its shape is that of the value, whatever is set."""
    where = replace(place, node=parameter.name)
    if not parameter.takes_any_type and value.element_type is not parameter.element_type(where):
        raise ModelError(
            f"the body takes {parameter.attribute('element_type')}, but gets {value.element_type}", where
        )
    # To the body it is not a constant: the next run can bring another one.
    return Endpoint(parameter.id, parameter.outputs[0].id), replace(value, constant=False)


def is_evaluated(layer: Layer) -> bool:
    """Return whether a layer can be evaluated here, instead of by OpenVINO."""
    return is_own(layer) or bodies.is_own(layer)


def needed_layers(graph: Graph) -> set[int]:
    """Return the layers that a Result depends on."""
    needed: set[int] = set()
    stack = [layer.id for layer in graph.layers_of_type("Result")]
    while stack:
        id_ = stack.pop()
        if id_ not in needed:
            needed.add(id_)
            stack += [source.layer for source in graph.sources(graph.by_id[id_])]
    return needed


def is_own(layer: Layer) -> bool:
    """Return whether a layer is evaluated here, instead of by OpenVINO."""
    if layer.type in FAMILY["openvino"]:
        return layer.version in EVERY_OPSET
    if layer.type in {"Parameter", "Const", "Result"}:
        return True
    mover = mover_of(layer)
    return mover is not None and mover.evaluate is not None


def evaluated(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    """Return the values of the output ports of a layer that :func:`is_own` and has inputs."""
    if layer.type in FAMILY["openvino"]:
        return _parts(layer, inputs, where)
    mover = mover_of(layer)
    assert mover is not None
    assert mover.evaluate is not None
    try:
        return [mover.evaluate(layer, inputs)]
    except ModelError as error:
        error.where = where
        raise


def _parts(layer: Layer, inputs: Sequence[Value], where: Where) -> Sequence[Value]:
    row = family_schema(layer.type, layer.version, where)
    parts = evaluate(
        row,
        split_attributes(layer, row, where),
        [value.array for value in inputs],
        outputs=len(layer.outputs),
        where=where,
        types=[value.element_type for value in inputs],
    )
    return [inputs[0].like(part) for part in parts]
