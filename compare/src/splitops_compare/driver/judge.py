"""Judges outcomes by comparing them with the specified results, bit for bit unless a case allows rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.errors import one_line
from splitops.models.verify import differ_by_rounding, difference
from splitops_compare.data import Case, Expected, Outcome, Value, Verdict, VerdictKind

Rerun = Callable[[Path], Outcome | None]
"""Function that runs a model on a runtime that agreed on the case, or returns None if there is none."""

_KINDS: Final = {
    "crash": VerdictKind.CRASH,
    "hang": VerdictKind.HANG,
    "memory": VerdictKind.MEMORY,
    "protocol": VerdictKind.PROTOCOL,
    "adapter error": VerdictKind.ADAPTER_ERROR,
    "not applicable": VerdictKind.NOT_APPLICABLE,
}
_SAMPLE: Final = 16


def judge(case: Case, outcome: Outcome, rerun: Rerun) -> Verdict:
    """Judge the outcome of a case. ``rerun`` runs the model that a converter or simplifier wrote."""
    match outcome.kind:
        case "ok":
            return _judge_values(case, outcome)
        case "inferred":
            return _judge_shapes(case, outcome)
        case "accepted":
            return (
                Verdict(kind=VerdictKind.AGREES)
                if case.is_valid
                else _judge_acceptance(case, "it accepts the model")
            )
        case "made":
            assert outcome.model is not None
            return _judge_made_model(case, rerun(Path(outcome.model)))
    text = f"{outcome.error}: {outcome.text}" if outcome.error else outcome.text
    rejected = VerdictKind.REJECTS if case.is_valid else VerdictKind.AGREES
    kind = rejected if outcome.kind == "rejected" else _KINDS[outcome.kind]
    return Verdict(kind=kind, detail=one_line(text, 500), stage=outcome.stage, signal=outcome.signal)


def _judge_values(case: Case, outcome: Outcome) -> Verdict:
    got = tuple(map(sample_output, outcome.values, outcome.types))
    if case.expected is None:
        return Verdict(
            kind=VerdictKind.WRONGLY_ACCEPTS, detail=f"it runs, but the case breaks {case.error}", got=got
        )
    problem = _find_difference(case, outcome)
    if problem is None:
        return Verdict(kind=VerdictKind.AGREES)
    if not case.exact and _is_rounded(case, outcome):
        return Verdict(kind=VerdictKind.AGREES, detail="equal except for the rounding of floats")
    return Verdict(kind=VerdictKind.DIFFERS, detail=problem, got=got)


def _is_rounded(case: Case, outcome: Outcome) -> bool:
    assert case.expected is not None
    pairs = zip(case.expected, outcome.values, strict=False)
    comparable = len(outcome.values) == len(case.expected) and outcome.types == case.expected_types
    return comparable and all(differ_by_rounding(expected, got) for expected, got in pairs)


def _judge_shapes(case: Case, outcome: Outcome) -> Verdict:
    if case.expected is None:
        return _judge_acceptance(case, "it infers shapes of an invalid split")
    got = tuple({"inferred": None if dims is None else list(dims)} for dims in outcome.shapes)
    if len(outcome.shapes) != len(case.expected):
        detail = f"{len(outcome.shapes)} outputs, not {len(case.expected)}"
        return Verdict(kind=VerdictKind.DIFFERS, detail=detail, got=got)
    for name, dims, value in zip(case.outputs, outcome.shapes, case.expected, strict=True):
        if dims is not None and not isinstance(value, list) and not _may_equal(dims, value.shape):
            detail = f"output {name!r} is inferred as {_format_dims(dims)}, and is {list(value.shape)}"
            return Verdict(kind=VerdictKind.DIFFERS, detail=one_line(detail, 500), got=got)
    return Verdict(kind=VerdictKind.AGREES)


def _may_equal(dims: Sequence[int | str | None], shape: Sequence[int]) -> bool:
    pairs = zip(dims, shape, strict=False)
    return len(dims) == len(shape) and all(not isinstance(dim, int) or dim == size for dim, size in pairs)


def _format_dims(dims: Sequence[int | str | None]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def _judge_acceptance(case: Case, detail: str) -> Verdict:
    """Judge an implementation that accepts a model without running it."""
    if case.is_valid:
        return Verdict(kind=VerdictKind.AGREES)
    if case.evident:
        return Verdict(kind=VerdictKind.WRONGLY_ACCEPTS, detail=f"{detail}, which breaks {case.error}")
    return Verdict(kind=VerdictKind.NOT_APPLICABLE, detail="the model alone does not show that it is invalid")


def _judge_made_model(case: Case, outcome: Outcome | None) -> Verdict:
    if outcome is None:
        return Verdict(kind=VerdictKind.NOT_APPLICABLE, detail="no installed runtime agrees on the case")
    if case.expected is None and outcome.kind == "rejected":
        return Verdict(kind=VerdictKind.AGREES)
    if outcome.kind == "ok":
        verdict = _judge_values(case, outcome)
        texts = {
            VerdictKind.WRONGLY_ACCEPTS: "its model runs",
            VerdictKind.DIFFERS: "its model returns another result",
        }
        detail = f"{texts[verdict.kind]}: {verdict.detail}" if verdict.kind in texts else ""
        return Verdict(kind=verdict.kind, detail=detail, got=verdict.got)
    detail = f"its model does not run ({outcome.kind}): {outcome.text}"
    return Verdict(kind=VerdictKind.DIFFERS, detail=one_line(detail, 500))


def _find_difference(case: Case, outcome: Outcome) -> str | None:
    assert case.expected is not None
    if len(outcome.values) != len(case.expected):
        return f"{len(outcome.values)} outputs, not {len(case.expected)}"
    rows = zip(case.outputs, case.expected, case.expected_types, outcome.values, outcome.types, strict=True)
    for name, expected, expected_type, got, got_type in rows:
        problem = difference(expected, got, expected_type, got_type)
        if problem is not None:
            return one_line(f"output {name!r}: {problem}", 500)
    return None


def have_same_values(first: Outcome, second: Outcome) -> bool:
    """Return whether the outputs of two outcomes have equal types, shapes and bits.

    Shapes that were only inferred are ignored.
    """
    rows = zip(first.values, first.types, second.values, second.types, strict=False)
    return len(first.values) == len(second.values) and all(
        difference(left, right, left_type, right_type) is None for left, left_type, right, right_type in rows
    )


def sample_expected(case: Case) -> Expected:
    """Return samples of the expected outputs, or ``{"error": CODE}`` if the case breaks the rule CODE."""
    if case.expected is None:
        return {"error": case.error or ""}
    return tuple(map(sample_output, case.expected, case.expected_types))


def sample_output(value: Value, kind: str) -> dict[str, Any]:
    """Return the type ``kind``, the shape and the first values of an output as JSON values.

    A sequence is sampled by its first elements.
    """
    if isinstance(value, list):
        return {"sequence": [_sample(part, kind) for part in value[:_SAMPLE]]}
    return _sample(value, kind)


def _sample(array: npt.NDArray[Any], kind: str) -> dict[str, Any]:
    first = array.ravel()[:_SAMPLE]
    return {"dtype": kind, "shape": list(array.shape), "sample": [_to_json(value) for value in first]}


def _to_json(value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating) and np.isfinite(value):
        return float(value)
    return one_line(str(value), 80)
