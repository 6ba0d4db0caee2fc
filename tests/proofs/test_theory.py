"""The sessions in ``proofs`` have a proof for each goal of their theories."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "dev" / "tools"))
import theory


@pytest.mark.parametrize("session", theory.THEORIES, ids=lambda session: session.name)
def test_a_session_proves_every_goal(session: Path) -> None:
    root = ET.parse(session / "why3session.xml").getroot()
    assert all(goal.get("proved") == "true" for goal in root.iter("goal"))
    proved = {goal.get("name") for goal in root.iter("goal")}
    for name in theory.THEORIES[session]:
        text = (session.parent / name).read_text()
        assert not re.search(r"\b(axiom|assume)\b", text)
        for kind, goal in re.findall(theory.GOAL, text):
            assert (goal if kind == "lemma" else f"{goal}'vc") in proved


def test_the_checks_that_mutants_change_are_in_the_theory() -> None:
    text = (theory.PROOFS / "split.mlw").read_text()
    for check, wrong in theory.MUTANTS.values():
        assert text.count(check) == 1
        assert wrong not in text
