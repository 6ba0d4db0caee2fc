"""Whole comparisons with peers that are here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

import splitops
from splitops.comparison import protocol
from splitops.comparison.cases import build, cases, listed, named
from splitops.comparison.driver.shrinking import shrunk
from splitops.comparison.records import Case, CompareError, Record, Report, State, Word

FIVE = "split-18/ceil/5-into-4/float32/static"


def test_a_finding_is_confirmed_alone_and_shrunk() -> None:
    pytest.importorskip("onnxruntime")
    report = splitops.compare(peers=["onnxruntime"], cases=[FIVE])
    verdict = next(entry for entry in report.entries if entry.id == FIVE).verdicts["onnxruntime"]
    assert (verdict.word, verdict.stage, verdict.confirmed) == (Word.REFUSES, "run", 2)
    assert verdict.shrunk is not None
    assert verdict.shrunk.shape == (1,)
    smallest = verdict.shrunk.attributes["num_outputs"]
    assert len(verdict.shrunk.outputs) == smallest
    assert smallest in (2, 3), "onnxruntime below 1.32 refuses two parts too"
    assert report.peers[0].state is State.OK
    assert not report.environment["stopped"]


def test_a_report_is_the_same_after_json() -> None:
    report = splitops.compare(peers=["onnxruntime"], cases=[FIVE], shrink_seconds=0)
    content = json.dumps(report.to_json(), allow_nan=False).encode()
    assert protocol.read_report(content).to_json() == report.to_json()
    assert isinstance(report, Report)


def test_two_environments_and_settings_are_columns(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    report = splitops.compare(
        peers=["onnxruntime"],
        cases=[FIVE],
        pythons=[("onnxruntime", sys.executable)],
        settings=[("onnxruntime", {"threads": "1"})],
        shrink_seconds=0,
    )
    release = report.peers[0].versions["onnxruntime"]
    names = [peer.name for peer in report.peers]
    first = f"onnxruntime@{release}"
    assert names == [first, f"{first}[threads=1]", f"{first}#2", f"{first}#2[threads=1]"]
    assert all(set(entry.verdicts) == set(names) for entry in report.entries)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"peers": ["nobody"]}, "there is no adapter 'nobody'"),
        ({"cases": ["nothing"]}, "there is no case 'nothing'"),
        ({"operators": ["Slice"]}, "there is no case of an operator 'Slice'"),
        ({"commands": {"mine": "no-such-program x"}}, "the command of 'mine' is missing"),
        ({"commands": {"mine": "'"}}, "the command of 'mine' cannot be read"),
        ({"pythons": [("onnxruntime", "/no/python")]}, "the Python of 'onnxruntime' is missing"),
        ({"settings": [("onnxruntime", {"x": "1"})]}, "onnxruntime has no setting 'x=1'"),
        ({"settings": [("openvino", {})]}, "a setting is for 'openvino'"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line(arguments: dict[str, object], message: str) -> None:
    if "settings" in arguments:
        pytest.importorskip("onnxruntime")
    with pytest.raises(CompareError) as caught:
        splitops.compare(**({"cases": [FIVE], "peers": ["onnxruntime"]} | arguments))  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_import_of_splitops_brings_no_comparison() -> None:
    code = "import sys, splitops; print([m for m in sys.modules if 'compare' in m and 'splitops' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_candidate_has_more_data_than_can_be_made() -> None:
    huge = Record(operator="Split", version=18, shape=(0, 2**32 + 4), attributes={"num_outputs": 2}, axis=1)
    built: list[Record] = []

    def refuse(record: Record) -> Case:
        built.append(record)
        raise CompareError("no")

    assert shrunk(replace(cases([FIVE])[0], record=huge), lambda _: True, refuse, 5) is None
    assert built
    assert all(prod(record.shape) < 2**25 for record in built)


KINDS = {(case.record.operator, case.record.special): name for name, case in listed().items()}


@pytest.mark.parametrize("name", KINDS.values())
def test_whatever_shrinking_makes_of_a_case_is_built_or_left(name: str) -> None:
    assert shrunk(cases([name])[0], lambda _: False, lambda record: build(named(record)), 5) is None
