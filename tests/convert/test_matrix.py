"""Each cell of the matrix in docs/convert.md: the status it declares, and the same outputs."""

from __future__ import annotations

import re

import onnx
import pytest
from conversion_cases import CELLS, Case
from conversion_results import BEGIN, DOCUMENT, END, equal, outputs, own_result
from onnx import ModelProto

from splitops.errors import SplitError
from splitops.models.convert import Status, convert_with_report


def _documented() -> dict[tuple[str, str, str], str]:
    """Return splitops' own result of every cell that the document declares."""
    text = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    found: dict[tuple[str, str, str], str] = {}
    source, targets = "", []
    for line in text.splitlines():
        if heading := re.fullmatch(r"### From (.*)", line):
            source = heading[1]
        elif line.startswith("| form |"):
            targets = [cell.strip() for cell in line.strip("|").split("|")][1:]
        elif line.startswith("| ") and source:
            form, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            for target, cell in zip(targets, cells, strict=True):
                found[source, form, target] = cell.partition("<br>")[0]
    return found


_DOCUMENTED = _documented()


def test_the_document_states_every_cell() -> None:
    assert len(CELLS) > 350
    assert set(_DOCUMENTED) == {(case.source, case.form, target) for case, target in CELLS}


@pytest.mark.parametrize(("case", "target"), CELLS, ids=lambda item: getattr(item, "label", item))
def test_cell(case: Case, target: str) -> None:
    if target == "openvino" and "of any size" in case.form:
        pytest.importorskip("openvino")  # whose layers compute the lengths
    report = convert_with_report(case.build(), to=target)
    assert own_result(report) == _DOCUMENTED[case.source, case.form, target]
    if not report.complete:
        assert any(change.rule for change in report.rejections)
        with pytest.raises(SplitError) as caught:
            _ = report.model
        assert caught.value is report.problem
        return
    model = report.model
    if isinstance(model, ModelProto):
        assert model.opset_import[0].version == int(target.partition(":")[2])
        onnx.checker.check_model(model)
        for node in model.graph.node:
            onnx.defs.get_schema(node.op_type, model.opset_import[0].version, node.domain)
    assert equal(outputs(case, model), outputs(case, case.build()))


def test_cells_that_are_kept_are_not_touched() -> None:
    case = next(case for case, _ in CELLS if case.label == "Split-13: lengths")
    model = case.build()
    report = convert_with_report(model, to="onnx:13")
    assert [change.status for change in report.changes] == [Status.KEPT]
    assert report.model == model


def test_the_comparison_sees_a_difference() -> None:
    case = next(case for case, _ in CELLS if case.label == "Split-13: lengths")
    other = next(case for case, _ in CELLS if case.label == "Split-13: equal parts")
    assert not equal(outputs(case, case.build()), outputs(case, other.build()))
