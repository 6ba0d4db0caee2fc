"""``splitops.compare``: the implementations are found, the cases asked, the report made."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import splitops
from splitops.comparison.cases import build, find, generated, listed, named
from splitops.comparison.driver.finding import Column, columns
from splitops.comparison.driver.judging import expected_of
from splitops.comparison.driver.models import cases_of_model
from splitops.comparison.driver.process import Allowance, without_network
from splitops.comparison.driver.run import Run, settled
from splitops.comparison.records import Case, CompareError, Entry, Peer, Report, State, Verdict, Word
from splitops.errors import count_of, shown
from splitops.ground.progress import telling
from splitops.models.check.targets import every_limit

if TYPE_CHECKING:
    from splitops.models.formats.files import AnyModel

_MOST_JOBS: Final = 8


def compare(
    implementations: Sequence[str] | None = None,
    *,
    operators: Sequence[str] = (),
    cases: Sequence[str] = (),
    generate: int = 0,
    seed: int = 0,
    model: AnyModel | None = None,
    inputs: Mapping[str, Any] | None = None,
    commands: Mapping[str, str] | None = None,
    pythons: Sequence[tuple[str, str]] = (),
    settings: Sequence[tuple[str, Mapping[str, str]]] = (),
    seconds: float = 30,
    memory: int = 4 << 30,
    shrink_seconds: float = 5,
    jobs: int | None = None,
    allow_links: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Report:
    """Ask every runtime, compiler, converter and simplifier that is here what it makes of the split family.

    Each implementation has processes of its own, so that it may crash or hang. A disagreement is a
    finding once two fresh processes have done the same, and is shrunk to the smallest case that does.

    Args:
        implementations: names, such as ``"onnxruntime"``; None is all that are installed.
        operators: such as ``"Split-18"``, ``"VariadicSplit"``; none is all.
        cases: names of cases; none is all that are listed.
        generate: so many cases more, drawn at random; of them, too, those of ``operators`` alone are
            asked. They are named ``"generated/SEED/INDEX"``.
        seed: of these; it gives the same cases for the same release of splitops.
        model: a model that is asked in the place of our cases: each of its splits cut out, with the sizes
            and values that it has for the inputs, and the model as a whole.
        inputs: of the model, arrays by name; None makes some.
        commands: executables that speak the protocol of ``schemas/messages.json``, by the name that they get.
        pythons: pairs of an adapter and the Python of another environment, whose implementation is asked too.
        settings: pairs of an adapter and the values of its settings that one more column has.
        seconds: that an implementation has for one case.
        memory: bytes of resident memory that an implementation may take.
        shrink_seconds: for each finding; 0 shrinks none.
        jobs: so many implementations at once; None is as many as there are cores.
        allow_links: of a path, whether links to the model's other files may lead out of its folder, as in
            :func:`splitops.load`.
        tell: called with one line about each implementation as soon as it is done.

    Returns:
        The implementations, the cases and the verdicts; after Ctrl-C what is known by then, with
        ``environment["stopped"]`` True.

    Raises:
        CompareError: there is no such implementation, setting, case or operator, or none at all.
        ModelError: the model cannot be read, or no inputs can be made for it.

    Examples:
        >>> report = splitops.compare(["onnxruntime"], operators=["Split-18"])  # doctest: +SKIP
        >>> [entry.id for entry, peer, verdict in report.findings]  # doctest: +SKIP
        ['split-18/ceil/5-into-4/float32/static', ...]
    """
    if model is None:
        asked = chosen_cases(operators, cases, generate, seed)
    else:
        asked = cases_of_model(model, inputs, allow_links=allow_links)
    if not hasattr(os, "sched_getaffinity"):
        raise CompareError(f"comparisons run on Linux alone, not on {platform.system()}")
    jobs = jobs or min(_MOST_JOBS, len(os.sched_getaffinity(0)))
    allowance = Allowance(seconds=seconds, memory=memory)
    found, failed = columns(allowance, implementations, commands, pythons, settings, jobs=jobs)
    if not found and not failed:
        raise CompareError("no implementation is installed: pip install 'splitops[compare]'")
    run = Run(asked, found, allowance, shrink_seconds=shrink_seconds, jobs=jobs)
    return reported(run, failed, tell)


def chosen_cases(operators: Sequence[str], ids: Sequence[str], generate: int, seed: int) -> tuple[Case, ...]:
    """Return the cases that are asked for, and their baselines."""
    wanted = {name: find(name) for name in ids} if ids else dict(listed())
    if generate:
        wanted |= generated(generate, seed)
    found = {name: build(one) for name, one in wanted.items()}
    for operator in operators:
        if not any(_is_of(case, operator) for case in found.values()):
            raise CompareError(f"there is no case of an operator {shown(operator)}")
    chosen = [case for case in found.values() if not operators or any(_is_of(case, o) for o in operators)]
    baselines = {case.baseline: wanted[case.id].baseline for case in chosen}
    missing = sorted({name for name in baselines if name is not None} - {case.id for case in chosen})
    return (*chosen, *(build(named(record)) for name in missing if (record := baselines[name]) is not None))


def _is_of(case: Case, operator: str) -> bool:
    """Whether a case is of an operator, named with its version or without, with its domain or without."""
    full = case.operator
    bare = full.rpartition(":")[2]
    return operator in (full, bare, full.rpartition("-")[0], bare.rpartition("-")[0])


def reported(run: Run, failed: Sequence[Peer] = (), tell: Callable[[str], None] | None = None) -> Report:
    """Ask everything and report; see :func:`compare`."""
    started = datetime.now(UTC)
    stopped = _told(run, tell or (lambda line: None))
    environment = {
        "splitops": splitops.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "time": started.isoformat(timespec="seconds"),
        "network": not without_network(),
        "stopped": stopped,
    }
    found = {column.peer.name: settled(run.cases, run.verdicts[column.peer.name]) for column in run.columns}
    rows = tuple(_entry(case, run.columns, found) for case in run.cases)
    peers = (*(_seen(column.peer, rows) for column in run.columns), *failed)
    return Report(environment=environment, peers=peers, entries=rows)


def _told(run: Run, tell: Callable[[str], None]) -> bool:
    """Run everything, and return whether it was stopped before its end."""
    started = time.monotonic()
    left = {column.peer.name: len(run.cases) for column in run.columns}
    total = sum(left.values())

    def known(column: Column, case: Case, final: bool) -> None:
        peer = column.peer
        left[peer.name] -= final
        progress(total - sum(left.values()), f"{peer.name} {case.id}")
        if final and not left[peer.name]:
            tell(_line(peer, run.cases, run.verdicts[peer.name], time.monotonic() - started))

    try:
        with telling("compare", total) as progress:
            run.ask(known)
    except KeyboardInterrupt:
        return True
    return False


def _line(peer: Peer, cases: Sequence[Case], verdicts: Mapping[str, Verdict], seconds: float) -> str:
    found = sum(verdict.counts for verdict in settled(cases, verdicts).values())
    numbers = f"{count_of(len(cases), 'case')}, {count_of(found, 'deviation')}"
    return f"{peer.name} {next(iter(peer.versions.values()), '')}: {numbers}, after {seconds:.0f} s"


def _entry(case: Case, asked: Sequence[Column], found: Mapping[str, Mapping[str, Verdict]]) -> Entry:
    verdicts = {}
    for column in asked:
        verdict = found[column.peer.name].get(case.id)
        if verdict is not None:
            limit = _limit(case, column.peer.adapter) if verdict.is_finding else None
            verdicts[column.peer.name] = replace(verdict, limit=limit)
    return Entry(
        id=case.id,
        operator=case.operator,
        format=case.format,
        rule=case.rule,
        title=case.title,
        valid=case.valid,
        record=case.record,
        expected=expected_of(case),
        baseline=case.baseline,
        verdicts=verdicts,
    )


def _limit(case: Case, adapter: str) -> str | None:
    """Return the code of the limit of ``check`` that a finding is proof of."""
    for limit in every_limit():
        if limit.case == case.id and limit.runtime in (adapter, adapter.partition("_")[0]):
            return limit.code
    return None


def _seen(peer: Peer, rows: Sequence[Entry]) -> Peer:
    """Return an implementation, dead where no valid case passed though some were asked."""
    words = [entry.verdicts[peer.name].word for entry in rows if entry.valid and peer.name in entry.verdicts]
    asked = [word for word in words if word is not Word.NOT_APPLICABLE]
    if asked and Word.AGREES not in asked:
        return replace(peer, state=State.NO_RESULT, detail="it fails every valid case")
    return peer
