"""A finding counts once two fresh processes have done the same, with other bytes in new memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from splitops.comparison.driver.judging import same_values
from splitops.comparison.records import SETTLED, Outcome, Verdict, Word

Again = Callable[[int], tuple[Verdict, Outcome]]
"""Asks the case in a fresh process, with one of the perturbations."""


def confirmed(verdict: Verdict, outcome: Outcome, again: Again) -> Verdict:
    """Ask a finding twice more, alone, and return what is then to be said.

    Args:
        verdict: what is said of the case so far.
        outcome: what the implementation did.
        again: asks in the fresh process of a number, from 0 on.
    """
    alone = [again(index) for index in range(SETTLED)]
    repeated = sum(found.kind == verdict.kind for found, _ in alone)
    if repeated == SETTLED:
        moves = any(not same_values(outcome, other) for _, other in alone)
        if moves and verdict.word in (Word.DIFFERS, Word.WRONGLY_ACCEPTS):
            detail = (
                f"{verdict.detail}; the values change with what is in memory: it reads outside the tensor"
            )
            verdict = replace(verdict, detail=detail)
        return replace(verdict, confirmed=SETTLED)
    first, second = (found for found, _ in alone)
    if first.kind == second.kind:
        # Damage of a case before it, most likely.
        return replace(first, confirmed=SETTLED, unstable=f"{_said(verdict)} once, after other cases")
    return replace(verdict, confirmed=repeated, unstable=f"alone: {_said(first)}, then {_said(second)}")


def _said(verdict: Verdict) -> str:
    return f"{verdict.word} ({verdict.signal})" if verdict.signal else verdict.word.value
