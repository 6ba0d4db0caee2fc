"""Every version, element type, shape and form of lengths, against onnx's own evaluator and onnxruntime.

A disagreement is in DISAGREEMENTS with its reason. Each entry names the cases in which a runtime says
something else than splitops, all of which must do so: when one begins to agree, its entry fails.
"""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import splitops
from splitops.errors import RuleError
from splitops.spec import ElementType, OperatorSchema, history

sys.path.insert(0, str(Path(__file__).parent))
from onnxruntime_worker import send

run = partial(splitops.run, engine="reference")

OPSETS = {("Split", 1): 1, ("Split", 2): 10, ("Split", 11): 12, ("Split", 13): 17, ("Split", 18): 23}
OPSETS |= {("SplitToSequence", 11): 23, ("SplitToSequence", 24): 24}
"""The opset at which each version is run: the newest that selects it and that onnxruntime knows."""


@dataclass(frozen=True)
class Case:
    """One node on one array."""

    schema: OperatorSchema
    type: ElementType
    shape: tuple[int, ...]
    axis: int
    form: str
    attributes: dict[str, Any]
    split: np.ndarray[Any, Any] | None = None
    outputs: int = 1

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.schema} {self.type} {shape}@{self.axis} {self.form}"

    def data(self) -> np.ndarray[Any, Any]:
        count = int(np.prod(self.shape))
        values = np.arange(count)
        match self.type.name:
            case "string":
                flat = np.array([f"s{i}" for i in range(count)], object)
            case "bool":
                flat = values % 3 == 1
            case "int64" | "uint64":
                flat = (values + 2**62 + 1).astype(self.type.numpy)
            case "complex64" | "complex128":
                flat = (values * (1 - 2j)).astype(self.type.numpy)
            case _:
                flat = values.astype(self.type.numpy)
        return flat.reshape(self.shape)

    def model(self) -> onnx.ModelProto:
        schema = self.schema
        names = ["x"] if self.split is None else ["x", "split"]
        outputs = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(schema.name, names, outputs, axis=self.axis, **self.attributes)
        number = self.type.onnx_number
        if schema.gives_sequence:
            results = [helper.make_tensor_sequence_value_info("y0", number, None)]
        else:
            results = [helper.make_tensor_value_info(name, number, None) for name in outputs]
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", number, [None] * len(self.shape))],
            results,
            [] if self.split is None else [numpy_helper.from_array(self.split, "split")],
        )
        opset = OPSETS[schema.name, schema.since_version]
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _lengths(schema: OperatorSchema, lengths: list[int], dtype: Any = np.int64) -> dict[str, Any]:
    """State explicit lengths as the version takes them."""
    if schema.attribute("split") is not None:
        return {"attributes": {"split": lengths}, "outputs": len(lengths)}
    count = 1 if schema.gives_sequence else len(lengths)
    return {"attributes": {}, "split": np.array(lengths, dtype), "outputs": count}


def _forms(schema: OperatorSchema, size: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every form of lengths on an axis of some size, valid and not."""
    explicit = {
        "whole": [size],
        "halves": [size // 2, size - size // 2],
        "empty first": [0, size],
        "empty last": [size, 0],
        "short": [size - 1] if size else [1, 0],
        "long": [size, 1],
        "negative": [size + 1, -1],
    }
    for name, lengths in explicit.items():
        yield f"lengths {name}", _lengths(schema, lengths)
    if schema.since_version == 1:
        as_input = {"attributes": {}, "split": np.array([1, size - 1], np.float32), "outputs": 2}
        yield "lengths as float input", as_input
    if not schema.gives_sequence and schema.since_version >= 13:
        yield "lengths scalar", {"attributes": {}, "split": np.array(size), "outputs": 1}
        yield "lengths 2-D", {"attributes": {}, "split": np.array([[size]]), "outputs": 1}
        yield "lengths too few", {"attributes": {}, "split": np.array([size]), "outputs": 2}
    if schema.attribute("num_outputs") is not None:
        for count in (1, 2, 3, 4, 5, size + 1):
            yield f"ceil {count}", {"attributes": {"num_outputs": count}, "outputs": count}
        yield "ceil fewer declared", {"attributes": {"num_outputs": 3}, "outputs": 2}
        yield "ceil more declared", {"attributes": {"num_outputs": 2}, "outputs": 3}
        yield "ceil 0", {"attributes": {"num_outputs": 0}, "outputs": 1}
        yield "neither", {"attributes": {}, "outputs": 2}
        both = {"attributes": {"num_outputs": 1}, "split": np.array([size]), "outputs": 1}
        yield "both", both
    elif not schema.gives_sequence:
        for count in (1, 2, 4):
            yield f"even {count}", {"attributes": {}, "outputs": count}
    else:
        for chunk in (1, 2, 4, size + 1, 0, -1):
            for dtype in (np.int32, np.int64):
                yield f"chunk {chunk} {dtype.__name__}", {"attributes": {}, "split": np.array(chunk, dtype)}
        yield "lengths halves int32", _lengths(schema, explicit["halves"], np.int32)
        yield "lengths none", _lengths(schema, [])
        for keepdims in (0, 1):
            yield f"keepdims {keepdims}", {"attributes": {"keepdims": keepdims}}
        yield (
            "keepdims 0 with lengths",
            {
                "attributes": {"keepdims": 0},
                "split": np.array([1] * size, np.int64),
            },
        )


PLACES = [
    ((6, 4), 0),
    ((6,), 0),
    ((6, 4), -1),
    ((2, 5, 3), 1),
    ((0,), 0),
    ((3, 0), 0),
    ((1, 7), 1),
    ((2, 2), 2),
]
"""Shapes and axes; the last axis is out of range."""
FORMS_OF_EVERY_TYPE = ("lengths halves", "even 2", "ceil 4", "chunk 4 int64")


def _cases() -> Iterator[Case]:
    for schema in (*history("Split"), *history("SplitToSequence")):
        for element_type in sorted(schema.types_of(schema.inputs[0]), key=str):
            every = element_type.name == "float32"
            for shape, axis in PLACES if every else PLACES[:1]:
                size = shape[axis] if axis < len(shape) else 2
                for form, fields in _forms(schema, size):
                    if every or form in FORMS_OF_EVERY_TYPE:
                        yield Case(schema, element_type, shape, axis, form, **fields)


CASES = {str(case): case for case in _cases()}


@dataclass(frozen=True)
class Outcome:
    """What a runtime makes of a case: ``outputs``, ``error``, ``unsupported`` or ``crash``."""

    kind: str
    detail: Any = None

    def agrees(self, other: Outcome) -> bool:
        if "outputs" not in (self.kind, other.kind):
            return self.kind == other.kind
        return self.kind == other.kind and _same(self.detail, other.detail)


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list) or isinstance(theirs, list):
        return (
            isinstance(ours, list)
            and isinstance(theirs, list)
            and len(ours) == len(theirs)
            and all(map(_same, ours, theirs))
        )
    return bool(
        ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.tolist() == theirs.tolist()
    )


def ours(case: Case) -> Outcome:
    try:
        return Outcome("outputs", list(run(case.model(), {"x": case.data()}).values()))
    except RuleError as error:
        return Outcome("error", str(error))


def reference(case: Case) -> Outcome:
    try:
        return Outcome("outputs", ReferenceEvaluator(case.model()).run(None, {"x": case.data()}))
    except Exception as error:
        return Outcome("error", repr(error))


class OnnxRuntime:
    """A worker process; one that a case ends is started again for the next."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def __call__(self, case: Case) -> Outcome:
        if self.process is None:
            worker = Path(__file__).with_name("onnxruntime_worker.py")
            self.process = subprocess.Popen(
                [sys.executable, str(worker)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            send(self.process.stdin, (case.model().SerializeToString(), {"x": case.data()}))
            return Outcome(*pickle.load(self.process.stdout))
        except (EOFError, BrokenPipeError):
            code = self.process.wait()
            self.close()
            return Outcome("crash", code)

    def close(self) -> None:
        if self.process is not None:
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
            self.process.wait()
            self.process = None


@dataclass(frozen=True)
class Disagreement:
    """Cases in which a runtime says something else than splitops, all for one reason."""

    runtime: str
    reason: str
    they: str
    cases: frozenset[str]


def _named(operators: str, forms: str, places: str, types: str = "float32") -> frozenset[str]:
    """Return the names of all combinations; forms are separated by commas, the rest by spaces."""
    parts = operators.split(), types.split(), places.split(), [form.strip() for form in forms.split(",")]
    return frozenset(map(" ".join, itertools.product(*parts)))


def _of(*operators: str) -> frozenset[str]:
    return frozenset(name for name in CASES if name.split()[0] in operators)


VALID = "6x4@0 6@0 6x4@-1 2x5x3@1 0@0 3x0@0 1x7@1"
SEQUENCES = "SplitToSequence-11 SplitToSequence-24"
UNEVEN_BY_4 = "6x4@0 6@0 2x5x3@1 3x0@0 1x7@1"
UNEVEN_BY_2 = "2x5x3@1 3x0@0 1x7@1"
NUMBERS = "bool float16 float64 int16 int32 int64 int8 string uint16 uint32 uint64 uint8"

DISAGREEMENTS = [
    Disagreement(
        "onnx",
        "has no implementation of Split-1",
        "error",
        frozenset(name for name in _of("Split-1") if ours(CASES[name]).kind == "outputs"),
    ),
    Disagreement(
        "onnx",
        "slices without looking whether lengths are >= 0 and sum to the axis",
        "outputs",
        _named("Split-2 Split-11 Split-13 Split-18", "lengths short, lengths long, lengths negative", VALID)
        | _named(SEQUENCES, "lengths short, lengths long, lengths negative", VALID)
        | _named(SEQUENCES, "chunk -1 int32, chunk -1 int64", VALID)
        | _named(SEQUENCES, "lengths none", VALID.replace("0@0 3x0", "3x0") + " 2x2@2"),
    ),
    Disagreement(
        "onnx",
        "makes unequal parts before opset 18, where parts must be equal",
        "outputs",
        _named("Split-2 Split-11 Split-13", "even 4", UNEVEN_BY_4)
        | _named("Split-2 Split-11 Split-13", "even 2", UNEVEN_BY_2),
    ),
    Disagreement(
        "onnx",
        "does not look whether exactly one of split and num_outputs >= 1 is given",
        "outputs",
        _named("Split-18", "neither, both, ceil 0", VALID),
    ),
    Disagreement(
        "onnxruntime",
        "has no kernel for Split-1",
        "unsupported",
        frozenset(name for name in _of("Split-1") if " float16 " not in name),
    ),
    Disagreement(
        "onnxruntime",
        "does not list float16 for Split-1",
        "error",
        frozenset(name for name in _of("Split-1") if " float16 " in name),
    ),
    Disagreement(
        "onnxruntime",
        "has no complex tensors",
        "error",
        frozenset(name for name in CASES if " complex" in name),
    ),
    Disagreement(
        "onnxruntime",
        "takes no bfloat16 arrays from Python",
        "error",
        frozenset(name for name in _of("Split-13", "Split-18") if " bfloat16 " in name),
    ),
    Disagreement(
        "onnxruntime",
        "has no SplitToSequence kernel for these types",
        "unsupported",
        _named(SEQUENCES, "lengths halves, chunk 4 int64", "6x4@0", "int8 int16 uint8 uint16 uint32 uint64")
        | _named("SplitToSequence-24", "lengths halves, chunk 4 int64", "6x4@0", "bfloat16"),
    ),
    Disagreement(
        "onnxruntime",
        "rejects num_outputs whose parts reach beyond the axis",
        "error",
        _named("Split-18", "ceil 4", "2x5x3@1") | _named("Split-18", "ceil 5", "6x4@0 6@0 3x0@0 1x7@1"),
    ),
    Disagreement(
        "onnxruntime",
        "rejects fewer outputs than num_outputs says",
        "error",
        _named("Split-18", "ceil fewer declared", VALID),
    ),
    Disagreement(
        "onnxruntime",
        "divides by the declared outputs where nothing says how many there are",
        "outputs",
        _named("Split-18", "neither", "6x4@0 6@0 6x4@-1 0@0"),
    ),
    Disagreement(
        "onnxruntime",
        "cannot infer the shape of empty lengths",
        "error",
        _named(SEQUENCES, "lengths none, keepdims 0 with lengths", "0@0"),
    ),
]


@pytest.fixture(scope="module")
def onnxruntime() -> Iterator[OnnxRuntime]:
    pytest.importorskip("onnxruntime")
    worker = OnnxRuntime()
    yield worker
    worker.close()


def _compare(runtime: str, they: Callable[[Case], Outcome]) -> list[str]:
    """Return every case in which the table and the runtime differ, in words."""
    expected = {name: entry for entry in DISAGREEMENTS if entry.runtime == runtime for name in entry.cases}
    problems = [f"{name}: there is no such case" for name in expected.keys() - CASES.keys()]
    for name, case in CASES.items():
        we, others = ours(case), they(case)
        entry = expected.get(name)
        if entry is None and not we.agrees(others):
            problems.append(f"{name}: splitops gives {we}, {runtime} gives {others}")
        elif entry is not None and we.agrees(others):
            problems.append(f"{name}: agrees now; its entry was {entry.reason!r}")
        elif entry is not None and others.kind != entry.they:
            problems.append(f"{name}: the entry says {entry.they}, but {runtime} gives {others}")
    return problems


def test_onnx_reference_evaluator() -> None:
    assert _compare("onnx", reference) == []


def test_onnxruntime(onnxruntime: OnnxRuntime) -> None:
    assert _compare("onnxruntime", onnxruntime) == []


def test_no_case_has_two_reasons() -> None:
    for runtime in ("onnx", "onnxruntime"):
        names = [name for entry in DISAGREEMENTS if entry.runtime == runtime for name in entry.cases]
        assert len(names) == len(set(names))


def test_the_cases_cover_the_family() -> None:
    covered = {(str(case.schema), case.type) for case in CASES.values()}
    rows = [*history("Split"), *history("SplitToSequence")]
    assert covered == {(str(row), t) for row in rows for t in row.types_of(row.inputs[0])}
    assert {OPSETS[row.name, row.since_version] for row in rows} <= set(range(1, 29))
    outcomes = [ours(case).kind for case in CASES.values()]
    assert outcomes.count("outputs") > 400
    assert outcomes.count("error") > 300


def test_a_difference_is_noticed() -> None:
    """The comparison fails on one wrong element, dtype, shape or number of parts."""
    right = Outcome("outputs", [np.arange(4, dtype=np.int64), [np.zeros((1, 2))]])
    assert right.agrees(Outcome("outputs", [np.arange(4, dtype=np.int64), [np.zeros((1, 2))]]))
    for wrong in (
        [np.array([0, 1, 2, 4]), [np.zeros((1, 2))]],
        [np.arange(4, dtype=np.int32), [np.zeros((1, 2))]],
        [np.arange(4), [np.zeros((2, 1))]],
        [np.arange(4), []],
        [np.arange(4)],
    ):
        assert not right.agrees(Outcome("outputs", wrong))
    assert not right.agrees(Outcome("error"))
    assert not Outcome("error").agrees(Outcome("unsupported"))
