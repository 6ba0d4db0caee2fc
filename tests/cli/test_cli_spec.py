"""``splitops spec`` and ``splitops diff``."""

from __future__ import annotations

import json

import pytest

import splitops
from splitops.spec import SCHEMAS


def test_list_has_every_row(invoke):
    listed = json.loads(invoke("spec", "--json").output)
    assert [(row["domain"], row["operator"]) for row in listed] == [(row.domain, str(row)) for row in SCHEMAS]
    text = invoke("spec").output
    for name in (
        "Split-1 ",
        "Split-2 ",
        "Split-18 ",
        "SplitToSequence-24",
        "openvino:Split-1",
        " VariadicSplit-1",
    ):
        assert name in text


@pytest.mark.parametrize(
    ("arguments", "operator", "domain"),
    [
        (["Split", "--opset", "13"], "Split-13", ""),
        (["Split", "--opset", "17"], "Split-13", ""),
        (["Split"], "Split-18", ""),
        (["Split-2"], "Split-2", ""),
        (["onnx:Split-1"], "Split-1", ""),
        (["openvino:Split"], "Split-1", "openvino"),
        (["VariadicSplit"], "VariadicSplit-1", "openvino"),
    ],
)
def test_the_row_that_a_name_selects(invoke, arguments, operator, domain):
    row = json.loads(invoke("spec", *arguments, "--json").output)
    assert (row["operator"], row["domain"]) == (operator, domain)
    assert operator in invoke("spec", *arguments).output


@pytest.mark.parametrize("row", SCHEMAS, ids=lambda row: f"{row.domain}{row}")
def test_a_row_is_printed_in_full(invoke, row):
    name = f"{row.domain or 'onnx'}:{row}"
    text = " ".join(invoke("spec", name).output.split())
    stated = json.loads(invoke("spec", name, "--json").output)
    for item in (*row.attributes, *row.inputs, *row.outputs):
        assert item.name in text
    assert [item["name"] for item in stated["inputs"]] == [item.name for item in row.inputs]
    assert stated["size_rules"] == [rule.value for rule in row.size_rules]
    assert stated["type_constraints"][0]["types"] == sorted(str(t) for t in row.type_constraints[0].types)
    for note in row.notes:
        assert " ".join(note.split()) in text
    assert row.source in text


def test_diff(invoke):
    expected = splitops.difference("Split", 13, 18)
    stated = json.loads(invoke("diff", "Split", "13", "18", "--json").output)
    assert (stated["old"]["operator"], stated["new"]["operator"]) == ("Split-13", "Split-18")
    assert [change["text"] for change in stated["changes"]] == [change.text for change in expected.changes]
    assert stated["changes"][0]["after"]["name"] == "num_outputs"
    text = " ".join(invoke("diff", "Split", "13", "18").output.split())
    assert "Split-13 → Split-18" in text
    assert "even -> ceil" in text


def test_diff_of_one_version(invoke):
    assert json.loads(invoke("diff", "openvino:Split", "1", "8", "--json").output)["changes"] == []
    assert "Nothing changed" in invoke("diff", "Split", "13", "17").output
