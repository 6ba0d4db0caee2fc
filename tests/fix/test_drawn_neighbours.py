"""Models of what networks write around a split, drawn at random: nothing is wrong that is not foreseen."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from typing import Any

import numpy as np
import pytest

import splitops
from splitops.models.check import LIMITS, checking
from splitops.models.convert import onnx_to_openvino
from splitops_compare.data import Case, Outcome

if sys.platform != "win32":
    from dev.neighbours.asking import apart, judged, on_other, problems, verdict, warm
    from dev.neighbours.drawing import FAMILIES, drawn, with_idle_nodes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="each question is asked in a fork")
SECONDS = 60
"""``python3.11 tasks.py neighbours`` takes an hour."""


def test_a_minute_of_drawn_models_has_no_fault() -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("onnxruntime")
    warm()
    until, number, found = time.monotonic() + SECONDS, 0, {}
    while time.monotonic() < until and number < 400:
        model = drawn(number)
        judgement = judged(model.model, model.feeds, tools=number % 7 == 0)
        if judgement and problems(judgement):
            found[f"{number} {model.family}"] = problems(judgement)
        number += 1
    assert found == {}
    assert number > 2


def test_the_same_number_draws_the_same_model_and_each_family_its_turn() -> None:
    assert {drawn(number).family for number in range(len(FAMILIES))} == set(FAMILIES)
    for number in range(len(FAMILIES)):
        one, other = drawn(number), drawn(number)
        assert one.model == other.model
        assert all(np.array_equal(one.feeds[name], other.feeds[name]) for name in one.feeds)


def test_nothing_is_fused_wrongly_where_no_search_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")  # converts what has no row of ours
    searched: list[bool] = []
    asks = checking.may_be_in
    monkeypatch.setattr(checking, "may_be_in", lambda *given: searched.append(asks(*given)) or True)
    monkeypatch.setattr(onnx_to_openvino, "_PREVENT_FUSION", ())
    codes = {limit.code for limit in LIMITS if limit.quirk is not None}
    unsearched, found = 0, 0
    for number in (*range(2 * len(FAMILIES)), 1305):
        model = drawn(number, "cell" if number == 1305 else None).model
        idle = with_idle_nodes(model, random.Random(number), 0.3)
        forms = model, idle, splitops.convert(model, "openvino"), splitops.convert(idle, "openvino")
        fused = []
        for form in forms:
            searched.clear()
            fused.append({finding.code for finding in splitops.check(form, "openvino")} & codes)
            assert not fused[-1] or searched == [True], f"{number}: {fused}"
            unsearched, found = unsearched + (searched == [False]), found + bool(fused[-1])
        assert fused[0] == fused[1], number
    assert unsearched > 20
    assert found > 5


def test_what_is_wrong_is_seen() -> None:
    wanted = [np.zeros((2, 3), np.float32)]
    answers: dict[str, tuple[str, Any]] = {
        "right": ("ok", [np.zeros((2, 3), np.float32)]),
        "wrong values": ("ok", [np.ones((2, 3), np.float32)]),
        "wrong shape: (3, 2) for (2, 3)": ("ok", [np.zeros((3, 2), np.float32)]),
        "died: SIGKILL": apart(lambda: os.kill(os.getpid(), signal.SIGKILL)),  # no handler of the tests runs
        "error: KeyError: 'x'": apart(lambda: {}["x"]),
    }
    for said, answer in answers.items():
        assert verdict(wanted, answer) == said
    fine = dict.fromkeys(("onnxruntime", "openvino", "reference", "fix", "convert", "run"), "right")
    assert problems({**fine, "check": "nothing"}) == []
    assert problems({**fine, "check": "nothing", "openvino": "wrong values"}) == [
        "not foreseen: wrong values"
    ]
    assert problems({**fine, "check": "openvino.x", "fix": "wrong values"}) == ["fix: wrong values"]


def test_what_another_runtime_makes_of_a_model_is_seen() -> None:
    model, wanted = drawn(0), [np.zeros((2, 3), np.float32)]
    outcomes = {
        "right": Outcome(kind="ok", values=(np.zeros((2, 3), np.float32),)),
        "wrong values": Outcome(kind="ok", values=(np.ones((2, 3), np.float32),)),
        "rejected": Outcome(kind="rejected", text="no"),
        "crash: SIGABRT": Outcome(kind="crash", signal="SIGABRT"),
    }
    for said, outcome in outcomes.items():
        asked: list[Case] = []

        def ask(case: Case, outcome: Outcome = outcome, asked: list[Case] = asked) -> Outcome:
            asked.append(case)
            return outcome

        assert on_other(ask, model.model, model.feeds, wanted) == said
        assert asked[0].inputs == model.feeds
