"""Reports, expectations and responses from strangers: they are shown and judged, or rejected."""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hostile import assert_one_line, edited
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, validators

from splitops import SplitError
from splitops.common.json_schema import find_problem
from splitops_compare import protocol
from splitops_compare.reports.html import to_html
from splitops_compare.reports.report_diff import (
    compare_reports,
    find_unexpected,
    make_expectations,
    read_expectations,
)
from splitops_compare.reports.sarif import to_sarif
from splitops_compare.worker import get_storage_dtype

sys.path.insert(0, str(Path(__file__).parents[2] / "compare" / "tests"))

from synthetic import report as synthetic_report

NUMBERS = {"dtype": "float32", "shape": [2], "data": base64.b64encode(bytes(8)).decode()}
RESPONSES: list[dict[str, Any]] = [
    {
        "message": "started",
        "protocol": 1,
        "name": "fake",
        "kind": "runtime",
        "formats": ["onnx"],
        "settings": {"threads": ["1"]},
        "versions": {"fake": "1.0"},
    },
    {"message": "response", "id": 1, "outcome": "ok", "outputs": [NUMBERS, {"sequence": [NUMBERS, NUMBERS]}]},
    {
        "message": "response",
        "id": 1,
        "outcome": "ok",
        "outputs": [{"dtype": "string", "shape": [1, 2], "strings": ["a", "b"]}],
    },
    {
        "message": "response",
        "id": 1,
        "outcome": "ok",
        "outputs": [
            {"dtype": "uint4", "shape": [3], "data": "AQID"},
            {"dtype": "int8", "shape": [0], "data": ""},
        ],
    },
    {
        "message": "response",
        "id": 1,
        "outcome": "ok",
        "outputs": [{"dtype": "int8", "shape": [3], "file": "FOLDER/part"}],
    },
    {"message": "response", "id": 1, "outcome": "inferred", "shapes": [None, [1, "N", None]]},
    {"message": "response", "id": 1, "outcome": "rejected", "stage": "load", "type": "E", "text": "no"},
]
EXPECTED = {
    "expected": [
        {
            "case": "split-18/ceil/*",
            "implementation": "onnxruntime",
            "verdict": "rejects",
            "reason": "upstream",
        },
        {"case": "*", "implementation": "tra?t", "verdict": "crash"},
    ]
}


@cache
def measured() -> dict[str, Any]:
    return json.loads(json.dumps(synthetic_report(4, 3).to_json()))


def written(document: Any) -> bytes:
    return json.dumps(document).encode()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_an_edited_report(data: Any) -> None:
    try:
        found = protocol.parse_report(written(data.draw(edited(measured()))))
    except SplitError as error:
        assert_one_line(error)
        return
    same = protocol.parse_report(written(found.to_json()))
    assert same.to_json() == found.to_json() or "NaN" in json.dumps(found.to_json())
    page = to_html(found, "0")
    assert page.encode()
    assert json.dumps(to_sarif(found, "0")).encode()
    old = protocol.parse_report(written(measured()))
    assert all(map(str, compare_reports(old, found)["new"]))
    assert not find_unexpected(found, make_expectations(found)).new


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_edited_expectations(data: Any) -> None:
    rows = data.draw(edited(EXPECTED))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "expected.toml")
        path.write_text(toml(rows), "utf-8", "replace")
        try:
            find_unexpected(synthetic_report(4, 3), read_expectations(path), ["split-18/ceil/1"])
        except SplitError as error:
            assert_one_line(error)


def toml(rows: Any) -> str:
    """Tables of TOML, as far as the edits leave any."""
    if not isinstance(rows, dict):
        return json.dumps(rows)
    lines = []
    for name, tables in rows.items():
        for table in tables if isinstance(tables, list) else []:
            lines.append(f"[[{json.dumps(name)}]]")
            lines += (
                [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in table.items()]
                if isinstance(table, dict)
                else []
            )
        if not isinstance(tables, list):
            lines.insert(0, f"{json.dumps(name)} = {json.dumps(tables)}")
    return "\n".join(lines)


def fits(document: Any, schema: dict[str, Any], definition: str | None) -> bool:
    """Whether a document fits a schema for jsonschema, where 2.0 and True are not integers."""
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    checked = schema if definition is None else schema | {"$ref": f"#/$defs/{definition}"}
    return validators.extend(Draft202012Validator, type_checker=types)(checked).is_valid(document)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_schemas_mean_what_they_mean_to_jsonschema(data: Any) -> None:
    what, definition, start = data.draw(
        st.sampled_from([("report", None, measured()), *(("messages", "response", one) for one in RESPONSES)])
    )
    document, schema = data.draw(edited(start)), protocol.load_schema(what)
    part = schema if definition is None else schema["$defs"][definition]
    assert (find_problem(document, part, root=schema) is None) == fits(document, schema, definition)


@pytest.mark.parametrize(
    ("document", "wrong"),
    [
        ({"message": "started", "protocol": 1}, ("", "lacks 'name'")),
        ({"message": "hi"}, ("", "is {'message': 'hi'}, an object of an unknown kind")),
        (RESPONSES[0] | {"formats": ["onnx", "onnx"]}, (".formats", "has a duplicate entry")),
        (RESPONSES[0] | {"formats": ["pdf"]}, (".formats[0]", "is 'pdf', not one of onnx, ir")),
        (RESPONSES[0] | {"versions": {}}, (".versions", "has 0 entries, fewer than 1")),
        (RESPONSES[-1] | {"stage": ""}, (".stage", "has 0 characters, fewer than 1")),
        (RESPONSES[-1] | {"id": True}, (".id", "is True, not an integer")),
        (
            RESPONSES[-1] | {"more": 1},
            ("", "has the unknown key 'more': use message, id, outcome, stage, type, text"),
        ),
    ],
)
def test_a_response_that_does_not_fit_says_where(document: Any, wrong: tuple[str, str]) -> None:
    schema = protocol.load_schema("messages")
    assert find_problem(document, schema["$defs"]["response"], root=schema) == wrong


FOUND = {"a size of many digits": [10**4299], "many sizes": [1 << 62] * 64, "a size that is a float": [2.0]}


@pytest.mark.parametrize("shape", FOUND.values(), ids=FOUND)
def test_what_was_found_in_responses(shape: list[Any], tmp_path: Path) -> None:
    answer = {"message": "response", "id": 1, "outcome": "ok", "outputs": [NUMBERS | {"shape": shape}]}
    with pytest.raises(protocol.ProtocolError) as caught:
        protocol.parse_outcome(protocol.parse_response(json.dumps(answer).encode()), tmp_path)
    assert_one_line(caught.value)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(RESPONSES), st.data())
def test_an_edited_reply(reply: dict[str, Any], data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "part").write_bytes(b"abc")
        line = json.dumps(data.draw(edited(reply))).replace("FOLDER", folder).encode()
        try:
            found = protocol.parse_response(line)
            if found["message"] != "answer":
                return
            outcome = protocol.parse_outcome(found, Path(folder))
        except protocol.ProtocolError as error:
            assert_one_line(error)
            return
        stated = found.get("outputs", [])
        assert len(outcome.values) == len(stated)
        for value, one in zip(outcome.values, stated, strict=True):
            tensors = one.get("sequence", [one])
            for array, tensor in zip(value if "sequence" in one else [value], tensors, strict=True):
                assert list(array.shape) == tensor["shape"]
                assert "strings" in tensor or array.dtype == get_storage_dtype(tensor["dtype"])
