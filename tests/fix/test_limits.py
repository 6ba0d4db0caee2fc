"""For each limit of each runtime: a model that fails or is wrong there before, and is right after."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

import splitops
from splitops.models.check import LIMITS, Limit, check
from splitops.models.fix import FixStatus, fix, fix_with_report

sys.path.insert(0, str(Path(__file__).parent.parent / "check"))
from fix_helpers import parse, proved
from proofs import MODULES, PROOFS, holds_here

RUN = [limit for limit in LIMITS if limit.runtime != "onnx" and limit.code in PROOFS]


@pytest.mark.parametrize("limit", [limit for limit in RUN if limit.is_fixable], ids=lambda limit: limit.code)
def test_a_limit_with_a_legal_form(limit: Limit) -> None:
    pytest.importorskip(MODULES.get(limit.runtime, limit.runtime))
    proof = PROOFS[limit.code]
    report = proved(limit.runtime, proof.model(), proof.inputs, unbind=proof.unbind, wrong=holds_here(limit))
    assert limit.code in {reason.code for site in report.rewritten for reason in site.reasons}
    assert limit.code not in {finding.code for finding in check(report.model, limit.runtime)}
    if isinstance(report.model, onnx.ModelProto):
        onnx.checker.check_model(report.model)


OF_THE_INPUT = {"openvino.narrowed-values", "openvino.unranked", "opencv.narrowed-values"}
"""Limits without a form that some inputs meet and others do not."""


@pytest.mark.parametrize(
    "limit",
    [limit for limit in RUN if not limit.is_fixable and limit.code not in OF_THE_INPUT],
    ids=lambda limit: limit.code,
)
def test_a_limit_without_one_is_rejected_with_its_code_and_place(limit: Limit) -> None:
    model: Any = PROOFS[limit.code].model()
    with pytest.raises(splitops.ModelError, match=rf"\[({limit.code}|remainder.negative)\]") as caught:
        fix(model, limit.runtime)
    assert caught.value.where.node
    kept = fix_with_report(model, limit.runtime, partial=True)
    (site,) = kept.unfixable
    assert site.where == caught.value.where
    assert site.before == site.after
    assert kept.model == model


@pytest.mark.parametrize("code", sorted(OF_THE_INPUT))
def test_a_limit_that_depends_on_the_input_is_reported(code: str) -> None:
    model: Any = PROOFS[code].model()
    report = fix_with_report(model, code.partition(".")[0])
    assert report.model == model
    assert not report.unfixable
    (split,) = report.possible
    assert [reason.code for reason in split.possible] == [code]
    assert f"left: {split.possible[0]}" in str(report)
    assert [reason["code"] for reason in split.as_dict()["possible"]] == [code]


def test_what_else_is_wrong_is_fixed_beside_a_limit_that_depends_on_the_input() -> None:
    uneven = parse("(int64[N] x) => (int64[A] a, int64[B] b) { a, b = Split<num_outputs = 2>(x) }")
    report = fix_with_report(uneven, "openvino")
    (split,) = report.splits
    assert split.status is FixStatus.REWRITTEN
    assert [reason.code for reason in split.reasons] == ["openvino.uneven-open-axis"]
    assert [reason.code for reason in split.possible] == ["openvino.narrowed-values"]
