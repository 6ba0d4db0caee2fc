"""All cases on all implementations: asked, judged, confirmed alone and shrunk, as many as there are cores."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from splitops.comparison.driver.asking import PERTURBATIONS, Asker
from splitops.comparison.driver.finding import Column
from splitops.comparison.driver.judging import judge, same_values
from splitops.comparison.driver.process import Allowance, Nursery
from splitops.comparison.driver.shrinking import shrunk
from splitops.comparison.records import SETTLED, Case, Outcome, Record, Verdict, Word

Verdicts = dict[str, dict[str, Verdict]]
"""By the name of the column and the id of the case."""

Told = tuple[Case, Verdict, Outcome]
_Waiting = tuple["Future[None]", tuple[Column, Case, Verdict, Outcome]]
_MOST_WAITING: Final = 8
"""Findings of an implementation that may wait for a free thread before the next case is asked."""

Tell = Callable[[Column, Case, bool], None]
"""Hears of a verdict that is known, and whether nothing more is asked of it."""


class _Stopped(Exception):  # noqa: N818 - no error
    """Nothing more is asked."""


class Run:
    """One comparison, in which so many threads ask; each finding is shrunk for some seconds, or not at all.

    Its ``verdicts`` are known so far: first as they are seen, then as they are confirmed.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        columns: Sequence[Column],
        allowance: Allowance,
        *,
        shrink_seconds: float,
        jobs: int,
    ) -> None:
        self.cases = cases
        self.columns = columns
        self.verdicts: Verdicts = {column.peer.name: {} for column in columns}
        self._final: Verdicts = {column.peer.name: {} for column in columns}
        self._allowance = allowance
        self._shrink_seconds = shrink_seconds
        self._tell: Tell = lambda column, case, final: None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._askers: set[Asker] = set()
        self._idle: list[tuple[Column, Asker]] = []
        self._nurseries: dict[str, Nursery] = {}
        self._most_idle = 2 * jobs
        self._futures: list[Future[None]] = []
        self._waiting: dict[str, deque[_Waiting]] = {column.peer.name: deque() for column in columns}
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="splitops-compare")

    def ask(self, tell: Tell) -> None:
        """Ask everything, first those that make no models; an interrupt stops it and keeps what is known."""
        self._tell = tell
        try:
            for transforms in (False, True):
                for column in self.columns:
                    if column.transforms is transforms:
                        self._submit(self._ask_all, column)
                running = self._running()
                while running:
                    wait(running, return_when=FIRST_EXCEPTION)
                    running = self._running()  # also what these have submitted
                    for future in self._futures:
                        if future.done() and not future.cancelled():  # another thread has done it
                            future.result()
        finally:
            self._stop()

    def _submit(self, work: Callable[..., None], *arguments: Any) -> Future[None] | None:
        with suppress(RuntimeError):  # where nothing is asked any more
            future = self._pool.submit(work, *arguments)
            self._futures.append(future)
            return future
        return None

    def _running(self) -> list[Future[None]]:
        return [future for future in self._futures if not future.done()]

    def _say(self, column: Column, case: Case, verdict: Verdict, *, final: bool) -> None:
        with self._lock:
            for known in (self.verdicts, self._final)[: 1 + final]:
                known[column.peer.name][case.id] = verdict
            self._tell(column, case, final)

    def _stop(self) -> None:
        """Stop every process and thread."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        while running := self._running():
            with self._lock:
                askers = list(self._askers)
            for asker in askers:
                asker.kill()
            wait(running, timeout=0.05)
        for asker in self._askers:
            asker.stop()
        for nursery in self._nurseries.values():
            nursery.stop()

    @contextmanager
    def _lent(self, column: Column) -> Iterator[Asker]:
        """Lend a process that may have been asked other cases before."""
        with self._lock:
            found = next((own for own in self._idle if own[0] is column), None)
            if found is not None:
                self._idle.remove(found)
            asker = Asker(column.launch, self._allowance) if found is None else found[1]
            self._askers.add(asker)
        try:
            yield asker
        finally:
            with self._lock:
                self._idle.append((column, asker))
                old = self._idle.pop(0)[1] if len(self._idle) > self._most_idle else None
            if old is not None:
                old.stop()

    @contextmanager
    def _fresh(self, column: Column, perturbation: int | None) -> Iterator[Asker]:
        asker = Asker(column.launch, self._allowance, perturbation, self._nursery(column))
        with self._lock:
            self._askers.add(asker)
        try:
            yield asker
        finally:
            asker.stop()
            with self._lock:
                self._askers.discard(asker)

    def _nursery(self, column: Column) -> Nursery | None:
        """Return what forks the fresh processes of a column, without importing the implementation."""
        if not column.launch.forks:
            return None
        with self._lock:
            if column.peer.name not in self._nurseries and not self._stopped.is_set():
                launch = column.launch
                self._nurseries[column.peer.name] = Nursery(launch.command, self._allowance, launch.variables)
            return self._nurseries.get(column.peer.name)

    def _ask_all(self, column: Column) -> None:
        """Ask a column every case; what comes after an answer belongs to the case of that answer."""
        with self._lent(column) as asker:
            before: Told | None = None
            for case in self.cases:
                self._catch_up(column)
                late = asker.after()
                running = asker.running
                found = self._judged(column, asker, case)
                if before is not None:
                    if running and not asker.running and not before[1].is_finding:
                        before = (
                            before[0],
                            *self._alone(column, before[0], None),
                        )  # its end may have been late
                    self._told(column, before, late)
                before = case, *found
            if before is not None:
                self._told(column, before, asker.finish())

    def _judged(self, column: Column, asker: Asker, case: Case) -> tuple[Verdict, Outcome]:
        if self._stopped.is_set():
            raise _Stopped
        if case.format not in column.peer.formats:
            outcome = Outcome(kind="not applicable", text=f"it does not read {case.format}")
        else:
            outcome = asker.ask(case)
            if self._stopped.is_set():  # which has killed it
                raise _Stopped
        return judge(case, outcome, lambda path: self._rerun(case, path)), outcome

    def _told(self, column: Column, found: Told, late: Outcome | None) -> None:
        case, verdict, outcome = found if late is None else (found[0], *_ended(found[0], late))
        self._say(column, case, verdict, final=not verdict.is_finding)
        if verdict.is_finding:
            found_again = self._submit(self._confirm, column, case, verdict, outcome)
            if found_again is not None:
                self._waiting[column.peer.name].append((found_again, (column, case, verdict, outcome)))

    def _catch_up(self, column: Column) -> None:
        """Confirm the oldest findings that wait for a thread: an interrupt leaves few of them."""
        waiting = self._waiting[column.peer.name]
        while len(waiting) > _MOST_WAITING:
            future, finding = waiting.popleft()
            if future.cancel():
                self._confirm(*finding)

    def _confirm(self, column: Column, case: Case, verdict: Verdict, outcome: Outcome) -> None:
        if not self._says_nothing(column, case, verdict):
            verdict = confirmed(verdict, outcome, lambda fill: self._alone(column, case, fill))
            if verdict.counts and case.record is not None and self._shrink_seconds > 0:
                verdict = replace(verdict, shrunk=self._shrunk(column, case, verdict))
        self._say(column, case, verdict, final=True)

    def _says_nothing(self, column: Column, case: Case, verdict: Verdict) -> bool:
        """Whether the baseline of a rejection is known to fail, so that the rejection will not count."""
        baseline = None if case.baseline is None else self._final[column.peer.name].get(case.baseline)
        return verdict.stage is not None and baseline is not None and baseline.word is not Word.AGREES

    def _alone(self, column: Column, case: Case, perturbation: int | None) -> tuple[Verdict, Outcome]:
        """Ask a case in a fresh process, given all the time that it needs after its answer."""
        with self._fresh(column, perturbation) as asker:
            found = self._judged(column, asker, case)
            late = asker.finish()
            return found if late is None else _ended(case, late)

    def _shrunk(self, column: Column, case: Case, verdict: Verdict) -> Record | None:
        """Return the smallest record that does the same, also alone."""
        with self._lent(column) as asker:

            def does_the_same(smaller: Case) -> bool:
                found, _ = self._judged(column, asker, smaller)
                if (late := asker.after()) is not None:
                    found, _ = _ended(smaller, late)
                if found.kind != verdict.kind and verdict.word is Word.CRASH:  # it may die after its answer
                    found, _ = self._alone(column, smaller, PERTURBATIONS[0])
                return found.kind == verdict.kind

            smallest = shrunk(case, does_the_same, self._shrink_seconds)
        if smallest is None:
            return None
        alone = [self._alone(column, smallest, fill)[0].kind for fill in PERTURBATIONS]
        return smallest.record if set(alone) == {verdict.kind} else None

    def _rerun(self, case: Case, path: Path) -> Outcome | None:
        """Run what was made of a case on the first runtime that was right on it."""
        format_ = "ir" if path.suffix == ".xml" else "onnx"
        for column in self.columns:
            verdict = self.verdicts[column.peer.name].get(case.id)
            right = verdict is not None and verdict.word is Word.AGREES
            if column.runs and right and format_ in column.peer.formats:
                with self._lent(column) as asker:
                    outcome = asker.ask(case, path)
                    outcome = asker.after() or outcome
                if self._stopped.is_set():  # which has killed it
                    raise _Stopped
                return outcome
        return None


def _ended(case: Case, late: Outcome) -> tuple[Verdict, Outcome]:
    """Return what is said of a case after whose answer something came."""
    outcome = replace(late, text=f"after its answer: {late.text}")
    return judge(case, outcome, lambda _: None), outcome


def settled(cases: Iterable[Case], verdicts: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """Return the verdicts of a column; rejections count only where the baseline of the case passes."""
    found = dict(verdicts)
    for case in cases:
        verdict = found.get(case.id)
        if verdict is None or case.baseline is None or verdict.stage is None:
            continue
        baseline = verdicts.get(case.baseline)
        if baseline is None or baseline.word is not Word.AGREES:
            said = "was not asked" if baseline is None else f"is {baseline.word}"
            detail = f"its baseline {case.baseline} {said}: {verdict.detail}"
            found[case.id] = Verdict(word=Word.NO_RESULT, detail=detail)
    return found


def confirmed(verdict: Verdict, outcome: Outcome, again: Callable[[int], tuple[Verdict, Outcome]]) -> Verdict:
    """Ask a finding again, alone, with each of the perturbations, and return what is then to be said."""
    alone = [again(fill) for fill in PERTURBATIONS]
    repeated = sum(found.kind == verdict.kind for found, _ in alone)
    if repeated == SETTLED:
        moves = any(not same_values(outcome, other) for _, other in alone)
        detail = verdict.detail
        if moves and verdict.word in (Word.DIFFERS, Word.WRONGLY_ACCEPTS):
            detail += "; the values change with what is in memory: it reads outside the tensor"
        return replace(verdict, detail=detail, confirmed=SETTLED)
    first, second = (found for found, _ in alone)
    if first.kind == second.kind:
        # Damage of a case before it, most likely.
        return replace(first, confirmed=SETTLED, unstable=f"{_said(verdict)} once, after other cases")
    return replace(verdict, confirmed=repeated, unstable=f"alone: {_said(first)}, then {_said(second)}")


def _said(verdict: Verdict) -> str:
    return f"{verdict.word} ({verdict.signal})" if verdict.signal else verdict.word.value
