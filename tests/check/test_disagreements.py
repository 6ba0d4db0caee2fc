"""What the published comparison found of a runtime, its profile knows."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from proofs import RECORDED

import splitops
from scripts import script
from splitops.models.check import LIMITS, Limit, Outcome, Severity, Target, check
from splitops.models.check.checking import find_limits
from splitops.models.check.predicates import Certainty
from splitops.models.check.targets import load_targets
from splitops.models.fix import fix_with_report
from splitops.spec import SizeRule
from splitops_compare.cases import list_cases
from splitops_compare.cases.models import make_inputs, make_model
from splitops_compare.data import VerdictKind
from splitops_compare.reports.report_diff import read_report

propose = script("dev/tools/propose")
REPORT = read_report(Path(__file__).parents[2] / "compare" / "docs" / "data" / "report.json")
PEERS = {
    "onnxruntime": "onnxruntime",
    "onnx_inference": "onnx",
    "openvino": "openvino",
    "opencv": "opencv",
}
UNEXPLAINED = {"tvm": 4, "mnn": 9, "ncnn": 5}
"""How many failures of recorded implementations no limit finds."""
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
    **{
        (name, "split-18/ceil/5-into-4/float32/static/3-outputs"): "3 parts of 5 are the first 3 of 4"
        for name in ("opencv", "tvm", "tract", "onnxruntime-web", "onnxruntime-node")
    },
    ("iree", "split-2/explicit/2x6-as-0+6/float32/static/axis=1"): "it is right if the first part is empty",
}
"""Errors of the checker where a runtime gives what it should, by chance."""


HELD = {
    limit.code
    for peer in REPORT.implementations
    for limit in LIMITS
    if PEERS.get(peer.name) == limit.runtime and limit.holds_in(peer.versions[limit.runtime])
}
"""The limits of the releases that were compared."""


def findings(runtime: str, case: str, *severities: Severity) -> set[str]:
    found = check(make_model(list_cases()[case].spec), [runtime])
    return HELD & {finding.code for finding in found if finding.severity in severities}


def asked() -> list[tuple[str, str, bool]]:
    """Each runtime and valid case that it said something about, and whether it was wrong."""
    return [
        (PEERS[name], entry.id, verdict.is_confirmed)
        for entry in REPORT.cases
        if entry.id in list_cases() and list_cases()[entry.id].rule in {rule.value for rule in SizeRule}
        for name, verdict in entry.verdicts.items()
        if name in PEERS and (verdict.is_confirmed or verdict.kind is VerdictKind.AGREES)
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
    assert alarms == {key for key in HARMLESS if key[0] not in RECORDED}


# Implementations of which the comparison is all that is known


@cache
def met(runtime: str) -> list[tuple[str, VerdictKind, list[tuple[Limit, Certainty]]]]:
    """Each valid case that a recorded implementation has a result for, with the limits that it meets."""
    targets = load_targets(runtime)
    return [
        (entry.id, word, list(find_limits(*propose.split_of(entry.id)[1:], targets)))
        for entry, word in propose.judged(runtime)
    ]


@pytest.mark.parametrize("runtime", RECORDED)
def test_what_a_recorded_limit_surely_finds_failed(runtime: str) -> None:
    (peer,) = [peer for peer in REPORT.implementations if peer.name == runtime]
    assert Target.load(runtime).releases == (next(iter(peer.versions.values())),)
    alarms = {
        (runtime, case)
        for case, word, limits in met(runtime)
        if word is VerdictKind.AGREES and any(surely is Certainty.YES for _, surely in limits)
    }
    assert alarms == {key for key in HARMLESS if key[0] == runtime}


@pytest.mark.parametrize("runtime", RECORDED)
def test_each_recorded_limit_has_a_case_with_its_outcome(runtime: str) -> None:
    outcomes = {
        VerdictKind.REJECTS: Outcome.ERROR,
        VerdictKind.DIFFERS: Outcome.WRONG,
        VerdictKind.CRASH: Outcome.CRASH,
    }
    proved = {
        limit.code
        for case, word, limits in met(runtime)
        for limit, _ in limits
        if case == limit.evidence and outcomes.get(word) is limit.outcome
    }
    assert proved == {limit.code for limit in Target.load(runtime).limits}


@pytest.mark.parametrize("runtime", RECORDED)
def test_failures_without_a_limit_are_counted(runtime: str) -> None:
    silent = [case for case, word, limits in met(runtime) if word is not VerdictKind.AGREES and not limits]
    assert len(silent) == UNEXPLAINED.get(runtime, 0), silent


@pytest.mark.parametrize(
    "limit",
    [one for one in LIMITS if one.runtime in RECORDED and one.is_fixable],
    ids=lambda limit: limit.code,
)
def test_the_form_of_a_recorded_limit_has_the_same_bits(limit: Limit) -> None:
    record = list_cases()[str(limit.evidence)].spec
    report = fix_with_report(make_model(record), limit.runtime, partial=True)
    assert limit.code in {reason.code for split in report.rewritten for reason in split.reasons}
    assert limit.code not in {finding.code for finding in check(report.model, limit.runtime)}
    before, after = (splitops.run(model, make_inputs(record)) for model in (make_model(record), report.model))
    assert list(map(bits, before.values())) == list(map(bits, after.values()))


def bits(value: Any) -> Any:
    """The type, shape and bytes of an array, or of each of a sequence."""
    return list(map(bits, value)) if isinstance(value, list) else (value.dtype, value.shape, value.tobytes())


def test_words_are_proposed_where_all_cases_fail() -> None:
    found = {(name, words): counted for name, words, counted in propose.proposals("tract")}
    assert found[("all", "lengths at run time")] == {VerdictKind.REJECTS: 12}
    assert ("all", "negative axis") not in found
