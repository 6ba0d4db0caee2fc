"""Random graphs of splits, concatenations and slices: simplified, they give the same, bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from simplify_helpers import assert_equal, assert_valid

from splitops.models.simplify import REWRITES, simplify_with_report

Value = tuple[str, tuple[int, ...]]


class GraphMaker:
    """Draws a graph whose every node fits the ones before it."""

    def __init__(self, draw: st.DrawFn, opset: int) -> None:
        self.draw = draw
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.values: list[Value] = []
        self.declared: dict[str, tuple[int | str, ...]] = {}

    def name(self) -> str:
        return f"v{len(self.values)}_{len(self.nodes)}"

    def constant(self, numbers: object, dtype: type = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(numbers, dtype), name))
        return name

    def pick(self) -> Value:
        # The newest ones more often: chains are what the rewrites are for.
        recent = self.values[-6:]
        return self.draw(st.sampled_from(recent if self.draw(st.booleans()) else self.values))

    def node(self, operator: str, inputs: list[str], outputs: list[Value], **attributes: object) -> None:
        self.nodes.append(helper.make_node(operator, inputs, [name for name, _ in outputs], **attributes))
        self.values += outputs

    def outputs(self, shapes: list[tuple[int, ...]]) -> list[Value]:
        base = self.name()
        return [(f"{base}_{index}", shape) for index, shape in enumerate(shapes)]

    def sizes(self, total: int) -> list[int]:
        count = self.draw(st.integers(1, 4))
        cuts = sorted(self.draw(st.lists(st.integers(0, total), min_size=count - 1, max_size=count - 1)))
        return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]

    def split(self) -> None:
        name, shape = self.pick()
        axis = self.draw(st.integers(0, len(shape) - 1))
        sizes = self.sizes(shape[axis])
        outputs = self.outputs([(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes])
        stated = axis - len(shape) if self.opset >= 11 and self.draw(st.booleans()) else axis
        if self.opset >= 18 and self.draw(st.booleans()):
            chunk = -(-shape[axis] // len(sizes))
            sizes = [max(0, min(chunk, shape[axis] - chunk * index)) for index in range(len(sizes))]
            outputs = self.outputs([(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes])
            self.node("Split", [name], outputs, axis=stated, num_outputs=len(sizes))
        elif self.opset < 18 and len(set(sizes)) == 1 and self.draw(st.booleans()):
            self.node("Split", [name], outputs, axis=stated)
        elif self.opset >= 13:
            self.node("Split", [name, self.constant(sizes)], outputs, axis=stated)
        else:
            self.node("Split", [name], outputs, axis=stated, split=sizes)

    def concat(self) -> None:
        # Mostly neighbours in the order in which they were made: parts of one split.
        at = self.draw(st.integers(0, len(self.values) - 1))
        chosen = self.values[at : at + self.draw(st.integers(1, 4))]
        if self.draw(st.booleans()):
            chosen = self.draw(st.permutations(chosen))
        first = chosen[0][1]
        axis = self.draw(st.integers(0, len(first) - 1))
        fitting = [v for v in chosen if len(v[1]) == len(first)]
        fitting = [v for v in fitting if v[1][:axis] + v[1][axis + 1 :] == first[:axis] + first[axis + 1 :]]
        size = sum(shape[axis] for _, shape in fitting)
        output = self.outputs([(*first[:axis], size, *first[axis + 1 :])])
        stated = axis - len(first) if self.opset >= 11 and self.draw(st.booleans()) else axis
        self.node("Concat", [name for name, _ in fitting], output, axis=stated)

    def slice(self) -> None:
        name, shape = self.pick()
        axis = self.draw(st.integers(0, len(shape) - 1))
        begin = 0
        for size in self.sizes(shape[axis]):
            end = begin + size
            output = self.outputs([(*shape[:axis], size, *shape[axis + 1 :])])
            if self.opset < 10:
                self.node("Slice", [name], output, axes=[axis], starts=[begin], ends=[end])
            else:
                bounds = [self.constant([number]) for number in (begin, end, axis)]
                self.node("Slice", [name, *bounds], output)
            begin = end

    def cut(self) -> None:
        """Draw a Slice of some axes in any steps, or one for each start of a step."""
        name, shape = self.pick()
        axis = self.draw(st.integers(0, len(shape) - 1))
        bounds = {axis: slice(0, 99, 1)}
        if self.opset < 10:
            return
        step = self.draw(st.sampled_from([1, 2, 3, -1]))
        every = step > 1 and self.draw(st.booleans())
        for start in range(step) if every else [self.draw(st.integers(-3, 3))]:
            bounds[axis] = slice(start, -99 if step < 0 else 99, step)
            if not every and self.draw(st.booleans()):
                bounds[self.draw(st.integers(0, len(shape) - 1))] = slice(0, self.draw(st.integers(-1, 9)), 1)
            sizes = (len(range(size)[bounds.get(at, slice(None))]) for at, size in enumerate(shape))
            numbers = zip(*((b.start, b.stop, at, b.step) for at, b in bounds.items()), strict=True)
            self.node("Slice", [name, *map(self.constant, numbers)], self.outputs([tuple(sizes)]))

    def identity(self) -> None:
        name, shape = self.pick()
        self.node(self.draw(st.sampled_from(["Identity", "Neg"])), [name], self.outputs([shape]))

    def sequence(self) -> None:
        name, shape = self.pick()
        axis = self.draw(st.integers(0, len(shape) - 1))
        kind = self.draw(st.sampled_from(["lengths", "chunk", "kept", "squeezed"]))
        size = shape[axis]
        inputs, squeeze, sizes = [name], kind == "squeezed", [1] * size
        if kind == "lengths":
            sizes = self.sizes(size)
            inputs.append(self.constant(sizes, self.draw(st.sampled_from([np.int32, np.int64]))))
        elif kind == "chunk":
            chunk = self.draw(st.integers(1, 4))
            sizes = [min(chunk, size - begin) for begin in range(0, size, chunk)]
            inputs.append(self.constant(chunk))
        base = self.name()
        if self.opset < 11 or not sizes:
            return
        self.nodes.append(
            helper.make_node("SplitToSequence", inputs, [f"{base}s"], axis=axis, keepdims=int(not squeeze))
        )
        for _ in range(self.draw(st.integers(1, 2))):
            if self.draw(st.booleans()):
                at = self.draw(st.integers(-len(sizes), len(sizes) - 1))
                inner = () if squeeze else (sizes[at],)
                output = self.outputs([(*shape[:axis], *inner, *shape[axis + 1 :])])
                if output[0][1]:
                    self.node("SequenceAt", [f"{base}s", self.constant(at)], output)
            else:
                new_axis = int(squeeze)
                self.node(
                    "ConcatFromSequence", [f"{base}s"], self.outputs([shape]), axis=axis, new_axis=new_axis
                )


@st.composite
def models(draw: st.DrawFn) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Draw a model, some of whose sizes are symbols, and input for it."""
    opset = draw(st.sampled_from([3, 8, 10, 11, 13, 18, 24]))
    maker = GraphMaker(draw, opset)
    inputs, feeds = [], {}
    dynamic = draw(st.booleans())
    for index in range(draw(st.integers(1, 2))):
        shape = tuple(draw(st.lists(st.integers(0, 6), min_size=1, max_size=3)))
        stated = [
            f"n{index}_{axis}" if dynamic and draw(st.booleans()) else size for axis, size in enumerate(shape)
        ]
        maker.values.append((f"x{index}", shape))
        inputs.append(helper.make_tensor_value_info(f"x{index}", TensorProto.FLOAT, stated))
        count = int(np.prod(shape))
        feeds[f"x{index}"] = (np.arange(count, dtype=np.float32) + 100 * index + 1).reshape(shape)
    steps = [maker.split, maker.concat, maker.slice, maker.cut, maker.identity, maker.sequence]
    for _ in range(draw(st.integers(1, 8))):
        draw(st.sampled_from([*steps, maker.split, maker.concat, maker.concat]))()
    made = maker.values[len(inputs) :]
    if not made:
        maker.identity()
        made = maker.values[len(inputs) :]
    chosen = draw(st.lists(st.sampled_from(made), min_size=1, max_size=4, unique=True))
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * len(shape)) for name, shape in chosen
    ]
    graph = helper.make_graph(maker.nodes, "random", inputs, outputs, maker.constants)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10 if opset > 18 else 8), feeds


@settings(max_examples=250)
@given(models())
def test_a_simplified_random_graph_is_equal(drawn: tuple[onnx.ModelProto, dict[str, np.ndarray]]) -> None:
    model, feeds = drawn
    found = simplify_with_report(model)
    assert_valid(model, found.model, infer=False)
    assert_equal(model, found.model, feeds)
    assert not simplify_with_report(found.model).changes


@settings(max_examples=60)
@given(models(), st.sampled_from(sorted(REWRITES)))
def test_each_rewrite_alone_is_equal(drawn: tuple[onnx.ModelProto, dict[str, np.ndarray]], name: str) -> None:
    model, feeds = drawn
    found = simplify_with_report(model, [name])
    assert_valid(model, found.model, infer=False)
    assert_equal(model, found.model, feeds)
    assert set(found.counts) <= {name}


@settings(max_examples=60)
@given(models(), st.data())
def test_what_fails_on_other_sizes_fails(
    drawn: tuple[onnx.ModelProto, dict[str, np.ndarray]], data: st.DataObject
) -> None:
    model, _ = drawn
    found = simplify_with_report(model)
    other = {}
    for value in model.graph.input:
        shape = [
            dim.dim_value if dim.HasField("dim_value") else data.draw(st.integers(1, 6))
            for dim in value.type.tensor_type.shape.dim
        ]
        assume(all(shape))  # of no elements, NumPy's take does not look at positions
        other[value.name] = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    assert_equal(model, found.model, other)
