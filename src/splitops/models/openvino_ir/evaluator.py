"""Runs a model: the split family and the plain data movers here, every other layer by OpenVINO if it is
installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from splitops.dtypes import ElementType, element_type_of
from splitops.errors import ModelError, Where
from splitops.models.openvino_ir import foreign
from splitops.models.openvino_ir.layers import KERNELS, Value, is_own
from splitops.models.openvino_ir.model import Endpoint, Graph, Layer, OpenVINOModel
from splitops.models.openvino_ir.shapes import format_shape, matches

__all__ = ["input_names", "output_names", "run"]

Observer = Callable[[Layer, Sequence[npt.NDArray[Any]], Sequence[npt.NDArray[Any]]], None]


def run(
    model: OpenVINOModel, inputs: Mapping[str, npt.ArrayLike], *, observer: Observer | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Run a model.

    Only layers that an output needs are evaluated. Split, VariadicSplit, Concat, Convert, Reshape, Squeeze,
    Unsqueeze, Transpose, ShapeOf and Gather (without batch dimensions) are evaluated by splitops, with all
    bits of 64-bit types; connected regions of other layers by OpenVINO's CPU plugin, with its precision,
    where the ``openvino`` package is installed. Bodies of If, Loop and TensorIterator belong to those
    regions.

    Args:
        model: the model.
        inputs: an array for each Parameter, by any of its tensor names or its layer's name. Its dtype is the
            NumPy or ml_dtypes type of the element type; codes as uint8 for nf4, u1, u3 and u6; strings of
            any kind.
        observer: called with each layer that splitops evaluates, its input arrays and its output arrays.

    Returns:
        The outputs by name (:func:`output_names`). They can be read-only views of inputs, constants or one
        another.

    Raises:
        ModelError: an input is missing, unknown or of another type or shape; a layer cannot be evaluated, for
            example because it needs OpenVINO, which is not installed.
        RuleError: a split is invalid, with the layer in its ``where``.

    Examples:
        >>> import numpy as np
        >>> from splitops.models.openvino_ir.builder import Builder
        >>> builder = Builder()
        >>> data = builder.parameter("data", "i64", "?")
        >>> inputs = [data, builder.const(0), builder.const([1, -1])]
        >>> parts = builder.layer("VariadicSplit", inputs, outputs=2)
        >>> builder.result(parts[1], "rest")
        >>> run(builder.model(), {"data": np.arange(4)})
        {'rest': array([1, 2, 3])}
    """
    execution = _Execution(model, observer)
    for layer, array in _bound_inputs(model, inputs):
        execution.feed(layer, array)
    try:
        return execution.outputs()
    except MemoryError as error:
        raise ModelError("a result does not fit into memory", execution.where) from error


def input_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each input of a model: its least tensor name, else the name of its layer."""
    return tuple(
        min((name for port in layer.outputs for name in port.names), default=layer.name)
        for layer in model.inputs
    )


def output_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each output of a model, unique in it.

    It is OpenVINO's own (``Output.any_name``): the least of the Result's ``output_names``, where it has none
    the least tensor name of the port that it takes, where that has none the name of the Result layer. IR
    version 10 adds the name of the layer that gives the value, as OpenVINO does. Where several outputs
    claim a name, a Result that states it itself comes first; the other ones take their next name, at last
    the name with ``_1``, ``_2`` and so on behind it.
    """
    results = model.outputs
    claims = [(*_claims(model, layer), layer.name) for layer in results]
    taken: set[str] = set()
    names: dict[int, str] = {}
    for position in sorted(range(len(results)), key=lambda at: not results[at].output_names):
        free = next((name for name in claims[position] if name not in taken), None)
        suffix = 0
        while free is None:
            suffix += 1
            name = f"{claims[position][0]}_{suffix}"
            free = None if name in taken else name
        taken.add(free)
        names[position] = free
    return tuple(names[position] for position in range(len(results)))


def _claims(model: OpenVINOModel, result: Layer) -> list[str]:
    if result.output_names:
        return sorted(result.output_names)
    end = model.graph.sources(result)[0]
    layer = model.graph.by_id[end.layer]
    port = layer.output(end.port)
    assert port is not None
    names = set(port.names)
    if model.version == 10:
        names.add(layer.name if len(layer.outputs) == 1 else f"{layer.name}.{layer.outputs.index(port)}")
    return sorted(names)


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
    return array if array.dtype == expected else array.astype(expected)


class _Execution:
    """One run: the values that later layers still need."""

    def __init__(self, model: OpenVINOModel, observer: Observer | None) -> None:
        self._model = model
        self._graph = model.graph
        self._observer = observer
        self._values: dict[Endpoint, Value] = {}
        self.where = Where(model=model.file)
        needed = _needed(self._graph)
        self._layers = [layer for layer in self._graph.order if layer.id in needed]
        self._uses: dict[Endpoint, int] = {}
        for layer in self._layers:
            for source in self._graph.sources(layer):
                self._uses[source] = self._uses.get(source, 0) + 1

    def feed(self, layer: Layer, array: npt.NDArray[Any]) -> None:
        """Take the value of a Parameter."""
        where = replace(self.where, node=layer.name)
        end = Endpoint(layer.id, layer.outputs[0].id)
        self._values[end] = Value(array, _type_of(layer, array, where))

    def outputs(self) -> dict[str, npt.NDArray[Any]]:
        """Evaluate the layers and return the outputs."""
        model_name = self._model.file
        for own, layers in foreign.stages(self._graph, self._layers, is_own):
            if own:
                for layer in layers:
                    self.where = Where(model=model_name, node=layer.name)
                    self._evaluate(layer)
            else:
                self._evaluate_region(layers)
        names = output_names(self._model)
        return {
            name: self._values[self._graph.sources(layer)[0]].array
            for name, layer in zip(names, self._model.outputs, strict=True)
        }

    def _evaluate(self, layer: Layer) -> None:
        if layer.type in {"Parameter", "Result"}:
            return
        if layer.constant is not None:
            value = Value(layer.constant.array(self.where), layer.constant.element_type, constant=True)
            self._values[Endpoint(layer.id, layer.outputs[0].id)] = value
            return
        sources = self._graph.sources(layer)
        inputs = [self._values[source] for source in sources]
        results = KERNELS[layer.type](layer, inputs, self.where)
        if len(results) != len(layer.outputs):
            raise ModelError(
                f"{layer} has {len(layer.outputs)} output ports, but it gives {len(results)}", self.where
            )
        if self._observer is not None:
            self._observer(layer, [value.array for value in inputs], [value.array for value in results])
        constant = all(value.constant for value in inputs)
        for port, value in zip(layer.outputs, results, strict=True):
            self._values[Endpoint(layer.id, port.id)] = replace(value, constant=constant)
        self._release(sources)

    def _evaluate_region(self, layers: Sequence[Layer]) -> None:
        region = foreign.Region.of(self._graph, layers, set(self._uses))
        values = {end: self._values[end] for end in region.inputs}
        self.where = Where(model=self._model.file, node=layers[0].name)
        self._values.update(foreign.evaluate(region, values, self._model.file))
        for layer in layers:
            self._release(self._graph.sources(layer))

    def _release(self, sources: Iterable[Endpoint]) -> None:
        """Drop the values that nothing needs any more."""
        for source in sources:
            self._uses[source] -= 1
            if self._uses[source] == 0:
                self._values.pop(source, None)


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
