"""What networks write around a split, as cases: the nodes that a runtime may fuse with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper, parser

from splitops.comparison.cases.forms import by_count, by_lengths
from splitops.comparison.records import Record
from splitops.spec.operators import OperatorSchema


class Neighbours(NamedTuple):
    """The nodes around a split, and the split.

    Attributes:
        title: what they are, in words.
        shape: of the data.
        axis: of the split.
        parts: the number of parts, or their lengths.
        graph: in ONNX's own text format. The record has the inputs and attributes of its Split. Declared
            tensors without values are small floats.
    """

    title: str
    shape: tuple[int, ...]
    axis: int
    parts: int | tuple[int, ...]
    graph: str

    def parsed(self) -> onnx.GraphProto:
        """Return the graph as it is written."""
        return parser.parse_graph(f"split {self.graph}")


def _heads(title: str, axis: int, shape: str = "2,3,4") -> Neighbours:
    text = f"""(float[{shape}] x) => (float[a,b] y0) <int64[1] at = {{1}}> {{
        p0, p1, p2 = Split(x)
        a = Squeeze(p0, at)  b = Squeeze(p1, at)  c = Squeeze(p2, at)
        y0 = Concat<axis = {axis}>(a, b, c) }}"""
    return Neighbours(title, (2, 3, 4), 1, 3, text)


def _upsampled(title: str, axis: int) -> Neighbours:
    text = """(float[1,2,3,2] x) => (float[a,b,c,d] y0) {
        p0, p1, p2 = Split(x)
        y0 = Concat<axis = 2>(p0, p0, p1, p1, p2, p2) }"""
    return Neighbours(title, (1, 2, 3, 2), axis, 3, text)


def _convolved(title: str, first: str, second: str | None) -> Neighbours:
    other = "x" if second is None else "other"
    kernels = "float[2,2,3,3] k" if second is None else "float[2,2,3,3] k, float[2,2,3,3] l"
    again = "" if second is None else f"other = Conv<pads = [1,1,1,1]>({second}, l)"
    text = f"""(float[1,4,3,3] x) => (float[a,b,c,d] y0) <{kernels}> {{
        p0, p1 = Split(x)
        one = Conv<pads = [1,1,1,1]>({first}, k)  {again}
        y0 = Concat<axis = 1>(one, {other}) }}"""
    return Neighbours(title, (1, 4, 3, 3), 1, 2, text)


def _rotary(title: str, width: int) -> Neighbours:
    table = f"float[1,1,3,{width}]"
    text = f"""(float[1,2,3,4] x) => (float[a,b,c,d] y0) <{table} cosine, {table} sine> {{
        p0, p1 = Split(x)
        negative = Neg(p1)  turned = Concat<axis = -1>(negative, p0)
        kept = Mul(x, cosine)  moved = Mul(turned, sine)
        y0 = Add(kept, moved) }}"""
    return Neighbours(title, (1, 2, 3, 4), 3, (2, 2), text)


def _gated(title: str, i: str, c: str, f: str, o: str) -> Neighbours:
    """Return the gates of a cell; those of Relu have exact numbers."""
    text = f"""(float[2,3] x) => (float[a,b] y0, float[a,b] y1)
        <float[2,2] h, float[5,8] w, float[8] bias, float one = {{1}}, float[2,2] cell> {{
        both = Concat<axis = 1>(x, h)  product = MatMul(both, w)  gates = Add(product, bias)
        p0, p1, p2, p3 = Split(gates)
        forgets = Add({f}, one)
        i = Relu({i})  c = Relu({c})  f = Relu(forgets)  o = Relu({o})
        kept = Mul(f, cell)  new = Mul(i, c)
        y1 = Add(new, kept)  state = Relu(y1)
        y0 = Mul(state, o) }}"""
    return Neighbours(title, (2, 3), 1, 4, text)


NEIGHBOURS: Final[Mapping[str, Neighbours]] = {
    "heads": _heads("the parts lose their axis and are joined on the last one", 1),
    "heads-from-the-end": _heads("the parts lose their axis and are joined on axis -1", -1),
    "heads-of-unknown-size": _heads(
        "the parts lose their axis and are joined; the sizes of all other axes are unknown", 1, "m,3,n"
    ),
    "upsampled": _upsampled("each part is joined twice", 2),
    "upsampled-from-the-end": _upsampled("each part of a split on a negative axis is joined twice", -2),
    "convolved": _convolved("a convolution of each part, joined in their order", "p0", "p1"),
    "convolved-backwards": _convolved("a convolution of each part, joined in another order", "p1", "p0"),
    "convolved-twice": _convolved("two convolutions of one part, joined", "p0", "p0"),
    "convolved-beside": _convolved(
        "a convolution of a part, joined with the input of the model", "p0", None
    ),
    "rotary": _rotary("a rotary embedding", 4),
    "rotary-by-one": _rotary("a rotary embedding by tables of width 1", 1),
    "sliced-backwards": Neighbours(
        "two Slices of the first part, of which one ends before it starts", (6, 2), 0, 2,
        """(float[6,2] x) => (float[a,b] y0, float[a,b] y1) <int64[1] zero = {0}, int64[1] one = {1}> {
        p0, p1 = Split(x)
        a = Slice(p0, zero, one, zero)  b = Slice(p0, one, zero, zero)
        y0 = Relu(a)  y1 = Relu(b) }""",
    ),
    "gated": _gated("the gates of an LSTM cell of Relu in the order i, c, f, o", "p0", "p1", "p2", "p3"),
    "gated-otherwise": _gated(
        "the gates of an LSTM cell of Relu in the order i, f, c, o", "p0", "p2", "p1", "p3"
    ),
}  # fmt: skip
"""Each by the word of its record."""


def neighbour_records(row: OperatorSchema) -> Iterator[Record]:
    """Yield a record of a row with each of the neighbours."""
    for word, own in NEIGHBOURS.items():
        if isinstance(own.parts, int):
            yield by_count(row, own.shape, own.parts, own.axis, special=word)
        else:
            yield by_lengths(row, own.shape, list(own.parts), own.axis, special=word)


def write_neighbours(graph: onnx.GraphProto, own: Neighbours, split: onnx.NodeProto) -> None:
    """Add a split with its neighbours to a graph, which has all other inputs of the split."""
    found = own.parsed()
    for node in found.node:
        if node.op_type == "Split":
            split.input[0] = node.input[0]
            node.CopyFrom(split)
    for value in found.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        graph.initializer.append(numpy_helper.from_array(_floats(shape, len(graph.initializer)), value.name))
    del found.value_info[:], graph.input[0]
    graph.MergeFrom(found)


def _floats(shape: Sequence[int], first: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return small floats of which neighbours differ."""
    return (((np.arange(np.prod(shape)) + first) % 7 - 3) / 8).astype(np.float32).reshape(shape)
