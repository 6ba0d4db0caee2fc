"""What the published comparison found of a runtime, its profile knows."""

from __future__ import annotations

from pathlib import Path

from splitops.comparison.cases import listed
from splitops.comparison.cases.building import model_of
from splitops.comparison.records import Word
from splitops.comparison.reports.reading import read_report
from splitops.models.check import LIMITS, Severity, check
from splitops.spec import SizeRule

REPORT = read_report(Path(__file__).parents[2] / "docs" / "compare" / "report.json")
PEERS = {
    "onnxruntime": "onnxruntime",
    "onnx_inference": "onnx",
    "openvino": "openvino",
    "opencv": "opencv",
}
EMPTY_IN_A_RUN = "only a run knows that the data, or a part, has no elements"
UNKNOWN = {
    **{
        ("opencv", f"split-{version}/even/2x0x3-into-2/float32/dynamic/axis=-2"): EMPTY_IN_A_RUN
        for version in (1, 2, 11, 13)
    },
    **{
        ("opencv", f"split-{version}/explicit/2x6-as-{lengths}/run-time"): EMPTY_IN_A_RUN
        for version in (13, 18)
        for lengths in ("0+6/float32/static/axis=1", "2+0+4/float32/static/axis=-1")
    },
    ("opencv", "split-13/even/6-into-2/bfloat16/static"): "its Python interface takes no bfloat16",
    ("opencv", "split-18/ceil/6-into-2/bfloat16/static"): "its Python interface takes no bfloat16",
}
"""Disagreements that no model shows, by runtime and case."""
HARMLESS = {
    ("opencv", "split-18/ceil/5-into-4/float32/static/3-outputs"): "3 parts of 5 are the first 3 of 4"
}
"""Errors of the checker where a runtime gives what it should, by chance."""


HELD = {
    limit.code
    for peer in REPORT.peers
    for limit in LIMITS
    if PEERS.get(peer.name) == limit.runtime and limit.holds_in(peer.versions[limit.runtime])
}
"""The limits of the releases that were compared."""


def findings(runtime: str, case: str, *severities: Severity) -> set[str]:
    found = check(model_of(listed()[case].record), [runtime])
    return HELD & {finding.code for finding in found if finding.severity in severities}


def asked() -> list[tuple[str, str, bool]]:
    """Each runtime and valid case that it said something about, and whether it was wrong."""
    return [
        (PEERS[name], entry.id, verdict.counts)
        for entry in REPORT.entries
        if entry.id in listed() and listed()[entry.id].rule in {rule.value for rule in SizeRule}
        for name, verdict in entry.verdicts.items()
        if name in PEERS and (verdict.counts or verdict.word is Word.AGREES)
    ]


def test_each_disagreement_about_a_valid_split_is_found() -> None:
    wrong = [(runtime, case) for runtime, case, own in asked() if own]
    silent = {(runtime, case) for runtime, case in wrong if not findings(runtime, case, *Severity)}
    assert len(wrong) > 150
    assert silent == set(UNKNOWN)


def test_a_split_that_a_runtime_does_right_is_no_error() -> None:
    right = [(runtime, case) for runtime, case, own in asked() if not own]
    alarms = {(runtime, case) for runtime, case in right if findings(runtime, case, Severity.ERROR)}
    assert len(right) > 400
    assert alarms == set(HARMLESS)
