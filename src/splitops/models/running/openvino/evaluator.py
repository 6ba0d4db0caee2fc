"""Runs a model: the split family and the plain data movers here, every other layer by OpenVINO if it is
installed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.calls.node import read_only
from splitops.elements.types import ElementType, element_type_of
from splitops.errors import ModelError, Where
from splitops.models.engines import is_installed, make_engine
from splitops.models.engines.engine import Compiled, Engine
from splitops.models.engines.recording import recorded, recorder
from splitops.models.formats.openvino.constants import Constant
from splitops.models.formats.openvino.model import Endpoint, Graph, Layer, OpenVINOModel
from splitops.models.formats.openvino.shapes import format_shape, matches
from splitops.models.formats.openvino.sites import input_names, output_names
from splitops.models.movers.evaluated import Value
from splitops.models.running.bodies import MAX_BODY_RUNS, BodyRuns
from splitops.models.running.openvino import bodies, foreign
from splitops.models.running.openvino.layers import evaluated, is_own
from splitops.progress import counted

__all__ = ["Prepared", "is_evaluated", "run"]

_Results = Mapping[int, Value]
Observer = Callable[[Layer, Sequence[npt.NDArray[Any]], Sequence[npt.NDArray[Any]]], None]


def run(
    model: OpenVINOModel,
    inputs: Mapping[str, npt.ArrayLike],
    *,
    max_body_runs: int = MAX_BODY_RUNS,
    observer: Observer | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Run a model.

    Only layers that an output needs are evaluated. Split, VariadicSplit, Concat, Convert, Reshape, Slice,
    Squeeze, Unsqueeze, Transpose, ShapeOf and Gather (without batch dimensions) are evaluated by splitops,
    with all bits of 64-bit types; connected regions of other layers by OpenVINO's CPU plugin, with its
    precision, where the ``openvino`` package is installed. The bodies of If, Loop and TensorIterator are
    evaluated in the same way, once for each iteration; a split is never left to OpenVINO, whatever layer it
    stands in.

    A loop can ask for any number of iterations: what they give is held against the memory before it is
    joined.

    Args:
        model: the model.
        inputs: an array for each Parameter, by any of its tensor names or its layer's name. Its dtype is the
            NumPy or ml_dtypes type of the element type; codes as uint8 for nf4, u1, u3 and u6; strings of
            any kind, bytes as UTF-8. Nothing may be masked.
        max_body_runs: how often the bodies of If, Loop and TensorIterator run at most, all together.
        observer: called with each layer that splitops evaluates, its input arrays and its output arrays; with
            a layer in a body each time that the body runs.

    Returns:
        The outputs by name (:func:`output_names`). What shares memory with an input or a constant of the
        model is a read-only view; outputs may share memory with each other.

    Raises:
        ModelError: an input is missing, unknown or of another type or shape; a layer cannot be evaluated, for
            example because it needs OpenVINO, which is not installed; bodies run too often.
        RuleError: a split is invalid, with the layer in its ``where``.

    Examples:
        >>> import numpy as np
        >>> from splitops.models.formats.openvino.builder import Builder
        >>> builder = Builder()
        >>> data = builder.parameter("data", "i64", "?")
        >>> inputs = [data, builder.const(0), builder.const([1, -1])]
        >>> parts = builder.layer("VariadicSplit", inputs, outputs=2)
        >>> builder.result(parts[1], "rest")
        >>> run(builder.model(), {"data": np.arange(4)})
        {'rest': array([1, 2, 3])}
    """
    return Prepared(model).run(inputs, max_body_runs=max_body_runs, observer=observer)


class Prepared:
    """A model that is ready to run any number of times, from any thread.

    Args:
        model: the model.
        engine: who runs the layers that are not evaluated here; None is OpenVINO, asked for where there are
            any.
        is_own: which layers of the main graph are evaluated here; None is all that can be.
        settled: what is known of the main graph before it runs, so that it is compiled now.

    Raises:
        ModelError: a split would be left to OpenVINO unproved.
        EngineError: the engine refuses a region.
    """

    def __init__(
        self,
        model: OpenVINOModel,
        engine: Engine | None = None,
        is_own: Callable[[Layer], bool] | None = None,
        settled: foreign.Settled | None = None,
    ) -> None:
        self._model = model
        self._names = output_names(model)
        self._where = Where(model=model.file)
        self._engine = engine
        self._is_own = is_own
        self._settled = settled
        self._lock = threading.RLock()
        self._plans: dict[int, _Plan] = {}
        if settled is not None:
            self.plan(model.graph, self._where)

    @property
    def programs(self) -> list[Compiled]:
        """What the engine has compiled."""
        runners = [runner for plan in self._plans.values() for _, runner in plan.stages if runner is not None]
        return [program for runner in runners for program in runner.programs]

    def run(
        self,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        max_body_runs: int = MAX_BODY_RUNS,
        observer: Observer | None = None,
    ) -> dict[str, npt.NDArray[Any]]:
        """Run the model; see :func:`run`."""
        whole = _Run(self, self._model, BodyRuns(max_body_runs), observer)
        execution = _Execution(whole, self._model.graph, whole.where)
        for layer, array in _bound_inputs(self._model, inputs):
            execution.feed(layer, array)
        try:
            results = execution.results()
        except MemoryError as error:
            raise ModelError("a result does not fit into memory", whole.where) from error
        return {
            name: results[layer.id].array
            for name, layer in zip(self._names, self._model.outputs, strict=True)
        }

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
        """Return the engine for some layers.

        Raises:
            ModelError: OpenVINO is not installed.
        """
        with self._lock:
            if self._engine is None:
                if not is_installed("openvino"):
                    raise ModelError(
                        f"{layers}: run by OpenVINO, which is not installed; pip install splitops[openvino]",
                        self._where,
                    )
                self._engine = make_engine("openvino", {})
            return self._engine


def _bound_inputs(
    model: OpenVINOModel, inputs: Mapping[str, npt.ArrayLike]
) -> Iterable[tuple[Layer, npt.NDArray[Any]]]:
    """Return the array of every Parameter, checked against its type and shape."""
    by_tensor: dict[str, list[Layer]] = {}
    by_layer: dict[str, list[Layer]] = {}
    for layer in model.inputs:
        by_layer.setdefault(layer.name, []).append(layer)
        for name in layer.outputs[0].names:
            by_tensor.setdefault(name, []).append(layer)
    where = Where(model=model.file)
    if not isinstance(inputs, Mapping):
        raise ModelError(f"inputs are a {type(inputs).__name__}, not a mapping of names to arrays", where)
    known = ", ".join(map(repr, input_names(model))) or "none"
    arrays: dict[int, npt.NDArray[Any]] = {}
    for name, array in inputs.items():
        found = by_tensor.get(name) or by_layer.get(name)
        if found is None:
            raise ModelError(f"the model has no input {name!r}; its inputs are {known}", where)
        if len(found) > 1:
            raise ModelError(f"{len(found)} inputs of the model are named {name!r}", where)
        if found[0].id in arrays:
            raise ModelError(f"input {name!r} is given twice, by two of its names", where)
        place = replace(where, node=found[0].name)
        if np.ma.is_masked(array):
            raise ModelError(f"input {name!r} is masked, which a tensor cannot say", place)
        try:
            given = np.asarray(array)
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelError(f"input {name!r} is no array: {str(error)[:200]}", place) from error
        arrays[found[0].id] = _checked(found[0], name, given, place)
    missing = [
        name for name, layer in zip(input_names(model), model.inputs, strict=True) if layer.id not in arrays
    ]
    if missing:
        raise ModelError(f"input {', '.join(map(repr, missing))} is missing; the inputs are {known}", where)
    return [(layer, arrays[layer.id]) for layer in model.inputs]


def _type_of(layer: Layer, array: npt.NDArray[Any], where: Where) -> ElementType:
    """Return the element type of a Parameter, or of its array where it takes any."""
    if not layer.takes_any_type:
        return layer.element_type(where)
    found = element_type_of(array.dtype)
    if found is None or found.openvino is None:
        raise ModelError(f"OpenVINO has no element type for dtype {array.dtype}", where)
    return found


def _checked(layer: Layer, name: str, array: npt.NDArray[Any], where: Where) -> npt.NDArray[Any]:
    element_type, shape = _type_of(layer, array, where), layer.shape(where)
    expected = element_type.numpy
    if element_type.bits == 0:
        fits = array.dtype.kind in "OUST"
    else:
        fits = array.dtype == expected or element_type_of(array.dtype) is element_type
    if not fits:
        raise ModelError(
            f"input {name!r} has dtype {array.dtype}, but the model takes {element_type.openvino}, "
            f"which is {expected}",
            where,
        )
    if not matches(array.shape, shape):
        raise ModelError(
            f"input {name!r} has shape {list(array.shape)}, but the model takes [{format_shape(shape)}]",
            where,
        )
    limit = (1 << element_type.bits) - 1
    if element_type.storage is not None and array.size and int(array.max()) > limit:
        raise ModelError(f"input {name!r} has the code {array.max()}, more than {limit}", where)
    if element_type.bits == 0:
        return _texts(name, array, where)
    return array if array.dtype == expected else array.astype(expected)


def _texts(name: str, array: npt.NDArray[Any], where: Where) -> npt.NDArray[Any]:
    """Return strings of any kind as an array of str."""
    if array.dtype == object and all(isinstance(value, str) for value in array.flat):
        return array
    texts = np.empty(array.shape, object)
    for index, value in enumerate(array.reshape(-1).tolist()):
        if not isinstance(value, str | bytes):
            raise ModelError(f"input {name!r} holds a {type(value).__name__}, not strings alone", where)
        try:
            texts.reshape(-1)[index] = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError as error:
            raise ModelError(f"input {name!r} holds bytes that are no UTF-8: {error}", where) from error
    return texts


class _Plan:
    """What is the same in every run of a graph: the layers that its Results need, in stages, and their uses.

    Raises:
        ModelError: a split would be left to OpenVINO.
    """

    def __init__(
        self,
        graph: Graph,
        place: Where,
        engine: Callable[[str], Engine],
        is_own: Callable[[Layer], bool],
        settled: foreign.Settled | None,
    ) -> None:
        needed = _needed(graph)
        layers = [layer for layer in graph.order if layer.id in needed]
        self.uses = Counter(source for layer in layers for source in graph.sources(layer))
        for layer in layers:
            if not is_evaluated(layer) and bodies.holds_split(layer):
                raise ModelError(
                    f"{layer} of {layer.version} is or holds a split, but splitops does not evaluate it; "
                    "OpenVINO would run the split unproved",
                    replace(place, node=layer.name),
                )
        self.constants: dict[int, Value] = {}
        stages = list(foreign.stages(graph, layers, is_own))
        held: set[int] = set()  # constants that regions hold once they are compiled, and nobody else reads
        if settled is not None:
            inside = {layer.id for own, found in stages if not own for layer in found}
            constants = (layer for layer in layers if layer.constant is not None)
            held = {
                layer.id
                for layer in constants
                if all(
                    target.layer in inside
                    for target in graph.consumers[Endpoint(layer.id, layer.outputs[0].id)]
                )
            }
        self.stages = [
            (
                [layer for layer in found if layer.id not in held],
                None
                if own
                else foreign.Runner(foreign.Region.of(graph, found, set(self.uses)), engine, place, settled),
            )
            for own, found in stages
        ]


class _Run:
    """One run of a model: what its main graph and all bodies share.

    Attributes:
        where: the place of the layer that is evaluated.
    """

    def __init__(
        self, prepared: Prepared, model: OpenVINOModel, body_runs: BodyRuns, observer: Observer | None
    ) -> None:
        self.observer = observer
        self.where = Where(model=model.file)
        self.plan = prepared.plan
        self._body_runs = body_runs

    def body(self, layer: Layer, place: Where, tag: str, graph: Graph, fed: Mapping[int, Value]) -> _Results:
        """Run a body of a layer once.

        Args:
            layer: the layer.
            place: its place.
            tag: the body's tag.
            graph: the body.
            fed: the value of each Parameter, by layer id.

        Returns:
            The value of each Result, by layer id.

        Raises:
            ModelError: bodies ran too often, or a value is not of its Parameter's type.
        """
        self._body_runs.count(place)
        path = f"{layer.name}/{tag}"
        inner = Where(place.model, path if place.graph is None else f"{place.graph}/{path}")
        execution = _Execution(self, graph, inner)
        for id_, value in fed.items():
            execution.feed_body(graph.by_id[id_], value)
        results = execution.results()
        self.where = place
        return results


class _Execution:
    """One run of a graph: the values that later layers still need."""

    def __init__(self, run: _Run, graph: Graph, place: Where) -> None:
        self._run = run
        self._graph = graph
        self._place = place
        self._plan = run.plan(graph, place)
        self._uses = self._plan.uses.copy()
        self._values: dict[Endpoint, Value] = {}

    def feed(self, layer: Layer, array: npt.NDArray[Any]) -> None:
        """Take the array of a Parameter of the model."""
        kind = _type_of(layer, array, replace(self._place, node=layer.name))
        # Every view of it, the outputs too, is read-only then.
        self._feed(layer, Value(read_only(array), kind))

    def feed_body(self, layer: Layer, value: Value) -> None:
        """Take the value of a Parameter of a body, whose shape is that of the value, whatever is stated."""
        where = replace(self._place, node=layer.name)
        if not layer.takes_any_type and value.element_type is not layer.element_type(where):
            raise ModelError(
                f"the body takes {layer.attribute('element_type')}, but gets {value.element_type}", where
            )
        # To the body it is no constant: the next run can bring another one.
        self._feed(layer, replace(value, constant=False))

    def _feed(self, layer: Layer, value: Value) -> None:
        end = Endpoint(layer.id, layer.outputs[0].id)
        if end in self._uses:
            self._values[end] = value

    def results(self) -> _Results:
        """Evaluate the layers and return the value of each Result, by layer id."""
        for layers, runner in self._plan.stages:
            if runner is not None:
                self._evaluate_region(layers, runner)
                continue
            for layer in counted(layers, "run"):
                if layer.type not in {"Parameter", "Result"}:
                    self._run.where = replace(self._place, node=layer.name)
                    self._evaluate(layer)
        return {
            layer.id: self._values[self._graph.sources(layer)[0]]
            for layer in self._graph.layers_of_type("Result")
        }

    def _evaluate(self, layer: Layer) -> None:
        where = self._run.where
        if layer.constant is not None:
            self._values[Endpoint(layer.id, layer.outputs[0].id)] = self._constant(layer, layer.constant)
            return
        sources = self._graph.sources(layer)
        inputs = [self._values[source] for source in sources]
        results: Sequence[Value]
        if is_own(layer):
            events = recorder()
            with nullcontext() if events is None else recorded(events, layer.type, layer.name):
                results = evaluated(layer, inputs, where)
            constant = all(value.constant for value in inputs)
        else:
            results = bodies.evaluate(layer, inputs, partial(self._run.body, layer, where), where)
            constant = False
        if len(results) != len(layer.outputs):
            raise ModelError(
                f"{layer} has {len(layer.outputs)} output ports, but it gives {len(results)}", where
            )
        if self._run.observer is not None:
            arrays = [[value.array for value in values] for values in (inputs, results)]
            self._run.observer(layer, *arrays)
        for port, value in zip(layer.outputs, results, strict=True):
            self._values[Endpoint(layer.id, port.id)] = replace(value, constant=constant)
        self._release(sources)

    def _constant(self, layer: Layer, constant: Constant) -> Value:
        found = self._plan.constants.get(layer.id)
        if found is None:
            found = Value(constant.array(self._run.where), constant.element_type, constant=True)
            if self._place.graph is not None:  # a body can run again
                self._plan.constants[layer.id] = found
        return found

    def _evaluate_region(self, layers: Sequence[Layer], runner: foreign.Runner) -> None:
        self._run.where = replace(self._place, node=layers[0].name)
        self._values.update(runner.run(self._values, again=self._place.graph is not None))
        for layer in layers:
            self._release(self._graph.sources(layer))

    def _release(self, sources: Iterable[Endpoint]) -> None:
        """Drop the values that nothing needs any more."""
        for source in sources:
            self._uses[source] -= 1
            if self._uses[source] == 0:
                self._values.pop(source, None)


def is_evaluated(layer: Layer) -> bool:
    """Return whether a layer can be evaluated here, instead of by OpenVINO."""
    return is_own(layer) or bodies.is_own(layer)


def _needed(graph: Graph) -> set[int]:
    """Return the layers that a Result depends on."""
    needed: set[int] = set()
    stack = [layer.id for layer in graph.layers_of_type("Result")]
    while stack:
        id_ = stack.pop()
        if id_ not in needed:
            needed.add(id_)
            stack += [source.layer for source in graph.sources(graph.by_id[id_])]
    return needed
