"""Every command on an attacker's folder: nothing outside is read or written, and nothing waits or grows."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import h5py
import numpy as np
import pytest
from hostile_folders import CANARY, FOLDERS, NOT_UTF8, OUTSIDE, Attack, attacks

import splitops
from splitops.cli import cli

TESTS = Path(__file__).parents[1]

# A word in braces is a file of the folder with this ending, or its folder; OUT is a new path.
MODEL = ("onnx", "ir")
ONE_FILE = ("checkpoint", "lone_gguf", "hdf5", "arrays", "zarr", "zarr2", "zarr_group", *MODEL)
SEVERAL = ("indexed", "numbered", "gguf")
CHECKPOINT = ("checkpoint", "indexed", "numbered", "gguf", "lone_gguf")
FOREIGN = ("foreign", "consolidated")
RANKS = ("ranks", "distributed", *FOREIGN)
TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "check": {
        "check {model}": MODEL,
        "check {model} --json": MODEL,
        "check {onnx} --for {target.toml}": ("documents",),
    },
    "compare": {
        "compare x=true --model {model} --seconds 5": MODEL,
        "compare x=true --diff {report.json}": ("documents",),
        "compare x=true --expect {expected.toml}": ("documents",),
    },
    "convert": {
        "convert {onnx} --to openvino -o OUT.xml": ("onnx",),
        "convert {xml} --to onnx:18 -o OUT.onnx": ("ir",),
    },
    "diff": {"diff Split 13 18": ("documents",)},
    "explain": {"explain --shape 6,12 --axis 1 --parts 3": ("documents",)},
    "fix": {"fix {model} --for onnxruntime -o OUT": MODEL},
    "index": {
        # It writes into the folder itself: test_staging_folders.py attacks such runs.
        "index {folder} --dry-run": (*CHECKPOINT, *RANKS),
        "index {folder} --include * --dry-run --json": CHECKPOINT,
    },
    "infer": {"infer {model} --json": MODEL},
    "inspect": {
        "inspect {file}": (*ONE_FILE, *SEVERAL, *RANKS),
        "inspect {file} --json": ONE_FILE,
        "inspect --check {sums}": ("documents",),
    },
    "merge": {
        "merge {folder} --out OUT": (*CHECKPOINT, *RANKS),
        "merge {onnx} --out OUT.onnx": ("onnx",),
        "merge {folder} --plan PLAN --out OUT": FOREIGN,
        "merge {file} {file} --out OUT.npy": ("zarr", "zarr2", "hdf5", "arrays"),
    },
    "fuse": {
        "fuse {folder} --plan {plan.json} --out OUT": ("documents",),
        "fuse {folder} --plan PLAN --out OUT": CHECKPOINT,
        "fuse {folder} --plan {rules.json} --base {folder} --out OUT": ("adapter",),
    },
    "unfuse": {
        "unfuse {folder} --plan {plan.json} --out OUT": ("documents",),
        "unfuse {folder} --plan PLAN --out OUT": CHECKPOINT,
    },
    "report-environment": {"report-environment": ("documents",)},
    "reshard": {"reshard {folder} --ranks 1 --out OUT": (*RANKS, *CHECKPOINT)},
    "rule": {"rule lengths.sum": ("documents",)},
    "run": {"run {model} --out OUT": MODEL, "run {model} --json": MODEL},
    "shard": {
        "shard {folder} --ranks 2 --plan auto --out OUT": CHECKPOINT,
        "shard {folder} --ranks 2 --plan {plan.toml} --out OUT": ("documents",),
        "shard {folder} --ranks 2 --plan PLAN --out OUT": (*RANKS, *CHECKPOINT, *MODEL),
    },
    "simplify": {"simplify {model} -o OUT": MODEL},
    "spec": {"spec Split": ("documents",)},
    "split": {
        "split {file} --parts 2 --out OUT": ("hdf5", "arrays", "zarr", "zarr2", "zarr_group", *MODEL),
        "split {file} --tensor w.a --parts 2 --out OUT": ("checkpoint", "lone_gguf"),
        "split {file} --parts 2 --to npy --out OUT --keep-other-tensors": ("zarr", "zarr_group", "hdf5"),
        "split {folder} --max-size 200 --out OUT": (*CHECKPOINT, *RANKS),
        "split {file} --max-size 200 --out OUT": (*SEVERAL, *MODEL),
    },
    "targets": {"targets {target.toml}": ("documents",)},
}  # fmt: skip
"""What is run of each command, and on which folders."""


def test_every_command_is_run() -> None:
    assert set(TEMPLATES) == set(cli.list_commands(click.Context(cli)))


def arguments_of(attack: Attack, template: str, out: Path, plan: Path) -> list[str] | None:
    """Fill in a template; None where the folder has no such file."""
    found = []
    for word in template.split():
        if word.startswith("{"):
            path = _file(attack, word.strip("{}"))
            if path is None:
                return None
            word = str(path)
        found.append(word.replace("OUT", str(out)).replace("PLAN", str(plan)))
    return found


def _file(attack: Attack, word: str) -> Path | None:
    if word == "folder":
        return attack.folder
    endings = {
        "model": (".onnx", ".xml"),
        "file": (".npy", ".npz", ".safetensors", ".json", ".gguf", ".onnx", ".xml", ".h5", ".zarr"),
    }
    known = endings.get(word, (word,))
    names = sorted(path for path in attack.folder.iterdir() if path.name.endswith(known))
    names = [path for path in names if word != "file" or path.name not in ("config.json", "manifest.json")]
    return next(iter(names), None)


# What happens outside -----------------------------------------------------------------------------------


class Opened:
    """The files of folders that any process opens, as Linux tells."""

    def __init__(self, folder: Path) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self._library.inotify_init1(os.O_NONBLOCK)
        self.folders = {}
        for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            # IN_OPEN, IN_MODIFY, IN_CREATE, IN_DELETE, IN_MOVED_FROM, IN_MOVED_TO, IN_ATTRIB
            number = self._library.inotify_add_watch(
                self.descriptor, os.fsencode(path), 0x20 | 0x2 | 0x3C0 | 4
            )
            self.folders[number] = path

    def take(self) -> list[str]:
        """Return what was opened or changed since it was last asked."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while content := os.read(self.descriptor, 1 << 16):
                at = 0
                while at < len(content):
                    number, mask, _, size = struct.unpack_from("iIII", content, at)
                    name = content[at + 16 : at + 16 + size].rstrip(b"\0").decode()
                    found.append(f"{self.folders[number] / name} ({mask:#x})")
                    at += 16 + size
        return found


class Worker:
    """A process that runs jobs, started anew where one has ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            source = str(Path(splitops.__file__).parents[1])
            paths = os.pathsep.join([source, str(TESTS)])
            settings = {
                "PYTHONPATH": paths,
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONWARNINGS": "ignore",
            }
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("hostile_worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=os.environ | settings,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('{"end"'):
                answer: dict[str, Any] = json.loads(line)
                return answer
        code = self._process.wait()
        self.close()
        return {"code": code, "said": "", "seen": [], "traceback": f"the process ended with {code}"}

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    found = Worker()
    yield found
    found.close()


def state_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return what changes with the files of a folder."""
    found = {str(path): path.lstat() for path in (folder, *folder.rglob("*"))}
    return {name: (one.st_mode, one.st_size, one.st_mtime_ns) for name, one in found.items()}


def wrongs(answer: dict[str, Any], out: Path) -> Iterator[str]:
    """Yield what a job has done that no command may do."""
    if answer["traceback"]:
        yield answer["traceback"]
    if answer["code"] not in (0, 1, 2, 3):
        yield f"exit code {answer['code']}"
    yield from answer["seen"]
    if CANARY in answer["said"]:
        yield f"shows what is outside: {answer['said']}"
    for path in out.rglob("*"):
        if stat.S_ISREG(path.lstat().st_mode) and CANARY.encode() in path.read_bytes()[: 1 << 20]:
            yield f"{path} holds what is outside"


class Yard:
    """Where attacks are made, what is outside of them, and where commands write."""

    def __init__(self, path: Path, worker: Worker) -> None:
        self.outside, self.path, self._worker = path / "outside", path, worker
        self.count = 0
        self.plan = path / "plan.json"
        self.plan.write_text('{"version": 1, "rule": [{"match": "*", "axis": 0}]}')

    def run(self, folder: Path, arguments: list[str], out: Path) -> list[str]:
        """Run a command, and return what it has done wrong."""
        self.count += 1
        places = {"inside": f"{folder}/", "outside": f"{self.outside}/", "folder": str(folder)}
        answer = self._worker.ask({"number": self.count, "arguments": arguments, **places})
        found = [f"{' '.join(arguments)}: {wrong}" for wrong in wrongs(answer, out)]
        shutil.rmtree(out)
        return found


@pytest.fixture
def yard(tmp_path: Path, worker: Worker) -> Yard:
    return Yard(tmp_path, worker)


@pytest.mark.skipif(sys.platform != "linux", reason="inotify and /proc are Linux's")
@pytest.mark.parametrize("name", FOLDERS)
def test_no_command_leaves_an_attackers_folder(yard: Yard, tmp_path: Path, name: str) -> None:
    every = bool(os.environ.get("SPLITOPS_EVERY_ATTACK"))
    todo = list(attacks(name, tmp_path / "attacks", yard.outside, every=every))
    templates = [text for of in TEMPLATES.values() for text, names in of.items() if name in names]
    opened, before = Opened(yard.outside), state_of(yard.outside)
    opened.take()
    found: list[str] = []
    for attack in todo:
        for template in templates:
            out = tmp_path / "out" / "o"
            arguments = arguments_of(attack, template, out, yard.plan)
            if arguments is None or (attack.kind in OUTSIDE and str(attack.changed) in arguments):
                continue
            if attack.kind == "giant" and "--check" in arguments:
                continue  # a file that is named is read, however large it is
            out.parent.mkdir()
            wrong = [*yard.run(attack.folder, arguments, out.parent), *opened.take()]
            found += [f"{attack.kind} {attack.changed.name}: {one}" for one in wrong]
    assert not found, "\n".join([f"{len(found)} wrongs", *found[:40]])
    assert state_of(yard.outside) == before
    assert yard.count


@pytest.mark.skipif(sys.platform != "linux", reason="inotify and /proc are Linux's")
def test_a_command_that_leaves_the_folder_is_seen(yard: Yard, tmp_path: Path) -> None:
    """The same command with --allow-links: every sign is there."""
    [attack] = (
        attack
        for attack in attacks("checkpoint", tmp_path / "attacks", yard.outside)
        if attack.kind == "linked" and attack.changed.name == "model.safetensors"
    )
    opened = Opened(yard.outside)
    (tmp_path / "out").mkdir()
    template = "split {folder} --max-size 200 --out OUT --allow-links"
    arguments = arguments_of(attack, template, tmp_path / "out" / "o", yard.plan)
    assert arguments is not None
    found = yard.run(attack.folder, arguments, tmp_path / "out")
    assert any("which is outside" in wrong for wrong in found)
    assert any("holds what is outside" in wrong for wrong in found)
    assert any("model.safetensors" in name for name in opened.take())


# Names --------------------------------------------------------------------------------------------------

NAMES = [NOT_UTF8, "x" * 255, "a\nb,c:d", "-x", "\x1b[2J", "a\\b"]
BROKEN = {
    ".onnx": ("check", "check --json", "check --output-format sarif", "check --output-format github"),
    ".xml": ("infer --json", "fix --json", "run", "simplify", "check --output-format sarif"),
    ".safetensors": ("inspect --json", "split --parts 2", "merge --out OUT.npy"),
}


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_file_is_a_traceback(yard: Yard, tmp_path: Path, name: str) -> None:
    (tmp_path / "m").mkdir()
    found = []
    for ending, commands in BROKEN.items():
        path = tmp_path / "m" / f"{name[: 255 - len(ending)]}{ending}"
        path.write_bytes(b"nothing of a model")
        for command in commands:
            (tmp_path / "out").mkdir()
            words = [word.replace("OUT", str(tmp_path / "out" / "o")) for word in command.split()]
            arguments = [words[0], *words[1:], "--", str(path)]
            found += yard.run(tmp_path / "m", arguments, tmp_path / "out")
    assert not found, "\n".join(map(ascii, found))  # names that are not UTF-8 end a report of xdist


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["checkpoint", "ranks", "foreign"])
def test_no_name_beside_a_model_is_a_traceback(yard: Yard, tmp_path: Path, kind: str, name: str) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    FOLDERS[kind](folder, "w")
    (folder / name).write_text("text")
    found = []
    for command in ("split FOLDER --max-size 200", "shard FOLDER --ranks 2 --plan PLAN", "merge FOLDER"):
        (tmp_path / "out").mkdir()
        words = command.replace("FOLDER", str(folder)).replace("PLAN", str(yard.plan)).split()
        found += yard.run(folder, [*words, "--out", str(tmp_path / "out" / "o")], tmp_path / "out")
    assert not found, "\n".join(map(ascii, found))  # names that are not UTF-8 end a report of xdist


# HDF5, whose library opens files itself -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["link", "storage", "virtual", "endless virtual"])
@pytest.mark.parametrize("to", ["file", "pipe"])
def test_hdf5_opens_no_other_file(yard: Yard, tmp_path: Path, kind: str, to: str) -> None:
    yard.outside.mkdir()
    _outside_hdf5(yard.outside / "file")
    os.mkfifo(yard.outside / "pipe")
    (tmp_path / "m").mkdir()
    path, there = tmp_path / "m" / "x.h5", str(yard.outside / to)
    with h5py.File(path, "w") as file:
        if kind == "link":
            file["x"] = h5py.ExternalLink(there, "x")
        elif kind == "storage":
            file.create_dataset("x", (8,), "u1", external=[(there, 0, 8)])
        else:
            endless = kind == "endless virtual"
            layout = h5py.VirtualLayout((8,), "u1", maxshape=(None,) if endless else None)
            source = h5py.VirtualSource(there, "x", (8,), maxshape=(None,) if endless else None)
            layout[: h5py.h5s.UNLIMITED if endless else 8] = source[: h5py.h5s.UNLIMITED if endless else 8]
            file.create_virtual_dataset("x", layout)
    opened = Opened(yard.outside)
    found = []
    for command in ("inspect", "split --parts 2 --out", "split --to npy --parts 2 --out", "merge --out"):
        (tmp_path / "out").mkdir()
        words = command.split()
        out = [str(tmp_path / "out" / "o.npy")] if len(words) > 1 else []
        found += yard.run(tmp_path / "m", [*words, *out, str(path)], tmp_path / "out")
    assert [*found, *opened.take()] == []


def _outside_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.frombuffer(CANARY.encode(), np.uint8)[:8]
