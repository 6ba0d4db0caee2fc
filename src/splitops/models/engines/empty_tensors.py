"""Empty tensors, on which runtimes crash, and whose sizes OpenVINO gets wrong.

``Broadcast`` and ``Gather`` of an empty tensor divide by zero. A ``Transpose`` or a ``Squeeze`` takes a size
of 0 for another one. The maximum of nothing is the lowest number. No list of such layers is complete, so
OpenVINO gets no model with an empty tensor.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from splitops.errors import Where
from splitops.models.engines.engine import EngineError

EMPTY_TENSOR: Final = "openvino.empty-tensor"
"""The code of the limit."""

_OF_SIZES: Final = frozenset(
    ["Constant", "ShapeOf", "Concat", "Gather", "Slice", "StridedSlice", "Convert", "Squeeze", "Unsqueeze"]
)
"""What sizes are computed with."""
_OF_LISTS: Final = frozenset(["Reshape", "Squeeze", "Transpose", "Result", *_OF_SIZES])
_ENDS: Final = frozenset(["Constant", "Parameter", "Result"])
_REMEMBERED: Final = 256


def takes_empty_list(layer: str) -> bool:
    """Return whether OpenVINO's layers of a type take an empty list of sizes or axes for what it is.

    Of a scalar and such a list, a ``Broadcast`` ends the process, and ``Tile`` and ``Roll`` give rubbish.
    """
    return layer in _OF_LISTS or layer.startswith("Reduce")


class EmptyTensorError(EngineError):
    """A runtime would get an empty tensor that it gets wrong, or crashes on.

    Attributes:
        unresolved: whether only the values of a run decide if there is one.
    """

    unresolved = False

    @classmethod
    def of(cls, found: Mapping[str, str], where: Where) -> EmptyTensorError:
        """Return the error of some layers, by name, with what each of them does."""
        name, text = next(iter(found.items()))
        return cls("openvino", f"gets empty tensors wrong [{EMPTY_TENSOR}]: {name!r} {text}", where)


def make_crash_error(operators: Collection[str], where: Where) -> EmptyTensorError:
    """Return the error of operators on which onnxruntime crashes."""
    text = f"crashes on an empty tensor [onnxruntime.empty-tensor]: {', '.join(operators)}"
    return EmptyTensorError("onnxruntime", text, where)


def check_full(model: Any, where: Where) -> None:
    """Check that a model of OpenVINO has no empty tensor, as far as its own inference knows.

    Raises:
        EmptyTensorError: it has one.
    """
    found = _empty_tensors(model, _is_empty)
    if found:
        raise EmptyTensorError.of(found, where)


class EmptyTensorGuard:
    """Finds out from the shapes of the inputs whether a run meets an empty tensor.

    The model has none as far as its shapes are known. With ``resolves``, the values of the run are looked at
    by others, see :func:`add_sizes`.
    """

    def __init__(self, model: Any, where: Where, *, resolves: bool = False) -> None:
        self._where = where
        self._resolves = resolves
        self._lock = threading.Lock()
        self._known: dict[Sequence[tuple[int, ...]], tuple[Mapping[str, str], bool]] = {}
        # Most models cannot meet any if every open size of the inputs is at least 1.
        full = _reshaped(model, [_at_least_one(port.get_partial_shape()) for port in model.inputs])
        self._suspects = None if full is None else frozenset(_empty_tensors(full, _may_be_empty))
        self._model = None if self._suspects == frozenset() else model

    def check(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Check that a run with inputs of some shapes meets no empty tensor.

        Raises:
            EmptyTensorError: it does, or may.
        """
        given = {f"input {at}": f"has shape {shape}" for at, shape in enumerate(shapes) if 0 in shape}
        if given:
            raise EmptyTensorError.of(given, self._where)
        if self._model is not None:
            with self._lock:
                if shapes not in self._known:
                    if len(self._known) == _REMEMBERED:
                        self._known.clear()
                    self._known[shapes] = self._find(shapes)
                found, unresolved = self._known[shapes]
            if found and not (unresolved and self._resolves):
                error = EmptyTensorError.of(found, self._where)
                error.unresolved = unresolved
                raise error

    def _find(self, shapes: Sequence[tuple[int, ...]]) -> tuple[Mapping[str, str], bool]:
        model = _reshaped(self._model, shapes)
        if model is None:
            return {}, False
        found = _empty_tensors(model, _is_empty, self._suspects)
        return (found, False) if found else (_unresolved(model, self._suspects or ()), True)


def add_sizes(library: Any, model: Any, where: Where) -> int:
    """Let a model return the sizes of all tensors that may be empty, after its outputs; return how many.

    Raises:
        EmptyTensorError: one of them is inside a body.
    """
    opset = importlib.import_module(f"{library.__name__}.opset13")
    results = []
    for layer, output in list(_outputs_of_data(model, None)):
        inside = next(filter(None, map(_empty_inside, bodies_of(layer))), None)
        if inside is not None:
            raise EmptyTensorError.of({layer.get_friendly_name(): f"has a layer that {inside}"}, where)
        if layer.get_type_name() not in _ENDS and _may_be_empty(output.get_partial_shape()):
            results.append(opset.result(opset.shape_of(output)))
    model.add_results(results)
    return len(results)


def _empty_tensors(
    model: Any, is_met: Callable[[Any], bool], suspects: Collection[str] | None = None
) -> dict[str, str]:
    """Return the layers that give or read tensors of some shapes, by name, with what they do.

    Where ``suspects`` are named, these alone are looked at.
    """
    found: dict[str, str] = {}
    for layer, output in _outputs_of_data(model, suspects):
        shape = output.get_partial_shape()
        if is_met(shape):
            found.setdefault(layer.get_friendly_name(), f"({layer.get_type_name()}) returns shape {shape}")
            for target in output.get_target_inputs():
                reader = target.get_node()
                if reader.get_type_name() != "Result":
                    text = f"({reader.get_type_name()}) reads shape {shape}"
                    found.setdefault(reader.get_friendly_name(), text)
    for layer in model.get_ordered_ops():
        if suspects is None or layer.get_friendly_name() in suspects:
            for body in bodies_of(layer):
                texts = (
                    _empty_tensors(body, is_met).values() if is_met is _is_empty else [_empty_inside(body)]
                )
                for text in filter(None, texts):
                    kind = layer.get_type_name()
                    found.setdefault(
                        layer.get_friendly_name(), f"({kind}) has a layer in its body that {text}"
                    )
    return found


def bodies_of(layer: Any) -> Sequence[Any]:
    """Return the graphs inside a layer."""
    if layer.get_type_name() == "If":
        return layer.get_function(0), layer.get_function(1)
    return (layer.get_function(),) if hasattr(layer, "get_function") else ()


def _empty_inside(body: Any) -> str | None:
    """Return what in a body may be empty if nothing that the body reads is, or None.

    The first values come from layers around it, and then what one iteration returns is read by the next one.
    """
    full = _reshaped(body, [_at_least_one(port.get_partial_shape()) for port in body.inputs])
    return next(iter(_empty_tensors(full or body, _may_be_empty).values()), None)


def _unresolved(model: Any, suspects: Collection[str]) -> dict[str, str]:
    """Return the layers that return tensors to other layers of which only values decide if they are empty."""
    found: dict[str, str] = {}
    for layer in model.get_ordered_ops():
        if layer.get_type_name() in _ENDS or layer.get_friendly_name() not in suspects:
            continue
        open_ = [output for output in layer.outputs() if _may_be_empty(output.get_partial_shape())]
        targets = (target for output in open_ for target in output.get_target_inputs())
        inside = any(map(_empty_inside, bodies_of(layer)))
        if inside or any(target.get_node().get_type_name() != "Result" for target in targets):
            kind, shape = layer.get_type_name(), layer.get_output_partial_shape(0)
            text = f"({kind}) returns shape {shape}, of which values decide whether it is empty"
            found[layer.get_friendly_name()] = text
    return found


def _is_empty(shape: Any) -> bool:
    return shape.rank.is_static and any(size.is_static and size.get_length() == 0 for size in shape)


def _may_be_empty(shape: Any) -> bool:
    return shape.rank.is_dynamic or any(size.get_min_length() == 0 for size in shape)


def _at_least_one(shape: Any) -> Any:
    """Return a shape whose open sizes are at least 1."""
    if shape.rank.is_dynamic:
        return shape
    kinds = [type(size) for size in shape]
    return type(shape)(
        [
            kind(max(1, size.get_min_length()), size.get_max_length()) if size.is_dynamic else size
            for kind, size in zip(kinds, shape, strict=True)
        ]
    )


def _reshaped(model: Any, shapes: Sequence[Any]) -> Any:
    """Return a copy of a model with inputs of some shapes; None where OpenVINO finds that they do not fit."""
    made = model.clone()
    try:
        made.reshape(
            {
                port: type(port.get_partial_shape())(shape)
                for port, shape in zip(made.inputs, shapes, strict=True)
            }
        )
    except RuntimeError:  # it says so when it runs, too
        return None
    return made


def _outputs_of_data(model: Any, suspects: Collection[str] | None) -> Iterator[tuple[Any, Any]]:
    """Yield the layers of a model with their outputs, without those that sizes are computed with."""
    sizes: set[str] = set()
    for layer in model.get_ordered_ops():
        if suspects is not None:  # of which the lists of sizes are none
            if layer.get_friendly_name() in suspects:
                yield from ((layer, output) for output in layer.outputs())
            continue
        name = layer.get_type_name()
        feeders = (value.get_node().get_name() for value in layer.input_values())
        if name == "ShapeOf" or (name in _OF_SIZES and sizes.issuperset(feeders)):
            shapes = [output.get_partial_shape() for output in layer.outputs()]
            if all(shape.rank.is_static and shape.rank.get_length() < 2 for shape in shapes):
                sizes.add(layer.get_name())
                readers = (to.get_node() for output in layer.outputs() for to in output.get_target_inputs())
                if all(takes_empty_list(reader.get_type_name()) for reader in readers):
                    continue
        if name != "Result":
            yield from ((layer, output) for output in layer.outputs())
