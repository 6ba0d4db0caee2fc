"""Quirks of optimisers: each is shown, and named in the files of its package and in limits alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

import splitops
from splitops.models import quirks
from splitops.models.check import LIMITS
from splitops.models.formats.model import CheckedModel
from splitops.models.graph.editors import make_editor
from splitops.models.quirks import QUIRKS, RUNTIMES, find
from splitops.models.quirks.graph_view import GraphView, op
from splitops.models.simplify.driver import annotate_model

PACKAGE = Path(quirks.__file__).parent
SOURCE = Path(splitops.__file__).parent
PASSES = sorted(path for runtime in RUNTIMES for path in (PACKAGE / runtime).glob("[a-z]*.py"))
SHOWN_BY_TESTS = {"turned-reduction"}
"""Quirks without a case in the comparison: ``test_turned_reductions.py`` shows it."""


def _names() -> Iterator[str]:
    for path in PASSES:
        yield path.stem
        title = path.read_text().partition(":")[0].strip('"')
        yield title if " " not in title else title.replace(" ", "_").lower()
    yield from (name for name in QUIRKS if "-" in name)


@pytest.mark.parametrize("name", sorted(set(_names())))
def test_only_the_package_and_limits_know_a_pass(name: str) -> None:
    """The rest of the code finds a quirk and cures it, whichever it is."""
    others = [path for path in SOURCE.rglob("*.py") if PACKAGE not in path.parents]
    known = [path for path in others if re.search(rf"\b{re.escape(name)}\b", path.read_text())]
    assert len(others) > 300
    assert known == []


@pytest.mark.parametrize("path", PASSES, ids=lambda path: path.stem)
def test_a_pass_begins_with_a_picture_of_its_pattern(path: Path) -> None:
    docstring = path.read_text().split('"""')[1]
    assert "\n::\n\n    " in docstring
    assert "->" in docstring
    if path.parent.name == "openvino":
        report = re.search(r"^Reported in (\S+\.md)\.$", docstring, re.MULTILINE)
        assert report is not None
        assert (SOURCE.parents[1] / report[1]).is_file()


@pytest.mark.parametrize("name", QUIRKS)
def test_a_quirk_has_releases_a_source_and_a_case(name: str) -> None:
    quirk = QUIRKS[name]
    limits = [limit for limit in LIMITS if limit.code == f"{quirk.runtime}.{name}"]
    assert [limit.quirk for limit in limits] in ([quirk], [None])  # the other is a condition of splits
    assert all(limit.tested_releases and limit.source for limit in limits)
    assert all(limit.evidence is not None for limit in limits) is (name not in SHOWN_BY_TESTS)


def _view(text: str) -> tuple[GraphView, dict[str, ir.Value]]:
    text = f'<ir_version: 9, opset_import: ["": 18]> g {text}'
    model = CheckedModel.read(onnx.parser.parse_model(text)).nodes
    annotate_model(model)
    values = {value.name or "": value for node in model.graph for value in node.outputs}
    return GraphView(model.graph, make_editor(model)), values


_SCALED = """(float[2, 3] x, float[2, 3] s) => (float[2, 3] y) <int64[2] shape = {2, 3}, float[1] one = {1}> {
    i = Identity(x) r = Reshape(i, shape) t = Transpose<perm = [0, 1]>(r) u = Mul(t, one)
    y = Mul(s, u) }"""


def test_a_pattern_is_matched_through_nodes_that_change_nothing_in_either_order() -> None:
    view, values = _view(_SCALED)
    product = values["y"]
    (found,) = (one for one in view.match(product, op("Mul", "x", "s")) if one["x"].name == "x")
    assert found["s"].name == "s"
    assert len(list(view.match(product, op("Mul", "x", "x")))) == 0
    assert len(list(view.match(product, op("Add Mul", "x", "y", bind="both")))) == 2


def test_a_node_that_changes_something_is_seen() -> None:
    view, values = _view(_SCALED.replace("perm = [0, 1]", "perm = [1, 0]").replace("{2, 3}>", "{3, 3}>"))
    assert [node.op_type for node in view.find_consumers(values["r"])] == ["Transpose"]


@pytest.mark.parametrize("constant", ["value_float = -1.0", "value_floats = [-1.0]"])
def test_a_number_is_a_constant_of_one_element(constant: str) -> None:
    view, values = _view(f"(float[2] x) => (float[2] y) {{ n = Constant<{constant}>() y = Mul(x, n) }}")
    assert [one["x"].name for one in view.match(values["y"], op("Mul", -1, "x"))] == ["x"]
    assert list(view.match(values["y"], op("Mul", 1, "x"))) == []


def test_two_splits_that_one_runtime_mistakes_are_found_and_cured() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]> g (float[4] x) => (float[2] p, float[1] q) {
            a, b = Split(x) c, d, e, f = Split(x) p = Relu(b) q = Relu(d) }"""
    )
    opened = CheckedModel.read(model)
    nodes = opened.copy()
    annotate_model(nodes)
    editor = make_editor(nodes)
    matches = find(editor, "onnxruntime")
    assert [match.node.outputs[0].name for match in matches] == ["a", "c"]
    assert [match.rewrite(editor) for match in matches] == [
        "Split-13(axis=0, split=[2, 2])",
        "Split-13(axis=0, split=[1, 1, 1, 1])",
    ]
    assert find(editor, "onnxruntime") == []
    assert len(find(editor, "onnxruntime", equal_as_count=True)) == 2
    cured = opened.write(nodes)
    feeds = {"x": np.arange(4, dtype=np.float32)}
    for name, wanted in splitops.run(model, feeds, engine="reference").items():
        assert np.array_equal(splitops.run(cured, feeds, engine="reference")[name], wanted)
