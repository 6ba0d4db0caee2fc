"""Operators on which onnxruntime ends the process where they read a tensor without elements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import SplitError, Where
from splitops.models.engines.emptiness import EmptyTensorError, ended_on
from splitops.models.formats.onnx.structure import canonical, nodes_of
from splitops.models.graph.onnx import all_graphs, label
from splitops.models.graph.onnx_model import as_graph
from splitops.models.infer.onnx_walk import Walk
from splitops.models.known import Tensor
from splitops.models.sessions.foretold import may_be_lengths, with_inputs
from splitops.spec.sizes.dims import Dim

FRAGILE: Final = frozenset(
    ["ConvTranspose", "Einsum", "GRU", "InstanceNormalization", "LSTM", "STFT", "Unique"]
)
"""All of them: ``dev/tools/empties.py`` asks every operator."""
_REMEMBERED: Final = 256


def has_fragile(model: ModelProto) -> bool:
    """Return whether a model has one of these operators."""
    return any(node.op_type in FRAGILE and not canonical(node.domain) for node in nodes_of(model))


@dataclass(frozen=True, slots=True)
class Fragile:
    """The nodes of these operators that read a tensor without elements where no input of the model is one.

    Attributes:
        met: the labels of those that do, with their operators.
        perhaps: those in the main graph that may.
        inside: those in bodies and functions that may.
    """

    met: dict[str, str]
    perhaps: dict[str, str]
    inside: dict[str, str]


def fragile_nodes(model: ModelProto, where: Where) -> Fragile:
    """Return what inference knows of these nodes of a model."""
    graph = as_graph(model, where)
    full: set[str | None] = set()  # the names of sizes that are those of inputs
    for value in graph.graph.inputs:
        if value.shape is not None:
            sizes = [
                size if isinstance(size, int) else size.value or f"{value.name}[{axis}]"
                for axis, size in enumerate(value.shape)
            ]
            value.shape = ir.Shape(sizes)
            full.update(size for size in sizes if isinstance(size, str))
    found = Walk(graph, where, lambda _: None).run().settled()
    made = Fragile({}, {}, {})
    for path, inner in all_graphs(graph):
        for node in inner:
            if node.op_type not in FRAGILE or canonical(node.domain):
                continue
            kinds = [found.values.get(value) for value in node.inputs if value is not None]
            shapes = [kind.shape if isinstance(kind, Tensor) else None for kind in kinds]
            if any(shape is not None and 0 in shape for shape in shapes):
                made.met[label(node)] = node.op_type
            elif not all(
                shape is not None and all(_is_full(size, full) for size in shape) for shape in shapes
            ):
                (made.inside if path else made.perhaps)[label(node)] = node.op_type
    return made


def _is_full(size: Dim, names: Collection[str | None]) -> bool:
    return size > 0 if isinstance(size, int) else size.lo > 0 or size.name in names


class Watch:
    """Tells from the inputs of a run which of these operators read a tensor without elements.

    Args:
        read: returns the model.
        where: its place.
        always: whether one may read such a tensor where no input is one.
    """

    def __init__(self, read: Callable[[], ModelProto], where: Where, *, always: bool) -> None:
        self._read, self._where, self._always = read, where, always
        self._lock = threading.Lock()
        self._known: dict[Any, frozenset[str]] = {}

    def met(self, inputs: Mapping[str, Any]) -> EmptyTensorError | None:
        """Return the error of those that do; None where none does."""
        arrays = {name: array for name, array in inputs.items() if isinstance(array, np.ndarray)}
        if not self._always and all(array.size for array in arrays.values()):
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
                    found = fragile_nodes(model, self._where)
                    self._known[key] = frozenset({**found.met, **found.inside}.values())
                except SplitError:  # the run says so, too
                    self._known[key] = frozenset()
            operators = self._known[key]
        return ended_on(sorted(operators), self._where) if operators else None
