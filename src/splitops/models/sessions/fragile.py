"""Operators on which onnxruntime ends the process where they read a tensor without elements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from onnx import ModelProto

from splitops.errors import SplitError, Where
from splitops.models.engines.emptiness import EmptyTensorError
from splitops.models.formats.onnx.structure import canonical, nodes_of
from splitops.models.graph.onnx import all_graphs
from splitops.models.graph.onnx_model import as_graph
from splitops.models.infer.onnx_walk import Walk
from splitops.models.known import Tensor
from splitops.models.sessions.foretold import may_be_lengths, with_inputs

_FRAGILE: Final = frozenset(["Einsum", "GRU", "InstanceNormalization", "LSTM", "Unique"])
_EMPTY_TENSOR: Final = "onnxruntime.empty-tensor"
_REMEMBERED: Final = 256


def fragile_operators(model: ModelProto) -> frozenset[str]:
    """Return which of these operators a model has."""
    return frozenset(node.op_type for node in nodes_of(model) if not canonical(node.domain)) & _FRAGILE


def fragile_on_nothing(model: ModelProto, where: Where) -> frozenset[str]:
    """Return which of these operators a model gives a tensor without elements, as inference knows it."""
    graph = as_graph(model, where)
    found = Walk(graph, where, lambda _: None).run().settled()
    met: set[str] = set()
    for _, inner in all_graphs(graph):
        for node in inner:
            if node.op_type in _FRAGILE and not canonical(node.domain):
                tensors = (found.values.get(value) for value in node.inputs if value is not None)
                if any(
                    isinstance(one, Tensor) and one.shape is not None and 0 in one.shape for one in tensors
                ):
                    met.add(node.op_type)
    return frozenset(met)


class Watch:
    """Tells from the inputs of a run which of these operators read a tensor without elements.

    Args:
        read: returns the model.
        where: its place.
        makes_parts: whether a split of it can make a part without elements, of inputs that have some.
    """

    def __init__(self, read: Callable[[], ModelProto], where: Where, *, makes_parts: bool) -> None:
        self._read, self._where, self._makes_parts = read, where, makes_parts
        self._lock = threading.Lock()
        self._known: dict[Any, frozenset[str]] = {}

    def met(self, inputs: Mapping[str, Any]) -> EmptyTensorError | None:
        """Return the error of those that do; None where none does."""
        arrays = {name: array for name, array in inputs.items() if isinstance(array, np.ndarray)}
        if not self._makes_parts and all(array.size for array in arrays.values()):
            return None
        key = frozenset(
            (name, array.shape, array.tobytes() if may_be_lengths(array) else b"")
            for name, array in arrays.items()
        )
        with self._lock:
            if key not in self._known:
                if len(self._known) == _REMEMBERED:
                    self._known.clear()
                model = ModelProto()
                model.CopyFrom(self._read())
                with_inputs(model, arrays)
                try:
                    self._known[key] = fragile_on_nothing(model, self._where)
                except SplitError:  # the run says so, too
                    self._known[key] = frozenset()
            operators = self._known[key]
        if not operators:
            return None
        text = (
            f"ends its process on a tensor without elements [{_EMPTY_TENSOR}]: {', '.join(sorted(operators))}"
        )
        return EmptyTensorError("onnxruntime", text, self._where)
