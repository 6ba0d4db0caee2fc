"""A report that nobody measured: as many cases and implementations as wanted, with every word in it."""

from __future__ import annotations

import random
from typing import Any

import splitops
from splitops_compare import ComparisonReport
from splitops_compare.data import CaseResult, CaseSpec, ImplementationInfo, State, Verdict, VerdictKind

_WORDS = (
    VerdictKind.DIFFERS,
    VerdictKind.REJECTS,
    VerdictKind.CRASH,
    VerdictKind.HANG,
    VerdictKind.MEMORY,
    VerdictKind.PROTOCOL,
    VerdictKind.ADAPTER_ERROR,
)
_NAMES = (
    "onnxruntime",
    "openvino",
    "opencv",
    "onnx-reference",
    "tinygrad",
    "tract",
    "iree",
    "mnn",
    "tvm",
    "ncnn",
)
_RULES = {"lengths.sum": [1, 1], "lengths.negative": [-1, 4]}


def report(cases: int = 30, peers: int = 5, seed: int = 0) -> ComparisonReport:
    """A report of this size; equal arguments give equal reports."""
    chance = random.Random(seed)
    columns = tuple(_peer(index) for index in range(peers))
    return ComparisonReport(
        environment={"splitops": splitops.__version__, "python": "3.11.9", "platform": "Linux x86_64"},
        implementations=columns,
        cases=tuple(_entry(index, cases, columns, chance) for index in range(cases)),
    )


def _peer(index: int) -> ImplementationInfo:
    name = _NAMES[index % len(_NAMES)]
    setting = {"threads": "1"} if index >= len(_NAMES) else {}
    return ImplementationInfo(
        name=f"{name}[threads=1]" if setting else name,
        adapter=name,
        versions={name: f"{index}.4.1", "numpy": "2.4.6"},
        setting=setting,
        network=index % 7 == 6,
        state=State.OK,
    )


def _entry(
    index: int, cases: int, peers: tuple[ImplementationInfo, ...], chance: random.Random
) -> CaseResult:
    dtype = chance.choice(("float32", "int64", "float16", "string"))
    size, parts = 3 + index % 9, 2 + index // 9 % 4
    rule = ("ceil", "ceil", "ceil", *_RULES)[index % 5]
    invalid = rule in _RULES
    record = CaseSpec(
        operator="Split",
        version=18,
        dtype=dtype,
        shape=(2, size, 3) if index % 3 else (size,),
        axis=1 if index % 3 else 0,
        lengths=_RULES.get(rule),
        attributes={} if invalid else {"num_outputs": parts},
        outputs=tuple("abcdefgh"[: 2 if invalid else parts]),
    )
    name = f"split-18/{rule}/{size}-into-{parts}/{dtype}/static-{index}"
    expected = (
        {"error": rule} if invalid else tuple(_part(dtype, [2, size // parts], 0) for _ in range(parts))
    )
    return CaseResult(
        id=name,
        operator="Split-18" if index < cases / 2 else "Split-13",
        format="onnx",
        rule=rule,
        title=f"{size} into {parts} of {dtype}",
        valid=not invalid,
        spec=record,
        expected=expected,
        baseline=f"split-18/baseline/{index}" if invalid else None,
        verdicts={peer.name: _verdict(invalid, dtype, record, chance) for peer in peers},
    )


def _part(dtype: str, shape: list[int], first: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "sample": [first, first + 1, first + 2]}


def _verdict(invalid: bool, dtype: str, record: CaseSpec, chance: random.Random) -> Verdict:
    if chance.random() < 0.85:
        return Verdict(kind=VerdictKind.AGREES)
    if chance.random() < 0.3:
        return Verdict(
            kind=chance.choice((VerdictKind.NO_RESULT, VerdictKind.NOT_APPLICABLE)),
            detail="strings are not claimed",
        )
    word = VerdictKind.WRONGLY_ACCEPTS if invalid and chance.random() < 0.5 else chance.choice(_WORDS)
    return Verdict(
        kind=word,
        detail="[ONNXRuntimeError] : 1 : FAIL : Node (split) Op (Split) [ShapeInferenceError] 'axis'",
        stage="load" if word is VerdictKind.REJECTS else None,
        signal="SIGSEGV" if word is VerdictKind.CRASH else None,
        got=(_part(dtype, [2, 1], 0), _part(dtype, [2, 2], 7)) if word is VerdictKind.DIFFERS else (),
        confirmed=0 if chance.random() < 0.1 else 2,
        shrunk=record if chance.random() < 0.5 else None,
        known="https://github.com/onnx/onnx/issues/5766" if chance.random() < 0.2 else None,
    )
