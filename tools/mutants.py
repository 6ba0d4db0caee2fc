"""Change the arithmetic of sizes in every small way that mutmut knows, and see that a test fails each time.

``python tools/mutants.py [MODULE ...]`` tries the mutants of all modules that ``[tool.mutmut]`` of
pyproject.toml names, or of those named here (``sizes.names``, ``binding``). It fails where one survives that
``tests/mutants.toml`` does not argue, and where one that is argued there does not survive any more. A run of
all modules writes ``docs/mutants.md``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "mutants"
ARGUED = ROOT / "tests/mutants.toml"
PAGE = ROOT / "docs/mutants.md"
KILLED = ("killed", "caught by type check")


INTRODUCTION = """\
# Mutants

A test that cannot fail proves nothing. `python3.11 tasks.py mutants` changes the code that decides sizes in
every small way that [mutmut](https://mutmut.readthedocs.io) knows, one at a time: a number by one, `<` to
`<=`, an argument left out, a message in capitals. A mutant is killed where a test fails, or where the type
checker, which every change has to pass too, refuses it. A new one that survives fails the command. This page
is its output.
"""
ARGUMENTS = """\
## Argued

These survive, and should: no caller can tell them from the code.
"""


@dataclass(frozen=True, order=True)
class Change:
    """One mutant by its content: lines move, and mutmut's numbers move with them."""

    function: str
    before: str
    after: str


def prepare() -> None:
    """Let the tests import the mutated package, with the native core of the installed one."""
    spec = importlib.util.find_spec("splitops.native._core")
    for name in [name for name in sys.modules if name.partition(".")[0] == "splitops"]:
        del sys.modules[name]
    shutil.rmtree(WORK, ignore_errors=True)
    if spec is not None and spec.origin is not None:
        native = WORK / "src/splitops/native"
        native.mkdir(parents=True)
        shutil.copy2(spec.origin, native)
    # An editable install finds the package that is not mutated, whatever the path says.
    sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
    os.environ["PATH"] = (
        f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of the type checker
    )
    os.environ.setdefault("HYPOTHESIS_PROFILE", "mutants")


def run(modules: list[str]) -> dict[str, dict[str, list[Change]]]:
    """Try the mutants; return those of each module by what became of them."""
    from mutmut.__main__ import cli
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    names = [f"splitops.{module}.*" for module in modules]
    cli(["run", "--max-children", "1", *names], standalone_mode=False)
    found: dict[str, dict[str, list[Change]]] = defaultdict(lambda: defaultdict(list))
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        for name, code in data.exit_code_by_key.items():
            status = status_by_exit_code[code]
            if status == "not checked":
                continue
            module, _, mutant = name.removeprefix("splitops.").rpartition(".")
            function = mutant.partition("__mutmut")[0].removeprefix("x_").replace("xǁ", "").replace("ǁ", ".")
            diff = "" if status in KILLED else get_diff_for_mutant(name, path=path)
            found[module][status].append(Change(f"{module}.{function}", *_sides(diff)))
    return found


def _sides(diff: str) -> tuple[str, str]:
    """Return the changed lines of a diff as they were and as they are."""
    lines = [line for line in diff.splitlines()[2:] if not line.startswith("@@")]
    sides = ([line[1:].strip() for line in lines if line.startswith(sign)] for sign in "-+")
    before, after = (" ".join(side) for side in sides)
    return before, after


def judge(found: dict[str, dict[str, list[Change]]], argued: dict[Change, str]) -> list[str]:
    """Return what is wrong: survivors that nothing argues, and arguments for what does not survive."""
    survivors = {
        change
        for by_status in found.values()
        for status, changes in by_status.items()
        if status not in (*KILLED, "timeout")
        for change in changes
    }
    stale = [change for change in argued if change not in survivors and _tried(change, found)]
    return [
        *(f"survives:\n{_entry(change)}" for change in sorted(survivors - argued.keys())),
        *(f"is argued, but does not survive:\n{_entry(change)}" for change in sorted(stale)),
    ]


def _tried(change: Change, found: dict[str, dict[str, list[Change]]]) -> bool:
    return any(change.function.startswith(f"{module}.") for module in found)


def _entry(change: Change) -> str:
    sides = (("function", change.function), ("before", change.before), ("after", change.after))
    return "[[argued]]\n" + "".join(f"{name} = '''{text}'''\n" for name, text in sides)


def read_argued() -> dict[Change, str]:
    """Return the mutants that may survive, with the reason why."""
    entries = tomllib.loads(ARGUED.read_text("utf-8")).get("argued", [])
    return {Change(e["function"], e["before"], e["after"]): e["reason"] for e in entries}


def table(found: dict[str, dict[str, list[Change]]], argued: dict[Change, str]) -> str:
    """Return the table of the modules."""
    lines = [
        "| module | mutants | killed by a test | by the type checker | out of time | argued | surviving |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    totals: Counter[str] = Counter()
    for module in sorted(found):
        counts = Counter({status: len(changes) for status, changes in found[module].items()})
        left = [c for status in counts if status not in (*KILLED, "timeout") for c in found[module][status]]
        counts["argued"] = sum(change in argued for change in left)
        counts["surviving"] = len(left) - counts["argued"]
        lines.append(_row(f"`splitops.{module}`", counts))
        totals += counts
    return "\n".join([*lines, _row("all", totals)]) + "\n"


def _row(name: str, counts: Counter[str]) -> str:
    columns = [counts[status] for status in (*KILLED, "timeout", "argued", "surviving")]
    return f"| {name} | {sum(columns)} | {' | '.join(map(str, columns))} |"


def page(found: dict[str, dict[str, list[Change]]], argued: dict[Change, str]) -> str:
    """Return the page of the documentation."""
    reasons: dict[str, list[Change]] = defaultdict(list)
    for change, reason in argued.items():
        reasons[reason].append(change)
    lines = [INTRODUCTION, table(found, argued), ARGUMENTS]
    for reason, changes in reasons.items():
        lines += [f"- {reason}", ""]
        lines += [f"    - `{c.function}`: `{c.before}` to `{c.after}`" for c in sorted(changes)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main(modules: list[str]) -> int:
    """Run, and say what is wrong."""
    os.chdir(ROOT)
    prepare()
    found, argued = run(modules), read_argued()
    print(table(found, argued))
    wrong = judge(found, argued)
    for message in wrong:
        print(message)
    if not modules and not wrong:
        PAGE.write_text(page(found, argued), "utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
