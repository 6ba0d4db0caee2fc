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
from splitops.spec.elements.types import ELEMENT_TYPES

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


def _whole(s: Steps, number: Output) -> Output:
    return s.add("Convert", number, destination_type="i64", kind=ELEMENT_TYPES["int64"])


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
    "Convert": lambda s: _whole(s, s.const([1], np.int32)),
    "arithmetic": lambda s: s.add("Subtract", s.add("Multiply", s.const([2]), s.const([3])), s.const([5])),
    "Divide": lambda s: s.add(
        "Add", s.add("Divide", s.const([-1]), s.const([2]), m_pythondiv="true"), s.const([2])
    ),
    "Maximum": lambda s: s.add("Maximum", s.const([1]), s.const([-4])),
    "FloorMod": lambda s: s.add("FloorMod", s.const([5]), s.const([4])),
    "Power": lambda s: s.add("Power", s.const([1]), s.const([3])),
    "Select": lambda s: s.add(
        "Select", s.builder.const(np.array([True])), s.const([1]), s.const([2]),
        kind=ELEMENT_TYPES["int64"], auto_broadcast="numpy",
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
    "Power of scalars": lambda s: s.add(
        "Unsqueeze", s.add("Power", s.const(1), s.const(3)), s.const([0])
    ),
    "Exp": lambda s: _whole(s, s.add("Exp", s.const([0], np.float32))),
    "Sqrt": lambda s: s.add("Sqrt", s.const([1])),
    "float16": lambda s: _whole(s, s.add("Add", s.const([0.5], np.float16), s.const([0.5], np.float16))),
    "Power of floats": lambda s: _whole(
        s, s.add("Power", s.const([4], np.float32), s.const([0], np.float32))
    ),
    "Convert to float32": lambda s: _whole(
        s, s.add("Convert", s.const([1]), destination_type="f32", kind=ELEMENT_TYPES["float32"])
    ),
    "ConvertLike": lambda s: s.add(
        "ConvertLike", s.const([1], np.float32), s.const([0]), kind=ELEMENT_TYPES["int64"]
    ),
    "ReduceMean": lambda s: s.add("ReduceMean", s.const([1, 2]), s.const([0]), keep_dims="true"),
    "ReduceL1": lambda s: s.add(
        "ReduceL1", s.const([1, 0]), s.const([0]), version="opset4", keep_dims="true"
    ),
    "MatMul": lambda s: s.add(
        "Reshape",
        s.add("MatMul", s.const([[1, 2]]), s.const([[-1, 1]]), transpose_a="false", transpose_b="true"),
        s.const([1]), special_zero="false",
    ),
    "TopK": lambda s: s.builder.layer(
        "TopK", [s.const([3, 5, 2]), s.const(1)],
        {"axis": 0, "mode": "max", "sort": "value", "index_element_type": "i64"},
        version="opset3", outputs=2,
    )[1],
    "Range of floats": lambda s: s.add(
        "Range", *[s.const(n, np.float32) for n in (1, 2, 1)], version="opset4", output_type="i64",
        kind=ELEMENT_TYPES["int64"],
    ),
    "Round away from zero": lambda s: _whole(
        s, s.add("Round", s.const([0.5], np.float32), version="opset5", mode="half_away_from_zero")
    ),
    "ScatterElementsUpdate of fewer elements": lambda s: s.add(
        "Gather",
        s.add(
            "Reshape",
            s.add(
                "ScatterElementsUpdate", s.const([[5, 0], [1, 1]]), s.const([[1]]), s.const([[7]]),
                s.const(0), version="opset3",
            ),
            s.const([4]), special_zero="false",
        ),
        s.const([3]), s.const(0), version="opset8",
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
    "ArgMax": "i = Constant<value_ints = [0, 1]>()  step = ArgMax(i)",
    "TopK": "i = Constant<value_ints = [0, 1]>()  k = Constant<value_ints = [1]>()  v, step = TopK(i, k)",
    "Exp": "f = Constant<value_floats = [0.0]>()  e = Exp(f)  step = Cast<to = 7>(e)",
    "Div of floats": "e = Div(half, half)  step = Cast<to = 7>(e)",
    "float16": "h = Cast<to = 10>(half)  step = Cast<to = 7>(h)",
    "NonZero": "i = Constant<value_ints = [0, 1]>()  k = Constant<value_ints = [1]>()  "
    "n = NonZero(i)  step = Reshape(n, k)",
    "Clip": "step = Clip(four, one, one)",
    "ReduceMean": "f = Constant<value_floats = [1.0, 2.0]>()  m = ReduceMean(f)  step = Cast<to = 7>(m)",
}
"""The step of a Slice, 1, as nodes that OpenVINO folds when it reads ONNX."""


def rotary_onnx(step: str) -> Any:
    """The same rotary embedding, whose steps are made by some nodes."""
    return parse(f"""(float[1,2,3,4] x, float[1,1,3,1] c, float[1,1,3,1] s) => (float[1,2,3,4] y)
        <int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] four = {{4}}, int64[1] axis = {{3}},
         int64 one = {{1}}, float[1] minus = {{-1}}, float[1] half = {{1.5}}> {{
        {step}
        first = Slice(x, zero, two, axis, step)  second = Slice(x, two, four, axis, step)
        negative = Mul(second, minus)  turned = Concat<axis = -1>(negative, first)
        p = Mul(x, c)  q = Mul(turned, s)  y = Add(p, q) }}""")


@pytest.mark.parametrize("name", IN_ONNX)
def test_rotary_halves_of_onnx_in_steps_that_openvino_folds(name: str) -> None:
    model = rotary_onnx(IN_ONNX[name])
    _, feeds = rotary(ONE["Const"])
    assert is_right("openvino", model, model, feeds) is not None, "OpenVINO gets it right"
    assert "openvino.rotated-halves" in [finding.code for finding in check(model, "openvino")]
    assert is_right("openvino", fix(model, "openvino"), model, feeds) is None


NOT_FOLDED: Final = {
    "CumSum": "i = Constant<value_ints = [1]>()  z = Constant<value_int = 0>()  step = CumSum(i, z)",
    "GatherElements": "i = Constant<value_ints = [0, 1]>()  at = Constant<value_ints = [1]>() "
    "step = GatherElements(i, at)",
    "GatherND": "i = Constant<value_ints = [0, 1]>()  at = Constant<value = int64[1,1] {1}>() "
    "step = GatherND(i, at)",
}
"""The same as nodes that OpenVINO leaves to the device: it gets them right."""


@pytest.mark.parametrize("name", NOT_FOLDED)
def test_rotary_halves_in_steps_that_openvino_does_not_fold(name: str) -> None:
    model = rotary_onnx(NOT_FOLDED[name])
    _, feeds = rotary(ONE["Const"])
    assert is_right("openvino", model, model, feeds) is None
    assert check(model, "openvino") == []


def test_layers_that_contradict_themselves_are_not_folded() -> None:
    """No number is between such bounds, and which of two masks wins is not specified."""
    masks = dict.fromkeys(("begin_mask", "end_mask", "new_axis_mask"), "0")
    for step in (
        lambda s: s.add("Clamp", s.const([1]), min="0.5", max="0.75"),
        lambda s: s.add(
            "StridedSlice", s.const([1]), s.const([0]), s.const([1]), s.const([1]),
            **masks, shrink_axis_mask="1", ellipsis_mask="1",
        ),
    ):  # fmt: skip
        model, _ = rotary(step)
        assert check(model, "openvino") == []


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
