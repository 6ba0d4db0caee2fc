"""The cases that are drawn: the same for a seed, of every kind, and all of them are questions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from splitops.cli import cli
from splitops.spec import ELEMENT_TYPES, SCHEMAS, SizeRule
from splitops_compare import CompareError
from splitops_compare.cases import build_case, build_cases, find_case, generate_cases, list_cases, make_entry
from splitops_compare.driver.shrink import iter_smaller

MODEL = Path(__file__).parents[2] / "examples/models/attention_block.onnx"
MANY = generate_cases(500)
VALID = {rule.value for rule in SizeRule}


def test_a_seed_gives_the_same_cases_everywhere() -> None:
    code = "from splitops_compare.cases import generate_cases as g; print(*g(120, 3).values(), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == list(map(str, generate_cases(120, 3).values())), done.stderr
    assert list(generate_cases(20, 3).items()) == list(generate_cases(120, 3).items())[:20]
    assert [one.spec for one in generate_cases(20, 4).values()] != [
        one.spec for one in generate_cases(20, 3).values()
    ]


def test_everything_is_drawn() -> None:
    records = [one.spec for one in MANY.values()]
    rows = {(record.format, record.operator, record.version) for record in records}
    assert rows == {("ir" if row.domain else "onnx", row.name, row.since_version) for row in SCHEMAS}
    assert {record.dynamic for record in records} == {record.constant for record in records} == {True, False}
    assert {len(record.shape) for record in records} == {1, 2, 3, 4}
    assert len({record.dtype for record in records}) > len(ELEMENT_TYPES) / 2
    assert max(max(record.shape) for record in records) > 2**53
    assert {max(record.shape) for record in records} > {2**31 - 1, 2**31, 2**32 + 4, 2**53 + 2}
    assert any("" in record.outputs for record in records)
    for words in (
        {("axis", -1), ("axis", -4), ("axis", 0), ("axis", None), ("axis", 3)},
        {("axis_dtype", "int32"), ("axis_shape", (1,)), ("lengths_dtype", "int32")},
        {("special", "unranked"), ("special", "constant-data"), ("special", "elements")},
    ):
        for name, value in words:  # not only as they are listed
            assert sum(getattr(record, name) == value for record in records) >= 5, (name, value)
    assert "float16" in {one.spec.lengths_dtype for one in generate_cases(2000).values()}
    assert {record.attributes.get("keepdims") for record in records} >= {None, 0, 1}
    rules = {one.rule for one in MANY.values()}
    assert rules >= VALID
    assert len(rules - VALID) > 10
    assert len({make_entry(one.spec).id for one in MANY.values()} - set(list_cases())) == len(MANY)


def test_each_can_be_asked_and_has_a_control_that_is_valid() -> None:
    valid = 0
    for name, one in MANY.items():
        case = build_case(one)
        assert case.id == name
        assert case.rule == one.rule == (case.error or one.rule), one.spec
        assert one.baseline is not None
        assert case.baseline == make_entry(one.baseline).id
        assert make_entry(one.baseline).rule in VALID, one.baseline
        valid += case.is_valid
    assert len(MANY) / 4 < valid < len(MANY) * 3 / 4


def test_a_name_says_which_it_is() -> None:
    assert find_case("generated/0/17") == MANY["generated/0/17"]
    assert build_cases(["generated/0/17"])[0].model == build_case(MANY["generated/0/17"]).model
    for name in ("generated/0", "generated/0/-1", "generated/x/1", "generated/0/99999"):
        with pytest.raises(CompareError, match="there is no case"):
            find_case(name)


def test_they_can_be_shrunk() -> None:
    record = max((one.spec for one in MANY.values() if one.rule == "explicit"), key=lambda r: len(r.shape))
    assert any(make_entry(candidate).rule == "explicit" for candidate in iter_smaller(record))


def test_the_command_asks_them_beside_the_others() -> None:
    asked = [
        "compare",
        "--no-shrink",
        "onnx_reference",
        "--case",
        "split-13/even/6-into-2/float32/static",
    ]
    found = CliRunner().invoke(cli, [*asked, "--generate", "3", "--seed", "5", "--json"])
    assert found.exit_code in (0, 1), found.output
    for index in range(3):
        assert f'"generated/5/{index}"' in found.stdout
    wrong = CliRunner().invoke(cli, ["compare", "--model", str(MODEL), "--generate", "1"])
    assert wrong.exit_code == 2
    assert "--model replaces them" in wrong.output
