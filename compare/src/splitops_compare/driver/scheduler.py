"""Runs all cases in all implementations in a thread pool, and confirms and shrinks the findings."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from splitops_compare.data import REQUIRED_REPEATS, Case, CaseSpec, Outcome, Verdict, VerdictKind
from splitops_compare.driver.case_runner import PERTURBATIONS, CaseRunner
from splitops_compare.driver.discovery import Implementation
from splitops_compare.driver.judge import have_same_values, judge
from splitops_compare.driver.process import ForkServer, ResourceLimits
from splitops_compare.driver.shrink import shrink

Verdicts = dict[str, dict[str, Verdict]]
"""The verdicts, keyed by implementation name and then by case id."""

JudgedCase = tuple[Case, Verdict, Outcome]
_Waiting = tuple["Future[None]", tuple[Implementation, Case, Verdict, Outcome]]
_MAX_WAITING: Final = 8
"""Maximum number of findings of an implementation that wait for a thread before its next case runs."""

Listener = Callable[[Implementation, Case, bool], None]
"""Called for each new verdict with its implementation, its case, and whether the verdict is final."""


class _Stopped(Exception):  # noqa: N818 - not an error
    """The comparison was stopped."""


class ComparisonRun:
    """One comparison, with its verdicts so far. A finding is unconfirmed until it has been repeated.

    Args:
        cases: the cases to run.
        implementations: the implementations to run them in.
        limits: time and memory of each process.
        shrink_seconds: time to shrink each finding. 0 disables it.
        jobs: number of threads.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        implementations: Sequence[Implementation],
        limits: ResourceLimits,
        *,
        shrink_seconds: float,
        jobs: int,
    ) -> None:
        self.cases = cases
        self.implementations = implementations
        self.verdicts: Verdicts = {one.info.name: {} for one in implementations}
        self._final: Verdicts = {one.info.name: {} for one in implementations}
        self._limits = limits
        self._shrink_seconds = shrink_seconds
        self._listener: Listener = lambda implementation, case, is_final: None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._runners: set[CaseRunner] = set()
        self._idle: list[tuple[Implementation, CaseRunner]] = []
        self._servers: dict[str, ForkServer] = {}
        self._max_idle = 2 * jobs
        self._futures: list[Future[None]] = []
        self._waiting: dict[str, deque[_Waiting]] = {one.info.name: deque() for one in implementations}
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="splitops-compare")

    def run(self, listener: Listener) -> None:
        """Run all cases, in converters and simplifiers last. After an interrupt, the verdicts are kept."""
        self._listener = listener
        try:
            for is_transformer in (False, True):
                for implementation in self.implementations:
                    if implementation.is_transformer is is_transformer:
                        self._submit(self._run_all, implementation)
                running = self._list_running()
                while running:
                    wait(running, return_when=FIRST_EXCEPTION)
                    running = self._list_running()  # includes the futures that these have submitted
                    for future in self._futures:
                        if future.done() and not future.cancelled():  # _catch_up does the work of those
                            future.result()
        finally:
            self._stop()

    def _submit(self, work: Callable[..., None], *arguments: Any) -> Future[None] | None:
        with suppress(RuntimeError):  # the pool is shut down
            future = self._pool.submit(work, *arguments)
            self._futures.append(future)
            return future
        return None

    def _list_running(self) -> list[Future[None]]:
        return [future for future in self._futures if not future.done()]

    def _record(
        self, implementation: Implementation, case: Case, verdict: Verdict, *, is_final: bool
    ) -> None:
        with self._lock:
            for verdicts in (self.verdicts, self._final)[: 1 + is_final]:
                verdicts[implementation.info.name][case.id] = verdict
            self._listener(implementation, case, is_final)

    def _stop(self) -> None:
        """Stop every process and thread."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        while running := self._list_running():
            with self._lock:
                runners = list(self._runners)
            for runner in runners:
                runner.kill()
            wait(running, timeout=0.05)
        for runner in self._runners:
            runner.stop()
        for server in self._servers.values():
            server.stop()

    @contextmanager
    def _lend_runner(self, implementation: Implementation) -> Iterator[CaseRunner]:
        """Lend a runner whose process may have run other cases before."""
        with self._lock:
            idle = next((pair for pair in self._idle if pair[0] is implementation), None)
            if idle is not None:
                self._idle.remove(idle)
            runner = CaseRunner(implementation.launch, self._limits) if idle is None else idle[1]
            self._runners.add(runner)
        try:
            yield runner
        finally:
            with self._lock:
                self._idle.append((implementation, runner))
                oldest = self._idle.pop(0)[1] if len(self._idle) > self._max_idle else None
            if oldest is not None:
                oldest.stop()

    @contextmanager
    def _make_runner(self, implementation: Implementation, perturbation: int | None) -> Iterator[CaseRunner]:
        """Make a runner with a new process, and stop it at the end of the block."""
        server = self._start_fork_server(implementation)
        runner = CaseRunner(implementation.launch, self._limits, perturbation, server)
        with self._lock:
            self._runners.add(runner)
        try:
            yield runner
        finally:
            runner.stop()
            with self._lock:
                self._runners.discard(runner)

    def _start_fork_server(self, implementation: Implementation) -> ForkServer | None:
        """Return the fork server of an implementation, started on first use, or None if it has none."""
        name, launch = implementation.info.name, implementation.launch
        if not launch.can_fork:
            return None
        with self._lock:
            if name not in self._servers and not self._stopped.is_set():
                self._servers[name] = ForkServer(launch.command, self._limits, launch.variables)
            return self._servers.get(name)

    def _run_all(self, implementation: Implementation) -> None:
        """Run every case in an implementation. A failure after a response counts for its case."""
        with self._lend_runner(implementation) as runner:
            previous: JudgedCase | None = None
            for case in self.cases:
                self._catch_up(implementation)
                late = runner.take_late_outcome()
                was_running = runner.is_running
                judged = self._run_case(implementation, runner, case)
                if previous is not None:
                    has_ended = was_running and not runner.is_running
                    if has_ended and not previous[1].is_finding:  # the previous case may have killed it
                        previous = previous[0], *self._run_alone(implementation, previous[0], None)
                    self._settle(implementation, previous, late)
                previous = case, *judged
            if previous is not None:
                self._settle(implementation, previous, runner.finish())

    def _run_case(
        self, implementation: Implementation, runner: CaseRunner, case: Case
    ) -> tuple[Verdict, Outcome]:
        if self._stopped.is_set():
            raise _Stopped
        if case.format not in implementation.info.formats:
            outcome = Outcome(kind="not applicable", text=f"it does not read {case.format}")
        else:
            outcome = runner.run(case)
            if self._stopped.is_set():  # _stop has killed the process
                raise _Stopped
        return judge(case, outcome, lambda path: self._rerun(case, path)), outcome

    def _settle(self, implementation: Implementation, judged: JudgedCase, late: Outcome | None) -> None:
        """Record the verdict on a case or on its ``late`` outcome. Submit the confirmation of a finding."""
        case, verdict, outcome = judged if late is None else (judged[0], *_judge_late(judged[0], late))
        self._record(implementation, case, verdict, is_final=not verdict.is_finding)
        if verdict.is_finding:
            finding = implementation, case, verdict, outcome
            confirmation = self._submit(self._confirm, *finding)
            if confirmation is not None:
                self._waiting[implementation.info.name].append((confirmation, finding))

    def _catch_up(self, implementation: Implementation) -> None:
        """Confirm the oldest waiting findings in this thread, so that an interrupt leaves few of them."""
        waiting = self._waiting[implementation.info.name]
        while len(waiting) > _MAX_WAITING:
            future, finding = waiting.popleft()
            if future.cancel():
                self._confirm(*finding)

    def _confirm(
        self, implementation: Implementation, case: Case, verdict: Verdict, outcome: Outcome
    ) -> None:
        if not self._has_failed_baseline(implementation, case, verdict):
            verdict = confirm(verdict, outcome, lambda fill: self._run_alone(implementation, case, fill))
            if verdict.is_confirmed and case.spec is not None and self._shrink_seconds > 0:
                verdict = replace(verdict, shrunk=self._shrink(implementation, case, verdict))
        self._record(implementation, case, verdict, is_final=True)

    def _has_failed_baseline(self, implementation: Implementation, case: Case, verdict: Verdict) -> bool:
        """Return whether the baseline of a rejection failed, so that the rejection will not count."""
        final = self._final[implementation.info.name]
        baseline = None if case.baseline is None else final.get(case.baseline)
        return verdict.stage is not None and baseline is not None and baseline.kind is not VerdictKind.AGREES

    def _run_alone(
        self, implementation: Implementation, case: Case, perturbation: int | None
    ) -> tuple[Verdict, Outcome]:
        """Run a case in a new process, wait for its exit, and return the verdict and the outcome."""
        with self._make_runner(implementation, perturbation) as runner:
            judged = self._run_case(implementation, runner, case)
            late = runner.finish()
            return judged if late is None else _judge_late(case, late)

    def _shrink(self, implementation: Implementation, case: Case, verdict: Verdict) -> CaseSpec | None:
        """Return the smallest spec found with the same verdict, or None. New processes confirm it."""
        with self._lend_runner(implementation) as runner:

            def has_same_verdict(smaller: Case) -> bool:
                result, _ = self._run_case(implementation, runner, smaller)
                if (late := runner.take_late_outcome()) is not None:
                    result, _ = _judge_late(smaller, late)
                # The process may crash only when it exits.
                if result.identity != verdict.identity and verdict.kind is VerdictKind.CRASH:
                    result, _ = self._run_alone(implementation, smaller, PERTURBATIONS[0])
                return result.identity == verdict.identity

            smallest = shrink(case, has_same_verdict, self._shrink_seconds)
        if smallest is None:
            return None
        identities = {self._run_alone(implementation, smallest, fill)[0].identity for fill in PERTURBATIONS}
        return smallest.spec if identities == {verdict.identity} else None

    def _rerun(self, case: Case, path: Path) -> Outcome | None:
        """Run a written model on the first runtime that reads it and agrees on the case, or return None."""
        format_ = "ir" if path.suffix == ".xml" else "onnx"
        for implementation in self.implementations:
            verdict = self.verdicts[implementation.info.name].get(case.id)
            agrees = verdict is not None and verdict.kind is VerdictKind.AGREES
            if implementation.is_runtime and agrees and format_ in implementation.info.formats:
                with self._lend_runner(implementation) as runner:
                    outcome = runner.run(case, path)
                    outcome = runner.take_late_outcome() or outcome
                if self._stopped.is_set():  # _stop has killed the process
                    raise _Stopped
                return outcome
        return None


def _judge_late(case: Case, late: Outcome) -> tuple[Verdict, Outcome]:
    """Judge a case by what its process did after the response. Return the verdict and the outcome."""
    outcome = replace(late, text=f"after its response: {late.text}")
    return judge(case, outcome, lambda _: None), outcome


def resolve_baselines(cases: Iterable[Case], verdicts: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """Return the verdicts, with rejections replaced by "no result" if the baseline failed or did not run."""
    resolved = dict(verdicts)
    for case in cases:
        verdict = resolved.get(case.id)
        if verdict is None or case.baseline is None or verdict.stage is None:
            continue
        baseline = verdicts.get(case.baseline)
        if baseline is None or baseline.kind is not VerdictKind.AGREES:
            state = "did not run" if baseline is None else f"is {baseline.kind}"
            detail = f"its baseline {case.baseline} {state}: {verdict.detail}"
            resolved[case.id] = Verdict(kind=VerdictKind.NO_RESULT, detail=detail)
    return resolved


def confirm(
    verdict: Verdict, outcome: Outcome, run_alone: Callable[[int], tuple[Verdict, Outcome]]
) -> Verdict:
    """Repeat a finding in a new process with each perturbation, and return the final verdict."""
    repeats = [run_alone(fill) for fill in PERTURBATIONS]
    repeated = sum(repeat.identity == verdict.identity for repeat, _ in repeats)
    if repeated == REQUIRED_REPEATS:
        changes = any(not have_same_values(outcome, other) for _, other in repeats)
        detail = verdict.detail
        if changes and verdict.kind in (VerdictKind.DIFFERS, VerdictKind.WRONGLY_ACCEPTS):
            detail += "; the values change with the contents of new memory: it reads outside the tensor"
        return replace(verdict, detail=detail, confirmed=REQUIRED_REPEATS)
    first, second = (repeat for repeat, _ in repeats)
    if first.identity == second.identity:
        # An earlier case has probably damaged the first process.
        unstable = f"{_format_verdict(verdict)} once, after other cases"
        return replace(first, confirmed=REQUIRED_REPEATS, unstable=unstable)
    unstable = f"alone: {_format_verdict(first)}, then {_format_verdict(second)}"
    return replace(verdict, confirmed=repeated, unstable=unstable)


def _format_verdict(verdict: Verdict) -> str:
    return f"{verdict.kind} ({verdict.signal})" if verdict.signal else verdict.kind.value
