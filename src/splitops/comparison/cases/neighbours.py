"""What networks write around a split, as cases: the nodes that a runtime may fuse with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from splitops.comparison.cases.forms import by_count, by_lengths
from splitops.comparison.records import Record
from splitops.spec.operators import OperatorSchema

Array = npt.NDArray[Any]


class _Writer:
    """Adds nodes to a graph.

    Args:
        graph: the graph.
        data: the name of the data.
    """

    def __init__(self, graph: onnx.GraphProto, data: str) -> None:
        self.graph = graph
        self.data = data

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one output, and return its name."""
        name = f"{operator.lower()}{len(self.graph.node)}"
        self.graph.node.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def constant(self, array: Any) -> str:
        """Add an initializer, and return its name."""
        name = f"c{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def floats(self, *shape: int) -> str:
        """Add an initializer of small floats, and return its name; neighbours and initializers differ."""
        numbers = np.arange(np.prod(shape)) + len(self.graph.initializer)
        return self.constant(((numbers % 7 - 3) / 8).astype(np.float32).reshape(shape))


_Parts = Sequence[str]


def _heads(writer: _Writer, record: Record, parts: _Parts, axis: int) -> list[str]:
    squeezed = [writer.add("Squeeze", part, writer.constant([record.axis])) for part in parts]
    return [writer.add("Concat", *squeezed, axis=axis)]


def _upsampled(writer: _Writer, record: Record, parts: _Parts, axis: int) -> list[str]:
    return [writer.add("Concat", *(part for part in parts for _ in range(2)), axis=axis)]


def _convolved(writer: _Writer, record: Record, parts: _Parts, order: Sequence[int]) -> list[str]:
    size = record.shape[1] // len(parts)
    made = [writer.add("Conv", parts[index], writer.floats(2, size, 3, 3), pads=[1] * 4) for index in order]
    return [writer.add("Concat", *made, axis=1)]


def _beside(writer: _Writer, record: Record, parts: _Parts, joined: str) -> list[str]:
    made = writer.add("Conv", parts[0], writer.floats(2, record.shape[1] // 2, 3, 3), pads=[1] * 4)
    return [writer.add("Concat", made, joined, axis=1)]


def _rotary(writer: _Writer, record: Record, parts: _Parts, width: int) -> list[str]:
    turned = writer.add("Concat", writer.add("Neg", parts[1]), parts[0], axis=-1)
    cosine, sine = (writer.floats(1, 1, record.shape[2], width) for _ in range(2))
    return [writer.add("Add", writer.add("Mul", writer.data, cosine), writer.add("Mul", turned, sine))]


def _sliced(writer: _Writer, record: Record, parts: _Parts, bounds: Sequence[tuple[int, int]]) -> list[str]:
    made = []
    for begin, end in bounds:
        places = [writer.constant([number]) for number in (begin, end, record.axis)]
        made.append(writer.add("Relu", writer.add("Slice", parts[0], *places)))
    return made


def _gated(writer: _Writer, record: Record, parts: _Parts, order: str) -> list[str]:
    gate = dict(zip(order, parts, strict=True))
    gate["f"] = writer.add("Add", gate["f"], writer.constant(np.float32(1)))
    active = {name: writer.add("Relu", gate[name]) for name in "icfo"}  # whose numbers are exact
    kept = writer.add("Mul", active["f"], writer.floats(2, 2))
    state = writer.add("Add", writer.add("Mul", active["i"], active["c"]), kept)
    return [writer.add("Mul", writer.add("Relu", state), active["o"]), state]


def _gates(writer: _Writer) -> str:
    """Add what the gates of a cell are parts of."""
    both = writer.add("Concat", writer.data, writer.floats(2, 2), axis=1)
    return writer.add("Add", writer.add("MatMul", both, writer.floats(5, 8)), writer.floats(8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The nodes behind a split, and sometimes in front of it.

    Attributes:
        title: what they are, in words.
        shape: of the data.
        axis: of the split.
        parts: the number of parts, or their lengths.
        read: adds what reads the parts, and returns the outputs of the model; it is given ``with_``.
        with_: what else it is to know.
        before: adds what makes the data of the split; None is the input itself.
        open: the axes of the data whose sizes the model leaves open.
        outputs: the number of outputs.
        rank: of the outputs.
    """

    title: str
    shape: tuple[int, ...]
    axis: int
    parts: int | tuple[int, ...]
    read: Callable[[_Writer, Record, _Parts, Any], list[str]]
    with_: Any
    before: Callable[[_Writer], str] | None = None
    open: tuple[int, ...] = ()
    outputs: int = 1
    rank: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the outputs of the model."""
        return tuple(f"y{index}" for index in range(self.outputs))


NEIGHBOURS: Final[Mapping[str, Neighbours]] = {
    "heads": Neighbours(
        title="the parts lose their axis and are joined on the last one",
        shape=(2, 3, 4), axis=1, parts=3, read=_heads, with_=1, rank=2,
    ),
    "heads-from-the-end": Neighbours(
        title="the parts lose their axis and are joined on axis -1",
        shape=(2, 3, 4), axis=1, parts=3, read=_heads, with_=-1, rank=2,
    ),
    "heads-of-unknown-size": Neighbours(
        title="the parts lose their axis and are joined; the sizes of all other axes are unknown",
        shape=(2, 3, 4), axis=1, parts=3, read=_heads, with_=1, open=(0, 2), rank=2,
    ),
    "upsampled": Neighbours(
        title="each part is joined twice",
        shape=(1, 2, 3, 2), axis=2, parts=3, read=_upsampled, with_=2, rank=4,
    ),
    "upsampled-from-the-end": Neighbours(
        title="each part of a split on a negative axis is joined twice",
        shape=(1, 2, 3, 2), axis=-2, parts=3, read=_upsampled, with_=2, rank=4,
    ),
    "convolved": Neighbours(
        title="a convolution of each part, joined in their order",
        shape=(1, 4, 3, 3), axis=1, parts=2, read=_convolved, with_=(0, 1), rank=4,
    ),
    "convolved-backwards": Neighbours(
        title="a convolution of each part, joined in another order",
        shape=(1, 4, 3, 3), axis=1, parts=2, read=_convolved, with_=(1, 0), rank=4,
    ),
    "convolved-twice": Neighbours(
        title="two convolutions of one part, joined",
        shape=(1, 4, 3, 3), axis=1, parts=2, read=_convolved, with_=(0, 0), rank=4,
    ),
    "convolved-beside": Neighbours(
        title="a convolution of a part, joined with the input of the model",
        shape=(1, 4, 3, 3), axis=1, parts=2, read=_beside, with_="x", rank=4,
    ),
    "rotary": Neighbours(
        title="a rotary embedding",
        shape=(1, 2, 3, 4), axis=3, parts=(2, 2), read=_rotary, with_=4, rank=4,
    ),
    "rotary-by-one": Neighbours(
        title="a rotary embedding by tables of width 1",
        shape=(1, 2, 3, 4), axis=3, parts=(2, 2), read=_rotary, with_=1, rank=4,
    ),
    "sliced-backwards": Neighbours(
        title="two Slices of the first part, of which one ends before it starts",
        shape=(6, 2), axis=0, parts=2, read=_sliced, with_=((0, 1), (1, 0)), outputs=2, rank=2,
    ),
    "gated": Neighbours(
        title="the gates of an LSTM cell of Relu in the order i, c, f, o",
        shape=(2, 3), axis=1, parts=4, read=_gated, with_="icfo", before=_gates, outputs=2, rank=2,
    ),
    "gated-otherwise": Neighbours(
        title="the gates of an LSTM cell of Relu in the order i, f, c, o",
        shape=(2, 3), axis=1, parts=4, read=_gated, with_="ifco", before=_gates, outputs=2, rank=2,
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


def write_neighbours(
    record: Record, graph: onnx.GraphProto, inputs: Sequence[str], split: Callable[..., None]
) -> None:
    """Add a split with its neighbours to a graph of ONNX.

    Args:
        record: its ``special`` says which ones.
        graph: the graph, with the data as its first input.
        inputs: the inputs of the split.
        split: adds the split.
    """
    own = NEIGHBOURS[record.special or ""]
    writer = _Writer(graph, inputs[0])
    for axis in own.open:
        graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"n{axis}"
    data = inputs[0] if own.before is None else own.before(writer)
    split(record, graph, [data, *inputs[1:]], record.outputs)
    for made, name in zip(own.read(writer, record, record.outputs, own.with_), own.names, strict=True):
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [name if own_name == made else own_name for own_name in names]
        dims = [f"{name}_{axis}" for axis in range(own.rank)]
        graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims))
