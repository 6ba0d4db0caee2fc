"""What is around a split in a graph, as OpenVINO sees it: it drops the nodes that change nothing.

Operators and sizes also tell whether a search for fusions can find anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy.typing as npt
import onnx_ir as ir

from splitops.errors import NOWHERE, SplitError
from splitops.models.graph.onnx import all_graphs, constant_array, known
from splitops.models.graph.openvino import LayerNode
from splitops.models.known import Known, Tensor
from splitops.spec.sizes.dims import Range, Shape

NAMES: Final[Mapping[str, str]] = {
    "Broadcast": "Expand",
    "Convert": "Cast",
    "ConvertLike": "CastLike",
    "Convolution": "Conv",
    "Divide": "Div",
    "Multiply": "Mul",
    "Negative": "Neg",
    "ReLU": "Relu",
    "Subtract": "Sub",
    "VariadicSplit": "Split",
}
"""Names in OpenVINO of operators that ONNX has too."""
PARTS_OF_A_CELL: Final = 4
_NUMBER: Final = 8
"""No number has more bytes."""
_NEGATIVES: Final = frozenset({"Neg", "Mul", "Sub"})
_BEFORE_JOIN: Final = _NEGATIVES | {"Squeeze", "Reshape", "Conv"}
"""What is between a part and the Concat of a pattern."""
_PARTING: Final = frozenset({"Split", "Slice"})

_CASTS: Final = frozenset({"Cast", "CastLike"})
_OF_ANY_NUMBER: Final = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})
_NEUTRAL: Final[Mapping[str, int]] = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
RESHAPING: Final = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_MOVING: Final = frozenset({"Expand", "Pad", "Slice", "Tile", "Transpose"})

_N = TypeVar("_N")
_V = TypeVar("_V")


class Around(Protocol[_N, _V]):
    """What is around the nodes or layers of a graph."""

    def name(self, node: _N) -> str:
        """Return the operator of a node as ONNX names it."""

    def sources(self, node: _N) -> Sequence[_V | None]:
        """Return the inputs of a node."""

    def outputs(self, node: _N) -> Sequence[_V]:
        """Return the outputs of a node."""

    def maker(self, value: _V) -> _N | None:
        """Return the node that makes a value; None is an input of the graph."""

    def readers(self, node: _N) -> Iterable[_N]:
        """Return the nodes that read the outputs of a node."""

    def fact(self, value: _V) -> Known:
        """Return what is known of a value."""

    def number(self, value: _V) -> float | None:
        """Return the number that a constant of one element holds."""

    def keeps_places(self, node: _N) -> bool:
        """Return whether a node that gives the shape of its data may leave every element in its place."""


def unchanged(around: Around[_N, _V], node: _N) -> _V | None:
    """Return what the first output of a node is, if the node changes nothing, so that OpenVINO drops it."""
    kind = around.name(node)
    if kind not in _DROPPED:
        return None
    data, *others = around.sources(node) or (None,)
    if data is None or kind in ("Identity", "Dropout"):
        return data
    if kind in _NEUTRAL:
        return _scaled(around, kind, data, others)
    if kind in _OF_ANY_NUMBER:
        return None if others else data
    made = _tensor(around, around.outputs(node)[0])
    if kind in _CASTS:
        return data if made.type is not None and _tensor(around, data).type == made.type else None
    while not _is_same(_tensor(around, data).shape, made.shape):
        maker = around.maker(data) if kind in RESHAPING else None
        given = None if maker is None or around.name(maker) not in RESHAPING else around.sources(maker)[0]
        if given is None:
            return None
        data = given
    return data if kind in RESHAPING or around.keeps_places(node) else None


def _scaled(around: Around[_N, _V], kind: str, data: _V, others: Sequence[_V | None]) -> _V | None:
    """Return what 0 is added to, or what is multiplied by 1."""
    if len(others) != 1 or others[0] is None:
        return None
    if around.number(others[0]) == _NEUTRAL[kind]:
        return data
    return others[0] if kind in ("Add", "Mul") and around.number(data) == _NEUTRAL[kind] else None


_DROPPED: Final = _CASTS | _OF_ANY_NUMBER | set(_NEUTRAL) | RESHAPING | _MOVING | {"Identity", "Dropout"}


def _tensor(around: Around[_N, _V], value: _V) -> Tensor:
    found = around.fact(value)
    return found if isinstance(found, Tensor) else Tensor()


def _is_same(one: Shape | None, other: Shape | None) -> bool:
    """Return whether two shapes are surely the same one."""
    if one is None or one != other:
        return False
    return all(isinstance(size, int) or (isinstance(size, Range) and size.name is not None) for size in one)


def only_number(array: npt.NDArray[Any] | None) -> float | None:
    """Return the number that an array of one element holds."""
    if array is None or array.size != 1 or array.dtype.kind not in "iuf":
        return None
    return float(array.reshape(-1)[0])


def source(around: Around[_N, _V], value: _V) -> _V:
    """Return the value that a value is, behind all nodes that change nothing."""
    while (node := around.maker(value)) is not None and (given := unchanged(around, node)) is not None:
        if around.name(node) == "Dropout" and value != around.outputs(node)[0]:
            break  # the mask
        value = given
    return value


# Whether a search can find anything


FactOf = Callable[[ir.Value], Known]
"""What is known of a value."""


def may_be_fused(nodes: Iterable[_N], around: Around[_N, _V]) -> bool:
    """Return whether anything among some nodes looks like the end of a pattern that OpenVINO fuses wrongly.

    The operators say so, and the sizes around a rotary embedding or Slice that nothing is wrong there.
    """
    sliced: dict[_V, bool] = {}
    for node in nodes:
        own = around.name(node)
        if own not in ("Concat", "Slice", "Split"):
            continue
        if own == "Split" and len(around.outputs(node)) != PARTS_OF_A_CELL:
            continue
        given = around.sources(node)
        first = source(around, given[0]) if given and given[0] is not None else None
        if first is None:
            continue
        if own == "Slice":
            shape = _tensor(around, around.outputs(node)[0]).shape
            risky = shape is None or 0 in shape  # one that ends before it starts is empty
            if first in sliced and (risky or sliced[first]):
                return True
            sliced[first] = risky or sliced.get(first, False)
        elif _may_join(around, node, first, given) if own == "Concat" else _may_be_gates(around, first):
            return True
    return False


def _may_be_gates(around: Around[_N, _V], data: _V) -> bool:
    maker = around.maker(data)
    return maker is not None and around.name(maker) in ("Add", "Gemm")


def _may_join(around: Around[_N, _V], join: _N, first: _V, given: Sequence[_V | None]) -> bool:
    """Return whether a Concat looks like the end of a pattern."""
    maker = around.maker(first)
    kind = "" if maker is None else around.name(maker)
    if kind == "Split":  # else no part is repeated in their order
        return len(given) > 1 and given[1] is not None and source(around, given[1]) == first
    if kind not in _BEFORE_JOIN or maker is None:
        return False
    for value in around.sources(maker):
        made = None if value is None else around.maker(source(around, value))
        if made is not None and around.name(made) in _PARTING:
            return not (kind in _NEGATIVES and _turns_whole_rows(around, join))
    return False


def may_be_fused_in(model: ir.Model, facts: FactOf = known) -> bool:
    """Return whether anything in a model looks like what OpenVINO fuses wrongly with a split.

    Args:
        model: the model.
        facts: what is known of its values: the sizes tell most patterns from those that are right.
    """
    around = _AsWritten(facts)
    return any(may_be_fused(graph, around) for _, graph in all_graphs(model))


class Nodes:
    """How nodes of onnx-ir are joined: the part of :class:`Around` that every reader of them shares."""

    def sources(self, node: ir.Node) -> Sequence[ir.Value | None]:
        """Return the inputs of a node."""
        return node.inputs

    def outputs(self, node: ir.Node) -> Sequence[ir.Value]:
        """Return the outputs of a node."""
        return node.outputs

    def maker(self, value: ir.Value) -> ir.Node | None:
        """Return the node that makes a value."""
        return value.producer()


class _AsWritten(Nodes):
    """What is around the nodes of a graph as it is written."""

    def __init__(self, facts: FactOf) -> None:
        self._facts = facts

    def name(self, node: ir.Node) -> str:
        return NAMES.get(node.op_type, node.op_type)

    def readers(self, node: ir.Node) -> Iterable[ir.Node]:
        return [use.node for value in node.outputs for use in value.uses()]

    def fact(self, value: ir.Value) -> Known:
        return self._facts(value) or known(value)

    def number(self, value: ir.Value) -> float | None:
        maker = value.producer()
        if isinstance(maker, LayerNode):
            constant = maker.layer.constant
            try:
                if constant is None or constant.size > _NUMBER:
                    return None
                return only_number(constant.array(NOWHERE))
            except SplitError:
                return None
        shape = _tensor(self, value).shape
        if shape is not None and shape.count(1) < len(shape):
            return None
        return only_number(constant_array(value, limit=1))

    def keeps_places(self, node: ir.Node) -> bool:
        return True


def _turns_whole_rows(around: Around[_N, _V], join: _N) -> bool:
    """Return whether a Concat is one of two halves, and is multiplied with tables of whole rows only.

    What is behind a node that changes nothing is not looked at: it may be anything.

    Args:
        around: what is around it.
        join: a Concat whose first input may be the negative of a half.
    """
    first, *others = around.sources(join)
    negated = None if first is None else around.maker(first)
    halves = [
        node
        for value in (*(() if negated is None else around.sources(negated)), *others)
        if value is not None and (node := around.maker(value)) is not None and around.name(node) in _PARTING
    ]
    data = {around.sources(node)[0] for node in halves}
    whole = next(iter(data)) if len(others) == 1 and len(halves) == 2 and len(data) == 1 else None
    shape = None if whole is None else _tensor(around, whole).shape
    parts = [_tensor(around, around.outputs(node)[0]).shape for node in halves]
    sizes = {part[-1] if part else None for part in parts}
    half = sizes.pop() if sizes else None
    if not shape or sizes or not isinstance(half, int) or shape[-1] != 2 * half:
        return False
    products = list(around.readers(join))
    totals = [total for one in products if around.name(one) == "Mul" for total in around.readers(one)]
    summands = [
        node
        for total in totals
        if around.name(total) == "Add"
        for value in around.sources(total)
        if value is not None and (node := around.maker(value)) is not None
    ]
    for node in (*products, *totals, *summands):
        if around.name(node) in RESHAPING or unchanged(around, node) is not None:
            return False
    tables = [
        value
        for node in summands
        if around.name(node) == "Mul"
        for value in around.sources(node)
        if value is not None and value != whole and around.maker(value) is not join
    ]
    found = [_tensor(around, table).shape for table in tables]
    return all(rows and rows[-1] == shape[-1] and not grows(shape, rows) for rows in found)


def grows(shape: Shape, table: Shape) -> bool:
    """Return whether a table makes data of a shape larger."""
    pairs = zip(reversed(shape), reversed(table), strict=False)
    return len(table) > len(shape) or any(
        size == 1 and isinstance(other, int) and other != 1 for size, other in pairs
    )
