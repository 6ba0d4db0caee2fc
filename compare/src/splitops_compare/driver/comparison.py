"""``splitops_compare.compare``: finds the implementations, runs the cases and makes the report."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import splitops
from splitops.errors import count_of, shown
from splitops.extension import report_progress
from splitops.models.check import LIMITS
from splitops_compare.cases import build_case, find_case, generate_cases, list_cases, make_entry
from splitops_compare.data import (
    Case,
    CaseResult,
    CompareError,
    ComparisonReport,
    ImplementationInfo,
    State,
    Verdict,
    VerdictKind,
)
from splitops_compare.driver.discovery import Implementation, start_implementations
from splitops_compare.driver.judge import sample_expected
from splitops_compare.driver.process import ResourceLimits, make_network_prefix
from splitops_compare.driver.scheduler import ComparisonRun, resolve_baselines
from splitops_compare.driver.user_models import make_model_cases

if TYPE_CHECKING:
    from splitops_compare.driver.user_models import AnyModel

_MAX_JOBS: Final = 8


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
    report_line: Callable[[str], None] | None = None,
) -> ComparisonReport:
    """Compare implementations of the split operators with their specification.

    Each implementation runs in separate processes, so it may crash or hang. A disagreement is a finding
    once two new processes have repeated it. It is then shrunk to the smallest case found that shows it.

    Args:
        implementations: names, such as ``"onnxruntime"``. None compares all that are installed, or none of
            them if there are ``commands``.
        operators: operators to compare, such as ``"Split-18"`` or ``"VariadicSplit"``. Empty compares all.
        cases: ids of cases. Empty runs all listed cases. The baselines of the cases run, too.
        generate: number of random cases to add, named ``"generated/SEED/INDEX"``. With ``operators``, only
            those of these operators run.
        seed: seed of the random cases, which are the same for the same releases of splitops and
            splitops-compare.
        model: a model to run instead of the listed cases: each of its splits, if its sizes and lengths can
            be inferred from the inputs, and the whole model.
        inputs: inputs of the model: arrays by name. None generates them.
        commands: executables that follow the protocol of ``schemas/messages.json``, keyed by reported name.
        pythons: pairs of an adapter and the Python of another environment, which is compared too.
        settings: pairs of an adapter and values of its settings, which are compared too.
        seconds: time limit for one case.
        memory: limit of the resident memory of an implementation, in bytes.
        shrink_seconds: time to shrink each finding. 0 disables it.
        jobs: number of threads that run implementations. None is the number of available cores, at most 8.
        allow_links: for a path, whether links to the model's other files may lead out of its folder, as in
            :func:`splitops.load`.
        report_line: called with one line about each implementation when it is done.

    Returns:
        The report. After Ctrl-C it has the verdicts so far, and ``environment["stopped"]`` is True.

    Raises:
        CompareError: an implementation, setting, case or operator does not exist, nothing is installed, or
            the system is not Linux.
        ModelError: the model is malformed, or no inputs can be generated for it.
        RuleError: a split of the model breaks a rule.

    Examples:
        >>> report = splitops_compare.compare(["onnxruntime"], operators=["Split-18"])  # doctest: +SKIP
        >>> [result.id for result, info, verdict in report.findings]  # doctest: +SKIP
        ['split-18/ceil/5-into-4/float32/static', ...]
    """
    if model is None:
        chosen = choose_cases(operators, cases, generate, seed)
    else:
        chosen = make_model_cases(model, inputs, allow_links=allow_links)
    if not hasattr(os, "sched_getaffinity"):
        raise CompareError(f"comparisons run only on Linux, not on {platform.system()}")
    jobs = jobs or min(_MAX_JOBS, len(os.sched_getaffinity(0)))
    limits = ResourceLimits(seconds=seconds, memory=memory)
    started, failed = start_implementations(limits, implementations, commands, pythons, settings, jobs=jobs)
    if not started and not failed:
        raise CompareError("no implementation is installed: pip install 'splitops-compare[runtimes]'")
    run = ComparisonRun(chosen, started, limits, shrink_seconds=shrink_seconds, jobs=jobs)
    return run_comparison(run, failed, report_line)


def choose_cases(operators: Sequence[str], ids: Sequence[str], generate: int, seed: int) -> tuple[Case, ...]:
    """Build the requested cases and their baselines.

    Raises:
        CompareError: a case does not exist, or none of the cases is of a requested operator.
    """
    entries = {name: find_case(name) for name in ids} if ids else dict(list_cases())
    if generate:
        entries |= generate_cases(generate, seed)
    built = {name: build_case(entry) for name, entry in entries.items()}
    for operator in operators:
        if not any(_is_of_operator(case, operator) for case in built.values()):
            raise CompareError(f"there is no case of an operator {shown(operator)}")
    chosen = [
        case
        for case in built.values()
        if not operators or any(_is_of_operator(case, operator) for operator in operators)
    ]
    baselines = {case.baseline: entries[case.id].baseline for case in chosen}
    missing = sorted({name for name in baselines if name is not None} - {case.id for case in chosen})
    return (
        *chosen,
        *(build_case(make_entry(spec)) for name in missing if (spec := baselines[name]) is not None),
    )


def _is_of_operator(case: Case, operator: str) -> bool:
    """Return whether a case tests ``operator``, a name with or without a version and a domain."""
    full = case.operator
    bare = full.rpartition(":")[2]
    return operator in (full, bare, full.rpartition("-")[0], bare.rpartition("-")[0])


def run_comparison(
    run: ComparisonRun,
    failed: Sequence[ImplementationInfo] = (),
    report_line: Callable[[str], None] | None = None,
) -> ComparisonReport:
    """Run a comparison, and make its report, which includes the implementations that ``failed`` to start."""
    started = datetime.now(UTC)
    stopped = _run_all(run, report_line or (lambda line: None))
    environment = {
        "splitops": splitops.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "time": started.isoformat(timespec="seconds"),
        "network": not make_network_prefix(),
        "stopped": stopped,
    }
    verdicts = {
        one.info.name: resolve_baselines(run.cases, run.verdicts[one.info.name])
        for one in run.implementations
    }
    results = tuple(_make_result(case, run.implementations, verdicts) for case in run.cases)
    infos = (*(_update_state(one.info, results) for one in run.implementations), *failed)
    return ComparisonReport(environment=environment, implementations=infos, cases=results)


def _run_all(run: ComparisonRun, report_line: Callable[[str], None]) -> bool:
    """Run all cases, report the progress, and return whether the run was interrupted."""
    started = time.monotonic()
    left = {one.info.name: len(run.cases) for one in run.implementations}
    total = sum(left.values())

    def report_verdict(implementation: Implementation, case: Case, is_final: bool) -> None:
        info = implementation.info
        left[info.name] -= is_final
        update(total - sum(left.values()), f"{info.name} {case.id}")
        if is_final and not left[info.name]:
            seconds = time.monotonic() - started
            report_line(_format_summary(info, run.cases, run.verdicts[info.name], seconds))

    try:
        with report_progress("compare", total) as update:
            run.run(report_verdict)
    except KeyboardInterrupt:
        return True
    return False


def _format_summary(
    info: ImplementationInfo, cases: Sequence[Case], verdicts: Mapping[str, Verdict], seconds: float
) -> str:
    found = sum(verdict.is_confirmed for verdict in resolve_baselines(cases, verdicts).values())
    numbers = f"{count_of(len(cases), 'case')}, {count_of(found, 'finding')}"
    return f"{info.name} {next(iter(info.versions.values()), '')}: {numbers}, after {seconds:.0f} s"


def _make_result(
    case: Case, implementations: Sequence[Implementation], verdicts: Mapping[str, Mapping[str, Verdict]]
) -> CaseResult:
    of_case = {}
    for implementation in implementations:
        info = implementation.info
        verdict = verdicts[info.name].get(case.id)
        if verdict is not None:
            limit = _find_limit(case, info.adapter) if verdict.is_finding else None
            of_case[info.name] = replace(verdict, limit=limit)
    return CaseResult(
        id=case.id,
        operator=case.operator,
        format=case.format,
        rule=case.rule,
        title=case.title,
        valid=case.is_valid,
        spec=case.spec,
        expected=sample_expected(case),
        baseline=case.baseline,
        verdicts=of_case,
    )


def _find_limit(case: Case, adapter: str) -> str | None:
    """Return the code of the runtime's limit in ``splitops check`` whose evidence is this case, or None."""
    for limit in LIMITS:
        if limit.evidence == case.id and limit.runtime in (adapter, adapter.partition("_")[0]):
            return limit.code
    return None


def _update_state(info: ImplementationInfo, results: Sequence[CaseResult]) -> ImplementationInfo:
    """Return the info, with the state "no-result" if valid cases apply to it and none of them passed."""
    kinds = [
        result.verdicts[info.name].kind for result in results if result.valid and info.name in result.verdicts
    ]
    ran = [kind for kind in kinds if kind is not VerdictKind.NOT_APPLICABLE]
    if ran and VerdictKind.AGREES not in ran:
        return replace(info, state=State.NO_RESULT, detail="it fails every valid case")
    return info
