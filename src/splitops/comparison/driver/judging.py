"""What an outcome says of an implementation: checked against what is specified of the case, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from splitops.comparison.records import Case, Expected, Outcome, Value, Verdict, Word
from splitops.errors import one_line
from splitops.models.verify import differ_by_rounding, difference

Rerun = Callable[[Path], Outcome | None]
"""Runs a model on an implementation that was right on the case; None where there is none."""

_ENDS: Final = {
    "crash": Word.CRASH,
    "hang": Word.HANG,
    "memory": Word.MEMORY,
    "protocol": Word.PROTOCOL,
    "adapter error": Word.ADAPTER_ERROR,
    "not applicable": Word.NOT_APPLICABLE,
}
_SAMPLE: Final = 16


def judge(case: Case, outcome: Outcome, rerun: Rerun) -> Verdict:
    """Say what an outcome means."""
    match outcome.kind:
        case "ok":
            return _of_values(case, outcome)
        case "inferred":
            return _of_shapes(case, outcome)
        case "accepted":
            return Verdict(word=Word.AGREES) if case.valid else _taken(case, "it is taken for valid")
        case "made":
            assert outcome.model is not None
            return _of_made(case, rerun(Path(outcome.model)))
    text = f"{outcome.error}: {outcome.text}" if outcome.error else outcome.text
    rejected = Word.REJECTS if case.valid else Word.AGREES
    word = rejected if outcome.kind == "rejected" else _ENDS[outcome.kind]
    return Verdict(word=word, detail=one_line(text, 500), stage=outcome.stage, signal=outcome.signal)


def _of_values(case: Case, outcome: Outcome) -> Verdict:
    shown = tuple(map(got, outcome.values, outcome.types))
    if case.expected is None:
        return Verdict(word=Word.WRONGLY_ACCEPTS, detail=f"it runs what breaks {case.error}", got=shown)
    problem = _difference(case, outcome)
    if problem is None:
        return Verdict(word=Word.AGREES)
    if not case.exact and _is_rounded(case, outcome):
        return Verdict(word=Word.AGREES, detail="equal but for the rounding of floats")
    return Verdict(word=Word.DIFFERS, detail=problem, got=shown)


def _is_rounded(case: Case, outcome: Outcome) -> bool:
    assert case.expected is not None
    pairs = zip(case.expected, outcome.values, strict=False)
    alike = len(outcome.values) == len(case.expected) and outcome.types == case.expected_types
    return alike and all(differ_by_rounding(ours, theirs) for ours, theirs in pairs)


def _of_shapes(case: Case, outcome: Outcome) -> Verdict:
    if case.expected is None:
        return _taken(case, "it infers shapes of what is invalid")
    shown = tuple({"inferred": None if dims is None else list(dims)} for dims in outcome.shapes)
    if len(outcome.shapes) != len(case.expected):
        detail = f"{len(outcome.shapes)} outputs, not {len(case.expected)}"
        return Verdict(word=Word.DIFFERS, detail=detail, got=shown)
    for name, dims, value in zip(case.outputs, outcome.shapes, case.expected, strict=True):
        if dims is not None and not isinstance(value, list) and not _may_be(dims, value.shape):
            detail = f"output {name!r} is inferred as {_dims(dims)}, and is {list(value.shape)}"
            return Verdict(word=Word.DIFFERS, detail=one_line(detail, 500), got=shown)
    return Verdict(word=Word.AGREES)


def _may_be(dims: Sequence[int | str | None], shape: Sequence[int]) -> bool:
    pairs = zip(dims, shape, strict=False)
    return len(dims) == len(shape) and all(not isinstance(dim, int) or dim == size for dim, size in pairs)


def _dims(dims: Sequence[int | str | None]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def _taken(case: Case, detail: str) -> Verdict:
    if case.evident:
        return Verdict(word=Word.WRONGLY_ACCEPTS, detail=f"{detail}, which breaks {case.error}")
    return Verdict(word=Word.NOT_APPLICABLE, detail="the model alone does not show that it is invalid")


def _of_made(case: Case, outcome: Outcome | None) -> Verdict:
    if outcome is None:
        return Verdict(word=Word.NOT_APPLICABLE, detail="no runtime that was right on the case is here")
    if case.expected is None and outcome.kind == "rejected":
        return Verdict(word=Word.AGREES)
    if outcome.kind == "ok":
        found = _of_values(case, outcome)
        word = {Word.WRONGLY_ACCEPTS: "what it made runs", Word.DIFFERS: "what it made gives another result"}
        detail = f"{word[found.word]}: {found.detail}" if found.word in word else ""
        return Verdict(word=found.word, detail=detail, got=found.got)
    detail = f"what it made does not run ({outcome.kind}): {outcome.text}"
    return Verdict(word=Word.DIFFERS, detail=one_line(detail, 500))


def _difference(case: Case, outcome: Outcome) -> str | None:
    assert case.expected is not None
    if len(outcome.values) != len(case.expected):
        return f"{len(outcome.values)} outputs, not {len(case.expected)}"
    rows = zip(case.outputs, case.expected, case.expected_types, outcome.values, outcome.types, strict=True)
    for name, ours, our_type, theirs, their_type in rows:
        problem = difference(ours, theirs, our_type, their_type)
        if problem is not None:
            return one_line(f"output {name!r}: {problem}", 500)
    return None


def same_values(a: Outcome, b: Outcome) -> bool:
    """Whether two outcomes have the same values, bit for bit."""
    rows = zip(a.values, a.types, b.values, b.types, strict=False)
    return len(a.values) == len(b.values) and all(
        difference(ours, theirs, our_type, their_type) is None for ours, our_type, theirs, their_type in rows
    )


def expected_of(case: Case) -> Expected:
    """Return what is specified of a case as it is shown: of an invalid one, the code of the rule."""
    if case.expected is None:
        return {"error": case.error or ""}
    return tuple(map(got, case.expected, case.expected_types))


def got(value: Value, kind: str) -> dict[str, Any]:
    """Return type, shape and first values of an output, as values for JSON."""
    if isinstance(value, list):
        return {"sequence": [_sample(part, kind) for part in value[:_SAMPLE]]}
    return _sample(value, kind)


def _sample(array: npt.NDArray[Any], kind: str) -> dict[str, Any]:
    first = array.ravel()[:_SAMPLE]
    return {"dtype": kind, "shape": list(array.shape), "sample": [_shown(value) for value in first]}


def _shown(value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating) and np.isfinite(value):
        return float(value)
    return one_line(str(value), 80)
