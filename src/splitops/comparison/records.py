"""The data of a comparison: cases, implementations, outcomes, verdicts and the report, also as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final

import numpy.typing as npt

from splitops.errors import SplitError, count_of, shown
from splitops.ground.records import to_json_values

SETTLED: Final = 2
"""So many fresh processes must repeat a finding before it counts."""

Expected = tuple[Mapping[str, Any], ...] | Mapping[str, str]
Value = npt.NDArray[Any] | list[npt.NDArray[Any]]
"""An output: an array, or a list of arrays for a sequence."""


class CompareError(SplitError):
    """A comparison is impossible: an implementation does not start, a case is unknown, a report is broken."""


class Word(StrEnum):
    """What a comparison says of a case and an implementation; see ``reports.verdicts.MEANINGS``."""

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


FINDINGS: Final = frozenset(set(Word) - {Word.AGREES, Word.NO_RESULT, Word.NOT_APPLICABLE})
"""The words that say that something is wrong."""


class State(StrEnum):
    """The state of an implementation."""

    OK = "ok"
    NO_RESULT = "no-result"
    """It started, and no valid case passed."""
    ABSENT = "absent"
    """It is not installed."""
    FAILED = "failed"
    """It did not start, or does not speak the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What generates a case; smaller records are made from it.

    Attributes:
        version: of the operator; in IR the number of the opset.
        opset: what the model imports; None is ``version``.
        dynamic: whether the model leaves the size of the split axis open.
        lengths: a number for a scalar; None where they are left out or an attribute.
        constant: whether axis and lengths that are inputs are constants of the model.
        outputs: names of the declared outputs; ``""`` is one that is left out.
        special: what else is unusual of the model, a word of ``cases.building.SPECIALS``.
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
    """One question to every implementation, with what is specified of it.

    Attributes:
        operator: such as ``"Split-18"``, ``"openvino:VariadicSplit-1"``.
        rule: the rule code that it is about, or the name of the size rule.
        record: what generates it; None for a user's own model.
        model: content of the .onnx or .xml file; that of the .bin file is ``weights``.
        types: name of the element type of each input.
        expected: the values of the outputs; None where the case is invalid.
        error: code of the rule that it breaks.
        evident: whether the model alone shows that it is invalid, so that a checker can know.
        baseline: id of the valid case that must pass before a rejection of this one counts.
        exact: whether floats must not be rounded, as where other operators compute.
    """

    id: str
    operator: str
    rule: str
    title: str
    record: Record | None
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
    def valid(self) -> bool:
        """Whether the case is valid."""
        return self.expected is not None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What an implementation did with a case.

    Attributes:
        kind: what it answered (see ``schemas/messages.json``), or the result of its process: ``"crash"``,
            ``"hang"``, ``"memory"`` or ``"protocol"``.
        shapes: the inferred dimensions of each output.
        model: path of the model that it made.
        stage: where it rejected.
        text: the message of its error, or what is wrong.
        signal: that ended the process, such as ``"SIGSEGV"``.
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
    """What is said of a case and an implementation.

    Attributes:
        detail: why, in one line.
        stage: where it rejected.
        signal: that ended the process.
        got: type, shape and first values of each output.
        confirmed: so many fresh processes gave the same; a finding counts from :data:`SETTLED` on.
        unstable: what was seen once, and not alone.
        shrunk: the smallest record on which it does the same.
        limit: code of the limit in the profiles of ``check`` that says this.
        known: link to the report upstream.
    """

    SPARSE: ClassVar = True

    word: Word = field(metadata={"json": "verdict"})
    detail: str = ""
    stage: str | None = None
    signal: str | None = None
    got: tuple[Mapping[str, Any], ...] = ()
    confirmed: int = 0
    unstable: str | None = None
    shrunk: Record | None = None
    limit: str | None = None
    known: str | None = None

    @property
    def counts(self) -> bool:
        """Whether it is a finding that was confirmed."""
        return self.is_finding and self.confirmed >= SETTLED

    @property
    def is_finding(self) -> bool:
        """Whether it says that something is wrong, confirmed or not."""
        return self.word in FINDINGS

    @property
    def is_unsure(self) -> bool:
        """Whether it would be a finding, had it been seen again."""
        return self.is_finding and not self.counts

    @property
    def is_asked_again(self) -> bool:
        """Whether a finding was asked again; one of a comparison that was interrupted may not be."""
        return self.unstable is not None or self.confirmed > 0

    @property
    def kind(self) -> tuple[str, str | None]:
        """What must repeat for it to be the same finding: the word and the signal."""
        return self.word.value, self.signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A column of the report: one implementation of one environment with one setting.

    Attributes:
        name: ``"onnxruntime"``, ``"onnxruntime[threads=1]"``; with ``@release`` where there are several.
        kind: one of :data:`splitops.comparison.worker.KINDS`.
        versions: releases by name, its own first.
        setting: what differs from the defaults.
        network: whether its processes could reach a network.
        detail: why it is in its state, in one line.
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
class Entry:
    """A row of the report: a case as it is shown, and the verdicts by the name of the implementation.

    What is expected is type, shape and first values of each output, or the code of the rule that is broken.
    """

    id: str
    operator: str
    format: str
    rule: str
    title: str
    valid: bool
    record: Record | None
    expected: Expected
    baseline: str | None
    verdicts: Mapping[str, Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a comparison has found.

    Attributes:
        version: of the format in which it is written.
        environment: splitops, Python, platform, time; whether the comparison was stopped before its end.
        peers: the columns.
        entries: the rows.
    """

    version: int = 1
    environment: Mapping[str, Any]
    peers: tuple[Peer, ...] = field(metadata={"json": "implementations"})
    entries: tuple[Entry, ...] = field(metadata={"json": "cases"})

    def __repr__(self) -> str:
        cases, findings = count_of(len(self.entries), "case"), count_of(len(self.findings), "finding")
        return f"Report({count_of(len(self.peers), 'implementation')}, {cases}, {findings})"

    def to_json(self) -> dict[str, Any]:
        """Return it as values for JSON; ``schemas/report.json`` holds it."""
        return to_json_values(self)

    @property
    def findings(self) -> tuple[tuple[Entry, Peer, Verdict], ...]:
        """All confirmed findings."""
        return tuple(
            (entry, peer, verdict)
            for entry in self.entries
            for peer in self.peers
            if (verdict := entry.verdicts.get(peer.name)) is not None and verdict.counts
        )


def column(name: str, setting: Mapping[str, str]) -> str:
    """Return the name of an implementation with a setting: ``"onnxruntime[threads=1]"``."""
    if not setting:
        return name
    return f"{name}[{','.join(f'{key}={value}' for key, value in sorted(setting.items()))}]"


def parse_column(name: str) -> tuple[str, str]:
    """Return the implementation of a column such as ``NAME[KEY=VALUE]``, and its setting as it is written."""
    peer, _, setting = name.removesuffix("]").partition("[")
    return peer.partition("@")[0], setting


def parse_setting(text: str) -> tuple[str, dict[str, str]]:
    """Read the name of an implementation and a setting of it, ``NAME=KEY=VALUE[,KEY=VALUE]``."""
    name, _, rest = text.partition("=")
    pairs = [pair.partition("=") for pair in rest.split(",")]
    if not name or not all(key and value for key, _, value in pairs):
        raise CompareError(f"a setting is NAME=KEY=VALUE[,KEY=VALUE], not {shown(text)}")
    return name, {key: value for key, _, value in pairs}
