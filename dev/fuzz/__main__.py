"""``python -m dev.fuzz [TARGET [SECONDS]]``: fuzz one target, or ``all``, for so many seconds each.

A run goes on where the last one stopped: what it learns is in ``.fuzz/``. What breaks a target is written to
``dev/fuzz/found/TARGET/``, which the tests replay with the corpus; ``dev/fuzz/spent.json`` counts what was
spent. An input that takes over ten seconds, or over 2 GiB of memory, is a finding. The target ``core`` is the
native core without Python, under the address and undefined-behaviour sanitizers; it needs clang. ``python -m
dev.fuzz keep`` puts the fewest learnt inputs that cover the most into the corpus.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FunctionType
from typing import Final

HERE: Final = Path(__file__).parent
LEARNT: Final = HERE.parents[1] / ".fuzz"
SPENT: Final = HERE / "spent.json"
SECONDS: Final = 60
KEPT: Final = 24
"""Inputs of a target in the corpus, at most: the tests read all of them."""
CORE: Final = "core"
MODULES: Final = (
    "splitops.models.check",
    "splitops.models.convert",
    "splitops.models.infer",
    "splitops.models.fix",
    "splitops.models.simplify",
    "splitops_compare.protocol",
    "splitops.files",
    "splitops.sharding",
)
LIMITS: Final = (
    "-timeout=10",
    "-len_control=0",
    "-rss_limit_mb=2048",
    "-max_len=4096",
    "-print_final_stats=1",
)


def fuzz(target: str) -> None:
    """Fuzz in this process, with the arguments of libFuzzer behind it."""
    import atheris

    from dev.fuzz.targets import TARGETS

    for module in MODULES:
        importlib.import_module(module)
    TARGETS[target](bytes(64))  # what it imports is not timed, and is followed too
    # Function by function, since what finds an editable package hides it from atheris' own hook of imports.
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and str(found.__module__).startswith("splitops"):
            atheris.instrument_func(found)
    # A merge starts itself anew, by a shell and what it takes for its name.
    itself = shlex.join([sys.executable, "-m", "dev.fuzz", "--here", target])
    atheris.Setup([itself, *sys.argv[1:]], TARGETS[target])
    atheris.Fuzz()


def _command(target: str) -> list[str | Path]:
    """Return what starts libFuzzer."""
    if target == CORE:
        return [
            LEARNT.parent / subprocess.check_output([HERE / "core" / "build.sh", LEARNT], text=True).strip()
        ]
    return [sys.executable, "-m", "dev.fuzz", "--here", target]


def _run(target: str, *arguments: str | Path) -> str:
    """Run libFuzzer in a process of its own, and return what it says."""
    process = subprocess.Popen(
        [*map(str, _command(target)), *map(str, arguments)],
        cwd=LEARNT.parent,
        env=os.environ | {"ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    threading.Thread(target=_end_with, args=(process,), daemon=True).start()
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if not line.startswith("INFO") and "NEW" not in line and "REDUCE" not in line:
                sys.stderr.write(line)
    except KeyboardInterrupt:
        process.kill()
        raise
    process.wait()
    return "".join(said)


def _end_with(process: subprocess.Popen[str]) -> None:
    """End what a process has started and not ended: it would keep the pipe open for ever."""
    process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run(target: str, seconds: int) -> bool:
    """Fuzz for so many seconds, and keep what covers more; return whether nothing was found."""
    from dev.fuzz.targets import TESTS

    learnt, corpus, found = LEARNT / target, HERE / "corpus" / target, HERE / "found" / target
    for folder in (learnt, corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    if target in TESTS and not any(learnt.iterdir()):  # from single bytes it takes long to draw anything
        for number in range(8):
            (learnt / str(number)).write_bytes(random.Random(number).randbytes(512))  # noqa: S311
    known = set(found.iterdir())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = _run(
        target,
        learnt,
        corpus,
        found,
        f"-max_total_time={seconds}",
        f"-artifact_prefix={found}{os.sep}",
        *LIMITS,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = json.loads(SPENT.read_text()) if SPENT.exists() else {}
    mine = spent.setdefault(target, {"processor_seconds": 0, "inputs": 0})
    mine["processor_seconds"] += round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    for line in said.splitlines():
        if line.startswith("stat::number_of_executed_units:"):
            mine["inputs"] += int(line.split()[-1])
    SPENT.write_text(json.dumps(dict(sorted(spent.items())), indent=2) + "\n")
    return set(found.iterdir()) == known


def keep(target: str) -> None:
    """Put the learnt inputs that cover the most into the corpus, with the seeds."""
    corpus, learnt = HERE / "corpus" / target, LEARNT / target
    corpus.mkdir(parents=True, exist_ok=True)
    if not learnt.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        _run(target, folder, corpus, learnt, "-set_cover_merge=1", *LIMITS)
        if not any(Path(folder).iterdir()):
            sys.exit(f"nothing came of merging what was learnt of {target}")
        for path in corpus.iterdir():
            if not path.name.startswith("seed-"):
                path.unlink()
        seeds = {path.read_bytes() for path in corpus.iterdir()}
        fresh = [path for path in Path(folder).iterdir() if path.read_bytes() not in seeds]
        for path in sorted(fresh, key=lambda path: (path.stat().st_size, path.name))[:KEPT]:
            shutil.copy(path, corpus / path.name[:12])


def main() -> None:
    """Fuzz what is asked for."""
    from dev.fuzz.targets import TARGETS

    targets, arguments = [*TARGETS, CORE], sys.argv[1:]
    if arguments[:1] == ["keep"]:
        for target in arguments[1:] or targets:
            keep(target)
        return
    names, seconds = arguments[:1], arguments[1:] or [str(SECONDS)]
    if names in ([], ["all"]):
        names = targets
    if not (set(targets) >= set(names) and len(seconds) == 1 and seconds[0].isdecimal()):
        sys.exit(
            f"usage: python -m dev.fuzz [all|{'|'.join(targets)} [SECONDS]]\n"
            "   or: python -m dev.fuzz keep [TARGET ...]"
        )
    clean = [run(target, int(seconds[0])) for target in names]
    for folder in (HERE / kind / name for kind in ("corpus", "found") for name in names):
        if not any(folder.iterdir()):  # other runs may go on in others
            folder.rmdir()
    sys.exit(not all(clean))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        target = sys.argv.pop(2)
        del sys.argv[1]
        fuzz(target)
    else:
        main()
