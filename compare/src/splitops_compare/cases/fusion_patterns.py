"""Patterns of nodes that networks have around a split, and that a runtime may fuse with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper, parser

from splitops.spec import OperatorSchema
from splitops_compare.cases.spec_templates import make_count_spec, make_lengths_spec
from splitops_compare.data import CaseSpec


class FusionPattern(NamedTuple):
    """A split and the nodes around it that a runtime may fuse with it.

    Attributes:
        title: description for reports.
        shape: shape of the data.
        axis: split axis.
        parts: number of parts, or their lengths.
        graph: the graph in ONNX text format. Its Split has no attributes and one input: the case spec adds
            the others. Tensors that are declared without values are filled with small floats.
    """

    title: str
    shape: tuple[int, ...]
    axis: int
    parts: int | tuple[int, ...]
    graph: str

    def parse_graph(self) -> onnx.GraphProto:
        """Return :attr:`graph` as protobuf, under the name ``split``."""
        return parser.parse_graph(f"split {self.graph}")


def _make_heads(title: str, axis: int, shape: str = "2,3,4") -> FusionPattern:
    text = f"""(float[{shape}] x) => (float[a,b] y0) <int64[1] at = {{1}}> {{
        p0, p1, p2 = Split(x)
        a = Squeeze(p0, at)  b = Squeeze(p1, at)  c = Squeeze(p2, at)
        y0 = Concat<axis = {axis}>(a, b, c) }}"""
    return FusionPattern(title, (2, 3, 4), 1, 3, text)


def _make_upsampling(title: str, axis: int) -> FusionPattern:
    text = """(float[1,2,3,2] x) => (float[a,b,c,d] y0) {
        p0, p1, p2 = Split(x)
        y0 = Concat<axis = 2>(p0, p0, p1, p1, p2, p2) }"""
    return FusionPattern(title, (1, 2, 3, 2), axis, 3, text)


def _make_convolutions(title: str, first: str, second: str | None) -> FusionPattern:
    other = "x" if second is None else "other"
    kernels = "float[2,2,3,3] k" if second is None else "float[2,2,3,3] k, float[2,2,3,3] l"
    again = "" if second is None else f"other = Conv<pads = [1,1,1,1]>({second}, l)"
    text = f"""(float[1,4,3,3] x) => (float[a,b,c,d] y0) <{kernels}> {{
        p0, p1 = Split(x)
        one = Conv<pads = [1,1,1,1]>({first}, k)  {again}
        y0 = Concat<axis = 1>(one, {other}) }}"""
    return FusionPattern(title, (1, 4, 3, 3), 1, 2, text)


def _make_rope(title: str, width: int) -> FusionPattern:
    table = f"float[1,1,3,{width}]"
    text = f"""(float[1,2,3,4] x) => (float[a,b,c,d] y0) <{table} cosine, {table} sine> {{
        p0, p1 = Split(x)
        negative = Neg(p1)  turned = Concat<axis = -1>(negative, p0)
        kept = Mul(x, cosine)  moved = Mul(turned, sine)
        y0 = Add(kept, moved) }}"""
    return FusionPattern(title, (1, 2, 3, 4), 3, (2, 2), text)


def _make_lstm_cell(title: str, i: str, c: str, f: str, o: str) -> FusionPattern:
    """Return an LSTM cell whose activations are Relu, so that its results are exact."""
    text = f"""(float[2,3] x) => (float[a,b] y0, float[a,b] y1)
        <float[2,2] h, float[5,8] w, float[8] bias, float one = {{1}}, float[2,2] cell> {{
        both = Concat<axis = 1>(x, h)  product = MatMul(both, w)  gates = Add(product, bias)
        p0, p1, p2, p3 = Split(gates)
        forgets = Add({f}, one)
        i = Relu({i})  c = Relu({c})  f = Relu(forgets)  o = Relu({o})
        kept = Mul(f, cell)  new = Mul(i, c)
        y1 = Add(new, kept)  state = Relu(y1)
        y0 = Mul(state, o) }}"""
    return FusionPattern(title, (2, 3), 1, 4, text)


FUSION_PATTERNS: Final[Mapping[str, FusionPattern]] = {
    "heads": _make_heads("the parts are squeezed, and concatenated on the last axis", 1),
    "heads-from-the-end": _make_heads("the parts are squeezed, and concatenated on axis -1", -1),
    "heads-of-unknown-size": _make_heads(
        "the parts are squeezed and concatenated, with unknown sizes of all other axes", 1, "m,3,n"
    ),
    "upsampled": _make_upsampling("each part is concatenated twice", 2),
    "upsampled-from-the-end": _make_upsampling("a negative axis; each part is concatenated twice", -2),
    "convolved": _make_convolutions("convolutions of the parts in order", "p0", "p1"),
    "convolved-backwards": _make_convolutions("convolutions of the parts in another order", "p1", "p0"),
    "convolved-twice": _make_convolutions("two convolutions of one part, concatenated", "p0", "p0"),
    "convolved-beside": _make_convolutions(
        "a convolution of a part, concatenated with the input of the model", "p0", None
    ),
    "rotary": _make_rope("a rotary embedding", 4),
    "rotary-by-one": _make_rope("a rotary embedding by tables of width 1", 1),
    "sliced-backwards": FusionPattern(
        "two Slices of the first part, one of which ends before it starts", (6, 2), 0, 2,
        """(float[6,2] x) => (float[a,b] y0, float[a,b] y1) <int64[1] zero = {0}, int64[1] one = {1}> {
        p0, p1 = Split(x)
        a = Slice(p0, zero, one, zero)  b = Slice(p0, one, zero, zero)
        y0 = Relu(a)  y1 = Relu(b) }""",
    ),
    "gated": _make_lstm_cell("an LSTM cell of Relu with gates i, c, f, o", "p0", "p1", "p2", "p3"),
    "gated-otherwise": _make_lstm_cell(
        "an LSTM cell of Relu with gates i, f, c, o", "p0", "p2", "p1", "p3"
    ),
}  # fmt: skip
"""The patterns by the ``special`` of their specs."""


def generate_fusion_specs(schema: OperatorSchema) -> Iterator[CaseSpec]:
    """Yield one case spec for each fusion pattern, with the split in the version of ``schema``."""
    for name, pattern in FUSION_PATTERNS.items():
        if isinstance(pattern.parts, int):
            yield make_count_spec(schema, pattern.shape, pattern.parts, pattern.axis, special=name)
        else:
            yield make_lengths_spec(schema, pattern.shape, list(pattern.parts), pattern.axis, special=name)


def write_fusion_pattern(graph: onnx.GraphProto, pattern: FusionPattern, split: onnx.NodeProto) -> None:
    """Add a pattern to a graph that has the inputs of ``split``, which replaces the Split of the pattern."""
    written = pattern.parse_graph()
    for node in written.node:
        if node.op_type == "Split":
            split.input[0] = node.input[0]
            node.CopyFrom(split)
    for value in written.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        graph.initializer.append(
            numpy_helper.from_array(_make_floats(shape, len(graph.initializer)), value.name)
        )
    del written.value_info[:], graph.input[0]
    graph.MergeFrom(written)


def _make_floats(shape: Sequence[int], first: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return small floats that repeat a cycle of seven from position ``first``. Adjacent elements differ."""
    return (((np.arange(np.prod(shape)) + first) % 7 - 3) / 8).astype(np.float32).reshape(shape)
