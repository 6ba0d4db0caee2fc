"""A Transpose that OpenVINO leaves out in front of a reduction: foreseen, rewritten, never run wrongly."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fix_helpers import difference, is_right, on, proved
from onnx import helper, numpy_helper

import splitops
from splitops.models.check import check

pytest.importorskip("openvino")
CODE = "openvino.turned-reduction"
BOTH = pytest.mark.parametrize("ir", [False, True], ids=["onnx", "ir"])
WRONG = ((2, 2, 1), (0, 2, 1), (0,))
"""Shape, order and axes of a reduction that OpenVINO 2026.4.1 gives another shape."""


def reduction(
    shape: tuple[Any, ...],
    order: tuple[int, ...],
    axes: tuple[int, ...],
    operator: str = "ReduceSum",
    **more: int,
) -> onnx.ModelProto:
    rank = len(shape) if more.get("keepdims") else len(shape) - len(axes)
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=order, name="turn"),
            helper.make_node(operator, ["t", "axes"], ["y"], name="reduce", **{"keepdims": 0, **more}),
        ],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [f"y{axis}" for axis in range(rank)])],
        [numpy_helper.from_array(np.array(axes), "axes")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def feeds(*shape: int) -> dict[str, Any]:
    return {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)}


def codes(model: Any) -> set[str]:
    return {finding.code for finding in check(model, "openvino")}


@cache
def all_of_rank_3() -> list[tuple[onnx.ModelProto, dict[str, Any], bool]]:
    """Each order and set of axes of some shapes, with whether OpenVINO gets it right."""
    found = []
    for shape in ((2, 2, 1), (1, 2, 1)):
        for order in permutations(range(3)):
            for axes in (axes for count in (1, 2) for axes in combinations(range(3), count)):
                model, given = reduction(shape, order, axes), feeds(*shape)
                wanted = {"y": given["x"].transpose(order).sum(axes)}
                found.append((model, given, difference(wanted, on("openvino", model, given)[1]) is None))
    return found


def test_all_that_openvino_gets_wrong_is_foreseen() -> None:
    found = all_of_rank_3()
    assert [
        number for number, (model, _, right) in enumerate(found) if not right and codes(model) != {CODE}
    ] == []
    assert sum(not right for _, _, right in found) > 2
    assert sum(right and codes(model) == set() for model, _, right in found) > 20


def test_each_that_is_foreseen_is_fixed() -> None:
    for model, given, _ in all_of_rank_3():
        if codes(model):
            fixed = splitops.fix(model, "openvino")
            assert codes(fixed) == set()
            assert is_right("openvino", fixed, model, given) is None


@BOTH
def test_it_is_a_warning_and_rewritten(ir: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = reduction(*WRONG)
    if ir:
        from splitops.models.convert import onnx_to_openvino

        monkeypatch.setattr(onnx_to_openvino, "_PREVENT_FUSION", ())
        model = splitops.convert(model, "openvino")
    (finding,) = check(model, "openvino")
    assert (finding.code, finding.severity, finding.values["nodes"][0]) == (CODE, "warning", "turn")
    assert "depends" not in finding.message
    report = proved("openvino", model, feeds(2, 2, 1))
    assert [site.after for site in report.rewritten] == ["ReduceSum(keepdims=1), Squeeze(axes=[0])"]


@pytest.mark.parametrize("tool", [splitops.simplify, lambda model: splitops.convert(model, "openvino")])
def test_simplify_and_convert_give_what_is_right(tool: Any) -> None:
    made = tool(reduction(*WRONG))
    assert codes(made) == set()
    assert is_right("openvino", made, reduction(*WRONG), feeds(2, 2, 1)) is None


@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSum"])
def test_other_reductions_are_foreseen(operator: str) -> None:
    proved("openvino", reduction(*WRONG, operator), {"x": np.ones((2, 2, 1), np.float32)})


def test_what_is_right_stays_as_it_is() -> None:
    for model in (
        reduction(*WRONG, keepdims=1),
        reduction((2, 2, 3), (0, 2, 1), (0,)),
        reduction(("batch", "n", "m"), (0, 2, 1), (0,)),
        reduction(*WRONG, "ReduceSumSquare"),
    ):
        assert codes(model) == set()
        assert splitops.fix(model, "openvino") == model


def _without_axes() -> onnx.ModelProto:
    model = reduction((2, 1, 3), (1, 0, 2), (0, 1, 2))
    del model.graph.initializer[:]
    del model.graph.node[1].input[1:]
    return model


def _with_given_axes() -> onnx.ModelProto:
    model = reduction((2, 1, 3), (1, 0, 2), (2,))
    del model.graph.initializer[:]
    model.graph.input.append(helper.make_tensor_value_info("axes", onnx.TensorProto.INT64, [1]))
    return model


@pytest.mark.parametrize("made", [_without_axes, _with_given_axes])
def test_a_reduction_of_all_axes_or_of_those_of_an_input_stays_as_it_is(made: Any) -> None:
    model = made()
    assert codes(model) == set()
    assert splitops.fix(model, "openvino") == model
    converted = splitops.convert(model, "openvino")
    (reduces,) = (layer for layer in converted.graph.layers if layer.type.startswith("Reduce"))
    assert reduces.get_attribute("keep_dims") == "false"
    assert splitops.fix(converted, "openvino").graph.by_id[reduces.id] == reduces


def test_two_orders_in_a_row_are_one() -> None:
    model = reduction((2, 2, 1), (1, 0, 2), (0,))
    model.graph.node[0].input[0] = "first"
    model.graph.node.insert(0, helper.make_node("Transpose", ["x"], ["first"], perm=(1, 2, 0), name="first"))
    given = feeds(2, 2, 1)
    assert codes(model) == ({CODE} if is_right("openvino", model, model, given) else codes(model))
    assert is_right("openvino", splitops.fix(model, "openvino"), model, given) is None


_RUN = """
import sys
import numpy as np, splitops
for name in sys.argv[2:]:
    found = splitops.run(f"{sys.argv[1]}/{name}", dict(np.load(f"{sys.argv[1]}/x.npz")), engine="openvino")
    np.save(f"{sys.argv[1]}/{name}.npy", found["y"])
"""


def test_a_run_gives_the_right_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from splitops.models.convert import onnx_to_openvino

    monkeypatch.setattr(onnx_to_openvino, "_PREVENT_FUSION", ())
    model, given = reduction(*WRONG), feeds(2, 2, 1)
    for name, made in (("m.onnx", model), ("m.xml", splitops.convert(model, "openvino"))):
        splitops.save(made, tmp_path / name)
    np.savez(tmp_path / "x.npz", **given)
    command = [sys.executable, "-c", _RUN, str(tmp_path), "m.onnx", "m.xml"]
    subprocess.run(command, check=True, timeout=120)
    for name in ("m.onnx", "m.xml"):
        found = np.load(tmp_path / f"{name}.npy")
        assert difference(given["x"].transpose(0, 2, 1).sum(0), found) is None
