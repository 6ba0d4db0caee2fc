"""Shape arithmetic that is drawn: what inference says of every value contains what a run computes.

The graphs compute sizes (Shape, Gather, Slice, Concat, Split, arithmetic ...) and use them as lengths, shapes
and bounds. The same models are simplified, and converted to OpenVINO IR and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import splitops
from splitops.errors import SplitError
from splitops.models.infer import AbstractSequence, AbstractTensor
from splitops.spec.sizes.dims import Range
from splitops.spec.sizes.names import evaluate

Feeds = dict[str, np.ndarray[Any, Any]]
ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod")


class ShapeMaker:
    """Draws nodes with the values that they compute for the drawn sizes, so that few models fail.

    Attributes:
        data: the float tensors, by name.
        sizes: the int64 tensors of rank 0 and 1, by name.
    """

    def __init__(self, draw: st.DrawFn, feeds: Feeds) -> None:
        self.draw = draw
        self.data = dict(feeds)
        self.sizes: Feeds = {}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def name(self) -> str:
        return f"v{len(self.nodes)}_{len(self.constants)}"

    def constant(self, values: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def run(self, kind: str, inputs: list[str], count: int = 1, **attributes: Any) -> list[str] | None:
        """Add a node if the reference computes it from what is known of its inputs."""
        names = [f"{self.name()}_{index}" for index in range(count)]
        node = helper.make_node(kind, inputs, names, **attributes)
        constants = {each.name: numpy_helper.to_array(each) for each in self.constants}
        known = constants | self.data | self.sizes
        graph = helper.make_graph(
            [node],
            "g",
            [
                helper.make_tensor_value_info(each, *_form(known[each]))
                for each in dict.fromkeys(inputs)
                if each
            ],
            [helper.make_empty_tensor_value_info(each) for each in names],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        try:
            with np.errstate(all="raise"):
                found = ReferenceEvaluator(model).run(None, {each: known[each] for each in inputs if each})
        except Exception:
            return None
        for array in map(np.asarray, found):
            if array.size > 10_000 or (array.dtype == np.int64 and np.abs(array).max(initial=0) > 1 << 40):
                return None
        self.nodes.append(node)
        for name, value in zip(names, found, strict=True):
            array = np.asarray(value)
            (self.sizes if array.dtype == np.int64 else self.data)[name] = array
        return names

    def pick(self, values: Mapping[str, Any]) -> str:
        return self.draw(st.sampled_from(sorted(values)))

    def shape(self) -> None:
        data = self.pick(self.data)
        bounds, rank = {}, self.data[data].ndim  # onnx's reference does not clamp bounds below -rank
        if self.draw(st.booleans()):
            bounds = {"start": self.draw(st.integers(-rank, 3)), "end": self.draw(st.integers(-rank, 3))}
        self.run("Shape", [data], **bounds)

    def vector(self) -> str:
        if not self.sizes or self.draw(st.integers(0, 4)) == 0:
            return self.constant(self.draw(st.lists(st.integers(-2, 6), max_size=3)))
        return self.pick(self.sizes)

    def gather(self) -> None:
        index = self.draw(st.one_of(st.integers(-2, 2), st.lists(st.integers(-2, 2), min_size=1, max_size=2)))
        self.run("Gather", [self.vector(), self.constant(index)], axis=0)

    def slice(self) -> None:
        begin, end = (
            self.draw(st.integers(-3, 3)),
            self.draw(st.sampled_from([-1, 0, 1, 2, 2**31 - 1, 2**63 - 1])),
        )
        step = self.draw(st.sampled_from([1, 1, 2, -1]))
        values = [self.constant([each]) for each in (begin, end, 0, step)]
        self.run("Slice", [self.vector(), *values])

    def concat(self) -> None:
        self.run("Concat", [self.vector() for _ in range(self.draw(st.integers(1, 3)))], axis=0)

    def arithmetic(self) -> None:
        self.run(self.draw(st.sampled_from(ARITHMETIC)), [self.vector(), self.vector()])

    def change_rank(self) -> None:
        kind = self.draw(
            st.sampled_from(["Squeeze", "Unsqueeze", "Reshape", "ReduceProd", "ReduceSum", "Abs"])
        )
        inputs = [self.vector()]
        if kind in ("Squeeze", "Unsqueeze"):
            inputs.append(self.constant([0]))
        elif kind == "Reshape":
            inputs.append(self.constant(self.draw(st.sampled_from([[-1], [], [1]]))))
        attributes = {"keepdims": self.draw(st.integers(0, 1))} if kind.startswith("Reduce") else {}
        self.run(kind, inputs, **attributes)

    def choose(self) -> None:
        vector, other = self.vector(), self.vector()
        names = self.run("Equal", [vector, self.constant(self.draw(st.integers(-1, 4)))])
        if names:  # a bool tensor is no data to split
            self.data.pop(names[0], None)
            known = self.sizes.get(vector)
            if known is not None:
                self.nodes.append(helper.make_node("Where", [names[0], other, vector], [f"{self.name()}_w"]))
                try:
                    right = self.sizes.get(other)
                    if right is None:
                        right = numpy_helper.to_array(next(c for c in self.constants if c.name == other))
                    condition = known == numpy_helper.to_array(self.constants[-1])
                    self.sizes[self.nodes[-1].output[0]] = np.asarray(np.where(condition, right, known))
                except ValueError:
                    self.nodes.pop()

    def split_sizes(self) -> None:
        vector = self.vector()
        size = self.sizes[vector].size if vector in self.sizes else 0
        if size:
            self.run("Split", [vector], count=min(size, 3), num_outputs=min(size, 3), axis=0)

    def use(self) -> None:
        """Use computed sizes on data: as lengths of a split, a shape, bounds or repeats."""
        kind = self.draw(st.sampled_from(["Split", "Reshape", "Expand", "Slice", "Tile", "even"]))
        data = self.pick(self.data)
        array = self.data[data]
        if kind == "even":
            self.run("Split", [data], count=2, num_outputs=2, axis=self.draw(st.integers(-1, 1)))
            return
        vector = self.vector()
        if kind == "Split" and array.ndim:
            count = self.sizes[vector].size if vector in self.sizes else 0
            axis = self.draw(st.integers(0, array.ndim - 1))
            lengths = self.sizes.get(vector, np.array([-1]))
            if 0 < count < 5 and lengths.min() >= 0 and lengths.sum() == array.shape[axis]:
                self.run("Split", [data, vector], count=count, axis=axis)
        elif kind == "Slice":
            if vector not in self.sizes or self.sizes[vector].shape != (1,):
                return
            zero = self.constant([0])
            self.run("Slice", [data, zero, vector, self.constant([0])])
        else:
            self.run(kind, [data, vector])


def _form(value: np.ndarray[Any, Any]) -> tuple[int, list[int]]:
    return helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)


@st.composite
def models(draw: st.DrawFn) -> tuple[onnx.ModelProto, Feeds]:
    """Draw a model whose inputs have named, unknown and fixed sizes, and input for it."""
    shape = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    names = [draw(st.sampled_from(["N", "M", None, size])) for size in shape]
    for index, name in enumerate(names):  # equal names are equal sizes
        shape[index] = (
            next(shape[at] for at, other in enumerate(names) if other == name) if name else shape[index]
        )
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    maker = ShapeMaker(draw, {"x": x})
    maker.shape()
    steps = [maker.shape, maker.gather, maker.slice, maker.concat, maker.arithmetic, maker.change_rank]
    steps += [maker.choose, maker.split_sizes, maker.use, maker.use]
    for _ in range(draw(st.integers(1, 9))):
        draw(st.sampled_from(steps))()
    made = {name for node in maker.nodes for name in node.output if name in maker.data or name in maker.sizes}
    outputs = [
        helper.make_tensor_value_info(
            name, TensorProto.INT64 if name in maker.sizes else TensorProto.FLOAT, None
        )
        for name in sorted(made)
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, names)]
    graph = helper.make_graph(maker.nodes, "sizes", inputs, outputs, maker.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), {"x": x}


def check_contains(known: Any, value: np.ndarray[Any, Any], sizes: Mapping[str, int], what: str) -> None:
    """Check that what is inferred of a value contains what a run has computed."""
    assert not isinstance(known, AbstractSequence), what
    if not isinstance(known, AbstractTensor):
        return
    if known.type is not None:
        assert known.type.numpy == value.dtype, what
    if known.shape is not None:
        assert len(known.shape) == value.ndim, what
        for size, real in zip(known.shape, value.shape, strict=True):
            check_size(size, real, sizes, what)
    if known.elements is not None:
        assert known.elements.shape == value.shape, what
        for entry, real in zip(known.elements.flat, value.flat, strict=True):
            if entry is not None:
                check_size(entry, real, sizes, what)


def check_size(known: Any, real: Any, sizes: Mapping[str, int], what: str) -> None:
    if not isinstance(known, Range):
        assert known == real, f"{what}: {known} is {real}"
        return
    assert known.lo <= real, f"{what}: {known} is {real}"
    assert known.hi is None or real <= known.hi, f"{what}: {known} is {real}"
    if known.name is not None and (expected := evaluate(known.name, sizes)) is not None:
        assert expected == real, f"{what}: {known.name} is {expected}, not {real}"


@settings(max_examples=150)
@given(models())
def test_what_is_inferred_contains_what_a_run_computes(drawn: tuple[onnx.ModelProto, Feeds]) -> None:
    model, feeds = drawn
    if not model.graph.output:
        return
    names = [output.name for output in model.graph.output]
    found = dict(zip(names, ReferenceEvaluator(model).run(None, feeds), strict=True))
    dims = model.graph.input[0].type.tensor_type.shape.dim
    declared = [dim.dim_param for dim in dims]
    sizes = {name: size for name, size in zip(declared, feeds["x"].shape, strict=True) if name}
    inferred = splitops.infer(model)
    for name, value in found.items():
        check_contains(inferred[name], np.asarray(value), sizes, name)
    assert_same(splitops.run(model, feeds, engine="reference"), found, "run")
    assert_same(splitops.run(splitops.simplify(model), feeds, engine="reference"), found, "simplify")
    try:
        ir = splitops.convert(model, to="openvino")
        back = splitops.convert(ir, to="onnx:18")
    except SplitError:
        return  # what cannot be converted is rejected by name, which other tests check
    assert_same(splitops.run(back, feeds, engine="reference"), found, "there and back")


def assert_same(values: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> None:
    assert values.keys() == expected.keys(), what
    for name, value in expected.items():
        np.testing.assert_array_equal(np.asarray(values[name]), np.asarray(value), f"{what}: {name}")


def test_a_wrong_size_is_seen() -> None:
    """The comparison above can fail."""
    tensor = AbstractTensor(splitops.schema("Split").inputs and None, (Range(0, 4, "N"),), None)
    check_contains(tensor, np.zeros(3, np.float32), {"N": 3}, "x")
    for sizes, length in (({"N": 2}, 3), ({}, 5)):
        with pytest.raises(AssertionError):
            check_contains(tensor, np.zeros(length, np.float32), sizes, "x")
    with pytest.raises(AssertionError):
        check_contains(AbstractTensor(None, (2,), np.array([1, 2])), np.array([1, 3]), {}, "x")
