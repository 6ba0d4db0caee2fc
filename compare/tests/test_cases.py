"""The cases: each row, rule, type and boundary has one, and names say all that a record says."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from splitops.common.json_values import read_values, to_json_values
from splitops.errors import Rule
from splitops.models.check import check
from splitops.spec import ELEMENT_TYPES, SCHEMAS, OperatorSchema, SourceKind
from splitops_compare.cases import build_case, build_cases, find_baseline, list_cases, make_entry
from splitops_compare.cases.models import SPECIALS, make_model
from splitops_compare.cases.names import format_operator
from splitops_compare.data import Case, CaseSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))
from corpus import Case as Written
from corpus import read_all

LISTED = list_cases()
CASES = {case.id: case for case in build_cases()}


def of(row: OperatorSchema) -> list[Case]:
    name = f"{'openvino:' if row.domain else ''}{row}"
    return [case for case in CASES.values() if case.operator == name]


def record_of(case: Case) -> CaseSpec:
    assert case.spec is not None
    return case.spec


@pytest.mark.parametrize("row", SCHEMAS, ids=lambda row: f"{row.domain}{row}")
def test_each_row_has_every_dimension(row: OperatorSchema) -> None:
    found = of(row)
    valid = [case for case in found if case.is_valid]
    records = list(map(record_of, valid))
    assert {case.rule for case in valid} >= {rule.value for rule in row.size_rules}
    assert {record.dynamic for record in records} == {True, False}
    assert {0} < {record.shape[record.axis or 0] for record in records}, "an empty axis"
    assert any(len(record.shape) == 3 for record in records)
    assert len(found) - len(valid) >= 10
    if any(source.kind is SourceKind.INPUT for source in row.lengths):
        pairs = {(record.dynamic, record.constant) for record in records if record.lengths is not None}
        assert pairs == {(known, given) for known in (True, False) for given in (True, False)}


def test_every_rule_is_broken_but_the_one_of_calls() -> None:
    """No model can ask for an operator that does not exist and still be about the family."""
    assert {case.error for case in CASES.values()} - {None} == set(map(str, Rule)) - {"op.unknown"}


@pytest.mark.parametrize("domain", ["", "openvino"])
def test_every_element_type_has_a_case(domain: str) -> None:
    rows = [row for row in SCHEMAS if row.domain == domain]
    for row in rows:
        names = {kind.name for kind in row.types_of(row.inputs[0])}
        had = {record_of(case).dtype for case in of(row) if case.is_valid}
        before = [own for own in rows if own.name == row.name and own.since_version <= row.since_version]
        since = {record_of(case).dtype for own in before for case in of(own) if case.is_valid}
        assert since >= names or (domain and had >= {n for n in names if 0 < ELEMENT_TYPES[n].bits < 8})


def test_sizes_reach_their_boundaries() -> None:
    found = {case.id for case in CASES.values()}
    assert {f"split-18/ceil/{size}-into-4/float32/static" for size in (5,)} < found
    for text in (
        r"ceil/.*10.*-into-4",
        r"-into-1/",
        "9007199254740994",
        "4294967300",
        str(2**63 - 1),
        r"\+-2/",
    ):
        assert any(re.search(text, name) for name in found), text


def test_names_are_unique_and_stable() -> None:
    assert list(CASES) == list(LISTED)
    assert [make_entry(case.spec, case.baseline).id for case in LISTED.values()] == list(LISTED)
    pinned = (
        "split-18/ceil/5-into-4/float32/static",
        "split-13/even/6-into-2/float32/dynamic/shared-input",
        "splittosequence-24/chunk/6-by-2/float32/static/run-time/2-outputs/elements",
        "openvino-variadicsplit-1/remainder.negative/6-as--1+8/float32/static/axis=0",
    )
    assert [name for name in pinned if name not in LISTED] == []


def test_a_change_of_a_record_changes_its_name() -> None:
    record = LISTED["split-18/ceil/5-into-4/float32/static"].spec
    changes: list[dict[str, Any]] = [
        {"version": 13}, {"opset": 19}, {"dtype": "int8"}, {"shape": (1, 5)}, {"dynamic": True}, {"axis": 0},
        {"lengths": [1, 4]}, {"lengths": [[1, 4]]}, {"lengths": 5}, {"lengths_dtype": "int32"},
        {"constant": False}, {"attributes": {"num_outputs": 3}}, {"outputs": ("p0",)},
        {"attributes": {"num_outputs": 4, "keepdims": 0}}, {"outputs": ("p0", "p1", "", "p3")},
        *({"special": word} for word in SPECIALS),
    ]  # fmt: skip
    names = [make_entry(record).id, *(make_entry(replace(record, **change)).id for change in changes)]
    assert len(set(names)) == len(names)


def test_records_come_back_from_json() -> None:
    for case in LISTED.values():
        assert read_values(CaseSpec, to_json_values(case.spec)) == case.spec


def test_the_same_record_gives_the_same_model() -> None:
    for name in ("split-18/ceil/5-into-4/float32/static", "splittosequence-24/chunk/6-by-3/float32/static"):
        assert build_case(LISTED[name]).model == CASES[name].model


def test_each_case_names_a_control_that_is_valid() -> None:
    for case in CASES.values():
        assert case.rule == (case.error or case.rule)
        if case.baseline is None:
            assert case.is_valid
            assert find_baseline(record_of(case)) is None
        else:
            baseline = CASES[case.baseline]
            assert baseline.is_valid
            assert format_operator(record_of(baseline)) == case.operator


def test_what_a_model_shows_is_evident() -> None:
    assert CASES["split-18/lengths.sum/6-as-2+3/float32/static"].evident
    assert not CASES["split-18/lengths.sum/6-as-2+3/float32/static/run-time"].evident
    assert not any(case.evident for case in CASES.values() if case.is_valid)


def test_models_are_well_formed() -> None:
    """What is wrong with an invalid model is the rule that it breaks, and nothing of a valid one is."""
    for case in CASES.values():
        model = make_model(record_of(case))
        codes = {finding.code for finding in check(model) if "." in finding.code and not finding.runtime}
        # Lengths that are constants on an open axis are valid, and named in a warning.
        assert codes - {"outputs.count", "lengths.baked"} <= ({case.error} if case.error else set()), case.id
        if case.is_valid and isinstance(model, onnx.ModelProto):
            onnx.checker.check_model(model)


def test_expected_parts_join_to_the_data() -> None:
    joined = 0
    for case in CASES.values():
        record = record_of(case)
        if case.expected is None or record.special in {*SPECIALS} - {"absent", "unranked", "wide"}:
            continue
        parts = case.expected[0] if isinstance(case.expected[0], list) else list(case.expected)
        data, axis = case.inputs["x"], record.axis or 0
        if "" in record.outputs or len(parts) < record.attributes.get("num_outputs", 0) or not parts:
            continue
        whole: Any = (np.stack if parts[0].ndim < data.ndim else np.concatenate)(parts, axis)  # type: ignore[operator]
        assert whole.tobytes() == data.tobytes() or whole.tolist() == data.tolist(), case.id
        joined += 1
    assert joined > 300


def as_record(written: Written) -> CaseSpec | None:
    """Return a case of the conformance corpus as a record; None where a record cannot state it."""
    row = written.schema
    axis, lengths = (
        written.inputs.get(name) for name in ("axis", row.lengths[-1].name if row.lengths else "-")
    )
    stated = {name: value for name, value in written.attributes.items() if name != "axis"}
    known = {row.axis.name, *(own.name for own in row.lengths)}
    whole = all(isinstance(value, int | list) for value in written.attributes.values())
    first = row.axis.kind is not SourceKind.INPUT or (
        axis is not None and len(set(np.ravel(axis["value"]).tolist())) == 1
    )
    if set(written.inputs) - known or not whole or not first or written.outputs == 0:
        return None
    count = written.outputs if written.outputs is not None else len(written.sizes or ())
    fields: dict[str, Any] = {}
    if axis is not None:
        value = np.array(axis["value"])
        fields = {"axis": value.flat[0].item(), "axis_dtype": axis["dtype"], "axis_shape": value.shape}
    elif "axis" in written.attributes:
        fields = {"axis": written.attributes["axis"]}
    if lengths is not None:
        fields |= {"lengths": lengths["value"], "lengths_dtype": lengths["dtype"]}
    return CaseSpec(
        format="ir" if row.domain else "onnx", operator=row.name, version=row.since_version,
        dtype=written.dtype, shape=written.shape, attributes=stated, **fields,
        outputs=("s",) if row.gives_sequence else tuple(f"p{index}" for index in range(count)),
    )  # fmt: skip


def test_what_is_decided_is_what_the_conformance_corpus_says() -> None:
    asked = 0
    for written in read_all():
        record = as_record(written)
        sequence = written.schema.gives_sequence
        declares = written.outputs in (None, 1) if sequence else written.outputs is not None or written.sizes
        if record is None or not declares:
            continue  # a node of a model declares outputs
        found = make_entry(record, record)
        if written.error is not None:
            assert found.rule == written.error, str(written)
            asked += 1
            continue
        case = build_case(found)
        assert case.expected is not None, str(written)
        parts = case.expected[0] if isinstance(case.expected[0], list) else case.expected
        if not written.squeeze:
            got = [part.shape[written.axis] for part in parts]  # type: ignore[union-attr]
            assert got == list(written.sizes or ())[: len(got)], str(written)
        asked += 1
    assert asked > 300


def test_a_title_names_what_makes_a_case_special() -> None:
    """Two cases never have one title, and the title of a finding is its case's."""
    titles = {name: build_case(one).title for name, one in list_cases().items()}
    assert len(set(titles.values())) == len(titles)
    expected = {
        "split-18/ceil/6-into-2/float32/static/without-0": "Split-18: output 0 is omitted: ",
        "split-18/ceil/6-into-2/float32/static/absent": "Split-18: the input 'split' is omitted by",
        "split-13/even/6-into-2/float32/dynamic/shared-input": "Split-13: a second split of the same data",
        "openvino-split-1/even/6-into-2/float32/static/axis=0/unranked": "the rank of the data is unknown: ",
    }
    assert {name: part for name, part in expected.items() if part not in titles[name]} == {}
