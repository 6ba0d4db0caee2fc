"""Detect empty tensors in OpenVINO models: OpenVINO crashes on some, and returns wrong results for others.

In OpenVINO, ``Broadcast`` and ``Gather`` of an empty tensor divide by zero. ``Transpose`` and ``Squeeze`` may
replace a size of 0 with another one. ``ReduceMax`` returns the lowest number of the type. No list of such
layers is complete, so splitops uses no result that OpenVINO computes with an empty tensor, except empty lists
of sizes or axes.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from splitops.errors import Where
from splitops.models.engines.engine import EngineError

EMPTY_TENSOR: Final = "openvino.empty-tensor"
"""Code of this limit of OpenVINO in messages."""

_OF_SIZES: Final = frozenset(
    ["Constant", "ShapeOf", "Concat", "Gather", "Slice", "StridedSlice", "Convert", "Squeeze", "Unsqueeze"]
)
"""Types of layers that may be part of a computation of sizes."""
_OF_LISTS: Final = frozenset(["Reshape", "Squeeze", "Transpose", "Result", *_OF_SIZES])
_ENDS: Final = frozenset(["Constant", "Parameter", "Result"])
_MAX_CACHED: Final = 256


def accepts_empty_list(layer: str) -> bool:
    """Return whether an OpenVINO layer type is known to accept an empty list of sizes or axes.

    With a scalar and such a list, ``Broadcast`` crashes, and ``Tile`` and ``Roll`` return garbage.
    """
    return layer in _OF_LISTS or layer.startswith("Reduce")


class EmptyTensorError(EngineError):
    """A run has, or may have, an empty tensor on which the runtime may crash or return wrong results.

    Attributes:
        unresolved: whether the sizes depend on values, so that only a run can show an empty tensor.
    """

    unresolved = False

    @classmethod
    def from_layers(cls, found: Mapping[str, str], where: Where) -> EmptyTensorError:
        """Make the error for the first layer in ``found``, which maps layer names to descriptions."""
        name, text = next(iter(found.items()))
        return cls("openvino", f"gets empty tensors wrong [{EMPTY_TENSOR}]: {name!r} {text}", where)


def make_crash_error(operators: Collection[str], where: Where) -> EmptyTensorError:
    """Make the error for operators on which onnxruntime crashes if an input is empty."""
    text = f"crashes on an empty tensor [onnxruntime.empty-tensor]: {', '.join(operators)}"
    return EmptyTensorError("onnxruntime", text, where)


def check_full(model: Any, where: Where) -> None:
    """Check that OpenVINO's shape inference finds no empty tensor in a model, except lists of sizes or axes.

    Raises:
        EmptyTensorError: it finds one.
    """
    found = _find_empty_tensors(model, _is_empty)
    if found:
        raise EmptyTensorError.from_layers(found, where)


class EmptyTensorGuard:
    """Checks whether a run with given input shapes has an empty tensor, including its inputs.

    The model must pass :func:`check_full`. ``resolves`` allows tensors whose size depends on values: after
    the run, the sizes that :func:`add_sizes` added are checked instead.
    """

    def __init__(self, model: Any, where: Where, *, resolves: bool = False) -> None:
        self._where = where
        self._resolves = resolves
        self._lock = threading.Lock()
        self._known: dict[Sequence[tuple[int, ...]], tuple[Mapping[str, str], bool]] = {}
        # Most models have no empty tensor if every dynamic input size is at least 1.
        full = _reshape(model, [_exclude_zero(port.get_partial_shape()) for port in model.inputs])
        self._suspects = None if full is None else frozenset(_find_empty_tensors(full, _may_be_empty))
        self._model = None if self._suspects == frozenset() else model

    def check(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Check that no input has an empty shape, and that a run with these shapes computes no empty tensor.

        Raises:
            EmptyTensorError: there is one or, without ``resolves``, may be one depending on values.
        """
        given = {f"input {at}": f"has shape {shape}" for at, shape in enumerate(shapes) if 0 in shape}
        if given:
            raise EmptyTensorError.from_layers(given, self._where)
        if self._model is not None:
            with self._lock:
                if shapes not in self._known:
                    if len(self._known) == _MAX_CACHED:
                        self._known.clear()
                    self._known[shapes] = self._find(shapes)
                found, unresolved = self._known[shapes]
            if found and not (unresolved and self._resolves):
                error = EmptyTensorError.from_layers(found, self._where)
                error.unresolved = unresolved
                raise error

    def _find(self, shapes: Sequence[tuple[int, ...]]) -> tuple[Mapping[str, str], bool]:
        model = _reshape(self._model, shapes)
        if model is None:
            return {}, False
        found = _find_empty_tensors(model, _is_empty, self._suspects)
        return (found, False) if found else (_find_unresolved(model, self._suspects or ()), True)


def add_sizes(library: Any, model: Any, where: Where) -> int:
    """Add an output for each tensor that may be empty, with its sizes. Return the number of new outputs.

    Raises:
        EmptyTensorError: a tensor inside a body may be empty.
    """
    opset = importlib.import_module(f"{library.__name__}.opset13")
    results = []
    for layer, output in list(_iter_data_outputs(model, None)):
        inside = next(filter(None, map(_find_empty_inside, get_bodies(layer))), None)
        if inside is not None:
            raise EmptyTensorError.from_layers(
                {layer.get_friendly_name(): f"has a body in which a layer {inside}"}, where
            )
        if layer.get_type_name() not in _ENDS and _may_be_empty(output.get_partial_shape()):
            results.append(opset.result(opset.shape_of(output)))
    model.add_results(results)
    return len(results)


def _find_empty_tensors(
    model: Any, is_met: Callable[[Any], bool], suspects: Collection[str] | None = None
) -> dict[str, str]:
    """Describe the layers that produce or read a tensor whose shape ``is_met`` accepts, keyed by name.

    If ``suspects`` is not None, only the outputs and bodies of these layers are examined.
    """
    found: dict[str, str] = {}
    for layer, output in _iter_data_outputs(model, suspects):
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
            for body in get_bodies(layer):
                texts = (
                    _find_empty_tensors(body, is_met).values()
                    if is_met is _is_empty
                    else [_find_empty_inside(body)]
                )
                for text in filter(None, texts):
                    kind = layer.get_type_name()
                    found.setdefault(
                        layer.get_friendly_name(), f"({kind}) has a body in which a layer {text}"
                    )
    return found


def get_bodies(layer: Any) -> Sequence[Any]:
    """Return the graphs inside a layer."""
    if layer.get_type_name() == "If":
        return layer.get_function(0), layer.get_function(1)
    return (layer.get_function(),) if hasattr(layer, "get_function") else ()


def _find_empty_inside(body: Any) -> str | None:
    """Describe a layer of a body that may produce an empty tensor from non-empty ones, or return None.

    The answer is valid for all iterations, because each reads the outputs of the previous one.
    """
    full = _reshape(body, [_exclude_zero(port.get_partial_shape()) for port in body.inputs])
    return next(iter(_find_empty_tensors(full or body, _may_be_empty).values()), None)


def _find_unresolved(model: Any, suspects: Collection[str]) -> dict[str, str]:
    """Describe, by name, the layers that may have an empty tensor in an output or body, depending on values.

    Only layers in ``suspects`` are examined, and an output counts only if another layer reads it.
    """
    found: dict[str, str] = {}
    for layer in model.get_ordered_ops():
        if layer.get_type_name() in _ENDS or layer.get_friendly_name() not in suspects:
            continue
        open_ = [output for output in layer.outputs() if _may_be_empty(output.get_partial_shape())]
        targets = (target for output in open_ for target in output.get_target_inputs())
        inside = any(map(_find_empty_inside, get_bodies(layer)))
        if inside or any(target.get_node().get_type_name() != "Result" for target in targets):
            kind, shape = layer.get_type_name(), layer.get_output_partial_shape(0)
            text = f"({kind}) returns shape {shape}, which is empty depending on values"
            found[layer.get_friendly_name()] = text
    return found


def _is_empty(shape: Any) -> bool:
    return shape.rank.is_static and any(size.is_static and size.get_length() == 0 for size in shape)


def _may_be_empty(shape: Any) -> bool:
    return shape.rank.is_dynamic or any(size.get_min_length() == 0 for size in shape)


def _exclude_zero(shape: Any) -> Any:
    """Return a shape in which the minimum of each dynamic size is at least 1. A dynamic rank is kept."""
    if shape.rank.is_dynamic:
        return shape
    kinds = [type(size) for size in shape]
    return type(shape)(
        [
            kind(max(1, size.get_min_length()), size.get_max_length()) if size.is_dynamic else size
            for kind, size in zip(kinds, shape, strict=True)
        ]
    )


def _reshape(model: Any, shapes: Sequence[Any]) -> Any:
    """Return a copy of a model with other input shapes, or None if OpenVINO rejects them."""
    made = model.clone()
    try:
        made.reshape(
            {
                port: type(port.get_partial_shape())(shape)
                for port, shape in zip(made.inputs, shapes, strict=True)
            }
        )
    except RuntimeError:  # the run reports the same error
        return None
    return made


def _iter_data_outputs(model: Any, suspects: Collection[str] | None) -> Iterator[tuple[Any, Any]]:
    """Yield each layer with each of its outputs, except Results and layers that only compute sizes.

    If ``suspects`` is not None, only the layers with these names are yielded.
    """
    sizes: set[str] = set()
    for layer in model.get_ordered_ops():
        if suspects is not None:  # suspects do not contain layers that compute sizes
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
                if all(accepts_empty_list(reader.get_type_name()) for reader in readers):
                    continue
        if name != "Result":
            yield from ((layer, output) for output in layer.outputs())
