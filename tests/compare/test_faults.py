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

from splitops.comparison import Report
from splitops.comparison.cases import cases
from splitops.comparison.driver import run
from splitops.comparison.driver.asking import Asker
from splitops.comparison.driver.comparing import reported
from splitops.comparison.driver.finding import Column, Launch, columns
from splitops.comparison.driver.process import Allowance, Ended, Process, without_network
from splitops.comparison.driver.process import _variables as variables_of
from splitops.comparison.driver.run import Run
from splitops.comparison.records import Case, Outcome, State, Verdict, Word

HERE = Path(__file__).parent
VALID, INVALID = "valid", "invalid"
SLOW = {"sleeps", "busy", "ignores signals", "stops itself", "prints for ever", "half a line"}


def case(name: str, error: str | None = None, baseline: str | None = None) -> Case:
    return Case(
        id=name,
        operator="Split-18",
        rule="even",
        title="",
        record=None,
        model=b"model",
        inputs={"x": np.arange(4, dtype=np.float32)},
        types={"x": "float32"},
        outputs=("y",),
        expected=(np.array([1, 2], np.float32),) if error is None else None,
        expected_types=("float32",),
        error=error,
        baseline=baseline,
    )


def asked(fault: str, *cases: Case) -> Report:
    command = shlex.join([sys.executable, "-S", "-E", str(HERE / "fakes.py"), fault])
    limits = Allowance(
        seconds=1 if fault in SLOW else 20, start=2 if "sleeps at" in fault else 20, memory=300 << 20
    )
    found, failed = columns(limits, commands={"fake": command})
    return reported(Run(cases or (case(VALID),), found, limits, shrink_seconds=0, jobs=2), failed)


def verdict_of(report: Report, name: str = VALID) -> Verdict:
    return next(entry for entry in report.entries if entry.id == name).verdicts["fake"]


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
        ("right", Word.AGREES, None, ""),
        ("values", Word.DIFFERS, None, "1 of 2 values differ, first at [1]: 3.0, not 2.0"),
        ("shape", Word.DIFFERS, None, "float32[2, 1], not float32[2]"),
        ("type", Word.DIFFERS, None, "int32[2], not float32[2]"),
        ("too few", Word.DIFFERS, None, "0 outputs, not 1"),
        ("too many", Word.DIFFERS, None, "2 outputs, not 1"),
        ("sequence", Word.DIFFERS, None, "a sequence, not a tensor"),
        ("reads outside", Word.DIFFERS, None, "it reads outside the tensor"),
        ("rejects", Word.REJECTS, None, "E: no"),
        ("does not claim", Word.NOT_APPLICABLE, None, "no"),
        ("adapter fails", Word.ADAPTER_ERROR, None, "E: no"),
        ("segfault", Word.CRASH, "SIGSEGV", "SIGSEGV"),
        ("abort", Word.CRASH, "SIGABRT", "SIGABRT"),
        ("signal without a name", Word.CRASH, "signal 40", "signal 40"),
        ("made elsewhere", Word.PROTOCOL, None, "is not a file in the folder of the case"),
        ("made nothing", Word.PROTOCOL, None, "there is no file"),
        ("kills its group", Word.CRASH, "SIGKILL", "SIGKILL"),
        ("exit 0", Word.CRASH, None, "ends with status 0"),
        ("exit 3", Word.CRASH, None, "ends with status 3"),
        ("says why and exits", Word.CRASH, None, "ends with status 3: out of luck"),
        ("sleeps", Word.HANG, None, "no answer in 1 s"),
        ("busy", Word.HANG, None, "no answer in 1 s"),
        ("ignores signals", Word.HANG, None, "no answer in 1 s"),
        ("stops itself", Word.HANG, None, "no answer in 1 s"),
        ("flood without lines", Word.PROTOCOL, None, "more than 64 MB"),
        ("flood of lines", Word.PROTOCOL, None, "it is not JSON"),
        ("flood of what is right", Word.PROTOCOL, None, "more than it was asked"),
        ("prints much", Word.AGREES, None, ""),
        ("prints for ever", Word.HANG, None, "no answer in 1 s"),
        ("closes its output", Word.PROTOCOL, None, "closed its output"),
        ("answers twice", Word.PROTOCOL, None, "more than it was asked"),
        ("half a line", Word.HANG, None, "no answer in 1 s"),
        ("half a line and exits", Word.CRASH, None, "ends with status 0"),
        ("no JSON", Word.PROTOCOL, None, "it is not JSON"),
        ("no text", Word.PROTOCOL, None, "it is not JSON"),
        ("empty line", Word.PROTOCOL, None, "it is not JSON"),
        ("deep", Word.PROTOCOL, None, "it is not JSON"),
        ("a list", Word.PROTOCOL, None, "not a reply"),
        ("another id", Word.PROTOCOL, None, "it answers question 99, and was asked 1"),
        ("another word", Word.PROTOCOL, None, "not a reply"),
        ("starts again", Word.PROTOCOL, None, "it says 'started' in the place of an answer"),
        ("endless text", Word.PROTOCOL, None, "not a reply"),
        ("no bytes", Word.PROTOCOL, None, "not 8"),
        ("endless shape", Word.PROTOCOL, None, "bytes"),
        ("negative shape", Word.PROTOCOL, None, "not a reply"),
        ("no such type", Word.PROTOCOL, None, "there is no element type 'float7'"),
        ("file elsewhere", Word.PROTOCOL, None, "not a file in the folder"),
        ("no file", Word.PROTOCOL, None, "there is no file"),
        ("link", Word.PROTOCOL, None, "not a file in the folder"),
        ("pipe", Word.PROTOCOL, None, "not a file in the folder"),
        ("eats memory", Word.MEMORY, None, "more than 0.29"),
        ("child eats memory", Word.MEMORY, None, "more than 0.29"),
        ("child keeps the pipes", Word.CRASH, None, "ends with status 0"),
        ("child lives on", Word.AGREES, None, ""),
        ("daemon", Word.AGREES, None, ""),
        ("starts a program", Word.AGREES, None, ""),
        ("dies after its answer", Word.CRASH, "SIGABRT", "SIGABRT"),
    ],
)
def test_a_fault_is_named_and_confirmed(fault: str, word: Word, signal: str | None, detail: str) -> None:
    found = verdict_of(asked(fault))
    assert (found.word, found.signal) == (word, signal), found
    assert detail in found.detail
    assert found.counts is (word not in (Word.AGREES, Word.NOT_APPLICABLE))
    assert found.unstable is None


@pytest.mark.parametrize(
    ("fault", "state", "detail"),
    [
        ("another protocol", State.FAILED, "2"),
        ("answers at the start", State.FAILED, "it answers before it has started"),
        ("dies at the start", State.FAILED, "SIGABRT"),
        ("sleeps at the start", State.FAILED, "no answer in 2 s"),
        ("rejects", State.NO_RESULT, "it fails every valid case"),
        ("right", State.OK, ""),
    ],
)
def test_what_does_not_start_or_never_works_is_said(fault: str, state: State, detail: str) -> None:
    peer = asked(fault).peers[0]
    assert peer.state is state
    assert detail in peer.detail


def test_a_peer_that_is_gone_meanwhile_is_said() -> None:
    command = [sys.executable, "-S", "-E", str(HERE / "fakes.py"), "absent"]
    with Asker(Launch("fake", command), Allowance()) as asker:
        outcome = asker.ask(case(VALID))
    assert (outcome.kind, outcome.text) == ("crash", "its process does not start again: not installed")


READS_LATE = "import sys, time; time.sleep(0.3); print(len(sys.stdin.readline()), flush=True)"
READS_NOTHING = "import os, time; os.close(0); time.sleep(0.3); print('ready', flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("script", "said"), [(READS_LATE, b"4000000"), (READS_NOTHING, b"ready")], ids=["late", "never"]
)
def test_a_long_question_waits_for_its_reader(script: str, said: bytes) -> None:
    process = Process([sys.executable, "-S", "-E", "-c", script], Allowance(), {})
    try:
        assert process.ask(b"x" * 3_999_999 + b"\n", 30).strip() == said
    finally:
        process.stop()


def test_who_answers_without_reading_holds_nobody_up() -> None:
    script = "import time; print('one'); print('two', flush=True); time.sleep(600)"
    process = Process([sys.executable, "-S", "-E", "-c", script], Allowance(), {})
    said: list[bytes | str] = []

    def ask() -> None:
        question = b"x" * ((1 << 15) - 1) + b"\n"  # three of them do not fit into a pipe
        try:
            said.extend(process.ask(question, seconds) for seconds in (120, 120, 0.1))
        except Ended as ended:
            said.append(ended.outcome.kind)

    asking = threading.Thread(target=ask, daemon=True)
    try:
        asking.start()
        asking.join(120)
        assert said == [b"one", b"two", "hang"]
    finally:
        process.stop()


def test_an_answer_counts_though_its_process_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process([sys.executable, "-S", "-E", "-c", "print('said')"], Allowance(), {})
    hear = process._next

    def too_early(seconds: float) -> None:
        process._process.wait()
        monkeypatch.setattr(process, "_next", hear)

    monkeypatch.setattr(process, "_next", too_early)
    try:
        assert process.ask(b"\n", 120) == b"said"
    finally:
        process.stop()


def test_what_an_interrupt_kills_says_nothing_of_a_made_model(monkeypatch: pytest.MonkeyPatch) -> None:
    command = shlex.join([sys.executable, "-S", "-E", str(HERE / "fakes.py"), "right"])
    found, _ = columns(Allowance(), commands={"fake": command})
    comparison = Run((case(VALID),), found, Allowance(), shrink_seconds=0, jobs=1)
    comparison.verdicts["fake"][VALID] = Verdict(word=Word.AGREES)

    def killed(*_: object) -> Outcome:
        comparison._stopped.set()
        return Outcome(kind="crash", text="its process ends with SIGKILL")

    monkeypatch.setattr(Asker, "ask", killed)
    with pytest.raises(run._Stopped):
        comparison._rerun(case(VALID), Path("made.onnx"))


def test_a_system_that_takes_no_network_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", missing)
    assert without_network.__wrapped__() == ()


def test_an_error_of_ours_ends_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(run, "judge", fail)
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
    found, _ = columns(Allowance(), commands=dict.fromkeys(("first", "second", "third"), command))
    five, *_ = cases(["split-18/ceil/5-into-4/float32/static"])
    report = reported(Run((five,), found, Allowance(), shrink_seconds=60, jobs=1))
    for verdict in report.entries[-1].verdicts.values():
        assert (verdict.word, verdict.signal) == (Word.CRASH, "SIGABRT")
        assert verdict.shrunk is not None
        assert verdict.shrunk.shape == (1,)


def test_findings_are_confirmed_while_cases_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt near the end leaves few findings that were not confirmed, also of one thread."""
    found, _ = columns(
        Allowance(),
        commands={"fake": shlex.join([sys.executable, "-S", "-E", str(HERE / "fakes.py"), "values"])},
    )
    comparison = Run(tuple(map(case, map(str, range(30)))), found, Allowance(), shrink_seconds=0, jobs=1)
    judged = Run._judged

    def interrupted(self: Run, column: Column, asker: Asker, one: Case) -> tuple[Verdict, Outcome]:
        if one.id == "29":
            raise KeyboardInterrupt
        return judged(self, column, asker, one)

    monkeypatch.setattr(Run, "_judged", interrupted)
    report = reported(comparison)
    verdicts = [entry.verdicts["fake"] for entry in report.entries if "fake" in entry.verdicts]
    assert report.environment["stopped"]
    assert len(verdicts) >= 28
    assert sum(verdict.counts for verdict in verdicts) >= 18
    assert all(verdict.is_finding for verdict in verdicts)


def test_damage_of_an_earlier_case_is_no_finding() -> None:
    report = asked("damage of an earlier case", case("first"), case(VALID))
    found = verdict_of(report)
    assert found.word is Word.AGREES
    assert found.unstable == "crash (SIGABRT) once, after other cases"
    assert report.findings == ()


def test_what_does_not_repeat_is_no_finding() -> None:
    report = asked("another fault each time")
    found = verdict_of(report)
    assert (found.word, found.confirmed) == (Word.CRASH, 0)
    assert found.unstable == "alone: crash, then agrees"
    assert report.findings == ()


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ("dies after its answer", Word.CRASH),
        ("dies a while after its answer", Word.CRASH),
        ("answers twice", Word.PROTOCOL),
        ("answers twice after a while", Word.PROTOCOL),
        ("half a line after its answer", Word.PROTOCOL),
    ],
)
def test_what_comes_after_an_answer_belongs_to_its_case(fault: str, word: Word) -> None:
    report = asked(fault, case(VALID), case("second"), case("third"))
    assert [entry.verdicts["fake"].word for entry in report.entries] == [word] * 3


def test_a_peer_has_no_network_where_the_system_allows_it() -> None:
    if not (command := without_network()):
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
    assert verdict_of(rejected).word is Word.REJECTS
    assert verdict_of(rejected, INVALID).word is verdict_of(rejected, "needy").word is Word.NO_RESULT
    assert verdict_of(asked("right", *cases), INVALID).word is Word.WRONGLY_ACCEPTS
