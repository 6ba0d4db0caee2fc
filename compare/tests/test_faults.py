"""Implementations that lie, flood, fork, hang and die: each fault is named, and nothing is left of it."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest

from splitops_compare import ComparisonReport
from splitops_compare.cases import build_cases
from splitops_compare.data import Case, Outcome, State, Verdict, VerdictKind
from splitops_compare.driver import scheduler
from splitops_compare.driver.case_runner import CaseRunner
from splitops_compare.driver.comparison import run_comparison
from splitops_compare.driver.discovery import Implementation, LaunchCommand, start_implementations
from splitops_compare.driver.process import Process, ProcessEnded, ResourceLimits, make_network_prefix
from splitops_compare.driver.process import _read_environment as variables_of
from splitops_compare.driver.scheduler import ComparisonRun

HERE = Path(__file__).parent
VALID, INVALID = "valid", "invalid"
SLOW = {"sleeps", "busy", "ignores signals", "stops itself", "prints for ever", "half a line"}


def case(name: str, error: str | None = None, baseline: str | None = None) -> Case:
    return Case(
        id=name,
        operator="Split-18",
        rule="even",
        title="",
        spec=None,
        model=b"model",
        inputs={"x": np.arange(4, dtype=np.float32)},
        types={"x": "float32"},
        outputs=("y",),
        expected=(np.array([1, 2], np.float32),) if error is None else None,
        expected_types=("float32",),
        error=error,
        baseline=baseline,
    )


def asked(fault: str, *cases: Case) -> ComparisonReport:
    command = shlex.join([sys.executable, "-S", "-E", str(HERE / "fakes.py"), fault])
    limits = ResourceLimits(
        seconds=1 if fault in SLOW else 20, start=2 if "sleeps at" in fault else 20, memory=300 << 20
    )
    found, failed = start_implementations(limits, commands={"fake": command})
    return run_comparison(
        ComparisonRun(cases or (case(VALID),), found, limits, shrink_seconds=0, jobs=2), failed
    )


def verdict_of(report: ComparisonReport, name: str = VALID) -> Verdict:
    return next(entry for entry in report.cases if entry.id == name).verdicts["fake"]


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    mark = f"FAKE_{uuid.uuid4().hex}"
    monkeypatch.setenv(mark, "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert marked(mark) == []
    assert list(tmp_path.iterdir()) == []


def marked(mark: str) -> list[str]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(name)
        except OSError:
            continue
    return found


def test_the_search_for_what_is_left_finds_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    monkeypatch.setenv("FAKE_LEFT", "1")
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            assert marked("FAKE_LEFT") == [str(process.pid)]
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("fault", "word", "signal", "detail"),
    [
        ("right", VerdictKind.AGREES, None, ""),
        ("values", VerdictKind.DIFFERS, None, "1 of 2 values differ, first at [1]: 3.0, not 2.0"),
        ("shape", VerdictKind.DIFFERS, None, "float32[2, 1], not float32[2]"),
        ("type", VerdictKind.DIFFERS, None, "int32[2], not float32[2]"),
        ("too few", VerdictKind.DIFFERS, None, "0 outputs, not 1"),
        ("too many", VerdictKind.DIFFERS, None, "2 outputs, not 1"),
        ("sequence", VerdictKind.DIFFERS, None, "a sequence, not a tensor"),
        ("reads outside", VerdictKind.DIFFERS, None, "it reads outside the tensor"),
        ("rejects", VerdictKind.REJECTS, None, "E: no"),
        ("does not claim", VerdictKind.NOT_APPLICABLE, None, "no"),
        ("adapter fails", VerdictKind.ADAPTER_ERROR, None, "E: no"),
        ("segfault", VerdictKind.CRASH, "SIGSEGV", "SIGSEGV"),
        ("abort", VerdictKind.CRASH, "SIGABRT", "SIGABRT"),
        ("signal without a name", VerdictKind.CRASH, "signal 40", "signal 40"),
        ("made elsewhere", VerdictKind.PROTOCOL, None, "is not a file in the folder of the case"),
        ("made nothing", VerdictKind.PROTOCOL, None, "there is no file"),
        ("kills its group", VerdictKind.CRASH, "SIGKILL", "SIGKILL"),
        ("exit 0", VerdictKind.CRASH, None, "exited with status 0"),
        ("exit 3", VerdictKind.CRASH, None, "exited with status 3"),
        ("says why and exits", VerdictKind.CRASH, None, "exited with status 3: out of luck"),
        ("sleeps", VerdictKind.HANG, None, "no response in 1 s"),
        ("busy", VerdictKind.HANG, None, "no response in 1 s"),
        ("ignores signals", VerdictKind.HANG, None, "no response in 1 s"),
        ("stops itself", VerdictKind.HANG, None, "no response in 1 s"),
        ("flood without lines", VerdictKind.PROTOCOL, None, "more than 64 MB"),
        ("flood of lines", VerdictKind.PROTOCOL, None, "it is not JSON"),
        ("flood of what is right", VerdictKind.PROTOCOL, None, "more than one response"),
        ("prints much", VerdictKind.AGREES, None, ""),
        ("prints for ever", VerdictKind.HANG, None, "no response in 1 s"),
        ("closes its output", VerdictKind.PROTOCOL, None, "closed its output"),
        ("answers twice", VerdictKind.PROTOCOL, None, "more than one response"),
        ("half a line", VerdictKind.HANG, None, "no response in 1 s"),
        ("half a line and exits", VerdictKind.CRASH, None, "exited with status 0"),
        ("no JSON", VerdictKind.PROTOCOL, None, "it is not JSON"),
        ("no text", VerdictKind.PROTOCOL, None, "it is not JSON"),
        ("empty line", VerdictKind.PROTOCOL, None, "it is not JSON"),
        ("deep", VerdictKind.PROTOCOL, None, "it is not JSON"),
        ("a list", VerdictKind.PROTOCOL, None, "not a response"),
        ("another id", VerdictKind.PROTOCOL, None, "it responded to request 99, not 1"),
        ("another word", VerdictKind.PROTOCOL, None, "not a response"),
        ("starts again", VerdictKind.PROTOCOL, None, "it sent 'started' instead of a response"),
        ("endless text", VerdictKind.PROTOCOL, None, "not a response"),
        ("no bytes", VerdictKind.PROTOCOL, None, "not 8"),
        ("endless shape", VerdictKind.PROTOCOL, None, "bytes"),
        ("negative shape", VerdictKind.PROTOCOL, None, "not a response"),
        ("no such type", VerdictKind.PROTOCOL, None, "there is no element type 'float7'"),
        ("file elsewhere", VerdictKind.PROTOCOL, None, "not a file in the folder"),
        ("no file", VerdictKind.PROTOCOL, None, "there is no file"),
        ("link", VerdictKind.PROTOCOL, None, "not a file in the folder"),
        ("pipe", VerdictKind.PROTOCOL, None, "not a file in the folder"),
        ("eats memory", VerdictKind.MEMORY, None, "more than 0.29"),
        ("child eats memory", VerdictKind.MEMORY, None, "more than 0.29"),
        ("child keeps the pipes", VerdictKind.CRASH, None, "exited with status 0"),
        ("child lives on", VerdictKind.AGREES, None, ""),
        ("daemon", VerdictKind.AGREES, None, ""),
        ("starts a program", VerdictKind.AGREES, None, ""),
        ("dies after its answer", VerdictKind.CRASH, "SIGABRT", "SIGABRT"),
    ],
)
def test_a_fault_is_named_and_confirmed(
    fault: str, word: VerdictKind, signal: str | None, detail: str
) -> None:
    found = verdict_of(asked(fault))
    assert (found.kind, found.signal) == (word, signal), found
    assert detail in found.detail
    assert found.is_confirmed is (word not in (VerdictKind.AGREES, VerdictKind.NOT_APPLICABLE))
    assert found.unstable is None


@pytest.mark.parametrize(
    ("fault", "state", "detail"),
    [
        ("another protocol", State.FAILED, "2"),
        ("answers at the start", State.FAILED, "it sent a response before it started"),
        ("dies at the start", State.FAILED, "SIGABRT"),
        ("sleeps at the start", State.FAILED, "no response in 2 s"),
        ("rejects", State.NO_RESULT, "it fails every valid case"),
        ("right", State.OK, ""),
    ],
)
def test_what_does_not_start_or_never_works_is_said(fault: str, state: State, detail: str) -> None:
    peer = asked(fault).implementations[0]
    assert peer.state is state
    assert detail in peer.detail


def test_a_peer_that_is_gone_meanwhile_is_said() -> None:
    command = [sys.executable, "-S", "-E", str(HERE / "fakes.py"), "absent"]
    with CaseRunner(LaunchCommand("fake", command), ResourceLimits()) as asker:
        outcome = asker.run(case(VALID))
    assert (outcome.kind, outcome.text) == ("crash", "its process did not start again: not installed")


READS_LATE = "import sys, time; time.sleep(0.3); print(len(sys.stdin.readline()), flush=True)"
READS_NOTHING = "import os, time; os.close(0); time.sleep(0.3); print('ready', flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("script", "said"), [(READS_LATE, b"4000000"), (READS_NOTHING, b"ready")], ids=["late", "never"]
)
def test_a_long_question_waits_for_its_reader(script: str, said: bytes) -> None:
    process = Process([sys.executable, "-S", "-E", "-c", script], ResourceLimits(), {})
    try:
        assert process.request(b"x" * 3_999_999 + b"\n", 30).strip() == said
    finally:
        process.stop()


def test_who_answers_without_reading_holds_nobody_up() -> None:
    script = "import time; print('one'); print('two', flush=True); time.sleep(600)"
    process = Process([sys.executable, "-S", "-E", "-c", script], ResourceLimits(), {})
    said: list[bytes | str] = []

    def ask() -> None:
        question = b"x" * ((1 << 15) - 1) + b"\n"  # three of them do not fit into a pipe
        try:
            said.extend(process.request(question, seconds) for seconds in (120, 120, 0.1))
        except ProcessEnded as ended:
            said.append(ended.outcome.kind)

    asking = threading.Thread(target=ask, daemon=True)
    try:
        asking.start()
        asking.join(120)
        assert said == [b"one", b"two", "hang"]
    finally:
        process.stop()


def test_an_answer_counts_though_its_process_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process([sys.executable, "-S", "-E", "-c", "print('said')"], ResourceLimits(), {})
    hear = process._take_line

    def too_early(seconds: float) -> None:
        process._process.wait()
        monkeypatch.setattr(process, "_take_line", hear)

    monkeypatch.setattr(process, "_take_line", too_early)
    try:
        assert process.request(b"\n", 120) == b"said"
    finally:
        process.stop()


def test_what_an_interrupt_kills_says_nothing_of_a_made_model(monkeypatch: pytest.MonkeyPatch) -> None:
    command = shlex.join([sys.executable, "-S", "-E", str(HERE / "fakes.py"), "right"])
    found, _ = start_implementations(ResourceLimits(), commands={"fake": command})
    comparison = ComparisonRun((case(VALID),), found, ResourceLimits(), shrink_seconds=0, jobs=1)
    comparison.verdicts["fake"][VALID] = Verdict(kind=VerdictKind.AGREES)

    def killed(*_: object) -> Outcome:
        comparison._stopped.set()
        return Outcome(kind="crash", text="its process was killed by SIGKILL")

    monkeypatch.setattr(CaseRunner, "run", killed)
    with pytest.raises(scheduler._Stopped):
        comparison._rerun(case(VALID), Path("made.onnx"))


def test_a_system_that_takes_no_network_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", missing)
    assert make_network_prefix.__wrapped__() == ()


def test_an_error_of_ours_ends_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(scheduler, "judge", fail)
    with pytest.raises(ZeroDivisionError):
        asked("right")


def test_a_process_is_known_while_it_begins_another_program() -> None:
    """It has no variables for a moment: one of 50 looks."""
    again = 'exec sh -c "$0" "$0"'
    with subprocess.Popen(["sh", "-c", again, again], env={**os.environ, "AGAIN": "1"}) as process:
        try:
            folder = Path("/proc", str(process.pid))
            assert all(b"AGAIN=1" in variables_of(folder) for _ in range(1000))
        finally:
            process.kill()


def test_what_dies_after_its_answer_is_shrunk_too() -> None:
    command = shlex.join([sys.executable, "-S", "-E", str(HERE / "fakes.py"), "dies after its answer"])
    found, _ = start_implementations(
        ResourceLimits(), commands=dict.fromkeys(("first", "second", "third"), command)
    )
    five, *_ = build_cases(["split-18/ceil/5-into-4/float32/static"])
    report = run_comparison(ComparisonRun((five,), found, ResourceLimits(), shrink_seconds=60, jobs=1))
    for verdict in report.cases[-1].verdicts.values():
        assert (verdict.kind, verdict.signal) == (VerdictKind.CRASH, "SIGABRT")
        assert verdict.shrunk is not None
        assert verdict.shrunk.shape == (1,)


def test_findings_are_confirmed_while_cases_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt near the end leaves few findings that were not confirmed, also of one thread."""
    found, _ = start_implementations(
        ResourceLimits(),
        commands={"fake": shlex.join([sys.executable, "-S", "-E", str(HERE / "fakes.py"), "values"])},
    )
    comparison = ComparisonRun(
        tuple(map(case, map(str, range(30)))), found, ResourceLimits(), shrink_seconds=0, jobs=1
    )
    judged = ComparisonRun._run_case

    def interrupted(
        self: ComparisonRun, column: Implementation, asker: CaseRunner, one: Case
    ) -> tuple[Verdict, Outcome]:
        if one.id == "29":
            raise KeyboardInterrupt
        return judged(self, column, asker, one)

    monkeypatch.setattr(ComparisonRun, "_run_case", interrupted)
    report = run_comparison(comparison)
    verdicts = [entry.verdicts["fake"] for entry in report.cases if "fake" in entry.verdicts]
    assert report.environment["stopped"]
    assert len(verdicts) >= 28
    assert sum(verdict.is_confirmed for verdict in verdicts) >= 18
    assert all(verdict.is_finding for verdict in verdicts)


def test_damage_of_an_earlier_case_is_no_finding() -> None:
    report = asked("damage of an earlier case", case("first"), case(VALID))
    found = verdict_of(report)
    assert found.kind is VerdictKind.AGREES
    assert found.unstable == "crash (SIGABRT) once, after other cases"
    assert report.findings == ()


def test_what_does_not_repeat_is_no_finding() -> None:
    report = asked("another fault each time")
    found = verdict_of(report)
    assert (found.kind, found.confirmed) == (VerdictKind.CRASH, 0)
    assert found.unstable == "alone: crash, then agrees"
    assert report.findings == ()


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ("dies after its answer", VerdictKind.CRASH),
        ("dies a while after its answer", VerdictKind.CRASH),
        ("answers twice", VerdictKind.PROTOCOL),
        ("answers twice after a while", VerdictKind.PROTOCOL),
        ("half a line after its answer", VerdictKind.PROTOCOL),
    ],
)
def test_what_comes_after_an_answer_belongs_to_its_case(fault: str, word: VerdictKind) -> None:
    report = asked(fault, case(VALID), case("second"), case("third"))
    assert [entry.verdicts["fake"].kind for entry in report.cases] == [word] * 3


def test_a_peer_has_no_network_where_the_system_allows_it() -> None:
    if not (command := make_network_prefix()):
        pytest.skip("this system takes the network from no process")
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = f"import socket; socket.create_connection({server.getsockname()}, 30)"
        connected = [
            subprocess.run(
                [*before, sys.executable, "-c", script], capture_output=True, check=False
            ).returncode
            for before in ((), command)
        ]
    assert connected == [0, 1]


def test_a_rejection_counts_only_where_the_control_passes() -> None:
    cases = case(VALID), case(INVALID, "lengths.sum", VALID), case("needy", baseline=VALID)
    rejected = asked("rejects", *cases)
    assert verdict_of(rejected).kind is VerdictKind.REJECTS
    assert verdict_of(rejected, INVALID).kind is verdict_of(rejected, "needy").kind is VerdictKind.NO_RESULT
    assert verdict_of(asked("right", *cases), INVALID).kind is VerdictKind.WRONGLY_ACCEPTS
