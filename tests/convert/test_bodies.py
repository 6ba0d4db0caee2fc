"""If, Loop and TensorIterator of OpenVINO IR as ONNX: onnxruntime gives what our own run gives, and back."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conversion_runtimes import run_apart

import splitops
from body_models import (
    CONDITION,
    COUNTER,
    Body,
    fill,
    if_model,
    iterator,
    loop_model,
    nested_model,
    parts_model,
    port,
    reread,
    slices,
)
from splitops.models.formats import openvino as ir

pytest.importorskip("openvino")
pytest.importorskip("onnxruntime")

_DATA = np.arange(30, dtype=np.float32).reshape(5, 2, 3)
_LOOP = {
    "trips": np.array(5),
    "going": np.array(True),
    "x": _DATA,
    "before": np.full((1, 1, 3), -1, np.float32),
    "checks": np.ones(5, np.bool_),
}
_PARTED = {"x": np.arange(5, dtype=np.float32), "lengths": np.array([2, -1])}


def _plain_loop(trips: Any, give: Any, *, counter: str = "i64", shape: tuple[int, ...] = ()) -> Any:
    """A Loop over ``x``: it hands on x + 1, counts, and gives what a function makes of its values."""
    builder = ir.Builder()
    given = builder.parameter("trips", "i64", ()) if trips is None else builder.const(trips)
    inputs = [given, builder.const(np.array(True)), builder.parameter("x", "f32", "?,2")]
    first, second = builder.layer(
        "Loop", inputs, outputs=2, version="opset5", name="loop", element_type="f32"
    )
    builder.result(first, "first")
    builder.result(second, "second")
    body = Body()
    x = body.takes("x", "f32", "?,2", port(2))
    number = body.takes("number", counter, shape, COUNTER)
    (after,) = body.builder.layer(
        "Add", [x, body.builder.const(np.array([[1, 1]], np.float32))], {"auto_broadcast": "numpy"}
    )
    (small,) = body.builder.layer(
        "Less", [number, body.builder.const(np.array(3, counter.replace("i", "int")))],
        {"auto_broadcast": "numpy"}, element_type="boolean", shapes=[shape],
    )  # fmt: skip
    body.gives("after", after, "")
    give(body, x, number, after)
    body.gives("ok", small, CONDITION)
    return reread(fill(builder.model(), "loop", {"": body}, ["after>x"]))


def _last_and_number(body: Body, x: ir.Output, number: ir.Output, after: ir.Output) -> None:
    """The value before the last step, which is no back edge, and the number as it is taken."""
    body.gives("r", x, port(3))
    body.gives("n", number, port(4))


def _twice(body: Body, x: ir.Output, number: ir.Output, after: ir.Output) -> None:
    """One value twice: of the last iteration, and of all of them."""
    body.gives("r", after, port(3))
    body.gives("s", after, slices(4, 2))


_X = np.arange(4, dtype=np.float32).reshape(2, 2)
_CASES: dict[str, tuple[ir.OpenVINOModel, list[dict[str, Any]]]] = {
    "if": (if_model(), [{"c": np.array(c)} | _PARTED for c in (True, False)]),
    **{
        f"loop{' reversed' if reverse else ''}": (
            loop_model(reverse=reverse),
            [
                *(_LOOP | {"trips": np.array(trips)} for trips in (0, 1, 3, 5)),
                *(
                    _LOOP | {"trips": np.array(trips), "checks": np.array([True, True, False, True, True])}
                    for trips in (-1, 5)
                ),
            ],
        )
        for reverse in (False, True)
    },
    "nested": (
        nested_model(),
        [
            {
                "c": np.array([True, False, True]),
                "x": np.arange(4, dtype=np.float32),
                "lengths": np.array([2, -1]),
            }
        ],
    ),
    **{
        f"parts of {size} on {axis}{' reversed' * reverse}{' back' * back}": (
            parts_model(size, axis, reverse=bool(reverse), back=bool(back)),
            [{"x": np.arange(int(np.prod(shape))).reshape(shape)}],
        )
        for size, axis, reverse, back in [
            (1, 0, 0, 0), (1, 1, 1, 0), (1, 2, 0, 1), (2, 0, 1, 1), (3, 1, 0, 1), (2, 2, 1, 0), (3, 2, 0, 0),
        ]
        for shape in [[*[2, 3, 2][:axis], 3 * size, *[2, 3, 2][axis + 1 :]]]
    },
    "last and number": (_plain_loop(np.array([7], np.int32), _last_and_number), [{"x": _X}]),
    "number as int32 of shape [1]": (
        _plain_loop(None, _last_and_number, counter="i32", shape=(1,)),
        [{"x": _X, "trips": np.array(trips)} for trips in (-1, 2)],
    ),
    "one value twice": (_plain_loop(np.array(-1), _twice), [{"x": _X}]),
}  # fmt: skip
_FIRST = {"if": 13} | {name: 14 for name in _CASES if re.match("nested|parts of [23]", name)}
"""The first opset of what an older one cannot say: lengths that are computed, and a Reshape to an open size
that may be 0.
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """What onnxruntime gives of each case: at an old and a new opset, and from ONNX through IR."""
    folder = tmp_path_factory.mktemp("bodies")
    jobs = []
    for name, (model, feeds) in _CASES.items():
        for opset in (_FIRST.get(name, 11), 22):
            converted = splitops.convert(model, to=opset)
            onnx.save(converted, folder / f"{len(jobs)}.onnx")
            jobs.append(((name, opset), str(folder / f"{len(jobs)}.onnx"), feeds))
        again = splitops.convert(splitops.convert(converted, to="openvino"), to=22)
        onnx.save(again, folder / f"{len(jobs)}.onnx")
        jobs.append(((name, "again"), str(folder / f"{len(jobs)}.onnx"), feeds))
    return run_apart("onnxruntime", jobs, folder)


@pytest.mark.parametrize("name", _CASES)
def test_a_layer_with_bodies_gives_the_same_in_onnx(name: str, results: dict[Any, Any]) -> None:
    model, all_feeds = _CASES[name]
    wanted = [list(splitops.run(model, feeds).values()) for feeds in all_feeds]
    for (case, _), found in results.items():
        if case == name:
            assert not isinstance(found, str), found
            for one, other in zip(wanted, found, strict=True):
                for expected, got in zip(one, other, strict=True):
                    assert expected.dtype == got.dtype
                    np.testing.assert_array_equal(expected, got)


def test_names_are_unique_over_all_bodies() -> None:
    graphs: list[onnx.GraphProto] = [splitops.convert(nested_model(), to=22).graph]
    names: list[str] = []
    while graphs:
        graph = graphs.pop()
        names += [value.name for value in graph.input] + [tensor.name for tensor in graph.initializer]
        for node in graph.node:
            names += [node.name, *node.output]
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    assert len(names) == len(set(names)) > 20


def test_what_is_known_of_a_body_is_what_it_is_fed() -> None:
    """The file says that the slices are of shape [1, 2, 3]: a Split by a count needs no more."""
    body = splitops.convert(loop_model(), to=17).graph.node[-1].attribute[0].g
    (split,) = (node for node in body.node if node.op_type == "Split")
    assert len(split.input) == 1
    report = splitops.convert_with_report(loop_model(), to=17)
    assert [(str(change.where.graph), str(change.status)) for change in report.changes] == [
        ("loop/body", "converted")
    ]


def test_an_open_rank_stays_open() -> None:
    """The checker of onnx alone asks for the shape of an input or output, which nobody knows."""
    import onnxruntime

    builder = ir.Builder()
    builder.result(builder.layer("ReLU", [builder.parameter("x", "f32", None)])[0], "y")
    converted = splitops.convert(builder.model(), to=22)
    assert not converted.graph.output[0].type.tensor_type.HasField("shape")
    session = onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in ([], [1], [2, 3]):
        assert session.run(None, {"x": np.ones(shape, np.float32)})[0].shape == tuple(shape)


def _changed(model: ir.OpenVINOModel, pattern: str, new: str) -> ir.OpenVINOModel:
    content, weights = ir.to_bytes(model)
    text, count = re.subn(pattern, new, content.decode(), count=1, flags=re.DOTALL)
    assert count == 1
    return ir.from_bytes(text.encode(), weights)


def _open(model: ir.OpenVINOModel, name: str, **data: str) -> ir.OpenVINOModel:
    layers = tuple(
        replace(layer, data={**(layer.data or {}), **data}) if layer.name == name else layer
        for layer in model.graph.layers
    )
    return model.with_graph(replace(model.graph, layers=layers))


_ONE_LONGER = _open(_open(iterator([slices(0), slices(1)], slices(2, 2)), "x", shape="3,2"), "z", shape="4,2")
_LOST = [
    ('external_port_id="3"', 'external_port_id="9"', "port 9, which is missing"),
    (
        '(<input [^>]*)internal_layer_id="[0-9]+"',
        r'\1internal_layer_id="99"',
        "names layer 99, which is not a Parameter",
    ),
    (
        "<back_edges>.*?to-layer",
        '<back_edges><edge from-layer="77" to-layer',
        "the back edge of Loop layer 'loop' from 77",
    ),
    (
        r'shape="\?,1,3"(.*shape=")\?,1,3"',
        r'shape="?,?,?"\g<1>?,5,3"',
        r"declares float32\[\?, 5, 3\], but its back edge has float32\[1, 1, 3\]",
    ),
]


@pytest.mark.parametrize(
    ("model", "what"),
    [
        *((_changed(loop_model(), pattern, new), what) for pattern, new, what in _LOST),
        (
            _open(loop_model(), "trips", element_type="f32"),
            "the trip count is float32.*, but must be one int32 or int64",
        ),
        (_open(loop_model(), "trips", shape="2"), r"the trip count is int64\[2\]"),
        (_open(loop_model(), "going", element_type="i32"), "the condition is int32"),
        (_open(loop_model(), "before", shape="1,1,4"), r"the first value is float32\[1, 1, 4\]"),
        (_open(loop_model(), "before", shape="1,3"), r"the first value is float32\[1, 3\]"),
        (_open(loop_model(), "before", element_type="f16"), r"the first value is float16"),
        (_plain_loop(np.array(-2), _twice), "the trip count is -2, but must be at least -1"),
        (_ONE_LONGER, r"different numbers of parts: \[3, 4\]"),
        (if_model(version="opset7"), "cannot be converted to ONNX"),
    ],
)
def test_what_does_not_fit_is_one_error(model: ir.OpenVINOModel, what: str, tmp_path: Path) -> None:
    report = splitops.convert_with_report(model, to=22)
    wrong = [change.where.node for change in report.changes if change.error is not None]
    assert wrong in (["loop"], ["ti"], ["gate"])
    with pytest.raises(splitops.ModelError, match=what):
        report.save(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_body_keeps_no_constant_that_became_an_attribute() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18]>
        g (float[2,6] x, bool c) => (float[k,l] y) {
            y = If (c) <then_branch = t () => (float[a,b] p) {
                            q = Transpose<perm = [1, 0]>(x)
                            p, r = Split<axis = 0, num_outputs = 2>(q) },
                        else_branch = e () => (float[d,f] z) { z = Relu(x) }> }""")
    moved = splitops.convert(splitops.convert(model, "openvino"), "onnx:18")
    for branch in moved.graph.node[0].attribute:
        assert not branch.g.initializer
