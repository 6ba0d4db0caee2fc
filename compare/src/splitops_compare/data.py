"""The data classes of a comparison: cases, implementations, outcomes, verdicts and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final

import numpy.typing as npt

from splitops.errors import SplitError, count_of, shown
from splitops.extension import to_json_values

REQUIRED_REPEATS: Final = 2
"""Number of new processes that must repeat a finding before it is confirmed."""

Expected = tuple[Mapping[str, Any], ...] | Mapping[str, str]
Value = npt.NDArray[Any] | list[npt.NDArray[Any]]
"""An output: an array, or a list of arrays for a sequence."""


class CompareError(SplitError):
    """A comparison cannot run, or its report cannot be used: for example, a case is unknown."""


class VerdictKind(StrEnum):
    """The kinds of verdicts on an implementation and a case. ``reports.verdicts.MEANINGS`` explains them."""

    AGREES = "agrees"
    DIFFERS = "differs"
    REJECTS = "rejects"
    WRONGLY_ACCEPTS = "wrongly-accepts"
    CRASH = "crash"
    HANG = "hang"
    MEMORY = "memory"
    PROTOCOL = "protocol"
    ADAPTER_ERROR = "adapter-error"
    NO_RESULT = "no-result"
    NOT_APPLICABLE = "n/a"


FINDING_KINDS: Final = frozenset(
    set(VerdictKind) - {VerdictKind.AGREES, VerdictKind.NO_RESULT, VerdictKind.NOT_APPLICABLE}
)
"""The kinds of verdicts that are findings."""


class State(StrEnum):
    """The state of an implementation: whether it is installed, starts and passes valid cases."""

    OK = "ok"
    NO_RESULT = "no-result"
    """It started, but failed all valid cases that apply to it."""
    ABSENT = "absent"
    """It is not installed."""
    FAILED = "failed"
    """It did not start, or violated the protocol while it started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSpec:
    """The parameters from which the model and the inputs of a case are generated.

    Attributes:
        version: operator version; in IR the number of the opset.
        opset: opset that the model imports. None means ``version``.
        dynamic: whether the model declares the split axis without a size.
        lengths: value of the lengths input: a number, a list or a nested list; None if the node does not have
            the input.
        constant: whether the axis and lengths inputs of the node are constants of the model.
        outputs: names of the declared outputs. ``""`` omits one.
        special: another peculiarity of the model, a key of ``cases.models.SPECIALS``.
    """

    format: str = "onnx"
    operator: str
    version: int
    opset: int | None = None
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    dynamic: bool = False
    axis: int | None = None
    axis_dtype: str = "int64"
    axis_shape: tuple[int, ...] = ()
    lengths: Any = None
    lengths_dtype: str = "int64"
    constant: bool = True
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    special: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A model, its inputs, and the result that the specification requires.

    Attributes:
        operator: operator and version, such as ``"Split-18"`` or ``"openvino:VariadicSplit-1"``;
            ``"model"`` for a user's whole model.
        rule: code of the rule that an invalid case breaks, or name of the size rule of a valid one;
            ``"model"`` for a user's whole model.
        spec: the parameters that generate it; None for a user's whole model.
        model: content of the .onnx or .xml file.
        weights: content of the .bin file of an IR.
        types: name of the element type of each input.
        expected: values of the outputs, or None if the case is invalid.
        error: code of the rule that an invalid case breaks.
        evident: whether the model alone shows that it is invalid, so that a checker can reject it.
        baseline: id of the valid case that must pass before a rejection of this one counts.
        exact: whether floats must be equal bit for bit; False if other operators of the model may round.
    """

    id: str
    operator: str
    rule: str
    title: str
    spec: CaseSpec | None
    format: str = "onnx"
    model: bytes
    weights: bytes | None = None
    inputs: Mapping[str, npt.NDArray[Any]]
    types: Mapping[str, str]
    outputs: tuple[str, ...]
    expected: tuple[Value, ...] | None
    expected_types: tuple[str, ...] = ()
    error: str | None = None
    evident: bool = False
    baseline: str | None = None
    exact: bool = True

    @property
    def is_valid(self) -> bool:
        """Whether the case breaks no rule."""
        return self.expected is not None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The outcome of one case in one implementation.

    Attributes:
        kind: an outcome of ``schemas/messages.json``, or the fate of the process: ``"crash"``, ``"hang"``,
            ``"memory"`` or ``"protocol"``.
        shapes: inferred dimensions of each output.
        model: path of the model that a converter or simplifier wrote.
        stage: stage at which the implementation rejected the case.
        error: type of the exception, or ``"error"`` if there was none.
        text: message of the error, or another reason for the outcome.
        signal: signal that killed the process, such as ``"SIGSEGV"``.
    """

    kind: str
    values: tuple[Value, ...] = ()
    types: tuple[str, ...] = ()
    shapes: tuple[Sequence[int | str | None] | None, ...] = ()
    model: str | None = None
    stage: str | None = None
    error: str | None = None
    text: str = ""
    signal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one case in one implementation.

    Attributes:
        detail: reason, in one line.
        stage: stage at which the implementation rejected the case.
        signal: signal that killed the process.
        got: for wrong outputs, the type, shape and first values of each, or its inferred shape.
        confirmed: number of new processes that had this verdict when a finding was repeated, at most
            :data:`REQUIRED_REPEATS`.
        unstable: description of the results that differed when the finding was repeated, or None.
        shrunk: the smallest spec that was found with the same kind and signal, or None.
        limit: code of the limit of ``splitops check`` that documents the finding.
        known: link to the bug report of the implementation.
    """

    SPARSE: ClassVar = True

    kind: VerdictKind = field(metadata={"json": "verdict"})
    detail: str = ""
    stage: str | None = None
    signal: str | None = None
    got: tuple[Mapping[str, Any], ...] = ()
    confirmed: int = 0
    unstable: str | None = None
    shrunk: CaseSpec | None = None
    limit: str | None = None
    known: str | None = None

    @property
    def is_finding(self) -> bool:
        """Whether its kind is that of a finding, confirmed or not."""
        return self.kind in FINDING_KINDS

    @property
    def is_confirmed(self) -> bool:
        """Whether it is a confirmed finding."""
        return self.is_finding and self.confirmed >= REQUIRED_REPEATS

    @property
    def is_unconfirmed(self) -> bool:
        """Whether it is a finding that was not confirmed."""
        return self.is_finding and not self.is_confirmed

    @property
    def was_repeated(self) -> bool:
        """Whether a finding was run again. After an interruption, some findings were not."""
        return self.unstable is not None or self.confirmed > 0

    @property
    def identity(self) -> tuple[str, str | None]:
        """The kind and the signal: two verdicts on a case with the same identity are the same finding."""
        return self.kind.value, self.signal


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplementationInfo:
    """An implementation from one environment with one setting: a column of the report.

    Attributes:
        name: ``"onnxruntime"`` or ``"onnxruntime[threads=1]"``. If the adapter started more than once,
            ``@RELEASE`` follows the adapter, and ``#2`` and so on follow a repeated release.
        kind: one of :data:`splitops_compare.worker.KINDS`.
        versions: releases by package, the implementation's own first.
        setting: the requested values of settings.
        network: whether its processes had access to a network.
        detail: reason of the state, in one line.
    """

    name: str
    adapter: str
    kind: str = "runtime"
    formats: tuple[str, ...] = ("onnx",)
    versions: Mapping[str, str] = field(default_factory=dict)
    setting: Mapping[str, str] = field(default_factory=dict)
    network: bool = True
    state: State = State.OK
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case as the report shows it, with its verdicts keyed by implementation name.

    Attributes:
        expected: type, shape and first values of each output, or the code of the rule that is broken.
    """

    id: str
    operator: str
    format: str
    rule: str
    title: str
    valid: bool
    spec: CaseSpec | None = field(metadata={"json": "record"})
    expected: Expected
    baseline: str | None
    verdicts: Mapping[str, Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """The report of a comparison.

    Attributes:
        version: version of the JSON format.
        environment: splitops, Python, platform, time, network, and whether the comparison was interrupted.
        implementations: the columns.
        cases: the rows.
    """

    version: int = 1
    environment: Mapping[str, Any]
    implementations: tuple[ImplementationInfo, ...]
    cases: tuple[CaseResult, ...]

    def __repr__(self) -> str:
        implementations = count_of(len(self.implementations), "implementation")
        cases, findings = count_of(len(self.cases), "case"), count_of(len(self.findings), "finding")
        return f"ComparisonReport({implementations}, {cases}, {findings})"

    def to_json(self) -> dict[str, Any]:
        """Convert the report to JSON values that match ``schemas/report.json``."""
        return to_json_values(self)

    @property
    def findings(self) -> tuple[tuple[CaseResult, ImplementationInfo, Verdict], ...]:
        """All confirmed findings, each with its case and its implementation."""
        return tuple(
            (result, info, verdict)
            for result in self.cases
            for info in self.implementations
            if (verdict := result.verdicts.get(info.name)) is not None and verdict.is_confirmed
        )


def format_name(adapter: str, setting: Mapping[str, str]) -> str:
    """Format the name of an implementation with its setting: ``"onnxruntime[threads=1]"``."""
    if not setting:
        return adapter
    return f"{adapter}[{','.join(f'{key}={value}' for key, value in sorted(setting.items()))}]"


def parse_name(name: str) -> tuple[str, str]:
    """Split ``NAME@RELEASE[KEY=VALUE]`` into the adapter and the text of the setting."""
    adapter, _, setting = name.removesuffix("]").partition("[")
    return adapter.partition("@")[0], setting


def parse_setting(text: str) -> tuple[str, dict[str, str]]:
    """Parse an adapter and its setting from ``NAME=KEY=VALUE[,KEY=VALUE]``."""
    name, _, rest = text.partition("=")
    pairs = [pair.partition("=") for pair in rest.split(",")]
    if not name or not all(key and value for key, _, value in pairs):
        raise CompareError(f"a setting is NAME=KEY=VALUE[,KEY=VALUE], not {shown(text)}")
    return name, {key: value for key, _, value in pairs}
