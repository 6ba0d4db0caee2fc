"""Suggest a fix for the findings of a check, by trying it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from splitops.errors import SplitError
from splitops.models.check.findings import Finding
from splitops.models.check.targets import Target, load_targets, select_targets
from splitops.models.fix import fix_with_report, installed_runtimes


class Suggestion(NamedTuple):
    """The number of findings that a fix would resolve, and the runtimes to pass to ``splitops fix --for``."""

    fixable: int = 0
    runtimes: tuple[str, ...] = ()
    partial: bool = False
    """Whether errors would be left."""


def suggest(
    model: Path, findings: Sequence[Finding], targets: Sequence[Target] = (), *, allow_links: bool = False
) -> Suggestion:
    """Try to fix a model for ``targets``, and return a suggestion based on the result.

    Without targets, fix it for the runtimes whose limits in ``findings`` can all be fixed, but leave out
    runtimes with unfixable splits. If none remains, fix it for the installed runtime.
    """
    named = targets or load_targets(_find_fixable_runtimes(findings) or installed_runtimes(model))
    try:
        report = fix_with_report(model, named, partial=True, allow_links=allow_links)
        if not targets and report.unfixable:
            # A runtime without a correct rewrite must not prevent the fixes for other runtimes.
            blamed = {reason.code.partition(".")[0] for split in report.unfixable for reason in split.reasons}
            rest = [target for target in named if target.name not in blamed]
            named = load_targets(rest or installed_runtimes(model))
            report = fix_with_report(model, named, partial=True, allow_links=allow_links)
    except SplitError:  # the model cannot be read, or is a single layer
        return Suggestion()
    cured = {
        (reason.code, split.where.graph, split.where.node)
        for split in report.rewritten
        for reason in split.reasons
    }
    fixed = [f for f in findings if (f.code, f.where.graph, f.where.node) in cured]
    needed = {finding.runtime for finding in fixed}
    kept = targets or [target for target in named if target.name in needed]
    return Suggestion(len(fixed), tuple(map(str, kept)), report.error is not None)


def _find_fixable_runtimes(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the runtimes for which every limit in ``findings`` has a fix."""
    with_forms = {limit.code for target in select_targets(()) for limit in target.limits if limit.is_fixable}
    found: dict[str, bool] = {}
    for finding in findings:
        if finding.runtime is not None:
            found[finding.runtime] = found.get(finding.runtime, True) and finding.code in with_forms
    return tuple(name for name, curable in found.items() if curable)
