"""Operators on which onnxruntime ends the process where they read a tensor without elements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import SplitError, Where
from splitops.models.engines.emptiness import EmptyTensorError, ended_on
from splitops.models.formats.onnx.structure import canonical, nodes_of
from splitops.models.graph.onnx import all_graphs, declared, label
from splitops.models.graph.onnx import nodes_of as inner_nodes
from splitops.models.graph.onnx_model import as_graph
from splitops.models.infer.walk import Walk
from splitops.models.known import Known, Tensor
from splitops.models.sessions.cones import light_model
from splitops.models.sessions.legality import Place
from splitops.models.sessions.predicted import known_inputs, may_be_lengths
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
        met: those that do, with their operators.
        perhaps: those in the main graph that may, and nodes with one in a body or a function that may.
        inside: whether there is one in a body or a function that may.
    """

    met: dict[Place, str]
    perhaps: dict[Place, str]
    inside: bool


def fragile_nodes(model: ir.Model, where: Where, given: Mapping[ir.Value, Known]) -> Fragile:
    """Return what inference knows of these nodes of a model, of whose inputs something is given."""
    full: set[str | None] = set()  # the names of sizes that are those of inputs
    sized = dict(given)
    for value in model.graph.inputs:
        known = given.get(value) or declared(value)
        if isinstance(known, Tensor) and known.shape is not None:
            shape = tuple(
                size if isinstance(size, int) else replace(size, name=size.name or f"{value.name}[{axis}]")
                for axis, size in enumerate(known.shape)
            )
            full.update(size.name for size in shape if not isinstance(size, int))
            sized[value] = replace(known, shape=shape)
    found = Walk(model, where, lambda _: None, given=sized).run().settled()
    met: dict[Place, str] = {}
    doubtful: set[ir.Node] = set()
    for path, inner in all_graphs(model):
        for node in inner:
            if node.op_type not in FRAGILE or canonical(node.domain):
                continue
            kinds = [found.values.get(value) for value in node.inputs if value is not None]
            if any(isinstance(kind, Tensor) and kind.shape is not None and 0 in kind.shape for kind in kinds):
                met[path, label(node)] = node.op_type
            elif not all(_is_known(kind, full) for kind in kinds):
                doubtful.add(node)
    held = {node: {one for _, one in inner_nodes([node])} for node in model.graph} if doubtful else {}
    called = doubtful.difference(*held.values())

    def may_make_one(node: ir.Node) -> bool:
        shapes = [getattr(found.values.get(value), "shape", None) for value in node.outputs]
        if node.op_type == "Split" and not canonical(node.domain):
            axis = node.attributes.get_int("axis", 0)
            return not all(shape and _is_full(shape[axis % len(shape)], full) for shape in shapes)
        makes = node.op_type in _MAKERS or canonical(node.domain) or node.op_identifier() in model.functions
        return bool(makes) and not all(_is_known(found.values.get(value), full) for value in node.outputs)

    perhaps: dict[Place, str] = {}
    empty: set[ir.Value | None] = set()  # what may be empty, since a node before it may make it so
    for node, inside in held.items():
        makes = any(may_make_one(one) or not empty.isdisjoint(one.inputs) for one in inside)
        if not makes:
            continue
        calls = bool(called) and any(one.op_identifier() in model.functions for one in inside)
        if calls or doubtful & inside:
            perhaps[None, label(node)] = node.op_type
        if node in doubtful:
            continue  # what it gives is not empty, as what it reads is not
        empty.update(value for value in node.outputs if not _is_known(found.values.get(value), full))
    return Fragile(met, perhaps, not doubtful <= held.keys())


_MAKERS: Final = frozenset(
    [
        "CenterCropPad", "Compress", "ConstantOfShape", "Expand", "EyeLike", "GatherND", "If", "Loop",
        "NonMaxSuppression", "NonZero", "OneHot", "OptionalGetElement", "Pad", "RandomNormal",
        "RandomUniform", "Range", "Resize", "Scan", "SequenceAt", "Slice", "Split", "SplitToSequence",
        "StringSplit", "Tile", "TopK", "Upsample",
    ]
)  # fmt: skip
"""What may give an empty tensor of others that are not: sizes, positions or conditions are inputs of it."""


def _is_known(kind: Any, names: Collection[str | None]) -> bool:
    """Return whether inference knows that a value is not empty."""
    shape = kind.shape if isinstance(kind, Tensor) else None
    return shape is not None and all(_is_full(size, names) for size in shape)


def _is_full(size: Dim, names: Collection[str | None]) -> bool:
    return size > 0 if isinstance(size, int) else size.lo > 0 or size.name in names


class Watch:
    """Tells from the inputs of a run which of these operators read a tensor without elements.

    ``always`` says that one may read such a tensor where no input is one.
    """

    def __init__(self, read: Callable[[], ModelProto], where: Where, *, always: bool) -> None:
        self._read, self._where, self._always = read, where, always
        self._lock = threading.Lock()
        self._known: dict[Any, frozenset[str]] = {}
        self._light: ir.Model | None = None

    def met(self, inputs: Mapping[str, Any]) -> EmptyTensorError | None:
        """Return the error of those that do; None where none does."""
        arrays = {name: array for name, array in inputs.items() if isinstance(array, np.ndarray)}
        if not self._always and all(array.size for array in arrays.values()):
            return None
        with self._lock:
            operators = self._operators(arrays, numbers=False) and self._operators(arrays, numbers=True)
        return ended_on(sorted(operators), self._where) if operators else None

    def _operators(self, arrays: Mapping[str, Any], *, numbers: bool) -> frozenset[str]:
        """Return those that inference finds, which is not asked for numbers where the shapes tell."""
        key = frozenset(
            (name, array.shape, array.tobytes() if numbers and may_be_lengths(array) else b"")
            for name, array in arrays.items()
        )
        found = self._known.get((numbers, key))
        if found is None:
            if len(self._known) == _REMEMBERED:
                self._known.clear()
            if self._light is None:
                model = self._read()
                self._light = as_graph(light_model(model, model.graph.node), self._where)
            try:
                known = known_inputs(self._light, arrays, numbers=numbers)
                found = frozenset(fragile_nodes(self._light, self._where, known).met.values())
            except SplitError:  # the run says so, too
                found = frozenset()
            self._known[numbers, key] = found
        return found
