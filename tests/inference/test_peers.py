"""What splitops knows of every test model is at least what onnx and OpenVINO know."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peers import backend_models, less_known, onnx_says
from splitops.errors import SplitError
from splitops.models.formats.openvino import Builder, to_bytes
from splitops.models.infer import AbstractTensor, infer
from splitops.spec import ELEMENT_TYPES
from splitops.spec.sizes.dims import Range

FLOAT = ELEMENT_TYPES["float32"]
UNSOUND = {
    # onnx takes the elements of the sequence for scalars, as the output declares; they are of rank 1.
    "node/test_loop13_seq": "seq_res",
}
"""Where onnx says more than is true, with the value that it is wrong about."""


def test_every_backend_model_of_onnx() -> None:
    seen, splits, worse, unsound = 0, 0, [], set()
    for name, model in backend_models():
        inferred = infer(model)
        seen += 1
        splits += len(inferred.splits)
        ours = {value.name: value.after for value in inferred.values if value.graph is None}
        for value, theirs in onnx_says(model).items():
            reason = less_known(ours.get(value), theirs)
            if reason is not None and UNSOUND.get(name) == value:
                unsound.add(name)
            elif reason is not None:
                worse.append(f"{name} {value}: onnx knows {reason}")
        onnx.checker.check_model(inferred.model)
    assert not worse
    assert unsound == set(UNSOUND), "onnx has become sound: take it off the list"
    assert seen > 1500, "the corpus of onnx's backend tests is not there"
    assert splits > 20


dims = st.one_of(
    st.integers(0, 9),
    st.just("?"),
    st.tuples(st.integers(0, 6), st.integers(1, 6)).map(lambda t: f"{t[0]}..{t[0] + t[1]}"),
    st.integers(1, 5).map(lambda lo: f"{lo}.."),
)


@settings(max_examples=150)
@given(st.data())
def test_openvino_on_partial_shapes(data: Any) -> None:
    """Ours lies inside OpenVINO's own, and the compatible form of ours is OpenVINO's own."""
    openvino = pytest.importorskip("openvino")
    shape = data.draw(st.lists(dims, min_size=1, max_size=3))
    builder = Builder("m")
    x = builder.parameter("x", "f32", ",".join(map(str, shape)))
    axis_known = data.draw(st.booleans())
    axis = data.draw(st.integers(0, len(shape) - 1))
    axis_port = builder.const(np.array(axis)) if axis_known else builder.parameter("axis", "i64", "")
    if data.draw(st.booleans()):
        count = data.draw(st.integers(1, 4))
        parts = builder.layer("Split", [x, axis_port], {"num_splits": count}, outputs=count)
    else:
        lengths = data.draw(st.lists(st.integers(-1, 4), min_size=1, max_size=4))
        parts = builder.layer(
            "VariadicSplit", [x, axis_port, builder.const(np.array(lengths))], outputs=len(lengths)
        )
    for index, part in enumerate(parts):
        builder.result(part, f"p{index}")
    model = builder.model()
    xml, weights = to_bytes(model)
    try:
        theirs = openvino.Core().read_model(xml, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    except RuntimeError:
        theirs = None
    try:
        ours = infer(model)
    except SplitError as error:
        broken = str(getattr(error, "rule", ""))
    else:
        broken = ""
    if broken:
        # Where OpenVINO goes on, it is its rule that is looser: it does not see that no size fits.
        assert theirs is None or broken in LOOSER
        return
    if theirs is None:
        # An axis that can only be empty has equal parts; OpenVINO divides its upper bound instead.
        (parts_of,) = (visit.inference for visit in ours.splits)
        assert parts_of is not None
        assert parts_of.data is not None
        assert 0 in parts_of.data, "OpenVINO rejects what splitops takes"
        return
    compatible = infer(model, as_openvino=True)
    for index, output in enumerate(theirs.outputs):
        name = next(iter(output.get_names()))
        assert index < len(parts)
        said = openvino_known(output.get_partial_shape())
        assert less_known(ours[name], said) is None
        assert compatible[name] == said


@pytest.mark.parametrize(
    ("shape", "axis", "lengths"),
    [
        (None, 0, [2, -1]),
        ("4,6", 0, None),
        ("4..9,6", 0, None),
        ("5,7", None, [8, -1]),
        ("4", 0, [5, -1]),
        ("4", 0, [6, -1]),
        ("4", 0, [-1, 9]),
        ("2..4", 0, [5, -1]),
        ("2..4", 0, [5, 3]),
    ],
)
def test_what_openvino_says_of_lengths_that_do_not_fit(
    shape: str | None, axis: int | None, lengths: list[int] | None
) -> None:
    openvino = pytest.importorskip("openvino")
    builder = Builder("m")
    axis_port = builder.parameter("axis", "i64", "") if axis is None else builder.const(np.array(axis))
    lengths_port = (
        builder.parameter("lengths", "i64", "2") if lengths is None else builder.const(np.array(lengths))
    )
    parts = builder.layer(
        "VariadicSplit", [builder.parameter("x", "f32", shape), axis_port, lengths_port], outputs=2
    )
    for index, part in enumerate(parts):
        builder.result(part, f"p{index}")
    model = builder.model()
    xml, weights = to_bytes(model)
    theirs = openvino.Core().read_model(xml, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    compatible = infer(model, as_openvino=True)
    for index, output in enumerate(theirs.outputs):
        assert compatible[f"p{index}"] == openvino_known(output.get_partial_shape())


LOOSER = {"parts.divisible", "lengths.sum", "remainder.negative", "remainder.repeated"}


def openvino_known(shape: Any) -> AbstractTensor:
    if shape.rank.is_dynamic:
        return AbstractTensor(FLOAT)
    return AbstractTensor(
        FLOAT,
        tuple(
            dim.get_length()
            if dim.is_static
            else Range(dim.get_min_length(), None if dim.get_max_length() == -1 else dim.get_max_length())
            for dim in shape
        ),
    )
