"""Signals that end a command: what was copied stays, and one line says how to continue."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("safetensors")
from safetensors.numpy import save_file

CHILD = """
import os, signal, sys, time
from splitops.files import engine, journal
from splitops.common import atomic_write

engine.split_into_tasks.__defaults__, engine._BLOCK, engine._PIECE = (100_000,), 10_000, 10_000
first, second = ([int(number) for number in sys.argv.pop(1).split(",")] + [0])[:2]
add, clean = journal.Journal.add, atomic_write.StagedFiles.clean
at, left = sys.argv.pop(1), 3
if at == "copy":
    copy = engine.copy
    engine.copy = lambda *args, **how: (os.kill(os.getpid(), first), copy(*args, **how))
if at == "publish":
    replace = os.replace
    os.replace = lambda *paths: (replace(*paths), os.kill(os.getpid(), first))
if at == "destructor":
    begin = journal.Journal.__init__
    class Destroyed:
        def __del__(self):
            os.kill(os.getpid(), first)
    def begun(self, *args, **how):
        begin(self, *args, **how)
        Destroyed()
        time.sleep(60)
    journal.Journal.__init__ = begun

def interrupted(self, task, checksums):
    global left
    add(self, task, checksums)
    left -= 1
    if left == 0 and first and at == "add":
        os.kill(os.getpid(), first)

def cleaned(self):
    if second:
        os.kill(os.getpid(), second)
    clean(self)

journal.Journal.add, atomic_write.StagedFiles.clean = interrupted, cleaned
from splitops.cli import main
main()
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ARRAY = np.random.default_rng(0).integers(0, 256, (600, 2000), np.uint8)
SPLIT = ("split", "x.npy", "--axis", "1", "--sizes", "500,700,800", "--out", "out")
HIDDEN = ".splitops-out-x.part"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def default_hangup():
    """Children inherit an ignored SIGHUP, as under nohup: the tests run with the default."""
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, inherited)


@pytest.fixture
def child(environment, tmp_path):
    """Run a command that gets signals: the first among its tasks, the second while it cleans up."""
    np.save(tmp_path / "x.npy", ARRAY)

    def run(words, *numbers: int, at="add", **options):
        given = ",".join(map(str, numbers)) or "0"
        how = {"capture_output": True, "text": True, "check": False, "timeout": 120, **options}
        return subprocess.run(
            [sys.executable, "-c", CHILD, given, at, *words], env=environment, cwd=tmp_path, **how
        )

    return run


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("existing", [False, True])
def test_a_signal_keeps_what_was_copied_and_says_how_to_continue(child, tmp_path, number, existing):
    words, hidden = list(SPLIT), HIDDEN
    if existing:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "x.1.npy").write_bytes(b"from before")
        words, hidden = [*SPLIT, "--overwrite"], "out/.splitops-x.part"
    for resumed in ([], ["--resume"]):
        done = child([*words, *resumed], number)
        assert done.returncode == 128 + number
        assert done.stdout == ""
        [line] = done.stderr.splitlines()
        found = re.fullmatch(
            r"splitops: interrupted; ([\d.]+) KiB of 1\.1 MiB are kept in (\S+): delete it, "
            r"or continue with: (splitops split .*)",
            line,
        )
        assert found, line
        assert float(found[1]) >= (600 if resumed else 290)
        assert found[2] == hidden
        assert (tmp_path / hidden).is_dir()
        assert names(tmp_path) == sorted({"x.npy", "out" if existing else HIDDEN})
        assert not existing or (tmp_path / "out" / "x.1.npy").read_bytes() == b"from before"
    again = child(shlex.split(found[3])[1:])
    assert again.returncode == 0, again.stderr
    assert "bytes had been copied before." in again.stdout
    parts = [np.load(tmp_path / "out" / f"x.{index}.npy") for index in range(3)]
    assert np.array_equal(np.concatenate(parts, 1), ARRAY)
    assert names(tmp_path) == ["out", "x.npy"]
    assert names(tmp_path / "out") == ["x.0.npy", "x.1.npy", "x.2.npy"]


@pytest.mark.parametrize("number", SIGNALS)
def test_the_next_run_without_resume_starts_over(child, tmp_path, number):
    assert child(SPLIT, number).returncode == 128 + number
    done = child(SPLIT)
    assert done.returncode == 0
    assert done.stderr == f"splitops: replaced {HIDDEN}, which an interrupted run had left\n"
    assert names(tmp_path) == ["out", "x.npy"]


@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", SIGNALS)
def test_a_second_signal_ends_at_once_and_keeps_too(child, tmp_path, first, second):
    done = child(SPLIT, first, second)
    assert (done.returncode, done.stdout, done.stderr) == (128 + second, "", "")
    assert names(tmp_path) == [HIDDEN, "x.npy"]
    done = child([*SPLIT, "--resume"])
    assert "bytes had been copied before." in done.stdout
    assert names(tmp_path) == ["out", "x.npy"]


HELD_BACK = """
import signal, sys
from splitops.common.signals import ENDING, interrupt, defer_signals
for number in ENDING:
    signal.signal(number, interrupt)
with defer_signals():
    signal.raise_signal(int(sys.argv[1]))
    print("held back", flush=True)
    if len(sys.argv) > 2:
        signal.raise_signal(int(sys.argv[2]))
    print("done", flush=True)
"""


@pytest.mark.parametrize("first", SIGNALS)
def test_a_second_signal_is_not_held_back(environment, first):
    for second in SIGNALS:
        command = [sys.executable, "-c", HELD_BACK, str(int(first)), str(int(second))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (128 + second, "held back\n", "")
    command = [sys.executable, "-c", HELD_BACK, str(int(first))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "held back\ndone\n"
    assert "Interrupted" in done.stderr


def test_nohup_is_respected(child, tmp_path):
    done = child(SPLIT, signal.SIGHUP, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert (done.returncode, done.stderr) == (0, "")
    assert names(tmp_path) == ["out", "x.npy"]


def test_a_terminal_that_has_closed_takes_no_line(child, tmp_path):
    ours, theirs = os.openpty()
    os.close(ours)
    done = child(SPLIT, signal.SIGHUP, capture_output=False, stderr=theirs, stdout=theirs)
    os.close(theirs)
    assert done.returncode == 129
    assert names(tmp_path) == [HIDDEN, "x.npy"]


def test_a_command_after_a_double_dash_and_names_with_spaces(child, tmp_path):
    shutil.move(tmp_path / "x.npy", tmp_path / "- x y.npy")
    done = child(
        ["split", "--axis", "1", "--parts", "2", "-o", "the parts", "--", "- x y.npy"], signal.SIGTERM
    )
    assert done.returncode == 143
    command = done.stderr.partition("continue with: ")[2]
    assert command.startswith("splitops split --resume --axis 1")
    assert child(shlex.split(command)[1:]).returncode == 0
    assert len(names(tmp_path / "the parts")) == 2


def test_a_command_that_is_too_long_is_not_repeated(child, tmp_path):
    many = [f"./{'./' * 200}x.npy"] * 3
    done = child(["merge", *many, "--axis", "0", "--out", "y.npy"], signal.SIGTERM)
    assert done.stderr.endswith(": delete it, or continue with: the same command with --resume\n")


@pytest.mark.parametrize(
    "command", ["merge", "max-size", "one file", "shard", "reshard", "merge ranks", "unfuse"]
)
def test_every_command_that_writes_tensor_files_can_be_continued(child, tmp_path, command):
    (tmp_path / "model").mkdir()
    tensors = {f"{letter}.weight": ARRAY + index for index, letter in enumerate("abc")}
    save_file(tensors, tmp_path / "model" / "model.safetensors")
    (tmp_path / "plan.toml").write_text('version = 1\n[[rule]]\nmatch = "*"\naxis = 0\n')
    (tmp_path / "rules.toml").write_text(
        'version = 1\n[[rule]]\nfused = "a.weight"\nparts = ["d.weight", "e.weight"]\n'
    )
    shard = ["shard", "model", "--ranks", "2", "--plan", "plan.toml", "--out"]
    if command in ("reshard", "merge ranks"):
        assert child([*shard, "ranks"]).returncode == 0
    if command == "one file":
        assert child(["split", "model", "--max-size", "2M", "--out", "sized"]).returncode == 0
    words = {
        "merge": ["merge", "x.npy", "x.npy", "--axis", "0", "--out", "out/y.npy"],
        "max-size": ["split", "model", "--max-size", "2M", "--out", "out"],
        "one file": ["merge", "sized", "--out", "out/one.safetensors"],
        "shard": [*shard, "out"],
        "reshard": ["reshard", "ranks", "--ranks", "3", "--out", "out"],
        "merge ranks": ["merge", "ranks", "--out", "out"],
        "unfuse": ["unfuse", "model", "--plan", "rules.toml", "--out", "out"],
    }[command]
    before = names(tmp_path)
    assert child(words).returncode == 0
    expected = content(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    done = child(words, signal.SIGTERM)
    assert done.returncode == 143
    assert content(tmp_path / "out") == {}
    again = done.stderr.partition("continue with: ")[2]
    done = child(shlex.split(again)[1:])
    assert done.returncode == 0, done.stderr
    assert "had been copied before" in done.stdout
    assert content(tmp_path / "out") == expected
    assert names(tmp_path) == sorted([*before, "out"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "ksh"])
@pytest.mark.parametrize("name", ["a\nb\t'c\\d$e", "\x1b[31m\x7f", "\u202e\udcff\u00a0\u00fc", "$'x"])
def test_the_command_and_the_folder_can_be_pasted_into_a_shell(child, environment, tmp_path, shell, name):
    if shutil.which(shell) is None:
        pytest.skip("there is no such shell")
    shutil.move(tmp_path / "x.npy", tmp_path / f"{name}.npy")
    words = ["split", f"{name}.npy", "--axis", "1", "--parts", "2", "-o", f"{name} parts"]
    [line] = child(words, signal.SIGTERM).stderr.splitlines()
    assert line.isprintable()
    folder, _, command = line.partition("kept in ")[2].partition(": delete it, or continue with: ")
    again = command.replace("splitops", shlex.join([sys.executable, "-c", CHILD, "0", "add"]), 1)
    how = {"cwd": tmp_path, "env": environment, "check": True, "capture_output": True, "text": True}
    done = subprocess.run([shell, "-c", f"test -d {folder} && {again} && ! test -e {folder}"], **how)
    assert "had been copied before" in done.stdout
    assert len(names(tmp_path / f"{name} parts")) == 2


def test_an_interrupt_before_the_first_step_is_done_keeps_nothing_and_says_so(child, tmp_path):
    """The first task is the only one."""
    np.save(tmp_path / "x.npy", ARRAY[:6])
    done = child([*SPLIT, "--verify"], signal.SIGTERM, at="copy")
    assert (done.returncode, done.stderr) == (143, "splitops: interrupted; none of the 11.7 KiB was kept\n")
    assert names(tmp_path) == ["x.npy"]


def test_an_interrupt_of_files_that_take_their_places_does_not_say_that_nothing_is_kept(child, tmp_path):
    done = child(SPLIT, signal.SIGTERM, at="publish")
    assert (done.returncode, done.stderr) == (143, "splitops: interrupted\n")
    assert names(tmp_path / "out") == ["x.0.npy", "x.1.npy", "x.2.npy"]
    assert names(tmp_path) == ["out", "x.npy"]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_whose_exception_python_drops_ends_the_command(child, tmp_path, number):
    done = child(SPLIT, number, at="destructor", timeout=50)
    assert (done.returncode, done.stderr) == (128 + number, "splitops: interrupted\n")
    assert names(tmp_path) == ["x.npy"]


def test_what_cannot_be_resumed_is_only_interrupted(child, tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("a", data=ARRAY, chunks=(10, 100))
    (tmp_path / "x.npy").unlink()
    done = child(["split", "x.h5", "--axis", "0", "--parts", "6", "--out", "out"], signal.SIGTERM)
    assert (done.returncode, done.stderr) == (143, "splitops: interrupted; none of the 1.1 MiB was kept\n")
    assert names(tmp_path) == ["x.h5"]
