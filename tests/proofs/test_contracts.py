"""The claims on the size arithmetic are confirmed, and a mutant of each rule is refuted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("z3", reason="the claims need z3-solver: pip install splitops[prove]")

sys.path.insert(0, str(Path(__file__).parents[2] / "proofs"))
import contracts
import symbolic
from contracts import CLAIMS, MUTANTS, prove, refuted
from symbolic import Verdict, confirm, whole

QUICK = [claim.words for claim in CLAIMS if ", sizes from lo" not in claim.words]
"""The claims on ranges take minutes: ``tasks.py prove`` has all."""


@pytest.mark.parametrize("words", QUICK, ids=lambda words: words.replace(" ", "-")[:30])
def test_a_claim_is_confirmed(words: str) -> None:
    ((_, outcome),) = prove(only=words)
    assert outcome.verdict is Verdict.CONFIRMED, outcome


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant[0]}-{mutant[3]}".replace(" ", "-"))
def test_a_mutant_is_refuted(mutant: tuple[str, str, str, str]) -> None:
    assert refuted(*mutant) is not None


def test_the_page_lists_every_claim() -> None:
    page = (Path(__file__).parents[2] / "docs" / "proof.md").read_text()
    for claim in CLAIMS:
        assert f"| {claim.words} | {claim.bound or 'none'} |" in page


def test_a_false_claim_is_refuted_with_numbers() -> None:
    outcome = confirm(lambda: whole("a", 1) // 2 < 10)
    assert outcome.verdict is Verdict.REFUTED
    assert outcome.example.startswith("a = ")


def test_every_path_is_run() -> None:
    seen = set()

    def claim() -> bool:
        a = whole("a", 0, 3)
        seen.add(2 if a == 2 else a.__index__())
        return True

    assert confirm(claim).verdict is Verdict.CONFIRMED
    assert seen == {0, 1, 2, 3}


def test_what_cannot_be_decided_is_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolic, "STEPS", 1)
    (claim,) = (claim for claim in contracts.CLAIMS if claim.words.startswith("CEIL: the chunk"))
    assert next(claim.outcomes()).verdict is not Verdict.CONFIRMED
