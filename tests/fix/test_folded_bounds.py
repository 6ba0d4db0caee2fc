"""Slices whose bounds OpenVINO folds: what it fuses wrongly is found, and fixed, however they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from fix_helpers import difference, is_right, on, parse

import splitops
from splitops.models.check import check
from splitops.models.fix import fix
from splitops.models.formats.openvino import Builder, Output

pytest.importorskip("openvino")


class Steps:
    """Writes one number in the ways that OpenVINO folds."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def const(self, value: Any, kind: Any = np.int64) -> Output:
        return self.builder.const(np.array(value, kind))

    def add(self, layer: str, *inputs: Output, version: str = "opset1", **attributes: Any) -> Output:
        if layer in ("Add", "Subtract", "Multiply", "Divide", "Maximum", "FloorMod", "Equal", "Power"):
            attributes["auto_broadcast"] = "numpy"
        kind = attributes.pop("kind", None)
        made = self.builder.layer(layer, list(inputs), attributes or None, version=version, element_type=kind)
        return made[0]


def _int64() -> Any:
    from splitops.spec.elements.types import ELEMENT_TYPES

    return ELEMENT_TYPES["int64"]


def _shape(s: Steps, like: Any) -> Output:
    return s.add("ShapeOf", s.const(like), version="opset3", output_type="i64")


ONE: Final[dict[str, Callable[[Steps], Output]]] = {
    "Const": lambda s: s.const([1]),
    "Broadcast": lambda s: s.add("Broadcast", s.const(1), _shape(s, [0]), version="opset3", mode="numpy"),
    "Broadcast, bidirectional": lambda s: s.add(
        "Broadcast", s.const(1), _shape(s, [0]), version="opset3", mode="bidirectional"
    ),
    "Concat": lambda s: s.add("Concat", s.add("Unsqueeze", s.const(1), s.const([0])), axis=0),
    "Gather": lambda s: s.add("Gather", s.const([3, 1]), s.const([1]), s.const(0), version="opset8"),
    "Convert": lambda s: s.add("Convert", s.const([1], np.int32), destination_type="i64", kind=_int64()),
    "arithmetic": lambda s: s.add("Subtract", s.add("Multiply", s.const([2]), s.const([3])), s.const([5])),
    "Divide": lambda s: s.add(
        "Add", s.add("Divide", s.const([-1]), s.const([2]), m_pythondiv="true"), s.const([2])
    ),
    "Maximum": lambda s: s.add("Maximum", s.const([1]), s.const([-4])),
    "FloorMod": lambda s: s.add("FloorMod", s.const([5]), s.const([4])),
    "Power": lambda s: s.add("Power", s.const([1]), s.const([3])),
    "Select": lambda s: s.add(
        "Select", s.builder.const(np.array([True])), s.const([1]), s.const([2]),
        kind=_int64(), auto_broadcast="numpy",
    ),
    "Tile": lambda s: s.add("Tile", s.const([1]), s.const([1])),
    "Range": lambda s: s.add(
        "Range", s.const(1), s.const(2), s.const(1), version="opset4", output_type="i64"
    ),
    "ReduceProd": lambda s: s.add("ReduceProd", _shape(s, [[1]]), s.const([0]), keep_dims="true"),
    "StridedSlice": lambda s: s.add(
        "StridedSlice", s.const([5, 1, 7]), s.const([1]), s.const([2]), s.const([1]),
        begin_mask="0", end_mask="0", new_axis_mask="0", shrink_axis_mask="0", ellipsis_mask="0",
    ),
    "ScatterUpdate": lambda s: s.add(
        "ScatterUpdate", s.const([7]), s.const([0]), s.const([1]), s.const(0), version="opset3"
    ),
    "Pad": lambda s: s.add(
        "ReduceSum", s.add("Pad", s.const([1]), s.const([1]), s.const([0]), s.const(0), pad_mode="constant"),
        s.const([0]), keep_dims="true",
    ),
}  # fmt: skip
"""The step of a Slice, 1, as layers of constants that OpenVINO folds."""


def rotary(step: Callable[[Steps], Output]) -> tuple[Any, dict[str, Any]]:
    """A rotary embedding by tables of width 1, whose halves are Slices in some steps."""
    builder = Builder("m")
    steps = Steps(builder)
    data = builder.parameter("x", "f32", (1, 2, 3, 4))
    tables = [builder.parameter(name, "f32", (1, 1, 3, 1)) for name in ("c", "s")]

    def half(begin: int) -> Output:
        bounds = steps.const([begin]), steps.const([begin + 2]), step(steps), steps.const([3])
        return builder.layer("Slice", [data, *bounds], version="opset8")[0]

    minus = builder.const(np.float32([[[[-1]]]]))
    turned = steps.add("Concat", steps.add("Multiply", half(2), minus), half(0), axis=-1)
    scaled = [
        steps.add("Multiply", value, table) for value, table in zip((data, turned), tables, strict=True)
    ]
    builder.result(steps.add("Add", *scaled), "y")
    random = np.random.default_rng(0)
    shapes = {"x": (1, 2, 3, 4), "c": (1, 1, 3, 1), "s": (1, 1, 3, 1)}
    return builder.model(), {
        n: random.integers(-8, 8, shape).astype(np.float32) for n, shape in shapes.items()
    }


@pytest.mark.parametrize("name", ONE)
def test_rotary_halves_in_steps_that_openvino_folds(name: str) -> None:
    model, feeds = rotary(ONE[name])
    assert is_right("openvino", model, model, feeds) is not None, "OpenVINO gets it right"
    assert [finding.code for finding in check(model, "openvino")] == ["openvino.rotated-halves"]
    assert is_right("openvino", fix(model, "openvino"), model, feeds) is None
    wanted = splitops.run(model, feeds, engine="reference")
    assert difference(splitops.run(model, feeds), wanted) is None


def slices(spans: list[tuple[int, int]], size: int, *, ir: bool) -> Any:
    """Slices of one axis, each read by a layer."""
    if not ir:
        names = ", ".join(f"float[a{i},2] y{i}" for i in range(len(spans)))
        body = "\n".join(
            f"b{i} = Constant<value_ints = [{begin}]>()  e{i} = Constant<value_ints = [{end}]>()"
            f"p{i} = Slice(d, b{i}, e{i}, axis, step)  y{i} = Relu(p{i})"
            for i, (begin, end) in enumerate(spans)
        )
        axis = "<int64[1] axis = {0}, int64[1] step = {1}>"
        return parse(f"(float[{size},2] x) => ({names}) {axis} {{ d = Abs(x) {body} }}")
    builder = Builder("m")
    data = builder.layer("Abs", [builder.parameter("x", "f32", (size, 2))])[0]
    for index, span in enumerate(spans):
        bounds = [builder.const(np.array([n])) for n in (*span, 1, 0)]
        part = builder.layer("Slice", [data, *bounds], version="opset8")[0]
        builder.result(builder.layer("ReLU", [part])[0], f"y{index}")
    return builder.model()


def drawn() -> list[tuple[int, list[tuple[int, int]]]]:
    """Slices that begin where the one before ends, some counted from the end, and two that were missed."""
    random, found = np.random.default_rng(5), [(3, [(-3, -2), (-2, -3)]), (4, [(0, -1), (3, -2)])]
    for size in (2, 3, 4):
        for _ in range(30):
            marks = [0, *random.integers(0, size + 1, random.integers(2, 4)).tolist()]
            written = [mark - size if mark < size and random.random() < 0.4 else mark for mark in marks]
            other = [mark - size if mark < size and random.random() < 0.4 else mark for mark in marks]
            found.append((size, list(zip(written[:-1], other[1:], strict=True))))
    return found


@pytest.mark.parametrize("ir", [False, True])
def test_backward_slices_counted_from_either_end(*, ir: bool) -> None:
    counts = {True: 0, False: 0}
    for size, spans in drawn():
        model = slices(spans, size, ir=ir)
        feeds = {"x": np.arange(2 * size, dtype=np.float32).reshape(size, 2)}
        wanted = [len(range(size)[begin:end]) for begin, end in spans]
        kind, found = on("openvino", model, feeds)
        wrong = kind != "outputs" or [len(found[f"y{i}"]) for i in range(len(spans))] != wanted
        codes = {finding.code for finding in check(model, "openvino")}
        assert ("openvino.backward-slices" in codes) is wrong, (size, spans)
        counts[wrong] += 1
        if wrong:
            assert is_right("openvino", fix(model, "openvino"), model, feeds) is None, (size, spans)
    assert min(counts.values()) > 5


IN_ONNX: Final = {
    "Expand": "shape = Shape(zero)  step = Expand(one, shape)",
    "ConstantOfShape": "shape = Shape(zero)  step = ConstantOfShape<value = int64[1] {1}>(shape)",
    "Cast": "whole = Floor(half)  step = Cast<to = 7>(whole)",
    "ScatterElements": "i = Constant<value_ints = [0]>()  u = Constant<value_ints = [1]>() "
    "step = ScatterElements(two, i, u)",
    "Where": "same = Equal(two, two)  u = Constant<value_ints = [1]>()  step = Where(same, u, two)",
    "ReduceProd": "shape = Shape(zero)  step = ReduceProd(shape)",
    "Range": "end = Constant<value_int = 2>()  step = Range(one, end, one)",
}
"""The step of a Slice, 1, as nodes that OpenVINO folds when it reads ONNX."""


@pytest.mark.parametrize("name", IN_ONNX)
def test_rotary_halves_of_onnx_in_steps_that_openvino_folds(name: str) -> None:
    model = parse(f"""(float[1,2,3,4] x, float[1,1,3,1] c, float[1,1,3,1] s) => (float[1,2,3,4] y)
        <int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] four = {{4}}, int64[1] axis = {{3}},
         int64 one = {{1}}, float[1] minus = {{-1}}, float[1] half = {{1.5}}> {{
        {IN_ONNX[name]}
        first = Slice(x, zero, two, axis, step)  second = Slice(x, two, four, axis, step)
        negative = Mul(second, minus)  turned = Concat<axis = -1>(negative, first)
        p = Mul(x, c)  q = Mul(turned, s)  y = Add(p, q) }}""")
    _, feeds = rotary(ONE["Const"])
    assert is_right("openvino", model, model, feeds) is not None, "OpenVINO gets it right"
    assert "openvino.rotated-halves" in [finding.code for finding in check(model, "openvino")]
    assert is_right("openvino", fix(model, "openvino"), model, feeds) is None


def test_large_constants_are_not_folded() -> None:
    """What hostile numbers would make is not computed."""
    for wide in (
        lambda s: s.add("Tile", s.const([1]), s.const([1 << 40])),
        lambda s: s.add("Broadcast", s.const(1), s.const([1 << 40]), version="opset3", mode="numpy"),
        lambda s: s.add(
            "Range", s.const(0), s.const(1 << 62), s.const(1), version="opset4", output_type="i64"
        ),
        lambda s: s.add("Power", s.const([3]), s.const([1 << 40])),
        lambda s: s.add(
            "Pad", s.const([1]), s.const([1 << 40]), s.const([0]), s.const(0), pad_mode="constant"
        ),
    ):
        model, _ = rotary(wide)
        assert check(model, "openvino") == []
