"""Whole comparisons with implementations that are here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from math import prod
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import splitops
import splitops_compare
from splitops.spec import ELEMENT_TYPES
from splitops_compare import CompareError, ComparisonReport, protocol
from splitops_compare.cases import CaseEntry, build_case, build_cases, list_cases, make_entry
from splitops_compare.cases.models import _make_values
from splitops_compare.data import Case, CaseSpec, Outcome, State, VerdictKind
from splitops_compare.driver import discovery
from splitops_compare.driver.judge import judge
from splitops_compare.driver.process import ResourceLimits
from splitops_compare.driver.shrink import iter_smaller, shrink

PLAIN = "split-18/ceil/6-into-2/float32/static"
FIVE = "split-18/ceil/5-into-4/float32/static"


def test_a_finding_is_confirmed_alone_and_shrunk() -> None:
    pytest.importorskip("onnxruntime")
    report = splitops_compare.compare(implementations=["onnxruntime"], cases=[FIVE])
    verdict = next(entry for entry in report.cases if entry.id == FIVE).verdicts["onnxruntime"]
    assert (verdict.kind, verdict.stage, verdict.confirmed) == (VerdictKind.REJECTS, "run", 2)
    assert verdict.shrunk is not None
    assert verdict.shrunk.shape == (1,)
    smallest = verdict.shrunk.attributes["num_outputs"]
    assert len(verdict.shrunk.outputs) == smallest
    assert smallest in (2, 3), "onnxruntime below 1.32 rejects two parts too"
    assert report.implementations[0].state is State.OK
    assert not report.environment["stopped"]


def test_a_report_is_the_same_after_json() -> None:
    report = splitops_compare.compare(implementations=["onnxruntime"], cases=[FIVE], shrink_seconds=0)
    content = json.dumps(report.to_json(), allow_nan=False).encode()
    assert protocol.parse_report(content).to_json() == report.to_json()
    assert isinstance(report, ComparisonReport)


def test_two_environments_and_settings_are_columns(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    report = splitops_compare.compare(
        implementations=["onnxruntime"],
        cases=[FIVE],
        pythons=[("onnxruntime", sys.executable)],
        settings=[("onnxruntime", {"threads": "1"})],
        shrink_seconds=0,
    )
    release = report.implementations[0].versions["onnxruntime"]
    names = [peer.name for peer in report.implementations]
    first = f"onnxruntime@{release}"
    assert names == [first, f"{first}[threads=1]", f"{first}#2", f"{first}#2[threads=1]"]
    assert all(set(entry.verdicts) == set(names) for entry in report.cases)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"implementations": ["nobody"]}, "there is no adapter 'nobody'"),
        ({"cases": ["nothing"]}, "there is no case 'nothing'"),
        ({"operators": ["Slice"]}, "there is no case of an operator 'Slice'"),
        ({"commands": {"mine": "no-such-program x"}}, "the command of 'mine' is missing"),
        ({"commands": {"mine": "'"}}, "the command of 'mine' cannot be parsed"),
        ({"pythons": [("onnxruntime", "/no/python")]}, "the Python of 'onnxruntime' is missing"),
        ({"settings": [("onnxruntime", {"x": "1"})]}, "onnxruntime has no setting 'x=1'"),
        ({"settings": [("openvino", {})]}, "a setting is for 'openvino'"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line(arguments: dict[str, object], message: str) -> None:
    if "settings" in arguments:
        pytest.importorskip("onnxruntime")
    with pytest.raises(CompareError) as caught:
        splitops_compare.compare(**({"cases": [FIVE], "implementations": ["onnxruntime"]} | arguments))  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_import_of_splitops_brings_no_comparison() -> None:
    code = "import sys, splitops; print([m for m in sys.modules if 'compare' in m and 'splitops' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_candidate_has_more_data_than_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = CaseSpec(operator="Split", version=18, shape=(0, 2**32 + 4), attributes={"num_outputs": 2}, axis=1)
    built: list[CaseSpec] = []

    def reject(case: CaseEntry) -> Case:
        built.append(case.spec)
        raise CompareError("no")

    case = replace(build_cases([FIVE])[0], spec=huge)
    monkeypatch.setattr("splitops_compare.driver.shrink.build_case", reject)
    assert shrink(case, lambda _: True, 5) is None
    assert built
    assert all(prod(record.shape) < 2**25 for record in built)


KINDS = {(case.spec.operator, case.spec.special): name for name, case in list_cases().items()}


@pytest.mark.parametrize("name", KINDS.values())
def test_whatever_shrinking_makes_of_a_case_is_built_or_left(name: str) -> None:
    assert shrink(build_cases([name])[0], lambda _: False, 5) is None


@pytest.mark.parametrize("special", ["absent", "constant-data", "packed", "transposed", "unranked", "wide"])
def test_an_unusual_model_gives_what_is_expected(special: str) -> None:
    record = CaseSpec(
        operator="Split",
        version=18,
        dtype="uint8" if special == "packed" else "int64",
        shape=(6, 2),
        lengths=None if special == "absent" else [2, 4],
        attributes={"num_outputs": 2} if special == "absent" else {},
        outputs=("p0", "p1"),
        special=special,
    )
    case = build_case(make_entry(record))
    assert case.expected is not None
    model = onnx.load_from_string(case.model)
    found = ReferenceEvaluator(model).run(None, dict(case.inputs))
    for ours, theirs in zip(case.expected, found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_version_that_is_not_there_is_one_line() -> None:
    with pytest.raises(splitops.RuleError, match=r"op\.version"):
        build_case(make_entry(CaseSpec(operator="Split", version=12, shape=(6,), outputs=("p0", "p1"))))


def test_inference_and_converters_are_judged_by_what_they_make() -> None:
    pytest.importorskip("onnxruntime")
    report = splitops_compare.compare(
        implementations=["onnxruntime", "onnx_inference", "onnx_converter"],
        cases=["split-13/even/6-into-2/float32/static", PLAIN, FIVE],
        shrink_seconds=0,
    )
    plain = next(entry for entry in report.cases if entry.id == PLAIN)
    assert {name: verdict.kind for name, verdict in plain.verdicts.items()} == dict.fromkeys(
        ("onnxruntime", "onnx_inference", "onnx_converter"), VerdictKind.AGREES
    )


def test_a_peer_is_asked_for_its_formats_alone() -> None:
    pytest.importorskip("onnxruntime")
    name = next(name for name, case in list_cases().items() if case.spec.format == "ir")
    report = splitops_compare.compare(implementations=["onnxruntime"], cases=[name], shrink_seconds=0)
    found = next(entry for entry in report.cases if entry.id == name).verdicts["onnxruntime"]
    assert (found.kind, found.detail) == (VerdictKind.NOT_APPLICABLE, "it does not read ir")


def test_weights_of_a_case_are_beside_its_model() -> None:
    pytest.importorskip("openvino")
    model = Path(__file__).parents[2] / "examples/models/feature_split.xml"
    report = splitops_compare.compare(model=model, implementations=["openvino"], shrink_seconds=0)
    assert {entry.verdicts["openvino"].kind for entry in report.cases} == {VerdictKind.AGREES}


def test_adapters_of_other_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stated(module: str) -> None:
        point = EntryPoint("mine", module, "splitops.adapters")
        monkeypatch.setattr(discovery, "entry_points", lambda group: [point])

    (tmp_path / "my_adapter.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    stated("my_adapter")
    assert discovery.find_adapters()["mine"] == tmp_path / "my_adapter.py"
    stated("no_such_adapter")
    with pytest.raises(
        CompareError, match="the adapter 'mine' is missing: there is no module no_such_adapter"
    ):
        discovery.find_adapters()


def test_an_adapter_on_node_is_started_by_node() -> None:
    [peer] = splitops_compare.compare(
        implementations=["onnxruntime-node"], cases=[PLAIN], shrink_seconds=0
    ).implementations
    assert peer.adapter == "onnxruntime-node"
    if shutil.which("node") is None:
        assert (peer.state, "node" in peer.detail) == (State.FAILED, True)


def test_nobody_to_ask_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitops_compare.driver.comparison.start_implementations", lambda *_, **__: ([], []))
    with pytest.raises(CompareError, match="no implementation is installed"):
        splitops_compare.compare(cases=[FIVE])


# What is said of an outcome


def question(error: str | None = None, *, evident: bool = False, sequence: bool = False) -> Case:
    part = np.array([1, 2], np.float32)
    return Case(
        id="x",
        operator="Split-18",
        rule="even",
        title="",
        spec=None,
        model=b"",
        inputs={},
        types={},
        outputs=("y",),
        expected=None if error else ([part, part] if sequence else part,),
        expected_types=("float32",),
        error=error,
        evident=evident,
    )


OK = Outcome(kind="ok", values=(np.array([1, 2], np.float32),), types=("float32",))
WRONG = Outcome(kind="ok", values=(np.array([1, 3], np.float32),), types=("float32",))
REJECTED = Outcome(kind="rejected", text="no")
INFERRED = Outcome(kind="inferred", shapes=((2,),))
MADE = Outcome(kind="made", model="m.onnx")


@pytest.mark.parametrize(
    ("case", "outcome", "again", "word", "detail"),
    [
        (question(), INFERRED, None, VerdictKind.AGREES, ""),
        (question(), Outcome(kind="inferred", shapes=(("N",),)), None, VerdictKind.AGREES, ""),
        (question(), Outcome(kind="inferred", shapes=(None,)), None, VerdictKind.AGREES, ""),
        (question(sequence=True), Outcome(kind="inferred", shapes=((9,),)), None, VerdictKind.AGREES, ""),
        (question(), Outcome(kind="inferred"), None, VerdictKind.DIFFERS, "0 outputs, not 1"),
        (
            question(),
            Outcome(kind="inferred", shapes=((None, 3),)),
            None,
            VerdictKind.DIFFERS,
            "output 'y' is inferred as [?, 3], and is [2]",
        ),
        (
            question("lengths.sum"),
            INFERRED,
            None,
            VerdictKind.NOT_APPLICABLE,
            "the model alone does not show",
        ),
        (
            question("lengths.sum", evident=True),
            INFERRED,
            None,
            VerdictKind.WRONGLY_ACCEPTS,
            "it infers shapes of an invalid split, which breaks lengths.sum",
        ),
        (question(), Outcome(kind="accepted"), None, VerdictKind.AGREES, ""),
        (
            question("lengths.sum", evident=True),
            Outcome(kind="accepted"),
            None,
            VerdictKind.WRONGLY_ACCEPTS,
            "it accepts the model, which breaks lengths.sum",
        ),
        (question(), MADE, None, VerdictKind.NOT_APPLICABLE, "no installed runtime agrees on the case"),
        (question(), MADE, OK, VerdictKind.AGREES, ""),
        (question(), MADE, WRONG, VerdictKind.DIFFERS, "its model returns another result: "),
        (question(), MADE, REJECTED, VerdictKind.DIFFERS, "its model does not run (rejected): no"),
        (question("lengths.sum"), MADE, REJECTED, VerdictKind.AGREES, ""),
        (question("lengths.sum"), MADE, OK, VerdictKind.WRONGLY_ACCEPTS, "its model runs: "),
        (
            question(sequence=True),
            Outcome(kind="ok", values=([OK.values[0]],), types=("float32",)),
            None,
            VerdictKind.DIFFERS,
            "1 elements, not 2",
        ),
    ],
)
def test_what_is_said_of_an_outcome(
    case: Case, outcome: Outcome, again: Outcome | None, word: VerdictKind, detail: str
) -> None:
    found = judge(case, outcome, lambda _: again)
    assert (found.kind, detail in found.detail) == (word, True), found


# Smaller records


def test_a_case_without_a_record_has_no_smaller_one() -> None:
    assert shrink(question(), lambda _: True, 5) is None


def test_shrinking_ends_in_time() -> None:
    assert shrink(build_cases([FIVE])[0], lambda _: True, -1) is None


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (CaseSpec(operator="Split", version=18, shape=(2, 6), axis=-1), [((6,), -1), ((6,), None)][:1]),
        (CaseSpec(operator="Split", version=18, shape=(6, 2), axis=-2), [((6,), -1)]),
        (CaseSpec(operator="Split", version=18, shape=(2, 6), axis=2), [((6,), 1), ((2,), 1)]),
        (CaseSpec(operator="Split", version=18, shape=(2, 6), axis=-3), [((6,), -2), ((2,), -2)]),
    ],
)
def test_an_axis_less(record: CaseSpec, wanted: list[tuple[tuple[int, ...], int]]) -> None:
    found = [(one.shape, one.axis) for one in iter_smaller(record) if len(one.shape) < len(record.shape)]
    assert found == wanted


def test_smaller_lengths_that_are_an_attribute() -> None:
    record = CaseSpec(
        operator="Split", version=2, shape=(6,), attributes={"split": [2, 4]}, outputs=("p0", "p1")
    )
    found = {
        (one.shape, tuple(one.attributes.get("split", ())), len(one.outputs)) for one in iter_smaller(record)
    }
    assert {
        ((4,), (4,), 1),
        ((2,), (2,), 1),
        ((5,), (1, 4), 2),
        ((5,), (2, 3), 2),
        ((4,), (2, 2), 2),
    } <= found


def test_a_requested_command_that_is_not_installed_is_reported() -> None:
    command = f"{sys.executable} {Path(__file__).with_name('fakes.py')} absent"
    started, failed = discovery.start_implementations(ResourceLimits(), None, {"mine": command})
    assert not started
    assert [(each.name, each.state) for each in failed] == [("mine", State.ABSENT)]


@pytest.mark.parametrize("dtype", ["bool", "uint1", "int2"])
def test_parts_of_narrow_types_differ(dtype: str) -> None:
    """Otherwise, a runtime that swaps them would agree."""
    kind = ELEMENT_TYPES[dtype]
    values = _make_values(np.arange(6), kind, wide=False)
    parts = [part.tolist() for part in np.split(np.asarray(values), 2)]
    assert parts[0] != parts[1]
    quarters = np.split(np.asarray(_make_values(np.arange(8), kind, wide=False)), 4)
    assert quarters[2].tolist() != quarters[3].tolist()  # as they would be if every second bit were set
