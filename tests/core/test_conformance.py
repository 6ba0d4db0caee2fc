"""Every case of the conformance corpus, as a node sets it, as a call, and as a plan."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
from comparison import assert_restores, assert_same_parts, cut, ramp_of
from corpus import Case, path_of, read, read_all

import splitops
from splitops import Rule, RuleError
from splitops.calls.node import evaluate
from splitops.spec import ELEMENT_TYPES, SCHEMAS, OperatorSchema

CASES = read_all()
FUNCTIONS = {
    ("", "Split"): splitops.onnx.split,
    ("", "SplitToSequence"): splitops.onnx.split_to_sequence,
    ("openvino", "Split"): splitops.openvino.split,
    ("openvino", "VariadicSplit"): splitops.openvino.variadic_split,
}
PLANS = [case for case in CASES if case.arguments() is not None]
SEMANTICS = Path(__file__).parents[2] / "docs" / "semantics.md"

each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_plan = pytest.mark.parametrize("case", PLANS, ids=str)
each_schema = pytest.mark.parametrize("schema", SCHEMAS, ids=lambda row: f"{row.domain or 'onnx'} {row}")


def as_lists(value: Any) -> Any:
    """Write values as JSON has them."""
    if isinstance(value, tuple | list):
        return [as_lists(entry) for entry in value]
    return value


def assert_broken(error: RuleError, case: Case) -> None:
    """The error is the one that the case declares, down to the types of the offending values."""
    assert str(error.rule) == case.error
    assert error.operator == str(case.schema)
    got = {name: as_lists(error.values.get(name)) for name in case.values}
    assert repr(got) == repr(dict(case.values))
    assert "\n" not in str(error)


def run_node(case: Case) -> tuple[np.ndarray, ...]:
    inputs = case.node_inputs()
    types = [case.element_type, *[None] * (len(inputs) - 1)]
    return evaluate(case.schema, case.attributes, inputs, outputs=case.outputs, types=types)


def function_arguments(case: Case) -> dict[str, Any] | None:
    """Return the arguments of the operator's own function; None where it has none of such a name."""
    arguments = case.arguments()
    if arguments is None:
        return None
    known = inspect.signature(FUNCTIONS[case.schema.domain, case.schema.name]).parameters
    if case.schema.domain == "":
        arguments["opset"] = case.schema.since_version
    else:  # OpenVINO's required ones have no default
        arguments = {name: None for name in known if name not in ("data", "copy", "out")} | arguments
    return arguments if set(arguments) <= set(known) else None


CALLS = [case for case in CASES if function_arguments(case) is not None]


@each_case
def test_as_a_node(case: Case) -> None:
    if case.error is not None:
        with pytest.raises(RuleError) as caught:
            run_node(case)
        assert_broken(caught.value, case)
        return
    assert case.sizes is not None
    data, parts = case.data(), run_node(case)
    assert_same_parts(parts, cut(data, case.axis, case.sizes, squeeze=case.squeeze))
    if sum(case.sizes) == data.shape[case.axis]:
        assert_restores(parts, data, case.axis, squeeze=case.squeeze)
    else:
        assert case.outputs is not None  # only a node that declares fewer outputs leaves some of the data


@pytest.mark.parametrize("case", CALLS, ids=str)
@pytest.mark.parametrize("copy", [None, True], ids=["views", "copies"])
def test_as_a_call(case: Case, copy: bool | None) -> None:
    function = FUNCTIONS[case.schema.domain, case.schema.name]
    arguments = function_arguments(case)
    assert arguments is not None
    if case.error is not None:
        with pytest.raises(RuleError) as caught:
            function(case.data(), **arguments, copy=copy)
        assert_broken(caught.value, case)
        return
    assert case.sizes is not None
    data, parts = case.data(), function(case.data(), **arguments, copy=copy)
    assert type(parts) is (list if case.schema.gives_sequence else tuple)
    assert_same_parts(parts, cut(data, case.axis, case.sizes, squeeze=case.squeeze))
    assert_restores(parts, data, case.axis, squeeze=case.squeeze)


@each_plan
def test_as_a_plan(case: Case) -> None:
    arguments = case.arguments()
    assert arguments is not None
    schema = case.schema
    opset = schema.since_version

    def make_plan() -> splitops.Plan:
        dtype = case.element_type.numpy
        return splitops.plan(
            schema.name, shape=case.shape, dtype=dtype, opset=opset, domain=schema.domain, **arguments
        )

    if case.error is not None:
        with pytest.raises(RuleError) as caught:
            make_plan()
        assert_broken(caught.value, case)
        return
    assert case.sizes is not None
    plan, parts = make_plan(), cut(case.data(), case.axis, case.sizes, squeeze=case.squeeze)
    assert (plan.axis, plan.sizes) == (case.axis, case.sizes)
    assert plan.offsets == tuple(sum(case.sizes[:i]) for i in range(len(case.sizes)))
    assert plan.shapes == tuple(part.shape for part in parts)
    assert_same_parts(plan(case.data()), parts)
    assert_same_parts(plan(case.data(), copy=True), parts)


@each_schema
def test_each_version_takes_the_element_types_that_its_cases_list_and_no_other(
    schema: OperatorSchema,
) -> None:
    case, types = next(case for case in read(schema)[0] if case.error is None), read(schema)[1]
    assert types <= set(ELEMENT_TYPES)
    for element_type in ELEMENT_TYPES.values():
        typed = replace(case, dtype=element_type.name)
        if schema.since_version == 1 and schema.domain == "":
            assert not typed.inputs, "the lengths of Split-1 have the data's type"
        if element_type.name in types:
            assert case.sizes is not None
            expected = cut(ramp_of(case.shape, element_type), case.axis, case.sizes, squeeze=case.squeeze)
            assert_same_parts(run_node(typed), expected)
        else:
            with pytest.raises(splitops.errors.TypeUnsupportedError) as caught:
                run_node(typed)
            assert caught.value.values["type"] == element_type.name


# The corpus itself


@each_schema
def test_the_names_of_cases_are_unique(schema: OperatorSchema) -> None:
    names = [case.name for case in read(schema)[0]]
    assert len(names) == len(set(names))


def test_every_file_of_cases_belongs_to_a_version() -> None:
    assert {path_of(schema) for schema in SCHEMAS} == set(corpus.CASES.rglob("*.json"))


def test_most_cases_are_calls_too() -> None:
    assert len(CALLS) > 0.8 * len(CASES)
    assert {str(case.schema) for case in CALLS} == {str(case.schema) for case in CASES}


def test_a_version_without_cases_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"Split-99 has no conformance cases"):
        read_all([replace(SCHEMAS[0], since_version=99)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"operator": "Split", "version": 18, "domain": "", "types": [], "cases": []}', "holds no case"),
        ('{"operator": "Split", "version": 13, "domain": "", "types": [], "cases": []}', "another version"),
        (
            '{"operator": "Split", "version": 18, "domain": "", "types": [],'
            ' "cases": [{"name": "a", "rule": "r", "shape": [1]}]}',
            "must state either sizes or an error",
        ),
    ],
)
def test_a_file_that_proves_nothing_is_rejected(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "Split-18.json").write_text(text)
    monkeypatch.setattr(corpus, "CASES", tmp_path)
    with pytest.raises(ValueError, match=message):
        read(splitops.schema("Split", 18))


@pytest.mark.parametrize(
    "wrong",
    [{"sizes": (2, 3, 1)}, {"sizes": (1, 2, 4)}, {"sizes": (1, 2)}, {"axis": 1}, {"squeeze": True}],
    ids=str,
)
def test_a_case_with_wrong_expectations_fails(wrong: dict[str, Any]) -> None:
    case = Case(
        splitops.schema("Split", 11), "", "", (6, 6), attributes={"split": [1, 2, 3]}, sizes=(1, 2, 3)
    )
    test_as_a_node(case)
    with pytest.raises((AssertionError, ValueError, IndexError)):
        test_as_a_node(replace(case, **wrong))


@pytest.mark.parametrize(
    "wrong", [{"error": "lengths.count"}, {"values": {"size": 7}}, {"values": {"size": 6.0}}]
)
def test_a_case_with_a_wrong_error_fails(wrong: dict[str, Any]) -> None:
    case = Case(
        splitops.schema("Split", 11),
        "",
        "",
        (6,),
        attributes={"split": [1, 2]},
        error="lengths.sum",
        values={"size": 6},
    )
    test_as_a_node(case)
    with pytest.raises(AssertionError):
        test_as_a_node(replace(case, **wrong))


# What the corpus covers


def words(text: str) -> str:
    return " ".join(text.split())


def decisions() -> list[str]:
    """Return every size rule and decision of docs/semantics.md."""
    text = SEMANTICS.read_text()
    items: list[str] = []
    for title in ("Size rules", "Decisions, case by case"):
        section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
        found = re.findall(r"^(?:- |\d+\. )(.*(?:\n +.*)*)", section, re.MULTILINE)
        items += [words(item) for item in found]
    return items


@each_case
def test_each_case_quotes_the_semantics(case: Case) -> None:
    assert words(case.rule) in words(SEMANTICS.read_text())


ELSEWHERE = ("Nothing is ever read or written outside the data",)
"""Decisions that no single case can show: test_properties, test_out and the tests of the native core do."""


@pytest.mark.parametrize("decision", decisions(), ids=lambda text: text[:40])
def test_each_decision_has_a_case(decision: str) -> None:
    if decision.startswith(ELSEWHERE):
        return
    assert any(words(case.rule) in decision for case in CASES)


def test_the_decisions_are_found() -> None:
    assert len(decisions()) == 15


def test_every_rule_is_broken_by_a_case_or_by_a_lookup() -> None:
    broken = {case.error for case in CASES}
    assert {Rule(code) for code in broken if code is not None} == set(Rule) - {Rule.OPERATOR_UNKNOWN}
    for name, domain in (
        ("Squeeze", None),
        ("VariadicSplit", ""),
        ("SplitToSequence", "openvino"),
        ("Split", "x"),
    ):
        with pytest.raises(splitops.errors.OperatorError) as caught:
            splitops.schema(name, domain=domain)
        assert caught.value.rule is Rule.OPERATOR_UNKNOWN
