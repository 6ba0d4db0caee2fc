"""Change the arithmetic of sizes in every small way that mutmut knows, and see that a test fails each time.

``python dev/tools/mutants.py [MODULE ...]`` tries the mutants of all of :data:`MODULES`, or of those named
here (``spec.sizes.names``, ``splitting.binding``). It fails where one survives that ``tests/mutants.toml``
does not argue, and where one that is argued there does not survive any more. What was found of a module is
kept until it changes; as soon as all of them are tried, ``docs/mutants.md`` is written.

mutmut makes the mutants; the tests are collected once, and each mutant gets a process of its own, forked from
there, in which it takes the place of its function and the tests that reach this function run, quickest first.
"""

from __future__ import annotations

import gc
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from datetime import date
from difflib import unified_diff
from functools import _lru_cache_wrapper
from importlib import import_module
from math import ceil
from operator import attrgetter
from pathlib import Path
from textwrap import dedent
from types import FrameType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/splitops"
ARGUED = ROOT / "tests/mutants.toml"
KEPT = ROOT / "build/mutants.json"
PAGE = ROOT / "docs/mutants.md"

MODULES = ("splitting/planning.py", "splitting/binding/*.py", "spec/sizes/*.py", "spec/elements/packing.py")
TESTS = (
    "tests/sizes",
    "tests/test_packing.py",
    "tests/core/test_planning.py",
    "tests/core/test_binding.py",
    "tests/core/test_errors.py",
    "tests/core/test_properties.py",
    "--deselect=tests/core/test_properties.py::test_a_concatenation_of_the_parts_is_the_data",  # of bytes
)
MEMORY = 8 << 30
"""The address space of a process with a mutant, which may ask for more than there is."""
KILLED = ("killed", "out of time")


INTRODUCTION = """\
# How mutants are found

A test that cannot fail proves nothing. `python3.11 tasks.py mutants` changes the code that computes sizes in
every small way that [mutmut](https://mutmut.readthedocs.io) knows, one change at a time: a number by one, `<`
to `<=`, an argument left out, a message in capitals. A mutant is killed if a test fails or does not end. The
command fails if a new mutant survives. This page is its output of {date}.
"""
ARGUMENTS = """\
## Argued

These mutants survive, and should: no caller can see a difference.
"""


@dataclass(frozen=True, order=True)
class Change:
    """One mutant by its content: lines move, and mutmut's numbers move with them."""

    function: str
    before: str
    after: str


@dataclass(frozen=True)
class Mutant:
    """A changed function.

    Attributes:
        module: its module, below the package.
        function: its name in there, ``Class.method`` for a method.
        name: the name under which ``source`` defines it.
        source: its definition.
        change: what is changed.
    """

    module: str
    function: str
    name: str
    source: str
    change: Change

    @property
    def original(self) -> FunctionType:
        """The function that it takes the place of."""
        found = attrgetter(self.function)(import_module(f"splitops.{self.module}"))
        assert isinstance(found, FunctionType)
        return found

    def put_in(self) -> None:
        """Change the function, for everyone who has it already."""
        original = self.original
        names = dict(original.__globals__)
        exec("from __future__ import annotations\n" + self.source, names)  # noqa: S102 - of our own code
        mutated = names[self.name]
        original.__code__ = mutated.__code__
        original.__defaults__, original.__kwdefaults__ = mutated.__defaults__, mutated.__kwdefaults__


def mutants_of(module: str, path: Path) -> Iterator[Mutant]:
    """Make the mutants of a module."""
    from mutmut.mutation.file_mutation import mutate_file_contents

    made = mutate_file_contents(str(path), path.read_text("utf-8"))
    lines, spans = made.code.splitlines(), made.line_span_by_function_name

    def source(name: str) -> str:
        return dedent("\n".join(lines[spans[name].start - 1 : spans[name].end])).strip()

    for name in made.mutant_names:
        mangled = name.partition("__mutmut_")[0]
        function = mangled.removeprefix("x_").replace("xǁ", "").replace("ǁ", ".")
        original = f"{mangled}__mutmut_orig"
        change = Change(f"{module}.{function}", *_sides(source(original), source(name), original, name))
        yield Mutant(module, function, name, source(name), change)


def _sides(before: str, after: str, *names: str) -> tuple[str, str]:
    """Return the lines in which two definitions differ, beside their names, as they were and as they are."""
    for name in names:
        before, after = (text.replace(name, "", 1) for text in (before, after))
    changed = list(unified_diff(before.splitlines(), after.splitlines(), n=0))[2:]
    sides = ([line[1:].strip() for line in changed if line.startswith(sign)] for sign in "-+")
    removed, added = (" ".join(side) for side in sides)
    return removed, added


@dataclass(frozen=True, eq=False)
class Measured:
    """A collected test, how long it takes and which functions it reaches, by their code."""

    item: pytest.Item
    seconds: float
    reached: frozenset[int]


Found = dict[str, dict[str, list[Change]]]
"""The mutants of each module, by the result of them."""


class Trials:
    """A plugin of pytest that runs the tests for each mutant instead of once."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self.mutants = mutants
        self.found: Found = defaultdict(lambda: defaultdict(list))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutants."""
        forget = _forgetting()
        forget()
        tests = _measured(session.items, self.mutants, forget)
        limit = 10 + 3 * ceil(sum(test.seconds for test in tests))
        gc.collect()
        gc.freeze()  # so that collecting in a process copies no page of this one
        killing: dict[int, set[Measured]] = defaultdict(set)
        for number, mutant in enumerate(self.mutants, 1):
            code = id(mutant.original.__code__)
            of_it = [test for test in tests if code in test.reached]
            # First those that have killed another mutant of the function.
            of_it.sort(key=lambda test: (test not in killing[code], test.seconds))
            status, killer = _try(mutant, of_it, limit) if of_it else ("no tests", None)
            if killer is not None:
                killing[code].add(killer)
            if status != "killed":
                print(f"{number} of {len(self.mutants)}: {status}: {mutant.change}", flush=True)
            self.found[mutant.module][status].append(mutant.change)
        return True


def _forgetting() -> Callable[[], None]:
    """Return what forgets all that is remembered: what the code gave before would hide what is changed."""
    caches = [known for known in gc.get_objects() if isinstance(known, _lru_cache_wrapper)]
    ours = [known for known in caches if str(known.__module__).startswith("splitops")]
    rows = import_module("splitops.splitting.binding.compiled_schema")._ROWS

    def forget() -> None:
        rows.clear()
        for known in ours:
            known.cache_clear()

    return forget


def _try(mutant: Mutant, tests: Sequence[Measured], limit: int) -> tuple[str, Measured | None]:
    """Return what becomes of a mutant, and the test that kills it."""
    failing = multiprocessing.Value("i", lock=False)

    def passes() -> bool:
        mutant.put_in()
        found = _failing([test.item for test in tests])
        if found is not None:
            failing.value = found
        return found is None

    status = outcome(passes, limit)
    return status, tests[failing.value] if status == "killed" else None


def _failing(items: Sequence[pytest.Item]) -> int | None:
    """Run tests until one fails; return which, if any."""
    for index, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
        if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
            return index
    return None


def _measured(
    items: Sequence[pytest.Item], mutants: Iterable[Mutant], forget: Callable[[], None]
) -> list[Measured]:
    """Run the tests as they are, each as if it were the first, in a process of their own."""
    wanted = {id(mutant.original.__code__) for mutant in mutants}
    reached: set[int] = set()
    fork = multiprocessing.get_context("fork")
    answers, answer = fork.Pipe(duplex=False)

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and id(frame.f_code) in wanted:
            reached.add(id(frame.f_code))

    def measure() -> None:
        for item in items:
            reached.clear()
            forget()
            begun = time.process_time()
            sys.settrace(note)
            passed = _failing([item]) is None
            sys.settrace(None)
            answer.send((passed, time.process_time() - begun, frozenset(reached)))

    process = fork.Process(target=measure)
    process.start()
    answer.close()
    tests = []
    for item in items:
        passed, *found = answers.recv()
        if not passed:
            sys.exit(f"{item.nodeid} fails without any mutant")
        tests.append(Measured(item, *found))
    process.join()
    return tests


def outcome(passes: Callable[[], bool], seconds: int) -> str:
    """Return what becomes of tests in a process of their own that has so many seconds of a processor."""
    import resource  # not on Windows, where nothing forks either

    survived, failed = 0, 3

    def run() -> None:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        sys.exit(survived if passes() else failed)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    statuses = {survived: "survived", failed: "killed", -signal.SIGXCPU: "out of time"}
    return statuses.get(process.exitcode, "error")


def files() -> dict[str, Path]:
    """Return the files to change by the names of their modules, below the package."""
    paths = sorted(path for pattern in MODULES for path in PACKAGE.glob(pattern))
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


def run(modules: Sequence[str]) -> Found:
    """Try the mutants of some modules, or of all."""
    asked = [
        module
        for module in files()
        if not modules or any(f"{module}.".startswith(f"{name}.") for name in modules)
    ]
    if not asked:
        sys.exit(f"nothing is changed in {', '.join(modules)}")
    mutants = [mutant for module in asked for mutant in mutants_of(module, files()[module])]
    os.environ.setdefault("HYPOTHESIS_PROFILE", "mutants")
    trials = Trials(mutants)
    status = pytest.main(["-q", "-s", "-p", "no:xdist", "-p", "no:cacheprovider", *TESTS], plugins=[trials])
    if status != pytest.ExitCode.OK:
        sys.exit(int(status))
    return {module: trials.found[module] for module in asked}


def keep(found: Found, code: dict[str, str]) -> None:
    """Keep what was found, with the digest of the code that it was found of."""
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    for module, by_status in found.items():
        changes = {status: [astuple(change) for change in of_it] for status, of_it in by_status.items()}
        kept[module] = {"code": code[module], "found": changes}
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(kept), "utf-8")


def kept() -> Found:
    """Return what was found of modules that are as they were."""
    entries = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    code = digests()
    return {
        module: {
            status: [Change(*change) for change in changes] for status, changes in entry["found"].items()
        }
        for module, entry in entries.items()
        if entry["code"] == code.get(module)
    }


def digests() -> dict[str, str]:
    """Return what tells the code of each module from any other."""
    return {module: hashlib.sha256(path.read_bytes()).hexdigest() for module, path in files().items()}


def judge(found: Found, argued: dict[Change, str]) -> list[str]:
    """Return what is wrong: survivors that nothing argues, and arguments for what does not survive."""
    survivors = {
        change
        for by_status in found.values()
        for status, changes in by_status.items()
        if status not in KILLED
        for change in changes
    }
    stale = [change for change in argued if change not in survivors and _tried(change, found)]
    return [
        *(f"survives:\n{_entry(change)}" for change in sorted(survivors - argued.keys())),
        *(f"is argued, but does not survive:\n{_entry(change)}" for change in sorted(stale)),
    ]


def _tried(change: Change, found: Found) -> bool:
    return any(change.function.startswith(f"{module}.") for module in found)


def _entry(change: Change) -> str:
    sides = (("function", change.function), ("before", change.before), ("after", change.after))
    return "[[argued]]\n" + "".join(f"{name} = '''{text}'''\n" for name, text in sides)


def read_argued() -> dict[Change, str]:
    """Return the mutants that may survive, with the reason why."""
    entries = tomllib.loads(ARGUED.read_text("utf-8")).get("argued", [])
    return {Change(e["function"], e["before"], e["after"]): e["reason"] for e in entries}


def table(found: Found, argued: dict[Change, str]) -> str:
    """Return the table of the modules."""
    lines = [
        "| module | mutants | killed | out of time | argued | surviving |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    totals: Counter[str] = Counter()
    for module in sorted(module for module in found if found[module]):
        counts = Counter({status: len(changes) for status, changes in found[module].items()})
        left = [c for status in counts if status not in KILLED for c in found[module][status]]
        counts["argued"] = sum(change in argued for change in left)
        counts["surviving"] = len(left) - counts["argued"]
        lines.append(_row(f"`splitops.{module}`", counts))
        totals += counts
    return "\n".join([*lines, _row("all", totals)]) + "\n"


def _row(name: str, counts: Counter[str]) -> str:
    columns = [counts[status] for status in (*KILLED, "argued", "surviving")]
    return f"| {name} | {sum(columns)} | {' | '.join(map(str, columns))} |"


def page(found: Found, argued: dict[Change, str]) -> str:
    """Return the page of the documentation."""
    reasons: dict[str, list[Change]] = defaultdict(list)
    for change, reason in argued.items():
        reasons[reason].append(change)
    lines = [INTRODUCTION.format(date=date.today()), table(found, argued), ARGUMENTS]
    for reason, changes in reasons.items():
        lines += [f"- {reason}", ""]
        lines += [f"    - `{c.function}`: `{c.before}` {_end(c)}" for c in sorted(changes)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _end(change: Change) -> str:
    return f"to `{change.after}`" if change.after else "left out"


def main(modules: list[str]) -> int:
    """Run, and say what is wrong."""
    os.chdir(ROOT)
    code, argued = digests(), read_argued()
    found = run(modules)
    keep(found, code)
    print(table(found, argued))
    wrong = judge(found, argued)
    for message in wrong:
        print(message)
    everything = kept()
    if len(everything) == len(files()) and not judge(everything, argued):
        PAGE.write_text(page(everything, argued), "utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
