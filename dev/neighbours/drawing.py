"""Draws models of what networks write around a split: the same number always gives the same model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET: Final = 18
_FLOAT: Final = TensorProto.FLOAT
_END: Final = 2**62


@dataclass(frozen=True)
class Drawn:
    """A model that was drawn.

    Attributes:
        family: what it is.
        model: the model.
        feeds: its inputs.
    """

    family: str
    model: onnx.ModelProto
    feeds: dict[str, Any]


class _Model:
    """A model that is being drawn.

    Args:
        draw: gives the choices.
    """

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.numbers = np.random.default_rng(draw.randrange(2**32))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.feeds: dict[str, Any] = {}
        self.outputs: list[str] = []

    def pick(self, *choices: Any) -> Any:
        return self.draw.choice(choices)

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"{operator.lower()}{len(self.nodes)}_{index}" for index in range(outputs)]
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, names, name=name, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def floats(self, *shape: int, dtype: Any = np.float32) -> str:
        return self.constant(self.numbers.standard_normal(shape).astype(dtype))

    def input(self, *shape: int, dtype: Any = np.float32, fixed: Sequence[int] = ()) -> str:
        """Add an input, of which the model may leave sizes open that are not fixed."""
        name = f"x{len(self.inputs)}"
        share = self.pick(0, 0, 0.5, 1)
        dims: list[Any] = [
            size if axis in fixed or self.draw.random() >= share else f"{name}_{axis}"
            for axis, size in enumerate(shape)
        ]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, kind, dims))
        numbers = self.numbers.standard_normal(shape) * 3
        self.feeds[name] = numbers.astype(dtype)
        return name

    def parts(self, data: str, rank: int, axis: int, sizes: Sequence[int], how: str = "") -> list[str]:
        """Divide an axis in one of the ways in which networks are written."""
        ways = ["lengths", "slices"]
        ways += ["count"] if len(set(sizes)) == 1 else []
        how = how or self.pick(*ways)
        axis = self.pick(axis, axis - rank)
        if how == "count":
            return list(self.add("Split", data, outputs=len(sizes), axis=axis, num_outputs=len(sizes)))
        if how == "lengths":
            return list(self.add("Split", data, self.constant(list(sizes)), outputs=len(sizes), axis=axis))
        ends = np.cumsum([0, *sizes]).tolist()
        made = []
        for begin, end in pairwise(ends):
            stop = end if end < ends[-1] else self.pick(end, _END)
            bounds = (self.constant([number]) for number in (begin, stop, axis))
            made.append(self.add("Slice", data, *bounds))
        return made

    def result(self, *values: str) -> None:
        self.outputs += values

    def model(self) -> onnx.ModelProto:
        outputs = [helper.make_tensor_value_info(name, _FLOAT, None) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "drawn", self.inputs, outputs, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        inferred = onnx.shape_inference.infer_shapes(made, data_prop=True).graph.output
        for own, found in zip(made.graph.output, inferred, strict=True):
            own.CopyFrom(found)
            if not own.type.tensor_type.HasField("shape"):
                raise ValueError("the rank of an output is not known")
        onnx.checker.check_model(made)
        return made


def _heads(m: _Model) -> None:
    axis, count = m.pick(1, 2), m.pick(2, 3)
    shape = [2, 4, 4, 3]
    shape[axis] = count
    data = m.input(*shape, fixed=[axis])
    parts = m.parts(data, 4, axis, [1] * count)
    if m.pick(True, False):
        m.draw.shuffle(parts)
    at = m.constant([axis])
    m.result(
        m.add("Concat", *(m.add("Squeeze", part, at) for part in parts), axis=m.pick(-3, -2, -1, 0, 1, 2))
    )


def _upsampled(m: _Model) -> None:
    rank = m.pick(3, 4, 5)
    axis, count = m.pick(*range(1, rank)), m.pick(2, 3)
    shape = [2, 2, 3, 2, 2][:rank]
    each = m.pick(1, 1, 2)
    shape[axis] = count * each
    parts = m.parts(m.input(*shape), rank, axis, [each] * count)
    times = m.pick(1, 2, 3)
    made = [part for part in parts for _ in range(times)]
    if m.pick(True, False, False, False):
        m.draw.shuffle(made)
    where = m.pick(axis, axis, axis - rank, m.pick(*range(rank)))
    m.result(m.add("Concat", *made, axis=where))


def _convolved(m: _Model) -> None:
    spatial, count, size = m.pick(1, 2), m.pick(2, 3), m.pick(1, 2)
    shape = (2, count * size, *[4] * spatial)
    data = m.input(*shape, fixed=m.pick([1], []))
    parts = m.parts(data, len(shape), 1, [size] * count)
    order = list(range(count))
    if m.pick(True, False):
        order = [m.pick(*range(count)) for _ in range(m.pick(2, count, count + 1))]
    made, out, biased, uneven = [], m.pick(size, 2), m.pick(False, False, True), m.pick(False, False, True)
    for index in order:
        given = [parts[index], m.floats(out, size, *[3] * spatial)]
        given += [m.floats(out)] if biased else []
        wide = m.pick(1, 2) if uneven else 1
        made.append(m.add("Conv", *given, pads=[wide] * 2 * spatial, dilations=[wide] * spatial))
    made += [data] if m.pick(False, False, False, True) else []
    axis = m.pick(1, 1, 1, 1 - len(shape), -1)
    if axis == -1 and data in made:
        made.remove(data)
    m.result(m.add("Concat", *made, axis=axis))


def _depthwise(m: _Model) -> None:
    parts = m.parts(m.input(2, 4, 5, fixed=[1]), 3, 1, [2, 2])
    made = [m.add("Conv", part, m.floats(2, 1, 3), group=2, pads=[1, 1]) for part in parts]
    m.draw.shuffle(made)
    m.result(m.add("Concat", *made, axis=1))


def _rotary(m: _Model) -> None:
    rank, width = m.pick(3, 4, 4), m.pick(4, 4, 6)
    shape = (2, 3, 5, width)[-rank:]
    data = m.input(*shape, fixed=[rank - 1, m.pick(0, 1)])
    half = m.pick(width // 2, width // 2, width // 2, 1)
    first, second = m.parts(data, rank, rank - 1, [half, width - half])
    turned = m.add("Concat", m.add("Neg", second), first, axis=m.pick(-1, -1, rank - 1))
    wide = m.pick(width, width, 1)
    table = m.pick((5, wide), (1,) * (rank - 2) + (5, wide), (wide,), ())
    cosine, sine = (
        (m.input(*table, fixed=range(4)) for _ in "cs")
        if m.pick(True, False)
        else (m.floats(*table) for _ in "cs")
    )
    scaled = m.add("Mul", *m.draw.sample([data, cosine], 2)), m.add("Mul", *m.draw.sample([turned, sine], 2))
    m.result(m.add("Add", *m.draw.sample(scaled, 2)))


def _interleaved(m: _Model) -> None:
    data = m.input(2, 3, 5, 6, fixed=m.pick(range(4), [3]))
    pairs = m.add("Reshape", data, m.constant([0, 0, 0, 3, 2]))
    even, odd = m.parts(pairs, 5, 4, [1, 1], m.pick("count", "lengths", "slices"))
    turned = m.add("Concat", m.add("Neg", odd), even, axis=m.pick(-1, 4))
    flat = m.add("Reshape", turned, m.constant([0, 0, 0, 6]))
    table = m.pick((5, 6), (1, 1, 5, 6), (1, 1, 5, 1), (6,))
    scaled = m.add("Mul", data, m.floats(*table)), m.add("Mul", flat, m.floats(*table))
    m.result(m.add("Add", *scaled))


def _partial(m: _Model) -> None:
    data = m.input(2, 3, 5, 8, fixed=[3])
    turns, rest = m.parts(data, 4, 3, [4, 4])
    first, second = m.parts(turns, 4, 3, [2, 2])
    turned = m.add("Concat", m.add("Neg", second), first, axis=m.pick(-1, 3))
    table = m.pick((5, 4), (1, 1, 5, 4), (5, 1))
    made = m.add("Add", m.add("Mul", turns, m.floats(*table)), m.add("Mul", turned, m.floats(*table)))
    m.result(m.add("Concat", made, rest, axis=m.pick(-1, 3)))


def _attention(m: _Model) -> None:
    data = m.input(2, 5, 6, fixed=[2])
    projected = m.add("MatMul", data, m.floats(6, 18))
    if m.pick(True, False):
        heads = []
        for part in m.parts(projected, 3, 2, [6, 6, 6]):
            split = m.add("Reshape", part, m.constant([0, 0, 2, 3]))
            heads.append(m.add("Transpose", split, perm=[0, 2, 1, 3]))
    else:
        five = m.add(
            "Transpose", m.add("Reshape", projected, m.constant([0, 0, 3, 2, 3])), perm=[2, 0, 3, 1, 4]
        )
        at = m.constant([0])
        heads = [m.add("Squeeze", part, at) for part in m.parts(five, 5, 0, [1, 1, 1])]
    query, key, value = heads
    scores = m.add("Softmax", m.add("MatMul", query, m.add("Transpose", key, perm=[0, 1, 3, 2])), axis=-1)
    back = m.add("Transpose", m.add("MatMul", scores, value), perm=[0, 2, 1, 3])
    m.result(m.add("Reshape", back, m.constant([0, 0, 6])))


def _mlp(m: _Model) -> None:
    data = m.add("MatMul", m.input(2, 5, 4, fixed=[2]), m.floats(4, 8))
    gate, up = m.parts(data, 3, 2, [4, 4])
    act = m.pick("silu", "gelu", "relu")
    if act == "silu":
        made = m.add("Mul", gate, m.add("Sigmoid", gate))
    elif act == "gelu":
        erf = m.add("Erf", m.add("Div", gate, m.constant(np.float32(2**0.5))))
        made = m.add(
            "Mul",
            m.add("Mul", gate, m.add("Add", erf, m.constant(np.float32(1)))),
            m.constant(np.float32(0.5)),
        )
    else:
        made = m.add("Relu", gate)
    m.result(m.add("Mul", *m.draw.sample([made, up], 2)))


def _cell(m: _Model) -> None:
    size = 3
    data, hidden, state = m.input(2, 5, fixed=[1]), m.input(2, size, fixed=[1]), m.input(2, size, fixed=[1])
    both = m.add("Concat", data, hidden, axis=1)
    total = m.add("Add", m.add("MatMul", both, m.floats(5 + size, 4 * size)), m.floats(4 * size))
    order = list("icfo")
    m.draw.shuffle(order)
    order = m.pick(order, "ifco", "icfo", "ocfi")
    how = m.pick("count", "count", "lengths", "slices")
    gate = dict(zip(order, m.parts(total, 2, 1, [size] * 4, how), strict=True))
    if m.pick(True, False):
        gate["f"] = m.add("Add", gate["f"], m.constant(np.float32(1)))
    active = {name: m.add("Tanh" if name == "c" else "Sigmoid", part) for name, part in gate.items()}
    made = m.add("Add", m.add("Mul", active["i"], active["c"]), m.add("Mul", active["f"], state))
    m.result(m.add("Mul", m.add("Tanh", made), active["o"]), made)


def _gru(m: _Model) -> None:
    size = 3
    data, hidden = m.input(2, 4, fixed=[1]), m.input(2, size, fixed=[1])
    ours = m.parts(m.add("MatMul", data, m.floats(4, 3 * size)), 2, 1, [size] * 3)
    theirs = m.parts(m.add("MatMul", hidden, m.floats(size, 3 * size)), 2, 1, [size] * 3)
    update, reset = (m.add("Sigmoid", m.add("Add", ours[at], theirs[at])) for at in (0, 1))
    new = m.add("Tanh", m.add("Add", ours[2], m.add("Mul", reset, theirs[2])))
    kept = m.add("Mul", update, hidden)
    m.result(m.add("Add", kept, m.add("Mul", m.add("Sub", m.constant(np.float32(1)), update), new)))


def _shuffle(m: _Model) -> None:
    data = m.input(2, 6, 3, 3, fixed=m.pick(range(4), [1]))
    if m.pick(True, False):
        parts = m.parts(data, 4, 1, [1] * 6)
        m.result(m.add("Concat", *(parts[at] for at in (0, 3, 1, 4, 2, 5)), axis=1))
        return
    first, second = m.parts(data, 4, 1, [3, 3])
    joined = m.add("Concat", first, m.add("Relu", second), axis=1)
    five = m.add("Transpose", m.add("Reshape", joined, m.constant([0, 2, 3, 3, 3])), perm=[0, 2, 1, 3, 4])
    m.result(m.add("Reshape", five, m.constant([0, 6, 3, 3])))


def _focus(m: _Model) -> None:
    data = m.input(1, 2, 4, 4, fixed=m.pick(range(4), [1]))
    made = []
    for row in (0, 1):
        for column in (0, 1):
            bounds = ([row, column], [_END, _END], [2, 3], [2, 2])
            made.append(m.add("Slice", data, *(m.constant(list(numbers)) for numbers in bounds)))
    m.result(m.add("Concat", *made, axis=1))


def _window(m: _Model) -> None:
    data = m.input(2, 6, 3, fixed=[1])
    made = []
    for begin in range(0, 5, m.pick(1, 2)):
        bounds = (m.constant([number]) for number in (begin, begin + m.pick(2, 2, 3), 1))
        made.append(m.add("ReduceMean", m.add("Slice", data, *bounds), m.constant([1]), keepdims=1))
    m.result(m.add("Concat", *made, axis=1))


def _reduced(m: _Model) -> None:
    rank = m.pick(2, 3, 4)
    axis = m.pick(*range(rank))
    shape = [2, 3, 4, 2][:rank]
    shape[axis] = 4
    data = m.input(*shape, fixed=[axis])
    if m.pick(True, False):
        data = m.add("Transpose", data, perm=list(range(rank)))
    operator = m.pick("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean")
    over = m.constant([m.pick(*range(rank))])
    keep = m.pick(1, 1, 0) if rank > 2 else 1
    parts = [m.add(operator, part, over, keepdims=keep) for part in m.parts(data, rank, axis, [2, 2])]
    m.result(m.add("Add", *parts) if m.pick(True, False) else m.add("Concat", *parts, axis=m.pick(0, -1)))


def _turned(m: _Model) -> None:
    order = [0, 1, 2]
    m.draw.shuffle(order)
    data = m.add("Transpose", m.input(4, 4, 4), perm=order)
    dtypes = m.parts(data, 3, m.pick(0, 1, 2), m.pick([2, 2], [1, 3], [0, 4], [1, 1, 2]))
    made = [m.add("Transpose", part, perm=m.draw.sample(range(3), 3)) for part in dtypes]
    m.result(*(m.add("Relu", value) for value in made))


def _chained(m: _Model) -> None:
    dtype = m.pick(np.float32, np.float16, np.int64)
    data = m.input(2, 8, 3, dtype=dtype, fixed=m.pick([1], []))
    values, left = [data], 8
    parts = m.parts(data, 3, 1, [4, 4])
    values = []
    for part in parts:
        values += m.parts(part, 3, 1, m.pick([2, 2], [1, 3], [4])) if m.pick(True, False) else [part]
    m.draw.shuffle(values)
    left = m.pick(len(values), max(1, len(values) - 1))
    m.result(m.add("Concat", *values[:left], axis=m.pick(1, -2)))


def _sliced(m: _Model) -> None:
    size = m.pick(2, 3, 5)
    dtype = m.pick(np.float32, np.float32, np.float16)
    data = m.input(size, 3, dtype=dtype, fixed=m.pick([0], [0, 1]))
    place = 0
    for _ in range(m.pick(2, 3)):
        end = m.pick(place - 1, place, place + 1, place + 2, size, _END)
        bounds = (m.constant([number]) for number in (place, max(end, 0), m.pick(0, -2)))
        m.result(m.add("Abs", m.add("Slice", data, *bounds)))
        place = m.pick(max(end, 0) % (size + 1), place, 0)


def _gathered(m: _Model) -> None:
    axis, count = m.pick(0, 1, 2), m.pick(2, 3)
    shape = [2, 3, 4]
    shape[axis] = 2 * count
    parts = m.parts(m.input(*shape, fixed=m.pick([axis], range(3))), 3, axis, [2] * count)
    made = []
    for part in parts:
        where = m.pick(axis, axis, (axis + 1) % 3)
        size = 2 if where == axis else shape[where]
        at = [m.pick(*range(-size, size)) for _ in range(m.pick(1, 2))]
        made.append(m.add("Gather", part, m.constant(m.pick(at, at[0])), axis=m.pick(where, where - 3)))
    m.result(*(m.add("Relu", value) for value in made))
    m.result(m.add("Gather", parts[0], m.constant([0, 1]), axis=axis))


def _joined(m: _Model) -> None:
    rank, count = m.pick(3, 4), m.pick(2, 3)
    axis, size = m.pick(*range(rank)), m.pick(1, 1, 2)
    shape = [2, 3, 4, 2][:rank]
    shape[axis] = count * size
    parts = m.parts(m.input(*shape, fixed=m.pick([axis], range(rank))), rank, axis, [size] * count)
    where = m.pick(axis, axis, *range(rank))
    operator, over = m.pick("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean"), m.pick(where, *range(rank))
    joined = m.add("Concat", *parts, axis=m.pick(where, where - rank))
    m.result(m.add(operator, joined, m.constant([m.pick(over, over - rank)]), keepdims=m.pick(0, 1)))


FAMILIES: Final[dict[str, Callable[[_Model], None]]] = {
    own.__name__.strip("_"): own
    for own in (
        _heads, _upsampled, _convolved, _depthwise, _rotary, _interleaved, _partial, _attention, _mlp, _cell,
        _gru, _shuffle, _focus, _window, _reduced, _turned, _chained, _sliced, _gathered, _joined,
    )
}  # fmt: skip


_IDLE: Final = (
    "Identity",
    "Cast",
    "Dropout",
    "Transpose",
    "Reshape",
    "Unsqueeze",
    "Pad",
    "Add",
    "Mul",
    "Sum",
    "Concat",
)


_TURN: Final = 54
"""Of so many models in a row, the last third has such nodes."""


def with_idle_nodes(model: onnx.ModelProto, draw: random.Random, share: float = 0.2) -> onnx.ModelProto:
    """Return the same model with nodes that change nothing in front of some others."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    types = {value.name: value.type.tensor_type for value in (*inferred.input, *inferred.value_info)}
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    for node in model.graph.node:
        changed = onnx.NodeProto()
        changed.CopyFrom(node)
        for index, name in enumerate(node.input):
            if name in types and draw.random() < share:
                rank = len(types[name].shape.dim) if types[name].HasField("shape") else 0
                changed.input[index] = _idle(made.graph, name, types[name].elem_type, rank, draw)
        made.graph.node.append(changed)
    return made


def _idle(graph: onnx.GraphProto, name: str, kind: int, rank: int, draw: random.Random) -> str:
    """Add a node that changes nothing to a graph; return its output."""
    operator = draw.choice(_IDLE if kind == _FLOAT and rank else _IDLE[:2])
    if operator == "Dropout" and any(own.name == name for own in graph.input):
        operator = "Identity"  # OpenVINO would call the input by the name of the output of the Dropout
    made = f"{name}_idle{len(graph.node)}"

    def constant(value: Any) -> str:
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), f"c_{made}"))
        return f"c_{made}"

    given, attributes = [name], {}
    match operator:
        case "Cast":
            attributes = {"to": kind}
        case "Transpose":
            attributes = {"perm": list(range(rank))}
        case "Concat":
            attributes = {"axis": draw.randrange(-rank, rank)}
        case "Reshape":
            given += [constant(np.zeros(rank, np.int64))]
        case "Pad":
            given += [constant(np.zeros(2 * rank, np.int64))]
        case "Add" | "Mul":
            given += [constant(np.float32(operator == "Mul"))]
        case "Unsqueeze":
            given += [constant([draw.randrange(rank)])]
            graph.node.append(helper.make_node(operator, given, [f"{made}_inner"], name=f"{made}_inner"))
            operator, given = "Squeeze", [f"{made}_inner", given[1]]
    graph.node.append(helper.make_node(operator, given, [made], name=made, **attributes))
    return made


def drawn(number: int, family: str | None = None) -> Drawn:
    """Return the model of a number; the families take turns where none is named.

    A third of the models have nodes that change nothing.
    """
    draw = random.Random(number)  # noqa: S311
    names = list(FAMILIES)
    name = family or names[number % len(names)]
    while True:
        model = _Model(draw)
        FAMILIES[name](model)
        try:
            made = model.model()
            idle = number % _TURN >= _TURN * 2 // 3
            return Drawn(name, with_idle_nodes(made, draw) if idle else made, model.feeds)
        except (ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            continue  # such as an axis that the data does not have
